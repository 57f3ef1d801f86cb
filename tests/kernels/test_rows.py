"""Rows of a weight that is laid out: those of the weight it was made of, to the bit."""

from __future__ import annotations

import pytest
import torch

from qualgate_kernels import cpu
from qualgate_kernels.cpu.dense_layout import PreparedDense, arrange_dense, rows_of_torch
from qualgate_kernels.cpu.library import threaded
from qualgate_kernels.dense import rows_of

pytestmark = pytest.mark.skipif(not cpu.paths(), reason="the kernels were not compiled here")
STORAGES = [torch.bfloat16, torch.float16, torch.float32]


def laid_out(shape: tuple[int, int], storage: torch.dtype) -> tuple[torch.Tensor, PreparedDense]:
    """A weight of every size of number, and as it lies."""
    generator = torch.Generator().manual_seed(shape[0] * shape[1])
    weight = torch.randn(shape, generator=generator) * 10.0 ** torch.randint(-6, 4, shape, generator=generator)
    weight[0, 0], weight[-1, -1] = torch.inf, -0.0
    return weight.to(storage), arrange_dense(weight.to(storage), storage)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype == torch.float32 and torch.equal(one.view(torch.int32), other.view(torch.int32))


@pytest.mark.parametrize("storage", STORAGES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (64, 16), (65, 127), (200, 129), (130, 300)], ids=str)
def test_rows_are_the_weights_own_in_any_order_and_again(shape, storage):
    weight, prepared = laid_out(shape, storage)
    last = shape[0] - 1
    for rows in (torch.arange(shape[0]), torch.tensor([last, 0, last, last // 2]), torch.tensor([last])):
        assert same(rows_of(prepared, rows), weight[rows].float())
        assert same(rows_of_torch(prepared, rows), weight[rows].float())
    assert rows_of(prepared, torch.arange(0)).shape == (0, shape[1])
    assert same(rows_of(prepared, torch.arange(2 * shape[0])[::2] // 2), weight.float())


def test_many_rows_are_shared_among_threads():
    weight, prepared = laid_out((70, 1000), torch.bfloat16)
    rows = torch.randint(0, 70, (600,), generator=torch.Generator().manual_seed(1))
    with threaded(3):
        assert same(rows_of(prepared, rows), weight[rows].float())


def test_what_is_no_row_is_refused():
    _, prepared = laid_out((70, 6), torch.float32)
    for rows in ([70], [-1], [0, 2**62]):
        with pytest.raises(IndexError, match="expected 0 to 69"):
            rows_of(prepared, torch.tensor(rows))
    for rows in (torch.tensor([1], dtype=torch.int32), torch.tensor([[1]]), torch.tensor(1)):
        with pytest.raises(ValueError, match="int64"):
            rows_of(prepared, rows)
