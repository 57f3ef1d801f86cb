"""Stability counters find what was planted, and count nothing where nothing is."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from qualgate.engine.footprint import steadiness_of
from qualgate.quant import stability
from qualgate.quant.stability import (
    WeightStability,
    softmax_sum_error,
    stability_section,
    ulp,
    ulp_distance,
    weight_stability,
)
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import PackedWeight, pack_codes
from tests.kernels.weights import FORMATS


def int8(weight: torch.Tensor, scale: float = 0.01) -> PackedWeight:
    codes = ((weight / scale).round().clamp(-128, 127) + 128).to(torch.uint8)
    scales = torch.full((weight.shape[0], 1), scale, dtype=torch.float32)
    return PackedWeight(code="int", bits=8, shape=tuple(weight.shape), codes=codes, scales=scales, group_size=0)


def fp8(weight: torch.Tensor, scale: float = 1.0, code: str = "e4m3") -> PackedWeight:
    dtype = torch.float8_e4m3fn if code == "e4m3" else torch.float8_e5m2
    limit = torch.finfo(dtype).max
    codes = (weight / scale).clamp(-limit, limit).to(dtype).view(torch.uint8)
    scales = torch.full((weight.shape[0], 1), scale, dtype=torch.float32)
    return PackedWeight(code=code, bits=8, shape=tuple(weight.shape), codes=codes, scales=scales, group_size=0)


def fp4(levels: list[int], scales: torch.Tensor, group: int, **more) -> PackedWeight:
    codes = pack_codes(torch.tensor([levels], dtype=torch.uint8), 4)
    return PackedWeight(
        code="e2m1", bits=4, shape=(1, len(levels)), codes=codes, scales=scales, group_size=group, **more
    )


def normal(rows: int = 4, columns: int = 64) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(0, 0.3, (rows, columns))).float()


@pytest.mark.parametrize("name", ["int4 grouped", "int8 grouped", "int4 zero points"])
def test_counts_of_parts_are_those_of_the_whole(name, monkeypatch):
    packed = FORMATS[name]
    weight = dequantize_torch(packed) + 0.2 * normal(*packed.shape)
    weight[5] = 0
    at_once = weight_stability(weight, packed)
    monkeypatch.setattr(stability, "AT_ONCE", 5 * packed.shape[1])
    in_parts = weight_stability(weight, packed)
    assert replace(in_parts, sqnr=0.0) == replace(at_once, sqnr=0.0)
    assert in_parts.sqnr == pytest.approx(at_once.sqnr)
    values = dequantize_torch(packed)
    assert at_once.underflow == int(((values == 0) & (weight != 0)).sum()) / int((weight != 0).sum())
    ends = [dequantize_torch(replace(packed, codes=torch.full_like(packed.codes, byte))) for byte in (0x00, 0xFF)]
    assert at_once.at_limit == sum(int((values == end).sum()) for end in ends)


def test_a_weight_that_fits_its_format_is_steady():
    weight = normal()
    found = weight_stability(weight, int8(weight))
    assert (found.nan, found.inf, found.saturated, found.zero_scales, found.exponent_clamps) == (0, 0, 0, 0, None)
    assert found.elements == 256
    assert found.steady
    exact, made = weight.double().numpy(), dequantize_torch(int8(weight)).double().numpy()
    assert found.sqnr == pytest.approx(10 * np.log10((exact**2).sum() / ((exact - made) ** 2).sum()))


def test_saturated_weights_are_those_that_rounding_found_no_code_for():
    weight = torch.tensor([[1.27, 1.274, 1.28, 1.5, -1.28, -1.284, -1.29, 0.0]])
    found = weight_stability(weight, int8(weight))
    assert found.saturated == 3  # 1.28, 1.5 and -1.29 lie more than half a step outside -1.28 to 1.27
    assert found.at_limit == 7
    assert not found.steady


@pytest.mark.parametrize(("code", "limit", "beyond"), [("e4m3", 448.0, 465.0), ("e5m2", 57344.0, 61500.0)])
def test_floats_saturate_beyond_their_largest_number(code, limit, beyond):
    weight = torch.tensor([[limit, -limit, beyond, -beyond, 1.0, 0.0]])
    found = weight_stability(weight, fp8(weight, code=code))
    assert (found.saturated, found.at_limit) == (2, 4)


def test_a_negative_scale_turns_the_ends_round():
    weight = torch.tensor([[1.28, -1.27, 5.0]])
    packed = replace(int8(-weight), scales=torch.tensor([[-0.01]]))
    found = weight_stability(weight, packed)
    assert found.saturated == 1


def test_planted_nan_and_infinite_scales_are_counted_by_element():
    weight = normal(3)
    packed = int8(weight)
    broken = replace(packed, scales=torch.tensor([[math.nan], [math.inf], [0.01]]))
    found = weight_stability(weight, broken)
    assert found.nan + found.inf == 128  # inf * a code at zero is NaN
    assert found.inf >= 60
    assert found.at_limit == 0
    assert not found.steady
    assert found.sqnr is not None  # of what is finite
    codes = fp8(weight).codes.clone()
    codes[0, 0] = 0x7F  # e4m3's NaN
    assert weight_stability(weight, replace(fp8(weight), codes=codes)).nan == 1


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_weight_that_is_no_number_is_counted_whatever_its_codes_spell(wrong):
    weight = normal()
    packed = int8(weight)
    weight[0, 3] = wrong
    found = weight_stability(weight, packed)
    assert found.nan + found.inf == 1
    assert not found.counted
    assert not found.steady


def layer(weight: torch.Tensor, scale: float = 1.0) -> WeightStability:
    packed = int8(weight)
    return weight_stability(weight, replace(packed, scales=packed.scales * scale))


def test_a_layer_of_nan_leaves_the_worst_of_all_layers_unknown_and_is_named():
    sound, lost = layer(normal()), layer(normal(), math.nan)
    facts, unmeasured = steadiness_of({"a": sound, "b": sound})
    assert (facts["stability.sqnr"], facts["stability.steady"], unmeasured) == (sound.sqnr, 1.0, {})
    facts, unmeasured = steadiness_of({"a": sound, "b": lost, "c": sound})
    assert facts == {"stability.steady": 2 / 3}
    assert unmeasured.keys() == {"stability.sqnr", "stability.saturated"}
    assert set(unmeasured.values()) == {"1 of 3 packed layers hold NaN or infinities, b among them"}


def test_layers_without_any_noise_have_no_ratio_and_say_so():
    exact = weight_stability(torch.tensor([[0.5, -0.25]]), fp8(torch.tensor([[0.5, -0.25]])))
    facts, unmeasured = steadiness_of({"a": exact})
    assert "stability.sqnr" not in facts
    assert "no noise" in unmeasured["stability.sqnr"]
    assert steadiness_of({}) == ({}, {})


def test_weights_that_vanish_are_an_underflow_share_of_those_that_were_not_zero():
    weight = torch.tensor([[0.004, -0.004, 0.1, 0.0]])
    found = weight_stability(weight, int8(weight))
    assert found.underflow == pytest.approx(2 / 3)
    assert weight_stability(torch.zeros(1, 4), int8(torch.zeros(1, 4))).underflow is None


def test_an_nvfp4_block_scale_that_underflows_to_zero_is_counted():
    weight = torch.cat([torch.full((1, 16), 1e-6), torch.full((1, 16), 6.0), torch.zeros(1, 16)], 1)
    scales = torch.tensor([[1e-6, 1.0, 0.0]]).to(torch.float8_e4m3fn)
    assert float(scales[0, 0]) == 0
    packed = fp4([1] * 16 + [7] * 16 + [0] * 16, scales, 16, tensor_scale=torch.tensor(1.0))
    found = weight_stability(weight, packed)
    assert found.format == "nvfp4"
    assert found.zero_scales == 1  # not the block of zeros
    assert found.underflow == 0.5
    assert not found.steady


def test_an_e8m0_exponent_at_either_end_counts_when_its_block_asked_for_more():
    weight = torch.cat(
        [torch.full((1, 32), 1e-40), torch.full((1, 32), 3e38), torch.zeros(1, 32), torch.ones(1, 32)], 1
    )
    scales = torch.tensor([[0, 254, 0, 127]], dtype=torch.uint8)
    found = weight_stability(weight, fp4([2] * 32 + [7] * 32 + [0] * 32 + [2] * 32, scales, 32))
    assert found.format == "mxfp4"
    assert found.exponent_clamps == 2
    assert not found.steady


def test_sqnr_of_an_exact_copy_and_of_no_signal_is_none_and_is_plain_json():
    weight = torch.tensor([[0.5, -0.25]])
    exact = weight_stability(weight, fp8(weight))
    silent = weight_stability(torch.zeros(1, 2), fp8(torch.zeros(1, 2)))
    assert (exact.sqnr, silent.sqnr) == (None, None)
    assert exact.steady
    noisy = weight_stability(normal(), int8(normal(), 0.2))
    assert noisy.sqnr < noisy.sqnr_floor
    section = json.loads(json.dumps(stability_section({"a": exact, "b": noisy, "c": silent}), allow_nan=False))
    assert section["sqnr_min_layer"] == "b"
    assert section["unsteady_layers"] == ["b"]
    assert section["elements"] == 260
    assert set(section["layers"]) == {"a", "b", "c"}
    assert stability_section({})["sqnr_min"] is None


# ---------------------------------------------------------------------------------------------- near ties


@pytest.mark.parametrize("value", [1.0, 1.5, 2.0, 3.7, 17.0, -100.25, 1e-3])
def test_an_ulp_is_the_spacing_of_float32_there(value):
    assert ulp(value) == float(np.spacing(np.float32(abs(value))))


def test_the_softmax_sum_error_is_the_worst_positions():
    third = 3 * Fraction(float(np.float32(1) / np.float32(3)))  # what three equal logits sum to, exactly
    error = float(abs(third - 1))
    assert error > 0
    assert softmax_sum_error([torch.zeros(2, 3)]) == error
    assert softmax_sum_error([torch.zeros(4, 2), torch.tensor([[80.0, 80.0, 80.0]]), torch.zeros(0, 5)]) == error
    assert softmax_sum_error([torch.zeros(4, 2)]) == 0
    assert softmax_sum_error([torch.tensor([[0.0, 1.0], [math.nan, 0.0]])]) == math.inf
    assert softmax_sum_error([torch.tensor([[math.inf, 0.0]])]) == math.inf
    assert softmax_sum_error([]) is None


def test_ulp_distance_counts_the_numbers_in_between_across_zero():
    left = torch.tensor([1.0, 0.0, -1e-45])
    assert ulp_distance(left, left.clone()) == 0
    assert ulp_distance(torch.tensor([1.0]), torch.nextafter(torch.tensor([1.0]), torch.tensor(2.0))) == 1
    assert ulp_distance(torch.tensor([0.0]), torch.tensor([-0.0])) == 0
    assert ulp_distance(torch.tensor([1e-45]), torch.tensor([-1e-45])) == 2
    assert ulp_distance(torch.tensor([math.nan]), torch.tensor([math.nan])) == 0
    assert ulp_distance(torch.tensor([math.nan]), torch.tensor([1.0])) == 2**31
    assert ulp_distance(torch.empty(0), torch.empty(0)) == 0
