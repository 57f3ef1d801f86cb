"""Codes of 8 bits in two halves: products with the bits that whole codes give, and the upper half as a weight alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from qualgate_kernels import cpu
from qualgate_kernels.cpu.halves import upper_half
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.dispatch import Fused, fuse
from qualgate_kernels.packed import PackedWeight, unpack_codes
from tests.kernels.test_cpu import (
    FORMATS,
    PATHS,
    both_dtypes,
    compiled,
    inputs,
    multiply,
    same,
    weight,
)

WEIGHTS = {
    "per row": weight("int", 8, 66, 401, 0, scales=torch.float32),
    "per row, sums of other lengths": weight("int", 8, 130, 300, 0),  # three of 100, which units of 8 do not fill
    "per row, whole segments": weight("int", 8, 200, 512, 0, scales=torch.float16),
    "per tensor": weight("int", 8, 70, 260, 0, block_rows=0),
    "groups": weight("int", 8, 67, 320, 64),
    "short groups": weight("int", 8, 65, 96, 12),
    "many groups": weight("int", 8, 130, 1120, 32),
    "zero points": weight("int", 8, 67, 192, 32, zero_points=True, scales=torch.float16),
    "offsets": weight("int", 8, 67, 160, 32, offsets=True, scales=torch.float32),
    "exponents": weight("int", 8, 67, 160, 32, scales=torch.uint8),
    "tensor scale": weight("int", 8, 67, 160, 32, tensor_scale=True),
    "act-order": weight("int", 8, 70, 256, 64, act_order=True, zero_points=True),
    "one weight": weight("int", 8, 1, 1, 0),
}
every_weight = pytest.mark.parametrize("packed", WEIGHTS.values(), ids=list(WEIGHTS))


@compiled
@every_weight
@both_dtypes
def test_products_have_the_bits_that_whole_codes_give_on_every_path_at_any_number_of_rows(packed, dtype):
    x, whole, halves = inputs(packed, dtype, 200), cpu.prepare(packed), cpu.prepare(packed, halves=True)
    assert (whole.halves, halves.halves) == (False, True)
    for path in PATHS:
        expected = multiply(x, whole, path)
        for rows in (*range(1, 10), 12, 13, 17, 33, 64, 200):
            assert same(multiply(x[-rows:], halves, path, threads=1 + rows % 2), expected[-rows:]), (path, rows)


@compiled
@every_weight
def test_the_layout_gives_the_weight_back_to_the_bit(packed):
    found = cpu.restore(cpu.prepare(packed, halves=True))
    for name, tensor in packed.tensors.items():
        assert torch.equal(found.tensors[name].reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8)), (
            name
        )


def middles(packed: PackedWeight) -> torch.Tensor:
    """float64 [out_features, in_features]: where a code's upper 4 bits are known, and of the lower a group's mean."""
    rows, columns = packed.shape
    codes = unpack_codes(packed.codes, 8, columns).double()
    group = torch.arange(columns) // (packed.group_size or columns) if packed.g_idx is None else packed.g_idx.long()
    row = torch.arange(rows) // (packed.block_rows or rows)

    def spread(per_scale: torch.Tensor) -> torch.Tensor:
        return per_scale.double()[row][:, group]

    scales = packed.scales.double() if packed.scales.dtype != torch.uint8 else 2.0 ** (packed.scales.double() - 127)
    if packed.tensor_scale is not None:
        scales = (scales.float() * packed.tensor_scale).double()
    known = 16 * (codes / 16).floor()
    for one in group.unique():
        here = group == one
        known[:, here] += (codes[:, here] % 16).mean(1, keepdim=True)
    if packed.offsets is not None:
        return known * spread(scales) + spread(packed.offsets)
    zero = 128 if packed.zero_points is None else spread(packed.zero_points)
    return (known - zero) * spread(scales)


@compiled
@every_weight
def test_the_upper_half_is_a_weight_of_4_bits_in_the_middle_of_its_group(packed):
    """A product with ones shows each weight: its rounding is that of a code times a scale, and of an offset."""
    rows, columns = packed.shape
    half, expected = upper_half(cpu.prepare(packed, halves=True)), middles(packed)
    assert (half.shape, half.rest.bits, half.rest.code) == ((rows, columns), 4, "int")
    largest = 2**-22 * (expected.abs() + 256 * dequantize_torch(replace(packed, codes=packed.codes * 0 + 255)).abs())
    for path in PATHS:
        found = multiply(torch.eye(columns), half, path).T.double()
        assert bool(((found - expected).abs() <= largest).all()), path


@compiled
def test_a_row_of_zeros_has_an_upper_half_of_zeros_whatever_its_scale():
    packed = weight("int", 8, 70, 256, 0)
    packed.codes[3], packed.scales[3] = 128, 1.0
    assert not multiply(torch.eye(256), upper_half(cpu.prepare(packed, halves=True)), cpu.path())[:, 3].any()


@compiled
@every_weight
def test_the_upper_half_holds_no_codes_of_its_own(packed):
    whole = cpu.prepare(packed, halves=True)
    half = upper_half(whole)
    assert half.codes.data_ptr() == whole.codes.data_ptr()
    assert half.codes.untyped_storage().data_ptr() == whole.codes.untyped_storage().data_ptr()
    assert 2 * half.codes.nbytes == whole.codes.nbytes
    assert half.gather is whole.gather
    assert upper_half(whole) is half, "made once"
    before = multiply(torch.ones(1, packed.shape[1]), half, PATHS[0])
    whole.codes[whole.codes.nbytes // 2 :] = 0  # the lower half has no say
    assert same(multiply(torch.ones(1, packed.shape[1]), half, PATHS[0]), before)


@compiled
@pytest.mark.parametrize("name", ["int4 grouped", "mxfp8", "fp8 e4m3 per row", "mxfp4"])
def test_other_codes_are_laid_out_as_they_were_and_have_no_half(name):
    packed = FORMATS[name]
    asked, plain = cpu.prepare(packed, halves=True), cpu.prepare(packed)
    assert not asked.halves
    assert torch.equal(asked.codes, plain.codes)
    with pytest.raises(cpu.Unsupported, match="do not lie in halves"):
        upper_half(asked)
    with pytest.raises(cpu.Unsupported, match="do not lie in halves"):
        upper_half(cpu.prepare(WEIGHTS["groups"]))


@compiled
def test_a_fused_weight_lies_in_halves_where_that_is_asked_and_its_half_needs_no_numbers_of_the_format():
    packed = WEIGHTS["many groups"]
    found, plain = fuse(packed, halves=True), fuse(packed)
    assert isinstance(found, Fused)
    assert isinstance(plain, Fused)
    assert isinstance(found.layout, cpu.Prepared)
    x = inputs(packed, torch.float32, 9)
    assert same(found.multiply(x), plain.multiply(x))
    half = upper_half(found.layout)
    assert same(cpu.matmul(x, half), cpu.matmul(x, upper_half(cpu.prepare(packed, halves=True))))
    rounded = fuse(weight("int", 8, 66, 64, 0), "int8", halves=True)
    assert isinstance(rounded, Fused)
    assert rounded.kernel == "c int8", "whose codes lie as its own product reads them"


@compiled
def test_c_checks_where_the_lower_half_lies_itself():
    prepared = cpu.prepare(WEIGHTS["groups"], halves=True)
    x = torch.zeros(1, 320)
    for broken in ({"codes": prepared.codes[:-64]}, {"segment": prepared.segment - 4}):
        with pytest.raises(RuntimeError, match="do not fit"):
            cpu.matmul(x, replace(prepared, **broken))
    with pytest.raises(RuntimeError, match="do not fit"):
        cpu.matmul(x, replace(cpu.prepare(FORMATS["int4 grouped"]), halves=True))
