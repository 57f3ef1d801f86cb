"""compressed-tensors' sparse-24-bitmask: of every four in_features the two that are not pruned, and a bit for each.

compressed  [N, K / 2], of any dtype; bitmask uint8 [N, ceil(K / 8)], lowest bit first; shape int64 [2, 1]
"""

from __future__ import annotations

from functools import partial

import torch

from qualgate.errors import UsageError
from qualgate.quant.readers.source import AGAIN, Source
from qualgate_kernels.packed import unpack_codes


def add_dense(source: Source) -> None:
    """Let `source` give MODULE.weight of every sparse module, with zeros for what was pruned."""
    for module in source.modules(".bitmask"):
        name = f"{module}.weight"
        if source.has(name):
            raise UsageError(f"{source.where(name)}: {name} is stored twice, sparse and dense. {AGAIN}")
        source.computed[name] = partial(_dense, source, module)


def _dense(source: Source, module: str) -> torch.Tensor:
    mask = source.expect(f"{module}.bitmask", (torch.uint8,), (None, None))
    values, extents = source.tensor(f"{module}.compressed"), source.tensor(f"{module}.shape").flatten().tolist()
    rows, stored = mask.shape[0], values.shape[-1] if values.dim() == 2 else 0
    if extents != [rows, 2 * stored] or stored % 2 or mask.shape[1] != -(-stored // 4) or len(values) != rows:
        raise UsageError(
            f"{source.where(f'{module}.bitmask')}: {module} has a bitmask {list(mask.shape)} and values "
            f"{list(values.shape)}, which do not make the {extents!s:.40} that its shape announces. {AGAIN}"
        )
    present = unpack_codes(mask, 1, 2 * stored).bool()
    if bool((present.view(rows, -1, 4).sum(-1) != 2).any()):
        raise UsageError(
            f"{source.where(f'{module}.bitmask')}: {module}.bitmask does not mark two of every four weights. {AGAIN}"
        )
    raw = values.contiguous().view(torch.uint8) if values.element_size() == 1 else values  # float8 takes no mask
    return torch.zeros(present.shape, dtype=raw.dtype).masked_scatter_(present, raw).view(values.dtype)
