"""Check the tensors of a head's file against what its config promises."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from qualgate.errors import UsageError


def check_tensors(
    tensors: Mapping[str, torch.Tensor],
    wanted: Mapping[str, tuple[int, ...]],
    where: str,
    again: str = "Fetch this head again.",
) -> None:
    """UsageError naming the first tensor that is missing, too many, of another shape or holds what is no number."""
    for name in sorted(wanted.keys() | tensors.keys()):
        found = tensors.get(name)
        if found is None or name not in wanted or tuple(found.shape) != wanted[name]:
            there = "is missing" if found is None else f"holds {' x '.join(map(str, found.shape))} numbers"
            expected = " x ".join(map(str, wanted[name])) if name in wanted else "no such tensor"
            raise UsageError(f"{where}: {name} {there}, expected {expected}. {again}")
        if not found.isfinite().all():
            raise UsageError(f"{where}: {name} holds NaN or infinities. {again}")
