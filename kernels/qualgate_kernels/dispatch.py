"""Which kernel multiplies a packed weight: the fused one of its device, or the torch twin with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from qualgate_kernels import cpu, linear
from qualgate_kernels.cpu import int8
from qualgate_kernels.packed import PackedWeight


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fused:
    """A weight laid out for a fused kernel, and nothing else: the PackedWeight it was made of is not kept.

    kernel: its name, "c avx512", "triton"; multiply: x [rows >= 1, in_features], contiguous → [rows, out_features] in
    x's dtype; tensors: what it holds, by name; rounds: `multiply` rounds x itself
    """

    kernel: str
    multiply: Callable[[torch.Tensor], torch.Tensor]
    tensors: dict[str, torch.Tensor]
    rounds: bool = False


def fuse(packed: PackedWeight, activations: str = "") -> Fused | str:
    """`packed` laid out for the fused kernel of its device, or why the torch twin multiplies it.

    activations: what inputs are rounded to, where a kernel may do that itself: "int8", "fp8" (one scale a token),
    "fp8 g128". A kernel that does not gets inputs that were rounded before.
    """
    return _on_gpu(packed, activations) if packed.codes.device.type == "cuda" else _on_cpu(packed, activations)


def _on_cpu(packed: PackedWeight, activations: str) -> Fused | str:
    if activations == "int8":
        try:
            codes = int8.prepare_int8(packed)
        except cpu.Unsupported:
            pass  # other weights take the rounded inputs as float32
        else:
            return Fused(
                kernel="c int8",
                multiply=lambda x: int8.matmul_int8(*int8.round_rows(x), codes).to(x.dtype),
                tensors=_tensors(codes),
                rounds=True,
            )
    try:
        prepared = cpu.prepare(packed)
    except cpu.Unsupported as reason:
        return str(reason)
    weight = replace(prepared, rest=_hollow(prepared.rest))
    return Fused(kernel=f"c {cpu.path()}", multiply=lambda x: cpu.matmul(x, weight), tensors=_tensors(weight))


def _on_gpu(packed: PackedWeight, activations: str) -> Fused | str:
    prepared = linear.prepare(packed, activations)
    if prepared.twin is not None and activations:
        prepared = linear.prepare(packed)
    if prepared.twin is not None:
        return prepared.twin_because
    weight = replace(prepared, kept={})
    return Fused(
        kernel=f"triton {weight.activations}".rstrip(),
        multiply=lambda x: linear.matmul(x, weight),
        tensors=_tensors(weight),
        rounds=bool(weight.activations),
    )


def _hollow(packed: PackedWeight) -> PackedWeight:
    """What it is, without its numbers."""
    return replace(packed, **{name: tensor.to("meta") for name, tensor in packed.tensors.items()})


def _tensors(layout: Any) -> dict[str, torch.Tensor]:
    held = {item.name: getattr(layout, item.name) for item in fields(layout)}
    return {name: value for name, value in held.items() if isinstance(value, torch.Tensor)}
