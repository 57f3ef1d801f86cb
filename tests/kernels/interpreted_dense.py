"""Dense products, norms and turned heads in Triton, through its interpreter; and each row's bits.

`test_interpreted.py` runs this file in a process of its own.
"""

from __future__ import annotations

import pytest
import torch
from triton.runtime import interpreter

from qualgate_kernels.dense import norm_torch
from qualgate_kernels.dense_gpu import block_of, matmul_dense_triton, norm_triton, parted
from qualgate_kernels.rotary import turn_torch
from qualgate_kernels.rotary_gpu import turn_triton
from tests.kernels.interpreted_paged import RowByRow, same
from tests.kernels.one_shape import one_shape

DTYPES = [torch.bfloat16, torch.float16, torch.float32]


@pytest.fixture(autouse=True, scope="module")
def row_by_row():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "np", RowByRow())
        yield


def made(rows, out_features, in_features, dtype):
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, in_features, generator=generator)
    return x, torch.randn(out_features, in_features, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", one_shape(*DTYPES))
@pytest.mark.parametrize(("out_features", "in_features"), one_shape((33, 600), (70, 40), (130, 515)))
def test_a_row_has_the_same_bits_alone_and_among_others_and_they_are_right(out_features, in_features, dtype):
    x, held = made(37, out_features, in_features, dtype)
    whole = matmul_dense_triton(x, held)
    exact = x.double() @ held.double().T
    assert (whole - exact).abs().max() <= 1e-5 * exact.abs().max()
    for first, last in ((0, 1), (36, 37), (5, 25)):
        assert same(matmul_dense_triton(x[first:last].contiguous(), held), whole[first:last])
    assert same(matmul_dense_triton(x[:3], held, split=True), matmul_dense_triton(x[:3], held, split=False))


@pytest.mark.proof
def test_what_is_not_finite_in_a_row_stays_in_it():
    x, held = made(4, 64, 80, torch.bfloat16)
    before = matmul_dense_triton(x, held)
    x[1, 3], x[2, 79] = torch.nan, torch.inf
    after = matmul_dense_triton(x, held)
    assert not after[1:3].isfinite().any()
    assert same(after[[0, 3]], before[[0, 3]])


@pytest.mark.parametrize(("out_features", "in_features"), [(64, 64), (4096, 4096), (151_936, 2560), (1, 100_000)])
def test_parts_of_a_weight_hold_all_of_it_and_none_is_empty(out_features, in_features):
    for dtype in (torch.bfloat16, torch.float32):
        blocks, parts = parted(out_features, in_features, dtype)
        part = blocks * block_of(dtype)
        assert (parts - 1) * part < in_features <= parts * part


@pytest.mark.parametrize("width", one_shape(100, 16, 2560))
def test_a_norm_is_right_and_its_rows_are_their_own(width):
    x = torch.randn(3, 5, width, generator=torch.Generator().manual_seed(width))
    weight = torch.linspace(-1, 2, width).bfloat16()
    found = norm_triton(x, weight, 1e-6)
    torch.testing.assert_close(found, norm_torch(x, weight, 1e-6), rtol=2e-6, atol=1e-6)
    assert same(norm_triton(x[1, 2].contiguous(), weight, 1e-6), found[1, 2])


def asked(heads, kv_heads, rows, dim, dtype=torch.float32):
    """As a model's projections leave them: row by row, seen head by head."""
    generator = torch.Generator().manual_seed(rows + dim)
    query, key = (torch.randn(1, rows, count, dim, generator=generator) for count in (heads, kv_heads))
    angles = torch.randn(1, rows, dim, generator=generator)
    return query.to(dtype).transpose(1, 2), key.to(dtype).transpose(1, 2), angles.cos(), angles.sin()


SIZES = [(7, 1, 2, 128), (4, 2, 5, 16), (3, 3, 1, 80), (1, 1, 3, 2)]


@pytest.mark.parametrize("dtype", one_shape(*DTYPES))
@pytest.mark.parametrize(("heads", "kv_heads", "rows", "dim"), one_shape(*SIZES))
def test_turned_heads_have_the_bits_of_the_twin_and_lie_row_by_row(heads, kv_heads, rows, dim, dtype):
    before = asked(heads, kv_heads, rows, dim, dtype)
    for found, expected in zip(turn_triton(*before), turn_torch(*before), strict=True):
        assert found.dtype == torch.float32
        assert same(found.contiguous(), expected.contiguous())
        assert found.transpose(1, 2).is_contiguous()
