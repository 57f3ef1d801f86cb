"""GPTQ against a reference that follows the paper's derivation column by column, with a fresh inverse each time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from qualgate.quant.gptq import DAMPING, gptq
from qualgate.quant.inputs import output_error
from qualgate.quant.packing import quantize_weight
from qualgate.quant.writers.gptq import tensors
from qualgate.records import QuantizeRecipe
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import unpack_codes
from tests.tables import each_row

ROWS, COLUMNS = 6, 32


def layer(seed: int = 0, columns: int = COLUMNS) -> tuple[torch.Tensor, torch.Tensor]:
    """A weight, and the mean x x^T of inputs that are correlated and of unlike size."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(ROWS, columns, generator=generator)
    mixed = torch.randn(400, columns, generator=generator) @ torch.randn(columns, columns, generator=generator)
    inputs = mixed * torch.rand(columns, generator=generator).square() * 3
    return weight, inputs.T @ inputs / len(inputs)


def slow_obq(
    weight: np.ndarray, hessian: np.ndarray, bits: int, size: int, symmetric: bool, order: np.ndarray
) -> np.ndarray:
    """Optimal Brain Quantization in a fixed order: the dequantized weight.

    For each column: round it, then move all later ones by the least-squares solution given the inverse of what is left
    of H, from scratch. (Frantar et al. 2022, equations 2 and 3.)
    """
    h = hessian.astype(np.float64).copy()
    h += DAMPING * np.diag(h).mean() * np.eye(len(h))
    left, result = weight.astype(np.float64).copy(), np.zeros_like(weight, dtype=np.float64)
    scale = zero = np.zeros(0)
    for place, column in enumerate(order):
        rest = order[place:]
        if place % size == 0:
            group = left[:, order[place : place + size]]
            low, high = np.minimum(group.min(1), 0), np.maximum(group.max(1), 0)
            span = 2 * np.maximum(-low, high) if symmetric else high - low
            scale = span / (2**bits - 1)
            if not symmetric:  # a zero point of 0 is not to be had
                scale = np.where(np.round(-low / scale) == 0, high / (2**bits - 2), scale)
            scale = scale.astype(np.float32).astype(np.float64)
            zero = np.full(len(span), 2 ** (bits - 1)) if symmetric else np.maximum(np.round(-low / scale), 1)
        codes = np.clip(np.round(left[:, column] / scale) + zero, 0, 2**bits - 1)
        result[:, column] = (codes - zero) * scale
        inverse = np.linalg.inv(h[np.ix_(rest, rest)])
        error = (left[:, column] - result[:, column]) / inverse[0, 0]
        left[:, rest] -= np.outer(error, inverse[0])
    return result


@each_row("bits", [2, 3, 4, 8])
@each_row("symmetric", [True, False])
@each_row(("size", "ordered"), [(0, False), (0, True), (8, False), (16, True)])
def test_it_rounds_as_column_by_column_brain_surgery_does(bits, symmetric, size, ordered):
    weight, hessian = layer()
    order = np.argsort(-np.diag(hessian.numpy()), kind="stable") if ordered else np.arange(COLUMNS)
    expected = slow_obq(weight.numpy(), hessian.numpy(), bits, size or COLUMNS, symmetric, order)
    packed = gptq(
        weight.double(), hessian.double(), bits=bits, group_size=size, symmetric=symmetric,
        act_order="group" if ordered else "", scale_dtype=torch.float32,
    )  # fmt: skip
    # One code that falls the other way would change all that follow, so that none does is a strong statement.
    np.testing.assert_allclose(dequantize_torch(packed).numpy(), expected, rtol=1e-5, atol=1e-6)
    in_float32 = gptq(
        weight, hessian, bits=bits, group_size=size, symmetric=symmetric, act_order="group" if ordered else "",
        scale_dtype=torch.float32,
    )  # fmt: skip
    ours, theirs = (
        output_error(w - weight, hessian) for w in (dequantize_torch(in_float32), torch.tensor(expected).float())
    )
    assert ours == pytest.approx(theirs, rel=0.15)


@pytest.mark.parametrize("act_order", ["", "group", "static"])
@pytest.mark.parametrize("bits", [2, 3, 4])
def test_the_output_changes_less_than_with_rounding_to_nearest(bits, act_order):
    weight, hessian = layer(1, 64)
    packed = gptq(weight, hessian, bits=bits, group_size=16, act_order=act_order)
    recipe = QuantizeRecipe(method=f"int{bits}", group_size=16)  # type: ignore[arg-type]
    nearest = dequantize_torch(quantize_weight(weight, recipe)) - weight
    assert output_error(dequantize_torch(packed) - weight, hessian) < 0.9 * output_error(nearest, hessian)


def test_independent_inputs_leave_nothing_to_make_up_for():
    weight, _ = layer()
    packed = gptq(weight, torch.eye(COLUMNS), bits=4, group_size=8)
    nearest = quantize_weight(weight, QuantizeRecipe(method="int4", group_size=8))
    assert torch.equal(packed.codes, nearest.codes)
    assert torch.equal(packed.scales, nearest.scales)


def test_act_order_groups_columns_by_importance_and_says_so():
    weight, hessian = layer()
    packed = gptq(weight, hessian, bits=4, group_size=8, act_order="group")
    assert packed.g_idx is not None
    order = torch.argsort(hessian.diagonal(), descending=True, stable=True)
    assert packed.g_idx[order].tolist() == [place // 8 for place in range(COLUMNS)]


def test_static_groups_keep_their_place_and_need_no_index():
    weight, hessian = layer()
    packed = gptq(weight, hessian, bits=4, group_size=8, act_order="static")
    nearest = quantize_weight(weight, QuantizeRecipe(method="int4", group_size=8))
    assert packed.g_idx is None
    assert torch.equal(packed.scales, nearest.scales)


@pytest.mark.parametrize("size", [8, 24, 48, 192])
def test_blocks_of_columns_change_nothing(size):
    """192 columns are more than one block of updates, whatever the group size."""
    weight, hessian = layer(2, 192)
    expected = slow_obq(weight.numpy(), hessian.numpy(), 4, size, True, np.arange(192))
    packed = gptq(weight.double(), hessian.double(), bits=4, group_size=size, scale_dtype=torch.float32)
    np.testing.assert_allclose(dequantize_torch(packed).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_inputs_that_no_token_reached_are_rounded_to_nearest():
    weight, hessian = layer()
    hessian[5], hessian[:, 5] = 0, 0
    packed = gptq(weight, hessian, bits=4, group_size=0)
    step = packed.scales.float()[:, 0]
    # The largest weight is half a step beyond the last code, and the scale was rounded.
    assert ((dequantize_torch(packed) - weight)[:, 5].abs() <= step / 2 * 1.1).all()


def test_fewer_tokens_than_inputs_are_damped_until_they_serve():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(3, COLUMNS, generator=generator)
    packed = gptq(torch.randn(4, COLUMNS, generator=generator), inputs.T @ inputs, bits=4, group_size=8)
    assert dequantize_torch(packed).isfinite().all()


def test_inputs_that_are_not_finite_are_refused():
    with pytest.raises(ArithmeticError, match="not finite"):
        gptq(torch.ones(2, 8), torch.full((8, 8), float("nan")), bits=4, group_size=0)


def test_a_clip_search_weighs_columns_by_what_their_rounding_costs():
    weight, hessian = layer(3, 64)
    whole, clipped = (
        output_error(dequantize_torch(gptq(weight, hessian, bits=2, group_size=32, clip=clip)) - weight, hessian)
        for clip in ("", "mse")
    )
    assert clipped < whole


def test_codes_fill_their_bits():
    weight, hessian = layer()
    packed = gptq(weight, hessian, bits=3, group_size=8, symmetric=False)
    codes = unpack_codes(packed.codes, 3, COLUMNS)
    assert packed.zero_points is not None
    assert (codes.min(), codes.max()) == (0, 7)


@pytest.mark.parametrize("act_order", ["", "group", "static"])
def test_zero_points_begin_at_one_which_gptq_v1_can_store(act_order):
    """Weights that are all positive, or all zero, would otherwise have a zero point of 0."""
    weight, hessian = layer(seed=3)
    weight = torch.cat([weight.abs(), torch.zeros(2, COLUMNS)])  # 8 rows, which fill words
    made = gptq(weight, hessian, bits=4, group_size=8, symmetric=False, act_order=act_order, scale_dtype=torch.float32)
    assert made.zero_points is not None
    assert int(made.zero_points.min()) == 1
    tensors("x", made, v2=False)  # which refuses a 0
    found = dequantize_torch(made)
    assert torch.equal(found[ROWS:], weight[ROWS:])
    nearest = weight.view(len(weight), -1, 8).amax(-1, keepdim=True).expand(-1, -1, 8).reshape(weight.shape) / 14
    plain = torch.round(weight / nearest.clamp(min=1e-9)) * nearest  # 15 levels from 0 up, no error carried on
    assert output_error(found - weight, hessian) < output_error(plain - weight, hessian)
