"""Attention over blocks of keys and values in C: see qualgate_kernels/paged.py, its torch twin."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

from qualgate_kernels.cpu.library import PATHS, Library, check, load
from qualgate_kernels.kept import form_of
from qualgate_kernels.paged import Blocks, Places, Seen

_BEST = PATHS["avx512"]  # of the paths that attention has; better ones multiply in bfloat16


class Kept(ctypes.Structure):
    """Where a layer's blocks lie, and in which format."""

    _fields_ = [
        ("kind", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("keys", "values", "key_scales", "value_scales")),
        ("key_scale", ctypes.c_float),
        ("value_scale", ctypes.c_float),
    ]


def kept(blocks: Blocks) -> Kept:
    """Return the blocks as C reads them. ValueError for blocks elsewhere than on the CPU; `Blocks` has checked the
    shapes of its tensors."""
    if not blocks.keys.is_cpu:
        raise ValueError(f"blocks: expected them on the CPU, got {blocks.keys.device}")
    places = {name: tensor.data_ptr() for name, tensor in blocks.tensors.items()}
    kind = form_of(blocks.form).kind
    return Kept(kind=kind, key_scale=blocks.key_scale, value_scale=blocks.value_scale, **places)


class _Call(ctypes.Structure):
    _fields_ = [
        *(
            (name, ctypes.c_int64)
            for name in ("bytes", "rows", "heads", "kv_heads", "dim", "blocks", "sequences", "width")
        ),
        ("query", ctypes.c_void_p),
        ("kept", Kept),
        *((name, ctypes.c_void_p) for name in ("table", "sequence", "position", "sinks", "out")),
        ("scale", ctypes.c_float),
        ("soft_cap", ctypes.c_float),
        ("window", ctypes.c_int64),
    ]


@cache
def _entries() -> tuple[Any, Any] | str:
    """Return the C functions (attend, keep), or the reason why there are none."""
    library = load()
    if not isinstance(library, Library):
        return library
    attend, keep = library.handle.qualgate_attend, library.handle.qualgate_keep
    attend.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    keep.argtypes = [pointer, pointer, number, number, number, pointer, number, pointer, ctypes.c_int]
    return attend, keep


def missing() -> str:
    """Why the torch twin serves; "" where C does."""
    entries = _entries()
    return entries if isinstance(entries, str) else ""


def keep(blocks: Blocks, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor, threads: int) -> None:
    """Write keys and values into their slots. slots: `Places.slots` of the rows.

    key, value: float32 [rows, kv_heads, head_dim], contiguous.
    """
    _, function = _there()
    rows, heads, dim = key.shape
    kept_blocks = ctypes.byref(kept(blocks))
    check(
        function(
            key.data_ptr(), value.data_ptr(), rows, heads, dim, kept_blocks, blocks.count, slots.data_ptr(), threads
        )
    )


def attend(
    query: torch.Tensor, blocks: Blocks, places: Places, seen: Seen, threads: int, path: str = ""
) -> torch.Tensor:
    """Return the attention of each row, shaped like `query`.

    query: float32 [rows, heads, head_dim], contiguous; path: one of the library's up to avx512, for tests.
    """
    function, _ = _there()
    library = load()
    assert isinstance(library, Library)
    out = torch.empty_like(query)
    call = _Call(
        bytes=ctypes.sizeof(_Call),
        rows=query.shape[0],
        heads=query.shape[1],
        kv_heads=blocks.kv_heads,
        dim=blocks.head_dim,
        blocks=blocks.count,
        sequences=places.table.shape[0],
        width=places.table.shape[1],
        query=query.data_ptr(),
        kept=kept(blocks),
        table=places.table.data_ptr(),
        sequence=places.sequence.data_ptr(),
        position=places.position.data_ptr(),
        sinks=None if seen.sinks is None else seen.sinks.data_ptr(),
        out=out.data_ptr(),
        scale=seen.scale,
        soft_cap=seen.soft_cap,
        window=seen.window,
    )
    check(function(ctypes.byref(call), threads, min(PATHS[path or library.path], _BEST)))
    return out


def _there() -> tuple[Any, Any]:
    entries = _entries()
    if isinstance(entries, str):
        raise ValueError(f"the CPU kernels are not there: {entries}")
    return entries
