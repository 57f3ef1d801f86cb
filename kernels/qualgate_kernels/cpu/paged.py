"""Attention over blocks of keys and values in C: see qualgate_kernels/paged.py, its torch twin."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

from qualgate_kernels.cpu.library import PATHS, Library, check, load
from qualgate_kernels.paged import Blocks, Places, Seen

_BEST = PATHS["avx512"]  # of the paths that attention has; better ones multiply in bfloat16


class _Call(ctypes.Structure):
    _fields_ = [
        *(
            (name, ctypes.c_int64)
            for name in ("bytes", "rows", "heads", "kv_heads", "dim", "blocks", "sequences", "width")
        ),
        *(
            (name, ctypes.c_void_p)
            for name in ("query", "keys", "values", "table", "sequence", "position", "sinks", "out")
        ),
        ("scale", ctypes.c_float),
        ("soft_cap", ctypes.c_float),
        ("window", ctypes.c_int64),
    ]


@cache
def _entries() -> tuple[Any, Any] | str:
    """The C functions, or why there are none."""
    library = load()
    if not isinstance(library, Library):
        return library
    attend, keep = library.handle.qualgate_attend, library.handle.qualgate_keep
    attend.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    keep.argtypes = [pointer, pointer, number, number, number, pointer, pointer, number, pointer, ctypes.c_int]
    return attend, keep


def missing() -> str:
    """Why the torch twin serves; "" where C does."""
    found = _entries()
    return found if isinstance(found, str) else ""


def keep(blocks: Blocks, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor, threads: int) -> None:
    """slots: `Places.slots` of the rows; key, value: float32 [rows, kv_heads, head_dim], contiguous."""
    _, function = _there(blocks)
    rows, heads, dim = key.shape
    keys, values = blocks.keys.data_ptr(), blocks.values.data_ptr()
    check(
        function(
            key.data_ptr(), value.data_ptr(), rows, heads, dim, keys, values, blocks.count, slots.data_ptr(), threads
        )
    )


def attend(
    query: torch.Tensor, blocks: Blocks, places: Places, seen: Seen, threads: int, path: str = ""
) -> torch.Tensor:
    """query: float32 [rows, heads, head_dim], contiguous. path: one of the library's up to avx512, for tests."""
    function, _ = _there(blocks)
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
        keys=blocks.keys.data_ptr(),
        values=blocks.values.data_ptr(),
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


def unsupported(blocks: Blocks) -> str:
    """Why C does not read such blocks; "" where it does."""
    return "" if blocks.keys.dtype == torch.float32 else f"keys and values are {blocks.keys.dtype}, not float32"


def _there(blocks: Blocks) -> tuple[Any, Any]:
    if because := unsupported(blocks):
        raise ValueError(f"blocks: {because}")
    found = _entries()
    if isinstance(found, str):
        raise ValueError(f"the CPU kernels are not there: {found}")
    return found
