"""A model's file as it lies in memory: what was laid out elsewhere is given back, so that a model is held once.

safetensors hands out tensors that are the file's own pages, and these stay this process's until the last tensor of the
file is gone. Of a large model that is never: an embedding keeps them all.
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

MAPS = Path("/proc/self/maps")


def give_back(tensor: torch.Tensor) -> None:
    """Let go of the pages of a file that lie whole in a tensor, which is read no more: they stay in the system's cache.

    If it is read all the same, it has the file's numbers again. Of a tensor that is no part of a file, and where the
    system cannot be told, nothing happens.
    """
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        return
    first = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (tensor.data_ptr() + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first and (advise := _advise()) is not None and _of_a_file(first, last):
        advise(first, last - first, mmap.MADV_DONTNEED)


def _of_a_file(first: int, last: int) -> bool:
    """Return whether the addresses are one private mapping of a file: of other memory the numbers would be lost."""
    with suppress(OSError, ValueError, IndexError):  # without such a list of mappings no memory is given back
        for line in MAPS.read_text(encoding="utf-8", errors="replace").splitlines():
            begin, _, end = line.split(maxsplit=1)[0].partition("-")
            if int(begin, 16) <= first < int(end, 16):
                _, rights, _, _, inode, *path = line.split(maxsplit=5)
                return last <= int(end, 16) and rights[3] == "p" and inode != "0" and path[0].startswith("/")
    return False


@cache
def _advise() -> Callable[[int, int, int], int] | None:
    """Return the C library's madvise; None where there is none."""
    try:
        madvise = ctypes.CDLL(None).madvise
    except (AttributeError, OSError, TypeError):
        return None
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return madvise
