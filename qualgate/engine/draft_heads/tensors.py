"""Check the tensors of a head's file against what its config promises."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from qualgate.errors import UsageError


def check_tensors(
    tensors: Mapping[str, torch.Tensor],
    shapes: Mapping[str, tuple[int, ...]],
    where: str,
    again: str = "Fetch this head again.",
) -> None:
    """Raise UsageError for the first tensor that is missing, unexpected, of another shape, or not finite."""
    for name in sorted(shapes.keys() | tensors.keys()):
        tensor = tensors.get(name)
        if tensor is None or name not in shapes or tuple(tensor.shape) != shapes[name]:
            problem = "is missing" if tensor is None else f"holds {' x '.join(map(str, tensor.shape))} numbers"
            expected = " x ".join(map(str, shapes[name])) if name in shapes else "no such tensor"
            raise UsageError(f"{where}: {name} {problem}, expected {expected}. {again}")
        if not tensor.isfinite().all():
            raise UsageError(f"{where}: {name} holds NaN or infinities. {again}")
