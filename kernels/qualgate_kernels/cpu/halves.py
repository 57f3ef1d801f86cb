"""The upper half of a weight of 8 bits as a weight of 4 bits that takes no codes of its own."""

from __future__ import annotations

from dataclasses import replace

import torch

from qualgate_kernels.cpu.layout import Prepared, Unsupported, narrowest

MIDDLE = 7.5  # of what the lower 4 bits may be


def upper_half(whole: Prepared) -> Prepared:
    """A weight of 4 bits whose codes are the upper halves of those of `whole`, in the same memory.

    With c the code of 8 bits, z its zero point and o its offset, weight = (16 * (c // 16) + 7.5 - z) * scale + o: each
    number is the middle of those that the lower bits would tell apart. `rest` has no numbers. Unsupported for what
    `arrange` did not lay out in halves.
    """
    if not whole.halves:
        raise Unsupported(f"{whole.rest.format}: its codes do not lie in halves")
    rest, scales = whole.rest, whole.scales
    scales = (scales.view(torch.float8_e8m0fnu) if scales.dtype == torch.uint8 else scales).float()
    zero = 0.0 if whole.offsets is not None else 128.0 if whole.zero_points is None else whole.zero_points.float()
    offsets = (MIDDLE - zero) * scales
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
