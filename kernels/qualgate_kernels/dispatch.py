"""Which kernel multiplies a packed weight: the fused one of its device, or the torch twin with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch

from qualgate_kernels import cpu
from qualgate_kernels.cpu import int8
from qualgate_kernels.packed import PackedWeight


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fused:
    """A weight laid out for a fused kernel, and nothing else: the PackedWeight it was made of is not kept.

    kernel: its name, "c avx512"; multiply: x [rows >= 1, in_features], contiguous → [rows, out_features] in x's dtype;
    tensors: what it holds, by name; rounds: `multiply` rounds x itself
    """

    kernel: str
    multiply: Callable[[torch.Tensor], torch.Tensor]
    tensors: dict[str, torch.Tensor]
    rounds: bool = False


def fuse(packed: PackedWeight, *, int8_tokens: bool = False) -> Fused | str:
    """`packed` laid out for the fused kernel of its device, or why the torch twin multiplies it.

    int8_tokens: inputs are rounded to int8, one scale a token; where the weight is int8 as well, products are summed
    in int32
    """
    device = packed.codes.device.type
    if device != "cpu":
        return f"no fused kernel on {device}"
    if int8_tokens:
        try:
            return _int8(int8.prepare_int8(packed))
        except cpu.Unsupported:
            pass  # other weights take rounded inputs as float32
    try:
        prepared = cpu.prepare(packed)
    except cpu.Unsupported as reason:
        return str(reason)
    hollow = {name: tensor.to("meta") for name, tensor in prepared.rest.tensors.items()}
    weight = replace(prepared, rest=replace(prepared.rest, **hollow))
    return Fused(kernel=f"c {cpu.path()}", multiply=lambda x: cpu.matmul(x, weight), tensors=_tensors(weight))


def _int8(weight: int8.PreparedInt8) -> Fused:
    return Fused(
        kernel="c int8",
        multiply=lambda x: int8.matmul_int8(*int8.round_rows(x), weight).to(x.dtype),
        tensors=_tensors(weight),
        rounds=True,
    )


def _tensors(weight: cpu.Prepared | int8.PreparedInt8) -> dict[str, torch.Tensor]:
    held = {item.name: getattr(weight, item.name) for item in fields(weight)}
    return {name: value for name, value in held.items() if isinstance(value, torch.Tensor)}
