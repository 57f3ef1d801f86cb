"""Packed weights as plain tensors and plain JSON, and back: what our own files hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch

from qualgate_kernels.packed import TENSORS, PackedWeight

_PLAIN = tuple(field.name for field in fields(PackedWeight) if field.name not in TENSORS)
_FOLDED = "folded."  # before the name of a float tensor that calibration changed


def tensors_of(weights: Mapping[str, PackedWeight], folded: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return every tensor under a name of its own, on the CPU: NAME.codes, NAME.scales, ..., folded.NAME.weight."""
    named = {f"{name}.{part}": tensor for name, packed in weights.items() for part, tensor in packed.tensors.items()}
    named |= {f"{_FOLDED}{name}": tensor for name, tensor in folded.items()}
    return {name: tensor.detach().cpu().contiguous() for name, tensor in named.items()}


def layouts_of(weights: Mapping[str, PackedWeight]) -> dict[str, dict[str, Any]]:
    """What is not a tensor: code, bits, shape, group size and so on, by name."""
    return {name: {part: getattr(packed, part) for part in _PLAIN} for name, packed in weights.items()}


def weights_of(
    tensors: Mapping[str, torch.Tensor], layouts: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, PackedWeight], dict[str, torch.Tensor]]:
    """Invert `tensors_of` and `layouts_of`: (packed weights, folded tensors). KeyError, TypeError or ValueError when
    they do not fit."""
    weights = {}
    for name, layout in layouts.items():
        body: dict[str, Any] = {**layout, "shape": tuple(layout["shape"])}
        body |= {part: tensors[f"{name}.{part}"] for part in TENSORS if f"{name}.{part}" in tensors}
        weights[name] = PackedWeight(**body)
    folded = {name.removeprefix(_FOLDED): value for name, value in tensors.items() if name.startswith(_FOLDED)}
    return weights, folded
