"""Tensors in large pages of memory, where the system has them.

A product walks over a whole weight for every pass: looking up small pages cost it up to half of the bandwidth.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from math import prod

import torch

LARGE = 2**21  # bytes of such a page


def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros on the CPU that take no memory before they are written. MemoryError where none is to be had.

    What is smaller than a large page, or lies behind the last whole one, is in small pages: nothing is rounded up.
    """
    count = prod(shape)
    size = count * dtype.itemsize
    if size < LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(shape, dtype=dtype)
    try:
        memory = mmap.mmap(-1, size + LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes: {error.strerror}") from None
    start = -torch.frombuffer(memory, dtype=torch.uint8).data_ptr() % LARGE
    with suppress(OSError):  # a system that is built or told to have none
        memory.madvise(mmap.MADV_HUGEPAGE, start, size // LARGE * LARGE)
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=start).view(shape)
