"""Large pages are asked for where they fit, and nothing else changes: zeros, of any shape, written and freed."""

from __future__ import annotations

import gc
import mmap
from pathlib import Path

import pytest
import torch

from qualgate_kernels import pages

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def held(key: str) -> int:
    """Bytes of this process, as the kernel adds them up."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":"))


@pytest.mark.parametrize("shape", [(0,), (3, 5), (2**20 - 1,), (2**20,), (3, 2**19 + 7), (5, 2**20)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32], ids=str)
def test_zeros_of_any_size_are_zeros_that_can_be_written(shape, dtype):
    tensor = pages.zeros(shape, dtype)
    assert tensor.shape == shape
    assert tensor.dtype == dtype
    assert tensor.is_contiguous()
    assert not tensor.any()
    tensor.fill_(3)
    assert bool((tensor == 3).all())


def test_a_system_without_large_pages_gives_small_ones(monkeypatch):
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 10**6)  # EINVAL
    assert torch.equal(pages.zeros((2, 2**20), torch.float32), torch.zeros(2, 2**20))
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE")
    assert torch.equal(pages.zeros((2, 2**20), torch.float32), torch.zeros(2, 2**20))


def test_no_memory_is_a_memory_error(monkeypatch):
    def refused(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refused)
    with pytest.raises(MemoryError, match="8388608 bytes: Cannot allocate memory"):
        pages.zeros((2**21,), torch.float32)


@pytest.mark.skipif(not SETTING.exists() or "[never]" in SETTING.read_text(), reason="the system has no large pages")
def test_a_large_tensor_lies_in_large_pages_takes_no_more_than_its_bytes_and_gives_them_back():
    size = 16 * pages.LARGE + 4096
    gc.collect()
    before, large = held("Rss"), held("AnonHugePages")
    tensor = pages.zeros((size,), torch.uint8)
    assert held("Rss") - before < pages.LARGE
    tensor.fill_(1)
    assert held("AnonHugePages") - large >= 8 * pages.LARGE  # memory in pieces has fewer to give
    assert held("Rss") - before < size + pages.LARGE
    del tensor
    gc.collect()
    assert held("Rss") - before < pages.LARGE
