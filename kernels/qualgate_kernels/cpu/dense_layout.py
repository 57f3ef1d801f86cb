"""A dense weight (bfloat16, float16, float32) as the C kernels stream it: its values, in blocks of 64 out_features.

`c/weight.h` says what lies where.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from qualgate_kernels.cpu.layout import AT_ONCE, BLOCK, SEGMENT_MAX
from qualgate_kernels.pages import zeros

DENSE_CODES = {torch.bfloat16: 4, torch.float16: 5, torch.float32: 6}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class PreparedDense:
    """A weight of `shape` [out_features, in_features] in the kernels' layout.

    values: bfloat16 [blocks, places / 2, 64, 2], or float16 or float32 [blocks, places, 64]; places = segments *
    segment are the in_features, then zeros. dtype: the weight's own, which may be wider than that of `values`
    segment: in_features summed before they are added to the others
    """

    shape: tuple[int, int]
    dtype: torch.dtype
    values: torch.Tensor
    segment: int
    segments: int

    @property
    def nbytes(self) -> int:
        """Bytes a product reads."""
        return self.values.nbytes


def arrange_dense(weight: torch.Tensor, storage: torch.dtype) -> PreparedDense:
    """Lay a weight [out_features, in_features] out; storage: one of DENSE_CODES that holds its values exactly."""
    rows, columns = weight.shape
    segments = -(-columns // SEGMENT_MAX)
    segment = -(-columns // (2 * segments)) * 2
    pairs, blocks = segments * segment // 2, -(-rows // BLOCK)
    interleaved = storage == torch.bfloat16
    values = zeros((blocks, pairs, BLOCK, 2) if interleaved else (blocks, 2 * pairs, BLOCK), storage)
    for first, last in _slices(blocks, columns):
        block = _narrowed(weight[first * BLOCK : last * BLOCK], storage)
        padding = (0, 2 * pairs - columns, 0, (last - first) * BLOCK - block.shape[0])
        if any(padding):
            block = torch.nn.functional.pad(block, padding)
        if interleaved:  # a pair moves as one number
            values.view(torch.int32)[first:last, :, :, 0] = _columns(block.contiguous().view(torch.int32))
        else:
            values[first:last] = _columns(block)
    return PreparedDense(shape=(rows, columns), dtype=weight.dtype, values=values, segment=segment, segments=segments)


def restore_dense(prepared: PreparedDense) -> torch.Tensor:
    """Return the weight that `arrange_dense` was given, equal to the bit."""
    columns = prepared.shape[1]
    values = prepared.values
    weight = torch.empty(prepared.shape, dtype=prepared.dtype)
    for first, last in _slices(len(values), columns):
        block = values[first:last]
        block = block.permute(0, 2, 1, 3) if block.dim() == 4 else block.transpose(1, 2)
        rows = weight[first * BLOCK : last * BLOCK]
        rows.copy_(block.reshape((last - first) * BLOCK, -1)[: len(rows), :columns])
    return weight


def rows_of_torch(prepared: PreparedDense, rows: torch.Tensor) -> torch.Tensor:
    """Some rows of the weight, float32 [n, in_features]: the torch twin. rows: int64 [n]"""
    values, block, lane = prepared.values, rows // BLOCK, rows % BLOCK
    if values.dim() == 4:  # a pair moves as one number
        selected = values.view(torch.int32)[block, :, lane, 0].view(torch.bfloat16)
    else:
        selected = values[block, :, lane]
    return selected[:, : prepared.shape[1]].float()


def holds(storage: torch.dtype, weight: torch.Tensor) -> bool:
    """Return whether numbers of `storage` can be the weight's own, to the bit."""
    if storage == weight.dtype:
        return True
    step = max(1, AT_ONCE // weight.shape[1])
    return all(torch.equal(_bits(_narrowed(part, storage).to(part.dtype)), _bits(part)) for part in weight.split(step))


def _narrowed(weight: torch.Tensor, storage: torch.dtype) -> torch.Tensor:
    """In `storage`; to bfloat16 by cutting off, which leaves a NaN's bits as they are."""
    if storage == torch.bfloat16 and weight.dtype != storage:
        return _bits(weight.float()).bitwise_right_shift(16).to(torch.int16).view(torch.bfloat16)
    return weight.to(storage)


def _bits(weight: torch.Tensor) -> torch.Tensor:
    return weight.contiguous().view(torch.int32 if weight.dtype == torch.float32 else torch.int16)


def _columns(block: torch.Tensor) -> torch.Tensor:
    """[blocks * 64, places] → [blocks, places, 64]"""
    return block.view(-1, BLOCK, block.shape[1]).transpose(1, 2)


def _slices(blocks: int, columns: int) -> list[tuple[int, int]]:
    """Return ranges of blocks, [first, last), small enough to convert at once."""
    step = max(1, AT_ONCE // (BLOCK * columns))
    return [(first, min(first + step, blocks)) for first in range(0, blocks, step)]
