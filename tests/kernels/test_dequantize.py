"""The torch twin against numpy, value by value and bit by bit. Numbers are spelled out from the specifications here."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import PackedWeight, pack_codes

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E2M1 = np.concatenate([E2M1, -E2M1])


def codes(values, bits: int) -> torch.Tensor:
    return pack_codes(torch.tensor(np.asarray(values), dtype=torch.uint8), bits)


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


@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize(("rows", "columns", "group_size"), [(1, 32, 32), (5, 96, 8), (3, 61, 0)])
def test_integer_weights_are_code_minus_middle_times_scale(bits, rows, columns, group_size):
    random = np.random.default_rng(bits)
    values = random.integers(0, 2**bits, (rows, columns))
    groups = columns // group_size if group_size else 1
    scales = torch.tensor(random.normal(size=(rows, groups))).bfloat16()
    weight = PackedWeight(
        code="int", bits=bits, shape=(rows, columns), group_size=group_size, codes=codes(values, bits), scales=scales
    )
    expected = (values - 2 ** (bits - 1)) * np.repeat(scales.double().numpy(), columns // groups, axis=1)
    assert np.array_equal(dequantize_torch(weight).numpy(), expected.astype(np.float32))  # exact: 16 significant bits


@pytest.mark.parametrize("bits", range(2, 9))
def test_every_integer_code_meets_every_zero_point(bits):
    count = 2**bits
    values = np.tile(np.arange(count), (count + 1, 1))
    zero_points = np.arange(count + 1)  # GPTQ v1 can spell 2**bits
    weight = PackedWeight(
        code="int",
        bits=bits,
        shape=(count + 1, count),
        group_size=0,
        codes=codes(values, bits),
        scales=torch.full((count + 1, 1), 0.75),
        zero_points=torch.tensor(zero_points[:, None], dtype=torch.int16),
    )
    assert np.array_equal(dequantize_torch(weight).numpy(), (values - zero_points[:, None]) * 0.75)


def test_offsets_are_added_after_the_scale():
    values = np.arange(32) % 16
    scales, offsets = np.float32([[0.1], [0.3]]), np.float32([[-1.7], [2.0]])
    weight = PackedWeight(
        code="int",
        bits=4,
        shape=(2, 32),
        group_size=0,
        codes=codes(np.tile(values, (2, 1)), 4),
        scales=torch.tensor(scales),
        offsets=torch.tensor(offsets),
    )
    same_bits(dequantize_torch(weight), values.astype(np.float32) * scales + offsets)


def test_act_order_takes_each_in_features_own_group():
    random = np.random.default_rng(0)
    values, g_idx = random.integers(0, 16, (4, 24)), random.permutation(np.arange(24) // 8)
    scales = random.integers(1, 9, (4, 3)).astype(np.float32)
    zero_points = random.integers(0, 16, (4, 3))
    weight = PackedWeight(
        code="int",
        bits=4,
        shape=(4, 24),
        group_size=8,
        codes=codes(values, 4),
        scales=torch.tensor(scales),
        zero_points=torch.tensor(zero_points, dtype=torch.uint8),
        g_idx=torch.tensor(g_idx, dtype=torch.int32),
    )
    expected = [[(values[n, k] - zero_points[n, g]) * scales[n, g] for k, g in enumerate(g_idx)] for n in range(4)]
    assert dequantize_torch(weight).tolist() == expected


def test_mxfp4_is_exact_for_every_code_and_exponent():
    values = np.tile(np.arange(16), 2)
    exponents = np.arange(255)  # 255 is NaN
    weight = PackedWeight(
        code="e2m1",
        bits=4,
        shape=(255, 32),
        group_size=32,
        codes=codes(np.tile(values, (255, 1)), 4),
        scales=torch.tensor(exponents[:, None], dtype=torch.uint8),
    )
    same_bits(dequantize_torch(weight), np.ldexp(E2M1[values][None, :], exponents[:, None] - 127))


@pytest.mark.parametrize("code", ["e4m3", "e5m2"])
def test_mxfp8_is_exact_for_every_code_and_exponent(code):
    exponents = np.tile(np.arange(256), (8, 1)).T  # 8 groups of 32 hold the 256 codes
    weight = PackedWeight(
        code=code,
        bits=8,
        shape=(256, 256),
        group_size=32,
        codes=codes(np.tile(np.arange(256), (256, 1)), 8),
        scales=torch.tensor(exponents, dtype=torch.uint8),
    )
    scales = np.where(np.arange(256) == 255, np.nan, np.ldexp(1.0, np.arange(256) - 127))
    same_bits(dequantize_torch(weight), FP8[code][None, :] * scales[:, None])


@pytest.mark.parametrize("code", ["e4m3", "e5m2"])
@pytest.mark.parametrize("scale_dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_all_256_fp8_codes_in_blocks_with_ragged_edges(code, scale_dtype):
    random = np.random.default_rng(1)
    values = np.stack([random.permutation(256) for _ in range(5)])
    scales = torch.tensor(random.uniform(0.01, 2, (3, 3))).to(scale_dtype)
    weight = PackedWeight(
        code=code, bits=8, shape=(5, 256), group_size=100, block_rows=2, codes=codes(values, 8), scales=scales
    )
    each = [[scales.float().numpy()[n // 2, k // 100] for k in range(256)] for n in range(5)]
    same_bits(dequantize_torch(weight), FP8[code][values].astype(np.float32) * np.array(each, dtype=np.float32))


@pytest.mark.parametrize("divides", [False, True])
def test_nvfp4_meets_every_positive_scale_and_the_tensors_own(divides):
    blocks = np.arange(127)  # the finite positive e4m3 codes
    tensor_scale = np.float32(0.0371)
    weight = PackedWeight(
        code="e2m1",
        bits=4,
        shape=(127, 16),
        group_size=16,
        codes=codes(np.tile(np.arange(16), (127, 1)), 4),
        scales=torch.tensor(blocks[:, None], dtype=torch.uint8).view(torch.float8_e4m3fn),
        tensor_scale=torch.tensor(tensor_scale),
        tensor_divides=divides,
    )
    scales = FP8["e4m3"][blocks].astype(np.float32)
    scales = scales / tensor_scale if divides else scales * tensor_scale
    same_bits(dequantize_torch(weight), E2M1[None, :].astype(np.float32) * scales[:, None])


def test_nf4_levels_are_the_quantiles_of_a_normal_distribution():
    """The derivation of QLoRA: 8 quantiles above zero, 7 below, normalised; the published constants are float32."""
    from scipy.stats import norm

    offset = 0.9677083
    above = norm.ppf(np.linspace(offset, 0.5, 9)[:-1])
    below = -norm.ppf(np.linspace(offset, 0.5, 8)[:-1])
    levels = np.sort(np.concatenate([above, [0.0], below]))
    levels = levels / levels.max()
    weight = PackedWeight(
        code="nf4",
        bits=4,
        shape=(1, 16),
        group_size=8,
        codes=codes([np.arange(16)], 4),
        scales=torch.tensor([[1.0, 2.0]]),
    )
    expected = levels * np.repeat([1, 2], 8)
    assert np.abs(dequantize_torch(weight).numpy()[0] - expected).max() < 1e-6


def test_one_scale_for_the_whole_tensor():
    weight = PackedWeight(
        code="e4m3",
        bits=8,
        shape=(2, 128),
        group_size=0,
        block_rows=0,
        codes=codes(np.arange(256).reshape(2, 128), 8),
        scales=torch.tensor([[0.25]]),
    )
    same_bits(dequantize_torch(weight), FP8["e4m3"].reshape(2, 128) * 0.25)
