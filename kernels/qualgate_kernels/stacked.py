"""Layers that read one input (q, k and v; gate and up), multiplied as one matrix: one launch, the input read once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from qualgate_kernels.dispatch import Fused
from qualgate_kernels.packed import PackedWeight


def stacked(weights: Sequence[PackedWeight]) -> PackedWeight | None:
    """Return one weight [sum of out_features, in_features] with the rows of all, in order and with the same numbers.

    None where they have no common layout: another code, group or order of groups, a tensor scale each of their own,
    or a block of rows that would reach over the seam. Where all rows of a weight share a scale, each row gets it.
    """
    one_scale = [weight.block_rows == 0 for weight in weights]
    if all(one_scale):
        if weights[0].group_size and weights[0].shape[1] % weights[0].group_size:
            return None
        weights = [_scale_a_row(weight) for weight in weights]
    first, *others = weights
    for other in others:
        same_layout = (
            (other.code, other.bits, other.shape[1], other.group_size, other.block_rows, other.tensor_divides)
            == (first.code, first.bits, first.shape[1], first.group_size, first.block_rows, first.tensor_divides)
            and other.scales.dtype == first.scales.dtype
            and other.tensors.keys() == first.tensors.keys()
            and all(
                torch.equal(other.tensors[name], first.tensors[name])
                for name in ("tensor_scale", "g_idx")
                if name in first.tensors
            )
            and all(
                other.tensors[name].dtype == first.tensors[name].dtype
                for name in ("zero_points", "offsets")
                if name in first.tensors
            )
        )
        if not same_layout:
            return None
    if first.block_rows == 0 or any(weight.shape[0] % first.block_rows for weight in weights[:-1]):
        return None
    joined: dict[str, Any] = {
        name: torch.cat([weight.tensors[name] for weight in weights])
        for name in ("codes", "scales", "zero_points", "offsets")
        if name in first.tensors
    }
    return replace(first, shape=(sum(weight.shape[0] for weight in weights), first.shape[1]), **joined)


def _scale_a_row(weight: PackedWeight) -> PackedWeight:
    spread: dict[str, Any] = {
        name: tensor.expand(weight.shape[0], -1).contiguous()
        for name, tensor in weight.tensors.items()
        if name in ("scales", "zero_points", "offsets")
    }
    return replace(weight, block_rows=1, **spread)


class Together:
    """A stacked weight and its latest product: the first layer that is called computes for those called after it.

    Layers called with different inputs get the right products too, only no faster.
    """

    def __init__(self, fused: Fused, extents: Sequence[int]) -> None:
        """extents: out_features of each layer, in the order of the rows."""
        self.fused, self.extents = fused, list(extents)
        self._input: torch.Tensor | None = None  # held: while it is, no other tensor can have its identity
        self._parts: list[torch.Tensor | None] = []

    def product(self, place: int, x: torch.Tensor, rows: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Return the product of one layer, [rows, out_features], a view of the common product.

        place: the layer's index; x: its input, by which a new product is noticed; rows: makes the kernel's input. The
        product is made at the first call for an input and dropped after each layer has taken its part, so a tensor
        must not be written to between the calls of the layers that read it.
        """
        if self._input is not x or self._parts[place] is None:
            self._input = x
            self._parts = [*self.fused.multiply(rows()).split(self.extents, 1)]
        part, self._parts[place] = self._parts[place], None
        if not any(remaining is not None for remaining in self._parts):
            self._input, self._parts = None, []
        assert part is not None
        return part
