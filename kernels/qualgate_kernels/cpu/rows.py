"""Some rows of a dense weight in C: see dense_layout.rows_of_torch, its torch twin."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

from qualgate_kernels.cpu.dense_layout import PreparedDense
from qualgate_kernels.cpu.library import Library, check, default_threads, described, load


@cache
def _entry() -> Any:
    """Return the C function. ValueError without the library, without which no weight is laid out."""
    library = load()
    if not isinstance(library, Library):
        raise ValueError(f"the CPU kernels are not there: {library}")
    pointer = ctypes.c_void_p
    function = library.handle.qualgate_rows
    function.argtypes = [pointer, pointer, ctypes.c_int64, pointer, ctypes.c_int]
    return function


def rows_of(prepared: PreparedDense, rows: torch.Tensor) -> torch.Tensor:
    """As `rows_of_torch`. IndexError for a row that the weight has not, ValueError for other tensors than int64 [n] on
    the CPU."""
    if rows.dtype != torch.int64 or rows.dim() != 1 or rows.device.type != "cpu":
        raise ValueError(f"rows: expected int64 [n] on the CPU, got {rows.dtype} {list(rows.shape)} on {rows.device}")
    copied = torch.empty((len(rows), prepared.shape[1]), dtype=prepared.values.dtype)
    if not len(rows):
        return copied.float()
    rows, weight = rows.contiguous(), ctypes.byref(described(prepared))
    code = _entry()(weight, rows.data_ptr(), len(rows), copied.data_ptr(), default_threads())
    if code == 2:
        raise IndexError(f"rows: expected 0 to {prepared.shape[0] - 1}, got {int(rows.min())} to {int(rows.max())}")
    check(code)
    return copied.float()
