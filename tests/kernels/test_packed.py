"""A PackedWeight says what is wrong with its parts, and what it costs."""

from __future__ import annotations

import pytest
import torch

from qualgate_kernels.packed import PackedWeight


def packed(**changes) -> PackedWeight:
    parts = {
        "format": "int4",
        "shape": (3, 64),
        "group_size": 32,
        "codes": torch.zeros(3, 32, dtype=torch.uint8),
        "scales": torch.zeros(3, 2, dtype=torch.bfloat16),
    }
    return PackedWeight(**(parts | changes))


def test_bytes_and_bits_count_codes_and_scales():
    weight = packed()
    assert weight.nbytes == 3 * 32 + 3 * 2 * 2
    assert weight.effective_bits == 4.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "int5"}, "int5"),
        ({"group_size": 48}, "does not divide"),
        ({"codes": torch.zeros(3, 31, dtype=torch.uint8)}, r"codes .* \[3, 32\]"),
        ({"codes": torch.zeros(3, 32, dtype=torch.int8)}, "uint8"),
        ({"scales": torch.zeros(3, 2)}, "bfloat16"),
        ({"format": "mxfp4", "group_size": 16}, "blocks of 32"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        packed(**changes)
