"""Dense weights in the C kernels' layout: against float64, one row against any company, and back to the bit."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qualgate_kernels import cpu, dense
from qualgate_kernels.cpu import dense_layout
from tests.kernels.weights import PATHS, multiply, same

pytestmark = pytest.mark.skipif(not cpu.paths(), reason=cpu.available())
STORED = (torch.bfloat16, torch.float16, torch.float32)
X = (torch.float32, torch.bfloat16)
each_stored = pytest.mark.parametrize("stored", STORED, ids=str)
each_x = pytest.mark.parametrize("dtype", X, ids=str)


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def prepared_of(weight: torch.Tensor) -> dense.PreparedDense:
    found = dense.prepare_dense(weight)
    assert isinstance(found, dense.PreparedDense), found
    return found


def test_the_twin_is_as_near_as_float32_gets():
    for stored, dtype in product(STORED, X):
        weight, x = drawn(65, 129, dtype=stored), drawn(7, 129, dtype=dtype, seed=1)
        exact, size = x.double() @ weight.double().T, x.double().abs() @ weight.double().abs().T
        allowed = 8 * (131 * 2**-24 * size + (2**-8 * exact.abs() if dtype == torch.bfloat16 else 0))
        assert bool(((dense.matmul_dense_torch(x, weight).double() - exact).abs() <= allowed).all())


@pytest.mark.parametrize("shape", [(1, 1), (64, 128), (67, 333), (200, 1025)])
@pytest.mark.parametrize("held", STORED, ids=str)
@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_a_weight_is_kept_in_the_narrowest_type_that_holds_it_and_comes_back_to_the_bit(
    dtype, held, shape, monkeypatch
):
    monkeypatch.setattr(dense_layout, "AT_ONCE", 2**14)  # several slices
    weight = drawn(*shape).to(held).to(dtype)
    weight[0, 0] = 1 + 2**-7
    prepared = prepared_of(weight)
    narrowest = next(one for one in STORED if torch.equal(weight.to(one).to(dtype), weight))
    assert prepared.values.dtype == narrowest
    assert same(dense.restore_dense(prepared), weight)


def test_a_nan_whose_bits_torch_widens_otherwise_comes_back():
    weight = torch.tensor([[0, 2**31 - 1]], dtype=torch.int32).view(torch.float32)
    assert same(dense.restore_dense(prepared_of(weight)), weight)


@pytest.mark.parametrize("dtype", STORED, ids=str)
@given(st.data())
def test_any_bits_come_back(dtype, data):
    width, kind = (32, torch.int32) if dtype == torch.float32 else (16, torch.int16)
    drawn_bits = data.draw(st.lists(st.integers(-(2 ** (width - 1)), 2 ** (width - 1) - 1), min_size=1, max_size=40))
    weight = torch.tensor(drawn_bits, dtype=kind).view(dtype)[None]
    if data.draw(st.booleans()):
        weight = weight.T
    assert same(dense.restore_dense(prepared_of(weight)), weight.contiguous())


def test_a_bfloat16_weight_takes_bfloat16s_bytes():
    weight = drawn(512, 1024, dtype=torch.bfloat16)
    assert prepared_of(weight).nbytes == prepared_of(weight.float()).nbytes == weight.nbytes


def test_a_parameter_and_a_transposed_weight_are_taken_as_they_are():
    weight = drawn(70, 130)
    x = drawn(3, 130, seed=1)
    expected = cpu.matmul(x, prepared_of(weight))
    assert same(cpu.matmul(x, prepared_of(torch.nn.Parameter(weight))), expected)
    assert same(cpu.matmul(x, prepared_of(weight.T.contiguous().T)), expected)


@each_stored
@each_x
def test_weights_that_are_not_finite_spoil_their_own_outputs_as_in_torch(stored, dtype):
    weight, x = drawn(67, 201, dtype=stored), drawn(40, 201, dtype=dtype, seed=1)
    finite = prepared_of(weight)
    weight[3, 7], weight[5, 200], weight[66, 0], weight[66, 1] = torch.inf, torch.nan, torch.inf, -torch.inf
    prepared = prepared_of(weight)
    kept = [row for row in range(67) if row not in (3, 5, 66)]
    twin = dense.matmul_dense_torch(x, weight)
    for path in PATHS:
        found, before = multiply(x, prepared, path), multiply(x, finite, path)
        assert same(found[:, kept].contiguous(), before[:, kept].contiguous()), path
        assert torch.equal(found[:, 3], twin[:, 3]), path
        assert torch.equal(found[:, [5, 66]].isnan(), twin[:, [5, 66]].isnan()), path


@pytest.mark.parametrize(
    ("weight", "reason"),
    [
        (torch.zeros(4, 4, dtype=torch.float64), "float64"),
        (torch.zeros(4, 4, dtype=torch.int8), "int8"),
        (torch.zeros(4), "got [4]"),
        (torch.zeros(4, 0), "got [4, 0]"),
        (torch.zeros(0, 4), "got [0, 4]"),
        (torch.zeros(2, 4, 4), "got [2, 4, 4]"),
        (torch.zeros(4, 4, device="meta"), "meta"),
        (torch.eye(4).to_sparse(), "sparse"),
    ],
)
def test_why_torch_has_to_multiply_a_weight_is_said(weight, reason):
    found = dense.prepare_dense(weight)
    assert isinstance(found, str)
    assert reason in found


def test_without_the_kernels_the_reason_is_theirs(monkeypatch):
    monkeypatch.setattr(dense, "load", lambda: "not compiled: no C compiler")
    assert dense.prepare_dense(torch.zeros(4, 4)) == "not compiled: no C compiler"
