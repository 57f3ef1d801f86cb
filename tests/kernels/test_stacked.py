"""Layers that read one input as one matrix: the numbers of each stay what they were, and so do its products."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from qualgate.quant.linear import QuantizedLinear, fuse_together
from qualgate.quant.packing import quantize_weight
from qualgate.quant.recipes import parse_recipe
from qualgate_kernels import cpu
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.stacked import Together, stacked

RECIPES = (
    "int8", "int4", {"method": "int4", "symmetric": False}, "int3", "int2", "fp8", "mxfp4", "mxfp8",
    {"method": "fp8", "granularity": "block"}, {"method": "int8", "granularity": "tensor"},
)  # fmt: skip


def weights(recipe, rows=(128, 256, 72), columns=128):
    torch.manual_seed(0)
    own = parse_recipe(recipe)
    return [quantize_weight(torch.randn(extent, columns), own, "layer") for extent in rows]


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_a_stack_holds_the_numbers_of_its_parts(recipe):
    parts = weights(recipe)
    whole = stacked(parts)
    assert whole is not None
    assert torch.equal(dequantize_torch(whole), torch.cat([dequantize_torch(part) for part in parts]))


def test_nothing_is_stacked_that_has_no_common_layout():
    first, second, _ = weights("int4")
    assert stacked([first, weights("int8")[1]]) is None
    assert stacked([first, *weights({"method": "int4", "group_size": 64})[1:]]) is None
    assert stacked([first, *weights({"method": "int4", "symmetric": False})[1:]]) is None
    order = torch.arange(128, dtype=torch.int32) // 32
    one, other = replace(first, g_idx=order), replace(second, g_idx=order.flip(0))
    assert stacked([one, other]) is None
    assert stacked([one, replace(second, g_idx=order.clone())]) is not None
    fine, coarse = weights("nvfp4")[:2]
    assert fine.tensor_scale is not None
    assert stacked([fine, replace(coarse, tensor_scale=fine.tensor_scale * 2)]) is None
    assert stacked([fine, replace(coarse, tensor_scale=fine.tensor_scale.clone())]) is not None


def test_no_block_of_rows_reaches_over_the_seam():
    blocks = {"method": "fp8", "granularity": "block"}
    assert stacked(weights(blocks, rows=(256, 100))) is not None  # the last block may be short
    assert stacked(weights(blocks, rows=(100, 256))) is None


@pytest.mark.skipif(not cpu.path(), reason=cpu.available())
@pytest.mark.parametrize("recipe", ["int8", "int4", {"method": "int4", "symmetric": False}, "mxfp4", "fp8"], ids=str)
@pytest.mark.parametrize("rounds", [False, True])
def test_products_are_those_of_the_layers_alone_to_the_bit(recipe, rounds):
    from qualgate.quant.activations import PER_TOKEN

    if rounds and recipe != "int8":
        pytest.skip("only int8 inputs are rounded in the kernel here")
    inputs = PER_TOKEN["int8"] if rounds else None
    alone = [QuantizedLinear(weight, torch.randn(weight.shape[0]), inputs) for weight in weights(recipe)]
    joined = [QuantizedLinear(layer.packed, layer.bias.detach().clone(), inputs) for layer in alone]
    held = sum(buffer.nbytes for layer in alone for buffer in layer.buffers())
    assert {layer.fuse() for layer in alone} == set(fuse_together(joined))
    assert sum(buffer.nbytes for layer in joined for buffer in layer.buffers()) <= 1.25 * held
    for rows in (1, 3, 40):
        x = torch.randn(2, rows, 128)
        for one, other in zip(alone, joined, strict=True):
            assert torch.equal(one(x), other(x))


def test_one_product_serves_the_layers_of_one_input_and_no_other():
    asked = []

    class Counting:
        def multiply(self, x):
            asked.append(x)
            return torch.cat([x, 2 * x, 3 * x], 1)

    together = Together(Counting(), [2, 2, 2])
    x, y = torch.ones(1, 2), torch.full((1, 2), 5.0)
    assert [together.product(place, x, lambda: x)[0, 0].item() for place in (0, 1, 2)] == [1, 2, 3]
    assert len(asked) == 1
    assert together.product(1, y, lambda: y)[0, 0] == 10  # out of order
    assert together.product(0, x, lambda: x)[0, 0] == 1  # another input in between
    assert together.product(0, x, lambda: x)[0, 0] == 1  # the same layer again
    assert len(asked) == 4
