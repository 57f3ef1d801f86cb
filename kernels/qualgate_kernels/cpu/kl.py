"""KL divergence of two models' logits in C: see qualgate_kernels/kl.py, its torch twin."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

from qualgate_kernels.cpu.library import PATHS, Library, check, load
from qualgate_kernels.kl import Divergences


@cache
def _entry() -> Any:
    """Return the C function and the path that serves, or the reason why there is none."""
    library = load()
    if not isinstance(library, Library):
        return library
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    function = library.handle.qualgate_kl
    function.argtypes = [pointer, pointer, number, number, *[pointer] * 4, ctypes.c_int, ctypes.c_int]
    return function, library.path


def missing() -> str:
    """Why the torch twin serves; "" where C does."""
    entry = _entry()
    return entry if isinstance(entry, str) else ""


def kl(p: torch.Tensor, q: torch.Tensor, given: torch.Tensor, threads: int, path: str = "") -> Divergences:
    """p, q: float32 [rows, vocabulary] on the CPU; given: int64 [rows]. path: one of the library's, for tests."""
    function, best = _entry()
    p, q, given = p.contiguous(), q.contiguous(), given.contiguous()
    found = Divergences(
        torch.empty(len(p), dtype=torch.float64),
        torch.empty(len(p), dtype=torch.float64),
        torch.empty(len(p), dtype=torch.int64),
    )
    pointers = [given.data_ptr(), *(column.data_ptr() for column in found)]
    check(function(p.data_ptr(), q.data_ptr(), *p.shape, *pointers, threads, PATHS[path or best]))
    return found
