"""Dequantize and multiply in one pass on the CPU, in C. `prepare` once, `matmul` with any number of rows.

x float32: float32 products. x bfloat16: bfloat16 products summed in float32; with AMX numbers below 2**-126 count as
zero, as its tiles have it. Nothing else changes the arithmetic: a row's bits do not depend on how many rows ride along,
nor on the threads. What the kernels do not cover, and a machine
without them, is served by the torch twin: `prepare` decides (Unsupported says why), `available` says which path serves.
"""

from __future__ import annotations

import torch

from qualgate_kernels.cpu.dense_layout import PreparedDense
from qualgate_kernels.cpu.layout import Prepared, Unsupported, arrange, restore
from qualgate_kernels.cpu.library import X_TYPES, Library, default_threads, load
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import PackedWeight

__all__ = ["Prepared", "Unsupported", "available", "matmul", "matmul_torch", "path", "paths", "prepare", "restore"]


def available() -> str:
    """Return which path serves: "avx512_bf16 (of scalar, avx2, ...)", or "torch twin: why"; with AMX's reason if it is
    off."""
    library = load()
    if isinstance(library, str):
        return f"torch twin: {library}"
    missing_amx = f"; not {library.without}" if library.without else ""
    return f"{library.path} (of {', '.join(library.paths)}{missing_amx})"


def path() -> str:
    """The instruction-set path that serves; "" without the library."""
    library = load()
    return "" if isinstance(library, str) else library.path


def paths() -> tuple[str, ...]:
    """The instruction-set paths this process can run, best last; none without the library."""
    library = load()
    return () if isinstance(library, str) else library.paths


def prepare(packed: PackedWeight) -> Prepared:
    """Return the weight in the kernels' layout. Unsupported (a ValueError) says why the torch twin has to serve
    instead."""
    library = load()
    if isinstance(library, str):
        raise Unsupported(library)
    return arrange(packed)


def matmul(
    x: torch.Tensor, weight: Prepared | PreparedDense, *, threads: int | None = None, path: str = ""
) -> torch.Tensor:
    """x [M, K] times the weight's transpose: [M, N] in x's dtype.

    x: float32 or bfloat16 on the CPU, contiguous, M >= 1; weight: of `prepare`, or of `dense.prepare_dense`
    threads: those of `library.threaded`, else torch's, by default; small products use one
    path: one of `paths()`, for tests; by default the best, or what QUALGATE_CPU_PATH says
    """
    columns = weight.shape[1]
    if x.dtype not in X_TYPES:
        raise ValueError(f"x: expected float32 or bfloat16, got {str(x.dtype).removeprefix('torch.')}")
    if x.device.type != "cpu":
        raise ValueError(f"x: expected a tensor on the CPU, got {x.device}")
    if x.dim() != 2 or x.shape[0] < 1 or x.shape[1] != columns:
        raise ValueError(f"x: expected [rows >= 1, {columns}], got {list(x.shape)}")
    if not x.is_contiguous():
        raise ValueError(f"x: expected contiguous rows, got strides {x.stride()} for shape {list(x.shape)}")
    if threads is None:
        threads = default_threads()
    if type(threads) is not int or threads < 1:
        raise ValueError(f"threads: expected 1 or more, got {threads!r}")
    library = load()
    if not isinstance(library, Library):
        raise ValueError(f"the CPU kernels are not there: {library}")
    if path and path not in library.paths:
        raise ValueError(f"path: expected one of {', '.join(library.paths)}, got {path!r}")
    return library.matmul(x, weight, threads, path or library.path)


def matmul_torch(x: torch.Tensor, packed: PackedWeight) -> torch.Tensor:
    """The torch twin, which is the specification: x times the dequantized weight."""
    return torch.nn.functional.linear(x, dequantize_torch(packed).to(x.dtype))
