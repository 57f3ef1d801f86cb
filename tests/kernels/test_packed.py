"""A PackedWeight says what is wrong with its parts, what it is called, and what it costs; codes pack and unpack."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import PackedWeight, pack_codes, unpack_codes
from tests.depth import examples
from tests.kernels.weights import FORMATS
from tests.tables import each_row


def packed(**changes) -> PackedWeight:
    parts = {
        "code": "int",
        "bits": 4,
        "shape": (3, 64),
        "group_size": 32,
        "codes": torch.zeros(3, 32, dtype=torch.uint8),
        "scales": torch.zeros(3, 2, dtype=torch.bfloat16),
    }
    return PackedWeight(**(parts | changes))


BYTES = torch.zeros(3, 64, dtype=torch.uint8)


def test_bytes_and_bits_count_all_that_is_stored():
    weight = packed()
    assert weight.nbytes == 3 * 32 + 3 * 2 * 2
    assert weight.effective_bits == 4.5
    more = packed(zero_points=torch.zeros(3, 2, dtype=torch.int16), g_idx=torch.zeros(64, dtype=torch.int32))
    assert more.nbytes == weight.nbytes + 3 * 2 * 2 + 64 * 4
    assert list(more.tensors) == ["codes", "scales", "zero_points", "g_idx"]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "int4 g32"),
        ({"group_size": 0, "scales": torch.zeros(3, 1)}, "int4 per row"),
        ({"zero_points": torch.zeros(3, 2, dtype=torch.uint8)}, "int4 g32 asym"),
        ({"offsets": torch.zeros(3, 2)}, "int4 g32 asym"),
        ({"g_idx": torch.zeros(64, dtype=torch.int32)}, "int4 g32 act-order"),
        ({"code": "e2m1", "scales": torch.zeros(3, 2, dtype=torch.uint8)}, "mxfp4"),
        ({"code": "e2m1", "group_size": 16, "scales": torch.zeros(3, 4).to(torch.float8_e4m3fn)}, "nvfp4"),
        ({"code": "e2m1"}, "fp4 g32"),
        ({"code": "nf4"}, "nf4 g32"),
        ({"code": "e4m3", "bits": 8, "codes": BYTES, "scales": torch.zeros(3, 2, dtype=torch.uint8)}, "mxfp8"),
        ({"code": "e5m2", "bits": 8, "codes": BYTES, "scales": torch.zeros(3, 2, dtype=torch.uint8)}, "mxfp8 e5m2"),
        (
            {"code": "e4m3", "bits": 8, "codes": BYTES, "block_rows": 2, "scales": torch.zeros(2, 2)},
            "fp8 e4m3 2x32",
        ),
        (
            {
                "code": "e4m3",
                "bits": 8,
                "codes": BYTES,
                "block_rows": 0,
                "group_size": 0,
                "scales": torch.zeros(1, 1),
            },
            "fp8 e4m3 per tensor",
        ),
    ],
)
def test_a_format_has_the_name_that_reports_show(changes, name):
    assert packed(**changes).format == name


@each_row(
    ("changes", "message"),
    [
        ({"code": "int4"}, "code: expected one of int, e2m1"),
        ({"bits": 9}, "bits of int codes: expected 2 or 3"),
        ({"code": "e4m3"}, "bits of e4m3 codes: expected 8, got 4"),
        ({"shape": (3, 0)}, "shape: expected two positive"),
        ({"group_size": -1}, "group_size: expected 0"),
        ({"group_size": 48}, "group_size: expected a divisor of 64"),
        ({"block_rows": True}, "block_rows"),
        (
            {"codes": torch.zeros(3, 31, dtype=torch.uint8)},
            r"codes of .* expected uint8 \[3, 32\], got uint8 \[3, 31\]",
        ),
        ({"codes": torch.zeros(3, 32, dtype=torch.int8)}, "codes .* expected uint8"),
        ({"scales": torch.zeros(3, 2, dtype=torch.float64)}, "scales .* got float64"),
        ({"scales": torch.zeros(2, 3)}, r"scales .* \[3, 2\], got float32 \[2, 3\]"),
        ({"block_rows": 2}, r"scales .* \[2, 2\]"),
        ({"zero_points": torch.zeros(3, 2)}, "zero_points .* int16 or uint8"),
        ({"offsets": torch.zeros(3, 1)}, "offsets"),
        ({"zero_points": torch.zeros(3, 2, dtype=torch.uint8), "offsets": torch.zeros(3, 2)}, "offsets: expected none"),
        ({"code": "nf4", "offsets": torch.zeros(3, 2)}, "expected none with nf4"),
        ({"tensor_scale": torch.zeros(1)}, r"tensor_scale .* float32 \[\]"),
        ({"g_idx": torch.zeros(64, dtype=torch.int64)}, "g_idx .* int32"),
        ({"g_idx": torch.full((64,), 2, dtype=torch.int32)}, "g_idx: expected groups 0 to 1, got 2 to 2"),
        ({"g_idx": torch.full((64,), -1, dtype=torch.int32)}, "g_idx: expected groups 0 to 1, got -1"),
    ],
)
def test_parts_that_do_not_fit_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        packed(**changes)


@examples(60)
@given(st.integers(2, 8), st.integers(1, 5), st.integers(1, 37), st.integers(0, 2**32 - 1))
def test_a_row_is_one_bitstream_lowest_bits_first(bits, rows, columns, seed):
    codes = np.random.default_rng(seed).integers(0, 2**bits, (rows, columns))
    stream = [sum(int(code) << (bits * place) for place, code in enumerate(row)) for row in codes]
    expected = [list(number.to_bytes((columns * bits + 7) // 8, "little")) for number in stream]
    packed = pack_codes(torch.tensor(codes, dtype=torch.uint8), bits)
    assert packed.tolist() == expected
    assert unpack_codes(packed, bits, columns).tolist() == codes.tolist()
    assert torch.equal(unpack_codes(packed, bits, columns, torch.float32).long(), torch.tensor(codes))


def test_some_rows_stand_for_what_they_stood_for_among_all():
    for name, weight in FORMATS.items():
        whole, step = dequantize_torch(weight), 2 * (weight.block_rows or 8)
        for first in range(0, weight.shape[0], step):
            part = weight.rows(first, first + step)
            assert part.format == weight.format
            assert torch.equal(dequantize_torch(part), whole[first : first + step]), name
