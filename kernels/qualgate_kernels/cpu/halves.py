"""The upper half of a weight of 8 bits as a weight of 4 bits that takes no codes of its own."""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

import torch

from qualgate_kernels.cpu.layout import BLOCK, Prepared, Unsupported, lower_halves, narrowest

_MADE: WeakKeyDictionary[Prepared, Prepared] = WeakKeyDictionary()


def upper_half(whole: Prepared) -> Prepared:
    """A weight of 4 bits whose codes are the upper halves of those of `whole`, in the same memory; made once.

    With c the code of 8 bits, z its zero point and o its offset, weight = (16 * (c // 16) + m - z) * scale + o, where m
    is the mean of c % 16 over a row's group: so a group of zeros stays one, whose scale may be anything. `rest` has no
    numbers. Unsupported for what `arrange` did not lay out in halves.
    """
    if not whole.halves:
        raise Unsupported(f"{whole.rest.format}: its codes do not lie in halves")
    found = _MADE.get(whole)
    if found is None:  # it reads all lower halves
        found = _MADE[whole] = _made(whole)
    return found


def _made(whole: Prepared) -> Prepared:
    rest, scales = whole.rest, whole.scales
    scales = (scales.view(torch.float8_e8m0fnu) if scales.dtype == torch.uint8 else scales).float()
    zero = 0.0 if whole.offsets is not None else 128.0 if whole.zero_points is None else whole.zero_points.float()
    offsets = (_means(whole) - zero) * scales
    if whole.offsets is not None:
        offsets += whole.offsets
    rows, columns = rest.shape
    per_scale = rest.scales.shape
    return replace(
        whole,
        rest=replace(
            rest,
            bits=4,
            codes=torch.empty((rows, -(-columns // 2)), dtype=torch.uint8, device="meta"),
            scales=torch.empty(per_scale, device="meta"),
            zero_points=None,
            offsets=torch.empty(per_scale, device="meta"),
            tensor_scale=None,
        ),
        codes=whole.codes[: whole.codes.nbytes // 2],
        scales=narrowest(16 * scales),
        zero_points=None,
        offsets=offsets,
        halves=False,
    )


def _means(whole: Prepared) -> torch.Tensor:
    """Of the lower halves: float32 [blocks, groups, 64]."""
    groups = whole.segments // whole.per_group
    there = torch.ones(whole.segments * whole.segment) if whole.gather is None else (whole.gather >= 0).float()
    count = there.view(groups, -1).sum(1).clamp(min=1)  # of an act-order a group may be empty
    found = [
        (codes * there).view(-1, BLOCK, groups, whole.per_group * whole.segment).sum(3).transpose(1, 2)
        for codes in lower_halves(whole)
    ]
    return torch.cat(found) / count[:, None]
