"""The drift kernel in C (cpu/drift.c): loaded with ctypes where it was compiled and the processor has AVX-512."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from qualgate_kernels.drift import Head
    from qualgate_kernels.gumbel import Noise

TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
ERRORS = {1: "an argument is out of range", 2: "out of memory", 3: "the processor lacks AVX-512"}
FLOATS = ("kl", "logprob", "entropy", "margin", "best")  # of found_t, then the token ids
TOKENS = ("top", "sample")


class _Side(ctypes.Structure):
    _fields_ = [
        ("hidden", ctypes.c_void_p),
        ("head", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("width", ctypes.c_int64),
        ("hidden_type", ctypes.c_int32),
        ("head_type", ctypes.c_int32),
    ]


@dataclass(frozen=True, slots=True)
class Library:
    """The compiled drift kernel."""

    handle: ctypes.CDLL

    def drift(self, p: Head, q: Head, labels: torch.Tensor | None, noise: Noise | None, threads: int) -> dict[str, Any]:
        """Return the fields of a Drift. Rows are shared among threads; each has a workspace of its own."""
        rows, fields = p.hidden.shape[0], len(FLOATS) + len(TOKENS)
        results = torch.empty(rows, fields, 2, dtype=torch.float64)
        inputs = [labels, *((None, None) if noise is None else (noise.cases, noise.positions))]
        inputs = [None if tensor is None else tensor.contiguous() for tensor in inputs]

        def part(start: int, stop: int) -> int:
            sides = (_Side * 2)(*(_side(head, start) for head in (p, q)))
            return self.handle.qualgate_drift(
                sides, stop - start, p.weight.shape[0], *(None if t is None else t[start:].data_ptr() for t in inputs),
                0 if noise is None else noise.seed, 1.0 if noise is None else 1 / noise.temperature,
                results[start:].data_ptr(),
            )  # fmt: skip

        share = -(-rows // max(1, threads) // 8) * 8
        parts = [(start, min(start + share, rows)) for start in range(0, rows, share)]
        if len(parts) == 1:
            codes = [part(*parts[0])]
        else:
            with ThreadPoolExecutor(len(parts)) as pool:
                codes = list(pool.map(lambda bounds: part(*bounds), parts))
        if 2 in codes:
            raise MemoryError("drift kernel: out of memory")
        if any(codes):
            raise RuntimeError(f"drift kernel: {ERRORS.get(max(codes), max(codes))}")
        columns = {name: results[:, i].T.contiguous() for i, name in enumerate(FLOATS)}
        columns |= {name: results[:, len(FLOATS) + i].T.contiguous().view(torch.int64) for i, name in enumerate(TOKENS)}
        absent = {"logprob": None} if labels is None else {}
        return columns | absent | ({"sample": None} if noise is None else {})


def _side(head: Head, start: int) -> _Side:
    """Return one model's side as C reads it, from row `start` on."""
    return _Side(
        hidden=head.hidden[start:].data_ptr(),
        head=head.weight.data_ptr(),
        bias=None if head.bias is None else head.bias.data_ptr(),
        width=head.hidden.shape[1],
        hidden_type=TYPES[head.hidden.dtype],
        head_type=TYPES[head.weight.dtype],
    )


@cache
def load() -> Library | str:
    """The kernel as it was installed, or why there is none."""
    files = sorted(Path(__file__).parent.glob("_drift*.so"))
    return open_library(files[0]) if files else "not compiled: no C compiler when qualgate was installed"


def open_library(file: Path) -> Library | str:
    """Return the kernel in `file`, or why it cannot serve here."""
    try:
        handle = ctypes.CDLL(str(file))
        path, size = handle.qualgate_drift_path(), handle.qualgate_drift_bytes()
    except (OSError, AttributeError) as error:
        return f"not loaded: {error}"
    if not path:
        return "the processor lacks AVX-512"
    if size != 16 * len(FLOATS + TOKENS):
        return "of another version: install qualgate again"
    pointer, int64 = ctypes.c_void_p, ctypes.c_int64
    handle.qualgate_drift.argtypes = [
        pointer, int64, int64, pointer, pointer, pointer, ctypes.c_uint64, ctypes.c_float, pointer
    ]  # fmt: skip
    return Library(handle)
