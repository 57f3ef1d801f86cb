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
from tests.kernels.weights import EIGHT_BITS, FORMATS, PATHS, compiled, inputs, multiply, same, weight

every_weight = pytest.mark.parametrize("packed", EIGHT_BITS.values(), ids=list(EIGHT_BITS))


@compiled
@every_weight
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_products_have_the_bits_that_whole_codes_give_on_every_path(packed, dtype):
    x, whole, halves = inputs(packed.shape[1], dtype, 200), cpu.prepare(packed), cpu.prepare(packed, halves=True)
    assert (whole.halves, halves.halves) == (False, True)
    for path in PATHS:
        assert same(multiply(x, halves, path), multiply(x, whole, path)), path


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
        upper_half(cpu.prepare(EIGHT_BITS["groups"]))


@compiled
def test_a_fused_weight_lies_in_halves_where_that_is_asked_and_its_half_needs_no_numbers_of_the_format():
    packed = EIGHT_BITS["many groups"]
    found, plain = fuse(packed, halves=True), fuse(packed)
    assert isinstance(found, Fused)
    assert isinstance(plain, Fused)
    assert isinstance(found.layout, cpu.Prepared)
    x = inputs(packed.shape[1], torch.float32, 9)
    assert same(found.multiply(x), plain.multiply(x))
    half = upper_half(found.layout)
    assert same(cpu.matmul(x, half), cpu.matmul(x, upper_half(cpu.prepare(packed, halves=True))))
    rounded = fuse(weight("int", 8, 66, 64, 0), "int8", halves=True)
    assert isinstance(rounded, Fused)
    assert rounded.kernel == "c int8", "whose codes lie as its own product reads them"
