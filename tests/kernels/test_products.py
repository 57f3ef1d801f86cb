"""What the C kernels promise of every layout of a weight: products near float64, each row's bits its own on any number
of threads, and the weight back to the bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch

from qualgate_kernels import cpu, dense
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import PackedWeight
from tests.kernels.weights import FORMATS, PATHS, compiled, inputs, multiply, same
from tests.tables import each_row

pytestmark = compiled
FLOATS = (torch.bfloat16, torch.float16, torch.float32)
SHAPES = ((67, 333), (1, 1), (64, 128), (3, 4097))


@dataclass(frozen=True)
class Laid:
    """A weight in a layout. exact: its numbers, sizes: those of the terms they are summed of; float64 [out, in]."""

    layout: cpu.Prepared | dense.PreparedDense
    exact: torch.Tensor
    sizes: torch.Tensor


def packed(weight: PackedWeight) -> Laid:
    scales = (
        weight.scales if weight.scales.dtype == torch.uint8 else weight.scales.float().abs().to(weight.scales.dtype)
    )
    sizes = dequantize_torch(replace(weight, scales=scales, offsets=None)).double().abs()
    if weight.offsets is not None:
        sizes = torch.maximum(sizes, dequantize_torch(replace(weight, offsets=weight.offsets.abs())).double().abs())
    return Laid(cpu.prepare(weight), dequantize_torch(weight).double(), sizes)


def of_floats(dtype: torch.dtype, rows: int, columns: int) -> Laid:
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)).to(dtype)
    layout = dense.prepare_dense(weight)
    assert isinstance(layout, dense.PreparedDense), layout
    return Laid(layout, weight.double(), weight.double().abs())


LAID: dict[str, Callable[[], Laid]] = {
    **{name: lambda weight=weight: packed(weight) for name, weight in FORMATS.items()},
    **{
        f"{dtype} {shape}": lambda dtype=dtype, shape=shape: of_floats(dtype, *shape)
        for dtype in FLOATS
        for shape in SHAPES
    },
}
DENSE = f"{torch.bfloat16} {SHAPES[0]}"
FEW = ["int4 grouped", "mxfp4", *(f"{dtype} {SHAPES[0]}" for dtype in FLOATS)]
laid = cache(lambda name: LAID[name]())
every_layout = each_row("name", LAID)
both_dtypes = each_row("dtype", [torch.float32, torch.bfloat16])


@every_layout
@both_dtypes
def test_every_path_is_as_near_as_the_length_of_its_sums_allows(name, dtype):
    """Terms are exact. A sum of n float32 numbers errs by at most about n * 2**-24 of the sum of their magnitudes; here
    n is a segment (128 at most), the segments, and the roundings of scales and of the weight the twin gives. A result
    in bfloat16 is rounded once more, by 2**-9 of it."""
    one = laid(name)
    x = inputs(one.layout.shape[1], dtype, 70)
    exact = x.double() @ one.exact.T
    steps = one.layout.segment + 2 * one.layout.segments + 4
    allowed = steps * 2**-24 * (x.double().abs() @ one.sizes.T)
    allowed += 2**-8 * exact.abs() if dtype == torch.bfloat16 else 0
    for path in PATHS:
        found = multiply(x, one.layout, path)
        assert found.dtype == dtype
        assert bool(((found.double() - exact).abs() <= allowed).all()), path


@every_layout
@both_dtypes
def test_a_rows_bits_do_not_depend_on_its_company_or_the_threads(name, dtype):
    layout = laid(name).layout
    x = inputs(layout.shape[1], dtype, 200)
    for path in PATHS:
        if path == "amx_emulated" and dtype == torch.float32:
            continue  # avx512 once more
        together = multiply(x, layout, path, threads=1)
        assert same(multiply(x, layout, path), together), path
        for rows in (*range(1, 20), 31, 32, 33, 48, 63, 64, 65, 129):
            first = 7 * rows % (200 - rows)
            alone = multiply(x[first : first + rows], layout, path, threads=1 + rows % 3)
            assert same(alone, together[first : first + rows]), (path, rows)


@pytest.mark.skipif("avx512" not in cpu.paths(), reason="needs AVX-512")
@every_layout
def test_float32_products_are_the_same_on_avx2_and_avx512(name):
    layout = laid(name).layout
    x = inputs(layout.shape[1], torch.float32, 20)
    assert same(cpu.matmul(x, layout, path="avx2"), cpu.matmul(x, layout, path="avx512"))


@pytest.mark.parametrize("weight", FORMATS.values(), ids=FORMATS)
def test_a_packed_weight_comes_back_to_the_bit(weight):
    found = cpu.restore(cpu.prepare(weight))
    about = [(one.code, one.bits, one.shape, one.format, one.tensors.keys()) for one in (found, weight)]
    assert about[0] == about[1]
    for name, tensor in weight.tensors.items():
        mine, its = (one.reshape(-1).view(torch.uint8) for one in (found.tensors[name], tensor))
        assert torch.equal(mine, its), name


@both_dtypes
@pytest.mark.parametrize("name", FEW)
def test_inputs_that_are_not_finite_spoil_their_own_row_with_one_nan(name, dtype):
    layout = laid(name).layout
    x, integer = inputs(layout.shape[1], dtype, 40), torch.int32 if dtype == torch.float32 else torch.int16
    clean = x.clone()
    x.view(integer)[1, 4] = 0x7F800001 if dtype == torch.float32 else 0x7F81  # a NaN of its own
    x[2, -1], x[2, 9], x[3, 5] = torch.nan, torch.inf, -torch.inf
    x[4, :2] = torch.inf
    others = [0, *range(5, 40)]
    for path in PATHS:
        together, before = multiply(x, layout, path), multiply(clean, layout, path)
        assert bool(together[1:3].isnan().all())
        assert not together[1:5].isfinite().any()
        assert len(together.view(integer)[together.isnan()].unique()) == 1, path
        assert same(together[others], before[others]), path
        for rows in (1, 2, 3, 5, 20):
            for first in (0, 1, 2, 4):
                part = x[first : first + rows]
                assert same(multiply(part, layout, path), together[first : first + rows]), (path, rows, first)


@pytest.mark.parametrize("name", ["int4 grouped", DENSE])
def test_other_inputs_are_refused_with_what_was_expected(name):
    layout = laid(name).layout
    width = layout.shape[1]
    for x, found in (
        (torch.zeros(2, width, dtype=torch.float16), "float16"),
        (torch.zeros(2, width - 1), rf"\[2, {width - 1}\]"),
        (torch.zeros(0, width), rf"\[0, {width}\]"),
        (torch.zeros(width), rf"\[{width}\]"),
        (torch.zeros(width, 2).T, "strides"),
        (torch.zeros(2, width, device="meta"), "meta"),
    ):
        with pytest.raises(ValueError, match=found):
            cpu.matmul(x, layout)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        *(
            ("int4 grouped", broken)
            for broken in (
                {"codes": torch.zeros(64, dtype=torch.uint8)},
                {"scales": torch.zeros(1)},
                {"segment": 96},
                {"segments": 4},
                {"per_group": 2},
                {"gather": torch.full((320,), 320, dtype=torch.int32)},
            )
        ),
        *(
            (DENSE, broken)
            for broken in (
                {"values": torch.zeros(2, 167, 64)},
                {"values": torch.zeros(2, 333, 64, dtype=torch.float16)},
                {"segment": 95},
                {"segments": 2},
                {"shape": (67, 400)},
                {"shape": (129, 333)},
                {"shape": (0, 333)},
            )
        ),
    ],
)
def test_c_checks_every_size_itself(name, broken):
    wrong = replace(laid(name).layout, **broken)
    with pytest.raises(RuntimeError, match="do not fit"):
        cpu.matmul(torch.zeros(1, wrong.shape[1]), wrong)
