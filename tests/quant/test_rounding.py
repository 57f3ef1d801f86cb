"""Integer rounding against independent numpy oracles and properties that must hold for any weight."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qualgate.errors import UsageError
from qualgate.quant.packing import quantize_weight
from qualgate.quant.rounding import round_to_nearest
from qualgate.records import QuantizeRecipe
from qualgate_kernels.dequantize import dequantize_torch
from tests.depth import examples

weights = st.integers(0, 2**32 - 1).map(
    lambda seed: torch.randn(4, 64, generator=torch.Generator().manual_seed(seed)) * 10.0 ** (seed % 13 - 6)
)


@examples(30)
@given(weights, st.sampled_from([(8, 0), (8, 32), (4, 32), (4, 8), (2, 32), (2, 64)]))
def test_rounding_picks_the_nearest_level_of_its_own_scale(weight, shape):
    bits, group_size = shape
    codes, scales, zeros = round_to_nearest(weight, bits, group_size)
    assert zeros is None
    q = codes.int() - 2 ** (bits - 1)
    step = scales.double().repeat_interleave(64 // scales.shape[1], dim=1).numpy()
    levels = np.arange(-(2 ** (bits - 1)), 2 ** (bits - 1))
    error = np.abs(weight.double().numpy() - q.double().numpy() * step)
    nearest = np.abs(weight.double().numpy()[..., None] - levels * step[..., None]).min(-1)
    np.testing.assert_allclose(error, nearest, rtol=1e-5, atol=0)
    # Half a step, and for the largest weight what the scale lost when it was rounded to bfloat16's 8 bits.
    assert (error <= step * (0.5 + 2**bits / 2 * 2**-8 + 1e-6)).all()


@examples(30)
@given(weights, st.sampled_from([(8, 0), (4, 32), (3, 16), (2, 64)]))
def test_asymmetric_rounding_reaches_both_ends_and_picks_the_nearest_level(weight, shape):
    bits, group_size = shape
    weight = weight + weight.abs().mean()
    codes, scales, zeros = round_to_nearest(weight, bits, group_size, symmetric=False, dtype=torch.float32)
    assert zeros is not None
    wide = [part.double().repeat_interleave(64 // part.shape[1], 1).numpy() for part in (scales, zeros)]
    levels = (np.arange(2**bits) - wide[1][..., None]) * wide[0][..., None]
    error = np.abs(weight.double().numpy() - np.take_along_axis(levels, codes.long().numpy()[..., None], -1)[..., 0])
    nearest = np.abs(weight.double().numpy()[..., None] - levels).min(-1)
    np.testing.assert_allclose(error, nearest, rtol=1e-4, atol=1e-5 * float(weight.abs().max()))
    assert (error <= wide[0] * 1.001).all()  # half a step, and half a step that the zero point was rounded by


@examples(20)
@given(weights, st.sampled_from([4, 3, 2]), st.booleans(), st.sampled_from(["mse", "percentile"]))
def test_a_clip_search_never_adds_error_to_a_group(weight, bits, symmetric, clip):
    def errors(clip: str) -> torch.Tensor:
        codes, scales, zeros = round_to_nearest(weight, bits, 32, symmetric=symmetric, clip=clip)  # type: ignore[arg-type]
        zero = torch.full_like(scales, 2 ** (bits - 1)) if zeros is None else zeros
        back = (codes.view(4, 2, 32).float() - zero.float().unsqueeze(-1)) * scales.float().unsqueeze(-1)
        return (back - weight.view(4, 2, 32)).square().sum(-1)

    assert (errors(clip) <= errors("") * (1 + 1e-6)).all()


def test_int2_of_a_normal_weight_gains_from_clipping():
    weight = torch.randn(8, 512, generator=torch.Generator().manual_seed(0))
    errors = []
    for clip in ("", "mse", "percentile"):
        recipe = QuantizeRecipe(method="int2", group_size=128, clip=clip)  # type: ignore[arg-type]
        errors.append(float((dequantize_torch(quantize_weight(weight, recipe)) - weight).square().mean()))
    whole, mse, percentile = errors
    assert mse < 0.6 * whole
    assert mse <= percentile < whole


def test_one_scale_a_tensor_is_that_of_its_largest_weight():
    weight = torch.randn(6, 32, generator=torch.Generator().manual_seed(1))
    packed = quantize_weight(weight, QuantizeRecipe(method="int8", group_size=0, granularity="tensor"))
    assert packed.scales.shape == (1, 1)
    assert torch.equal(packed.scales.flatten(), (weight.abs().max() / 127.5).bfloat16().view(1))
    assert (dequantize_torch(packed) - weight).abs().max() <= float(packed.scales) * 1.01


@pytest.mark.parametrize(
    "recipe",
    [("int8", 0), ("int4", 32), ("int3", 32), ("int2", 32), ("mxfp4", 32), ("mxfp8", 32), ("nvfp4", 16), ("fp8", 0)],
)
def test_a_group_of_zeros_stays_zero_and_has_no_zero_scale(recipe):
    weight = torch.zeros(2, 64)
    weight[1, 40] = 1e-30
    packed = quantize_weight(weight, QuantizeRecipe(method=recipe[0], group_size=recipe[1]), dtype=torch.float32)
    assert packed.scales.dtype == torch.uint8 or (packed.scales.float() != 0).all()
    back = dequantize_torch(packed)
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
