"""Small floats against independent oracles: every code, every exponent, and what the defining library writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from qualgate.quant.floating import FP8, cast_fp8, cast_mxfp4, cast_mxfp8, cast_nvfp4
from qualgate.quant.packing import quantize_weight
from qualgate.quant.recipes import parse_recipe
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import pack_codes
from tests.depth import examples

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
weights = st.integers(0, 2**32 - 1).map(
    lambda seed: torch.randn(4, 64, generator=torch.Generator().manual_seed(seed)) * 10.0 ** (seed % 13 - 6)
)


def numbers(element: str) -> np.ndarray:
    """The finite numbers of an 8-bit float, from its definition: sign, exponent, mantissa."""
    exponent_bits, mantissa_bits, bias = {"e4m3": (4, 3, 7), "e5m2": (5, 2, 15)}[element]
    values = []
    for code in range(128):
        exponent, mantissa = code >> mantissa_bits, code & (2**mantissa_bits - 1)
        if (element == "e4m3" and code == 127) or (element == "e5m2" and exponent == 2**exponent_bits - 1):
            continue  # NaN and infinity
        fraction = mantissa / 2**mantissa_bits
        values.append((fraction * 2.0 ** (1 - bias)) if exponent == 0 else (1 + fraction) * 2.0 ** (exponent - bias))
    return np.array(values)


def nearest(values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Codes of the nearest levels, the even one of two as near; the sign is left out."""
    distance = np.abs(np.abs(values)[..., None] - levels)
    return np.where(distance == distance.min(-1, keepdims=True), np.arange(len(levels)) % 2, 9).argmin(-1)


@pytest.mark.parametrize("element", ["e4m3", "e5m2"])
def test_every_fp8_number_comes_back_with_its_own_code(element):
    magnitudes = torch.tensor(numbers(element), dtype=torch.float32)
    weight = torch.cat([magnitudes, -magnitudes]).view(1, -1)
    codes, scales = cast_fp8(weight, element)
    assert scales.item() == 1.0  # the largest number is among them
    assert torch.equal(codes.view(FP8[element]).float(), weight)
    assert torch.equal(codes[0, : len(magnitudes)], torch.arange(len(magnitudes), dtype=torch.uint8))


@examples(30)
@given(weights, st.sampled_from(["e4m3", "e5m2"]), st.sampled_from(["", "tensor", "block"]))
def test_fp8_takes_the_nearest_number_of_its_scale(weight, element, granularity):
    codes, scales = cast_fp8(weight, element, granularity)
    levels = numbers(element)
    assert scales.shape == {"": (4, 1), "tensor": (1, 1), "block": (1, 1)}[granularity]
    absmax = weight.abs().amax(1, keepdim=True) if granularity == "" else weight.abs().max().view(1, 1)
    assert torch.equal(scales, absmax / float(levels.max()))
    scaled = (weight / scales).numpy()
    assert np.array_equal(codes.numpy() & 127, nearest(scaled.astype(np.float64), levels))
    assert np.array_equal(codes.numpy() >> 7, np.signbit(scaled))


def test_fp8_blocks_end_where_the_weight_does():
    weight = torch.randn(130, 200, generator=torch.Generator().manual_seed(0))
    codes, scales = cast_fp8(weight, "e4m3", "block")
    assert scales.shape == (2, 2)
    assert torch.equal(scales[1, 1], weight[128:, 128:].abs().max() / 448)
    alone, scale = cast_fp8(weight[128:, 128:], "e4m3", "tensor")
    assert torch.equal(codes[128:, 128:], alone)
    packed = quantize_weight(weight, parse_recipe({"method": "fp8", "granularity": "block"}), dtype=torch.float32)
    back = alone.view(torch.float8_e4m3fn).float() * scale
    assert torch.equal(dequantize_torch(packed)[128:, 128:], back)


@examples(30)
@given(weights)
def test_mxfp4_agrees_with_the_specification_in_float64(weight):
    codes, exponents = cast_mxfp4(weight)
    blocks = weight.double().numpy().reshape(4, 2, 32)
    shared = np.floor(np.log2(np.abs(blocks).max(-1))) - 2
    assert np.array_equal(exponents.numpy(), shared + 127)
    scaled = np.abs(blocks) / 2.0 ** shared[..., None]
    distance = np.abs(scaled[..., None] - E2M1)
    # Ties go to the even code, values over 6 to 6.
    expected = np.where(distance == distance.min(-1, keepdims=True), np.arange(8) % 2, 9).argmin(-1)
    expected = expected + 8 * np.signbit(blocks)
    assert np.array_equal(codes.numpy().reshape(4, 2, 32), expected)


def test_mxfp4_returns_every_code_at_every_exponent_to_the_bit():
    values = torch.tensor(np.concatenate([E2M1, -E2M1]), dtype=torch.float64).repeat(2)
    exponents = torch.arange(-127, 126)
    weight = (values * 2.0 ** exponents[:, None].double()).float()  # 6 * 2**125 is the largest float32 holds
    codes, shared = cast_mxfp4(weight)
    assert torch.equal(shared.flatten().long() - 127, exponents)
    assert torch.equal(codes, torch.arange(16, dtype=torch.uint8).repeat(len(exponents), 2))


@pytest.mark.parametrize(("largest", "floor", "rounded"), [(6.9, 0, 0), (7.0, 0, 1), (7.9, 0, 1), (5.0, 0, 0)])
def test_a_rounded_exponent_rises_where_seven_would_be_cut_to_six(largest, floor, rounded):
    weight = torch.full((1, 32), 1.0)
    weight[0, 3] = largest
    assert cast_mxfp4(weight)[1].item() - 127 == floor
    assert cast_mxfp4(weight, "rounded")[1].item() - 127 == rounded


@examples(30)
@given(weights, st.sampled_from(["", "rounded"]))
def test_mxfp8_agrees_with_the_specification_in_float64(weight, exponent):
    codes, exponents = cast_mxfp8(weight, exponent)
    blocks = weight.double().numpy().reshape(4, 2, 32)
    absmax = np.abs(blocks).max(-1)
    shared = np.floor(np.log2(absmax)) - 8
    if exponent == "rounded":
        shared += absmax >= 1.75 * 2.0 ** (shared + 8)
    assert np.array_equal(exponents.numpy(), shared + 127)
    expected = nearest(blocks / 2.0 ** shared[..., None], numbers("e4m3"))
    assert np.array_equal(codes.numpy().reshape(4, 2, 32) & 127, expected)


@examples(30)
@given(weights)
def test_nvfp4_scales_blocks_by_e4m3_and_the_tensor_by_float32(weight):
    codes, scales, tensor_scale = cast_nvfp4(weight)
    assert float(tensor_scale) == pytest.approx(448 * 6 / float(weight.abs().max()), rel=1e-6)
    blocks = weight.double().numpy().reshape(4, 4, 16)
    wanted = np.minimum(np.abs(blocks).max(-1) / 6 * float(tensor_scale), 448)
    levels = numbers("e4m3")
    step = np.abs(levels - wanted[..., None]).min(-1)
    assert (np.abs(scales.double().numpy() - wanted) <= step * (1 + 1e-5) + 1e-6 * wanted).all()
    scaled = blocks / (scales.double().numpy() / float(tensor_scale))[..., None]
    distance = np.abs(np.abs(scaled)[..., None] - E2M1)
    chosen = np.take_along_axis(distance, (codes.long().numpy().reshape(4, 4, 16) & 7)[..., None], -1)[..., 0]
    np.testing.assert_allclose(chosen, distance.min(-1), rtol=1e-5, atol=1e-6)


def test_nvfp4_scales_are_moved_only_where_the_weighted_error_falls():
    generator = torch.Generator().manual_seed(0)
    weight, importance = torch.randn(16, 64, generator=generator), torch.rand(64, generator=generator) ** 4

    def error(importance_used: torch.Tensor | None) -> torch.Tensor:
        recipe = parse_recipe("nvfp4")
        back = dequantize_torch(quantize_weight(weight, recipe, dtype=torch.float32, importance=importance_used))
        return ((back - weight).square() * importance).view(16, 4, 16).sum(-1)

    assert (error(importance) <= error(None) * (1 + 1e-6)).all()
    assert error(importance).sum() < 0.8 * error(None).sum()


def test_layers_that_servers_fuse_share_a_tensor_scale():
    generator = torch.Generator().manual_seed(0)
    one, other = torch.randn(8, 32, generator=generator), 3 * torch.randn(8, 32, generator=generator)
    absmax = torch.stack([one, other]).abs().max()
    scales = [float(cast_nvfp4(weight, None, absmax)[2]) for weight in (one, other)]
    assert scales == 2 * [pytest.approx(448 * 6 / float(absmax), rel=1e-6)]


def test_codes_and_scales_are_those_llm_compressor_writes():
    """Rows of a float16 weight, and what llm-compressor 0.14.0.1 made of them. Bit for bit."""
    rows = load_file(Path(__file__).parent / "fixtures" / "llmcompressor_rows.safetensors")
    weight = rows["weight"]
    codes, scales = cast_fp8(weight)
    assert torch.equal(codes, rows["fp8.codes"])
    assert torch.equal(scales, rows["fp8.scales"])
    codes, scales = cast_mxfp4(weight, "rounded")
    assert torch.equal(pack_codes(codes, 4), rows["mxfp4.codes"])
    assert torch.equal(scales, rows["mxfp4.scales"])
    codes, scales, tensor_scale = cast_nvfp4(weight, None, rows["fused_absmax"])
    assert torch.equal(pack_codes(codes, 4), rows["nvfp4.codes"])
    assert torch.equal(scales.view(torch.uint8), rows["nvfp4.scales"])
    assert torch.equal(tensor_scale.view(1), rows["nvfp4.tensor_scale"])
