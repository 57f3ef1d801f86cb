"""Rounding against independent numpy oracles and properties that must hold for any weight."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qualgate.errors import UsageError
from qualgate.quant.packing import quantize_weight
from qualgate.quant.rounding import cast_mxfp4, round_to_nearest
from qualgate.records import QuantizeRecipe
from qualgate_kernels.dequantize import dequantize_torch

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
weights = st.integers(0, 2**32 - 1).map(
    lambda seed: torch.randn(4, 64, generator=torch.Generator().manual_seed(seed)) * 10.0 ** (seed % 13 - 6)
)


@settings(max_examples=30, deadline=None)
@given(weights, st.sampled_from([(8, 0), (8, 32), (4, 32), (4, 8), (2, 32), (2, 64)]))
def test_rounding_picks_the_nearest_level_of_its_own_scale(weight, shape):
    bits, group_size = shape
    q, scales = round_to_nearest(weight, bits, group_size)
    step = scales.double().repeat_interleave(64 // scales.shape[1], dim=1).numpy()
    levels = np.arange(-(2 ** (bits - 1)), 2 ** (bits - 1))
    error = np.abs(weight.double().numpy() - q.double().numpy() * step)
    nearest = np.abs(weight.double().numpy()[..., None] - levels * step[..., None]).min(-1)
    np.testing.assert_allclose(error, nearest, rtol=1e-5, atol=0)
    # Half a step, and for the largest weight what the scale lost when it was rounded to bfloat16's 8 bits.
    assert (error <= step * (0.5 + 2**bits / 2 * 2**-8 + 1e-6)).all()


@settings(max_examples=30, deadline=None)
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


@pytest.mark.parametrize("recipe", [("int8", 0), ("int4", 32), ("int2", 32), ("mxfp4", 32)])
def test_a_group_of_zeros_stays_zero(recipe):
    weight = torch.zeros(2, 64)
    weight[1, 40] = 1e-30
    back = dequantize_torch(quantize_weight(weight, QuantizeRecipe(method=recipe[0], group_size=recipe[1])))
    assert back.isfinite().all()
    assert (back[0] == 0).all()


def test_a_group_size_that_does_not_divide_names_the_tensor_and_what_does():
    with pytest.raises(UsageError, match=r"layers\.0\.up\.weight has 96 .* group size 64.*32, 16, 8"):
        quantize_weight(torch.zeros(2, 96), QuantizeRecipe(method="int4", group_size=64), "layers.0.up.weight")


def test_weights_that_are_not_finite_are_refused():
    weight = torch.zeros(2, 32)
    weight[0, 3] = float("nan")
    with pytest.raises(UsageError, match=r"layers\.0\.up\.weight holds NaN"):
        quantize_weight(weight, QuantizeRecipe(method="int8", group_size=0), "layers.0.up.weight")
