"""Spoiled quantized folders: the one thing is wrong in them, and nothing else."""

from __future__ import annotations

import pytest
import torch

from qualgate.quant.readers.checkpoint import read_quantized
from qualgate_kernels.dequantize import dequantize_torch
from tests.verification.verdicts.graded import (
    GRADED,
    INT4,
    INT8,
    nibbles_swapped,
    order_lost,
    spoiled,
    zeroed,
    zeros_less_one,
)

LAYER = "3.self_attn.o_proj"
FULL = f"model.layers.{LAYER}"


@pytest.fixture(scope="module")
def weights_of(tmp_path_factory):
    """The weights of a folder, as our readers see it."""

    def read(recipe, format, spoil=None):
        folder = tmp_path_factory.mktemp("spoiled") / "model"
        folder.mkdir()
        spoiled(recipe, format, spoil, LAYER)(folder)
        layers = read_quantized(folder).layers
        return {name: dequantize_torch(layer.weight).float() for name, layer in layers.items()}, layers[FULL].weight

    return read


def only_the_layer_differs(before, after) -> bool:
    return {name for name in before if not torch.equal(before[name], after[name])} == {FULL}


def test_a_zero_point_off_by_one_moves_every_weight_of_the_layer_by_one_scale(weights_of):
    before, packed = weights_of(INT8, "gptq_v2")
    after, _ = weights_of(INT8, "gptq_v2", zeros_less_one)
    assert only_the_layer_differs(before, after)
    scales = packed.scales.float().repeat_interleave(INT8.group_size, dim=1)
    assert torch.allclose(after[FULL] - before[FULL], scales, rtol=1e-2)


def test_a_zeroed_layer_is_zero_and_its_folder_is_still_read(weights_of):
    before, _ = weights_of(INT8, "gptq_v2")
    after, _ = weights_of(INT8, "gptq_v2", zeroed)
    assert only_the_layer_differs(before, after)
    assert after[FULL].abs().max() == 0


def test_swapped_nibbles_are_swapped_neighbours(weights_of):
    before, _ = weights_of(INT4, "compressed-tensors")
    after, _ = weights_of(INT4, "compressed-tensors", nibbles_swapped)
    assert only_the_layer_differs(before, after)
    pairs = before[FULL].reshape(before[FULL].shape[0], -1, 2)
    assert torch.equal(after[FULL], pairs.flip(-1).reshape(before[FULL].shape))


def test_a_lost_order_leaves_the_columns_in_plain_groups():
    tensors = {"layer.g_idx": torch.tensor([1, 0, 1, 0], dtype=torch.int32)}
    order_lost(tensors, "layer.")
    assert tensors["layer.g_idx"].tolist() == [0, 0, 1, 1]
    with pytest.raises(AssertionError):
        order_lost(tensors, "layer.")  # there is no order left to lose


def test_graded_mutants_are_told_apart_by_what_they_are():
    assert len({mutant.what for mutant in GRADED}) == len(GRADED)
    assert not any(mutant.broken for mutant in GRADED), "their truth is what they lose"
