"""The likeliest token of rows of logits in C: see qualgate_kernels/likeliest.py, its torch twin."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

from qualgate_kernels.cpu.library import PATHS, Library, check, load
from qualgate_kernels.likeliest import Likeliest


@cache
def _entry() -> Any:
    """Return the C function and the path that serves, or the reason why there is none."""
    library = load()
    if not isinstance(library, Library):
        return library
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    function = library.handle.qualgate_likeliest
    function.argtypes = [pointer, number, number, *[pointer] * 4, ctypes.c_int, ctypes.c_int]
    return function, library.path


def missing() -> str:
    """Why the torch twin serves; "" where C does."""
    entry = _entry()
    return entry if isinstance(entry, str) else ""


def serves(logits: torch.Tensor) -> bool:
    """Return whether C takes these logits: float32 on the CPU, contiguous and not empty."""
    is_cpu_float32 = logits.dtype == torch.float32 and logits.is_cpu
    return is_cpu_float32 and logits.is_contiguous() and logits.numel() > 0 and not missing()


def likeliest(logits: torch.Tensor, threads: int, path: str = "") -> Likeliest:
    """logits: [..., vocabulary], which `serves` said that C takes. path: one of the library's, for tests."""
    function, best = _entry()
    shape = logits.shape[:-1]
    result = Likeliest(
        torch.empty(shape, dtype=torch.int64), torch.empty(shape), torch.empty(shape),
        torch.empty(shape, dtype=torch.bool),
    )  # fmt: skip
    pointers = [column.data_ptr() for column in result]
    check(function(logits.data_ptr(), shape.numel(), logits.shape[-1], *pointers, threads, PATHS[path or best]))
    return result
