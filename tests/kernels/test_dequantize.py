"""The torch twin against numpy, value by value and bit by bit. Numbers are spelled out from the specifications here."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch

from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import PackedWeight, pack_codes
from tests.tables import each_row

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E2M1 = np.concatenate([E2M1, -E2M1])


def dequantized(code: str, bits: int, values, scales, **more) -> torch.Tensor:
    """A weight whose codes have these values. more: `group_size` and whatever else a PackedWeight has."""
    values = np.asarray(values)
    parts = {"group_size": 0, "codes": pack_codes(torch.tensor(values, dtype=torch.uint8), bits)} | more
    weight: Any = {"code": code, "bits": bits, "shape": values.shape, "scales": torch.as_tensor(scales), **parts}
    return dequantize_torch(PackedWeight(**weight))


def same_bits(found: torch.Tensor, expected: np.ndarray) -> None:
    """Equal to the bit, so that -0 is not 0; all NaN are one."""
    with np.errstate(over="ignore"):
        expected = expected.astype(np.float32)
    found_array = found.numpy()
    assert np.array_equal(np.isnan(found_array), np.isnan(expected))
    there = ~np.isnan(expected)
    assert np.array_equal(found_array.view(np.int32)[there], expected.view(np.int32)[there])


def minifloat(code: int, exponent_bits: int, mantissa_bits: int, *, infinities: bool) -> float:
    """A sign-exponent-mantissa number by the OCP 8-bit floating point specification 1.0, in Python's own floats."""
    sign = -1.0 if code >> (exponent_bits + mantissa_bits) else 1.0
    exponent = code >> mantissa_bits & (2**exponent_bits - 1)
    mantissa = code & (2**mantissa_bits - 1)
    bias, top = 2 ** (exponent_bits - 1) - 1, 2**exponent_bits - 1
    if infinities and exponent == top:
        return sign * float("inf") if mantissa == 0 else float("nan")
    if not infinities and exponent == top and mantissa == 2**mantissa_bits - 1:
        return float("nan")
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)


FP8 = {
    "e4m3": np.array([minifloat(code, 4, 3, infinities=False) for code in range(256)]),
    "e5m2": np.array([minifloat(code, 5, 2, infinities=True) for code in range(256)]),
}


def test_the_oracle_knows_the_corners_of_the_specification():
    assert np.nanmax(FP8["e4m3"]) == 448
    assert FP8["e4m3"][1] == 2.0**-9
    assert np.nanmax(FP8["e5m2"][np.isfinite(FP8["e5m2"])]) == 57344
    assert [minifloat(code, 2, 1, infinities=False) for code in range(7)] == list(E2M1[:7])


@each_row("bits", range(2, 9))
@each_row(("rows", "columns", "group_size"), [(1, 32, 32), (5, 96, 8), (3, 61, 0)])
def test_integer_weights_are_code_minus_middle_times_scale(bits, rows, columns, group_size):
    random = np.random.default_rng(bits)
    values = random.integers(0, 2**bits, (rows, columns))
    groups = columns // group_size if group_size else 1
    scales = torch.tensor(random.normal(size=(rows, groups))).bfloat16()
    expected = (values - 2 ** (bits - 1)) * np.repeat(scales.double().numpy(), columns // groups, axis=1)
    found = dequantized("int", bits, values, scales, group_size=group_size)
    assert np.array_equal(found.numpy(), expected.astype(np.float32))  # exact: 16 significant bits


@pytest.mark.parametrize("bits", range(2, 9))
def test_every_integer_code_meets_every_zero_point(bits):
    count = 2**bits
    values = np.tile(np.arange(count), (count + 1, 1))
    points = np.arange(count + 1)[:, None]  # GPTQ v1 can spell 2**bits
    zero_points = torch.tensor(points, dtype=torch.int16)
    found = dequantized("int", bits, values, torch.full((count + 1, 1), 0.75), zero_points=zero_points)
    assert np.array_equal(found.numpy(), (values - points) * 0.75)


def test_offsets_are_added_after_the_scale():
    values = np.tile(np.arange(32) % 16, (2, 1))
    scales, offsets = np.float32([[0.1], [0.3]]), np.float32([[-1.7], [2.0]])
    found = dequantized("int", 4, values, scales, offsets=torch.tensor(offsets))
    same_bits(found, values.astype(np.float32) * scales + offsets)


def test_act_order_takes_each_in_features_own_group():
    random = np.random.default_rng(0)
    values, g_idx = random.integers(0, 16, (4, 24)), random.permutation(np.arange(24) // 8)
    scales, zero_points = random.integers(1, 9, (4, 3)).astype(np.float32), random.integers(0, 16, (4, 3))
    order = {"zero_points": torch.tensor(zero_points, dtype=torch.uint8), "g_idx": torch.tensor(g_idx).int()}
    expected = [[(values[n, k] - zero_points[n, g]) * scales[n, g] for k, g in enumerate(g_idx)] for n in range(4)]
    assert dequantized("int", 4, values, scales, group_size=8, **order).tolist() == expected


def test_mxfp4_is_exact_for_every_code_and_exponent():
    values, exponents = np.tile(np.arange(16), (255, 2)), np.arange(255)[:, None]  # 255 is NaN
    found = dequantized("e2m1", 4, values, exponents.astype(np.uint8), group_size=32)
    same_bits(found, np.ldexp(E2M1[values], exponents - 127))


@pytest.mark.parametrize("code", ["e4m3", "e5m2"])
def test_mxfp8_is_exact_for_every_code_and_exponent(code):
    values, exponents = np.tile(np.arange(256), (256, 1)), np.tile(np.arange(256), (8, 1)).T  # 8 groups of 32
    scales = np.where(np.arange(256) == 255, np.nan, np.ldexp(1.0, np.arange(256) - 127))
    found = dequantized(code, 8, values, exponents.astype(np.uint8), group_size=32)
    same_bits(found, FP8[code][None, :] * scales[:, None])


@pytest.mark.parametrize("code", ["e4m3", "e5m2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_all_256_fp8_codes_in_blocks_with_ragged_edges(code, dtype):
    random = np.random.default_rng(1)
    values = np.stack([random.permutation(256) for _ in range(5)])
    scales = torch.tensor(random.uniform(0.01, 2, (3, 3))).to(dtype)
    each = [[scales.float().numpy()[n // 2, k // 100] for k in range(256)] for n in range(5)]
    found = dequantized(code, 8, values, scales, group_size=100, block_rows=2)
    same_bits(found, FP8[code][values].astype(np.float32) * np.array(each, dtype=np.float32))


@pytest.mark.parametrize("divides", [False, True])
def test_nvfp4_meets_every_positive_scale_and_the_tensors_own(divides):
    blocks, own = np.arange(127), np.float32(0.0371)  # the finite positive e4m3 codes
    codes = torch.tensor(blocks[:, None], dtype=torch.uint8).view(torch.float8_e4m3fn)
    values = np.tile(np.arange(16), (127, 1))
    tensor = {"tensor_scale": torch.tensor(own), "tensor_divides": divides}
    scales = FP8["e4m3"][blocks].astype(np.float32)
    scales = scales / own if divides else scales * own
    found = dequantized("e2m1", 4, values, codes, group_size=16, **tensor)
    same_bits(found, E2M1[None, :].astype(np.float32) * scales[:, None])


def test_nf4_levels_are_the_quantiles_of_a_normal_distribution():
    """The derivation of QLoRA: 8 quantiles above zero, 7 below, normalised; the published constants are float32."""
    offset, inverse = 0.9677083, NormalDist().inv_cdf
    above = [inverse(float(p)) for p in np.linspace(offset, 0.5, 9)[:-1]]
    below = [-inverse(float(p)) for p in np.linspace(offset, 0.5, 8)[:-1]]
    levels = np.sort([*above, 0.0, *below]) / max(above)
    found = dequantized("nf4", 4, [np.arange(16)], torch.tensor([[1.0, 2.0]]), group_size=8)
    assert np.abs(found.numpy()[0] - levels * np.repeat([1, 2], 8)).max() < 1e-6


def test_one_scale_for_the_whole_tensor():
    found = dequantized("e4m3", 8, np.arange(256).reshape(2, 128), torch.tensor([[0.25]]), block_rows=0)
    same_bits(found, FP8["e4m3"].reshape(2, 128) * 0.25)
