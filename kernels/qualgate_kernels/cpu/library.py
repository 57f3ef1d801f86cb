"""The compiled kernels: found beside this file, loaded with ctypes, or the reason why not."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from weakref import WeakKeyDictionary

import torch

from qualgate_kernels.cpu.dense_layout import DENSE_CODES, PreparedDense
from qualgate_kernels.cpu.layout import CODES, SCALE_KINDS, Prepared

# Best last; the numbers of weight.h. Emulations are never among a Library's paths: only tests ask for them.
PATHS = {"scalar": 1, "avx2": 2, "avx512": 3, "avx512_bf16": 4, "amx": 5, "amx_emulated": 6}
INT8_PATHS = {"plain": 0, "vnni": 1, "amx": 2, "amx_emulated": 3}  # of int8 inputs: all give the same bits
CHOICE = "QUALGATE_CPU_PATH"  # environment variable: one of PATHS, or "torch" for the torch twin
X_TYPES = {torch.float32: 0, torch.bfloat16: 1}
ERRORS = {
    1: "the prepared weight's sizes do not fit together",
    2: "an argument is out of range",
    3: "out of memory",
    4: "the processor lacks the instructions of the path asked for",
}
NOT_AMX = {  # why a processor's AMX does not serve; 0: it does, 1: it has none
    2: "the system has not enabled its tiles",
    3: "the system refuses tiles to this process",
    4: "its products are not those that Intel documents",
    5: "the C compiler was too old for it",
}


class _Weight(ctypes.Structure):
    _fields_ = [
        ("bytes", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("segments", ctypes.c_int64),
        ("segment", ctypes.c_int64),
        ("per_group", ctypes.c_int64),
        ("code", ctypes.c_int32),
        ("bits", ctypes.c_int32),
        ("scale_kind", ctypes.c_int32),
        ("zero", ctypes.c_int32),
        ("codes", ctypes.c_void_p),
        ("codes_bytes", ctypes.c_int64),
        ("scales", ctypes.c_void_p),
        ("scales_bytes", ctypes.c_int64),
        ("zeros", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("gather", ctypes.c_void_p),
    ]


_DESCRIBED: WeakKeyDictionary[Prepared | PreparedDense, _Weight] = WeakKeyDictionary()


_THREADS: ContextVar[int] = ContextVar("threads", default=0)


@contextmanager
def threaded(threads: int) -> Iterator[None]:
    """Inside the block kernels take so many threads where none are asked for: torch's own operators may be told to take
    one, so that none of them parts its work otherwise on another machine."""
    token = _THREADS.set(threads)
    try:
        yield
    finally:
        _THREADS.reset(token)


def default_threads() -> int:
    """Return the threads of a kernel by default: those of `threaded`, else torch's."""
    return _THREADS.get() or torch.get_num_threads()


@dataclass(frozen=True, slots=True)
class Library:
    """The compiled products, and which of their paths this processor has."""

    handle: ctypes.CDLL
    paths: tuple[str, ...]  # what this processor has, best last
    path: str  # what serves where none is asked for
    int8_paths: tuple[str, ...]  # for int8 inputs, best last
    without: str = ""  # why a better path that the processor has does not serve

    def matmul(self, x: torch.Tensor, weight: Prepared | PreparedDense, threads: int, path: str) -> torch.Tensor:
        """x [M, K], contiguous, float32 or bfloat16 → [M, N]. MemoryError, or RuntimeError if C refuses."""
        out = torch.empty((x.shape[0], weight.shape[0]), dtype=x.dtype)
        code = self.handle.qualgate_matmul(
            ctypes.byref(described(weight)),
            x.data_ptr(),
            X_TYPES[x.dtype],
            x.shape[0],
            out.data_ptr(),
            threads,
            PATHS[path],
        )
        check(code)
        return out


@cache
def load() -> Library | str:
    """Return the compiled kernels, or the reason why there are none."""
    chosen = os.environ.get(CHOICE, "")
    if chosen == "torch":
        return f"{CHOICE}=torch"
    files = sorted(Path(__file__).parent.glob("_kernels*.so"))
    if not files:
        return "not compiled: no C compiler when qualgate was installed"
    try:
        handle = ctypes.CDLL(str(files[0]))
        has, has_int8, amx = handle.qualgate_paths(), handle.qualgate_int8_paths(), handle.qualgate_amx()
    except (OSError, AttributeError) as error:
        return f"not loaded: {error}"
    pointer, int64 = ctypes.c_void_p, ctypes.c_int64
    integer = ctypes.c_int
    handle.qualgate_matmul.argtypes = [pointer, pointer, integer, int64, pointer, integer, integer]
    handle.qualgate_matmul_int8.argtypes = [
        pointer,
        int64,
        pointer,
        pointer,
        int64,
        int64,
        int64,
        pointer,
        pointer,
        int64,
        pointer,
        integer,
        integer,
    ]
    handle.qualgate_read.argtypes, handle.qualgate_read.restype = [pointer, int64, integer], ctypes.c_uint64
    handle.qualgate_fuse.argtypes, handle.qualgate_fuse.restype = [int64, integer], int64
    paths = tuple(name for name, number in PATHS.items() if has >> number & 1)
    if chosen and chosen not in paths:
        return f"{CHOICE}={chosen}: this processor has {', '.join(paths)}"
    path = chosen or paths[-1]
    best_int8 = "amx" if path == "amx" else "vnni" if path.startswith("avx512") else "plain"
    int8_paths = tuple(name for name, n in INT8_PATHS.items() if has_int8 >> n & 1 and n <= INT8_PATHS[best_int8])
    return Library(handle, paths, path, int8_paths, f"amx: {NOT_AMX[amx]}" if amx in NOT_AMX else "")


def check(code: int) -> None:
    """MemoryError or RuntimeError for what C returned; 0 is success."""
    if code == 3:
        raise MemoryError("CPU kernels: out of memory")
    if code:
        raise RuntimeError(f"CPU kernels: {ERRORS.get(code, code)}")


def read(tensor: torch.Tensor, threads: int) -> int:
    """Read a contiguous tensor once, for the memory's speed: the exclusive or of its 8-byte words."""
    library = load()
    if not isinstance(library, Library) or not tensor.is_contiguous() or tensor.nbytes % 256 or threads < 1:
        raise ValueError("read: expected the compiled kernels, a contiguous tensor of whole 256 bytes, threads >= 1")
    return library.handle.qualgate_read(tensor.data_ptr(), tensor.nbytes, threads)


def fuse(steps: int, threads: int) -> int:
    """Multiply and add in registers, for the processor's speed: how many float32 multiply-adds were made, all of whose
    vectors could be under way at once."""
    library = load()
    if not isinstance(library, Library) or steps < 1 or threads < 1:
        raise ValueError("fuse: expected the compiled kernels, steps and threads >= 1")
    return library.handle.qualgate_fuse(steps, threads)


def described(weight: Prepared | PreparedDense) -> ctypes.Structure:
    """Return the weight_t of weight.h, which points into `weight`: both live as long as `weight` is held."""
    record = _DESCRIBED.get(weight)
    if record is None:  # several microseconds, which a small layer would feel
        record = _DESCRIBED[weight] = _dense(weight) if isinstance(weight, PreparedDense) else _packed(weight)
    return record


def _dense(weight: PreparedDense) -> _Weight:
    """Return a dense weight as C reads it."""
    return _Weight(
        bytes=ctypes.sizeof(_Weight),
        rows=weight.shape[0],
        columns=weight.shape[1],
        segments=weight.segments,
        segment=weight.segment,
        per_group=1,
        code=DENSE_CODES[weight.values.dtype],
        bits=8 * weight.values.element_size(),
        codes=weight.values.data_ptr(),
        codes_bytes=weight.values.nbytes,
    )


def _packed(weight: Prepared) -> _Weight:
    """Return a packed weight as C reads it."""

    def at(tensor: torch.Tensor | None) -> int | None:
        return None if tensor is None else tensor.data_ptr()

    description = weight.rest
    return _Weight(
        bytes=ctypes.sizeof(_Weight),
        rows=description.shape[0],
        columns=description.shape[1],
        segments=weight.segments,
        segment=weight.segment,
        per_group=weight.per_group,
        code=CODES[description.code],
        bits=description.bits,
        scale_kind=SCALE_KINDS[weight.scales.dtype],
        zero=0 if description.offsets is not None or description.code != "int" else 2 ** (description.bits - 1),
        codes=at(weight.codes),
        codes_bytes=weight.codes.nbytes,
        scales=at(weight.scales),
        scales_bytes=weight.scales.nbytes,
        zeros=at(weight.zero_points),
        offsets=at(weight.offsets),
        gather=at(weight.gather),
    )
