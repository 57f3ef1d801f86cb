"""Which kernel serves: the fused one of a device, or the torch twin with the reason. Chosen by the device, by what is
installed and by the format, never by the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from qualgate_kernels import availability, cpu, linear, paged
from qualgate_kernels import kl as kl_twin
from qualgate_kernels.availability import unavailable
from qualgate_kernels.cpu import int8
from qualgate_kernels.cpu import kl as kl_cpu
from qualgate_kernels.cpu import likeliest as likeliest_cpu
from qualgate_kernels.cpu import paged as paged_cpu
from qualgate_kernels.cpu.library import default_threads
from qualgate_kernels.kl import LARGE, Divergences
from qualgate_kernels.likeliest import Likeliest, likeliest_torch
from qualgate_kernels.packed import PackedWeight
from qualgate_kernels.paged import Blocks, Places, Seen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fused:
    """A weight laid out for a fused kernel, and nothing else: the PackedWeight it was made of is not kept.

    kernel: its name, "c avx512", "triton"; multiply: x [rows >= 1, in_features], contiguous → [rows, out_features] in
    x's dtype; tensors: what it holds, by name; rounds: `multiply` rounds x itself; layout: the weight as kernels in C
    have it, None for others'
    """

    kernel: str
    multiply: Callable[[torch.Tensor], torch.Tensor]
    tensors: dict[str, torch.Tensor]
    rounds: bool = False
    layout: cpu.Prepared | int8.PreparedInt8 | None = None


def fuse(packed: PackedWeight, activations: str = "") -> Fused | str:
    """Lay `packed` out for the fused kernel of its device, or return why the torch twin multiplies it.

    activations: what inputs are rounded to, where a kernel may do that itself: "int8", "fp8" (one scale a token),
    "fp8 g128". A kernel that does not gets inputs that were rounded before.
    """
    device = packed.codes.device
    if device.type == "cuda" or availability.on_triton(device):
        return _on_gpu(packed, activations)
    return _on_cpu(packed, activations)


def kl(p: torch.Tensor, q: torch.Tensor, given: torch.Tensor, *, threads: int | None = None) -> Divergences:
    """See kl.kl_torch. threads: of the CPU, those of `library.threaded` or torch's by default. ValueError for what does
    not fit together."""
    kl_twin.check(p, q, given)
    if p.is_cpu and q.is_cpu and p.shape[1] >= LARGE and not kl_cpu.missing():
        return kl_cpu.kl(p, q, given, default_threads() if threads is None else threads)
    return kl_twin.kl_torch(p, q, given)


def attend_paged(
    query: torch.Tensor, blocks: Blocks, places: Places, seen: Seen, *, threads: int | None = None
) -> torch.Tensor:
    """See paged.attend_torch. threads: of the CPU, torch.get_num_threads() by default."""
    path = paged_path(blocks)
    if path.startswith("torch"):
        return paged.attend_torch(query, blocks, places, seen)
    paged.check(query, blocks, places, seen)
    if path == "triton":
        from qualgate_kernels.paged_gpu import attend_paged_triton

        return attend_paged_triton(query, blocks, places, seen)
    return paged_cpu.attend(query, blocks, places, seen, threads or torch.get_num_threads())


def prepare_places(places: Places, count: int, device: torch.device) -> Places:
    """Return the places of a pass for all of its layers, of `count` blocks each on `device`: on a GPU what each of them
    would look at and copy there. ValueError as `Places.check` has it."""
    if not availability.on_triton(device):
        return places
    from qualgate_kernels.packs import PreparedPlaces, prepare

    places.check(count, device)
    return places if isinstance(places, PreparedPlaces) else prepare(places, count, device)


def keep_paged(blocks: Blocks, places: Places, key: torch.Tensor, value: torch.Tensor) -> None:
    """See paged.keep_torch."""
    path = paged_path(blocks)
    if path.startswith("torch"):
        return paged.keep_torch(blocks, places, key, value)
    paged.check_kept(blocks, places, key, value)
    if path == "triton":
        from qualgate_kernels.paged_gpu import keep_paged_triton

        return keep_paged_triton(blocks, places, key, value)
    return paged_cpu.keep(blocks, places.slots, key.contiguous(), value.contiguous(), torch.get_num_threads())


def likeliest(logits: torch.Tensor, *, threads: int | None = None) -> Likeliest:
    """See likeliest.likeliest_torch. threads: of the CPU, those of `library.threaded` or torch's by default."""
    if likeliest_cpu.serves(logits):
        return likeliest_cpu.likeliest(logits, default_threads() if threads is None else threads)
    return likeliest_torch(logits)


def paged_path(blocks: Blocks) -> str:
    """triton, c, or "torch twin: why"."""
    device = blocks.keys.device
    if device.type == "cpu" and not availability.on_triton(device):
        because = paged_cpu.missing()
        return f"torch twin: {because}" if because else "c"
    if blocks.head_dim > paged.GPU_DIMS:
        return f"torch twin: head_dim is above {paged.GPU_DIMS}"
    return _triton(device)


def _on_cpu(packed: PackedWeight, activations: str) -> Fused | str:
    """Fuse a weight for the CPU: int8 products if its inputs are int8 and it allows them, else floats. Or return why
    not."""
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
                layout=codes,
            )
    try:
        prepared = cpu.prepare(packed)
    except cpu.Unsupported as reason:
        return str(reason)
    weight = replace(prepared, rest=prepared.rest.to("meta"))
    return Fused(
        kernel=f"c {cpu.path()}",
        multiply=lambda x: cpu.matmul(x, weight),
        tensors=_tensors(weight),
        layout=weight,
    )


def _on_gpu(packed: PackedWeight, activations: str) -> Fused | str:
    """Fuse a weight for a GPU. Or return the reason why the torch twin serves.

    If no kernel rounds the inputs for this weight, the weight alone is packed, and the layer rounds them before.
    """
    prepared = linear.prepare(packed, activations)
    if prepared.twin is not None and activations:
        prepared = linear.prepare(packed)
    if prepared.twin is not None:
        return prepared.twin_because
    weight = replace(prepared, unchanged={})
    return Fused(
        kernel=f"triton {weight.activations}".rstrip(),
        multiply=lambda x: linear.matmul(x, weight),
        tensors=_tensors(weight),
        rounds=bool(weight.activations),
    )


def _triton(device: torch.device, code: str = "") -> str:
    """Return "triton" where the kernels run on `device`, else "torch twin: " and the reason."""
    has_kernels = device.type == "cuda" or availability.on_triton(device)
    because = unavailable(device, code) if has_kernels else f"no kernel for {device.type}"
    return f"torch twin: {because}" if because else "triton"


def _tensors(layout: Any) -> dict[str, torch.Tensor]:
    values = {item.name: getattr(layout, item.name) for item in fields(layout)}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
