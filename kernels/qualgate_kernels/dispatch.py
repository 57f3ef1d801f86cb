"""Which kernel multiplies a packed weight: the fused one of its device, or the torch twin with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch

from qualgate_kernels import cpu
from qualgate_kernels.packed import PackedWeight


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fused:
    """A weight laid out for a fused kernel, and nothing else: the PackedWeight it was made of is not kept.

    kernel: its name, "c avx512"; multiply: x [rows >= 1, in_features], contiguous → [rows, out_features] in x's dtype;
    tensors: what it holds, by name
    """

    kernel: str
    multiply: Callable[[torch.Tensor], torch.Tensor]
    tensors: dict[str, torch.Tensor]


def fuse(packed: PackedWeight) -> Fused | str:
    """`packed` laid out for the fused kernel of its device, or why the torch twin multiplies it."""
    device = packed.codes.device.type
    if device != "cpu":
        return f"no fused kernel on {device}"
    try:
        prepared = cpu.prepare(packed)
    except cpu.Unsupported as reason:
        return str(reason)
    hollow = {name: tensor.to("meta") for name, tensor in prepared.rest.tensors.items()}
    weight = replace(prepared, rest=replace(prepared.rest, **hollow))
    held = {item.name: getattr(weight, item.name) for item in fields(weight)}
    return Fused(
        kernel=f"c {cpu.path()}",
        multiply=lambda x: cpu.matmul(x, weight),
        tensors={name: value for name, value in held.items() if isinstance(value, torch.Tensor)},
    )
