"""Heads turned in Triton, through its interpreter, against the twin, to the bit.

`test_rotary.py` runs this file in a process of its own.
"""

from __future__ import annotations

import pytest
import torch

from qualgate_kernels.rotary import turn_torch
from qualgate_kernels.rotary_gpu import turn_triton
from tests.kernels.interpreted_paged import same


def asked(heads, kv_heads, rows, dim, dtype=torch.float32):
    """As a model's projections leave them: row by row, seen head by head."""
    generator = torch.Generator().manual_seed(rows + dim)
    query, key = (torch.randn(1, rows, count, dim, generator=generator) for count in (heads, kv_heads))
    angles = torch.randn(1, rows, dim, generator=generator)
    return query.to(dtype).transpose(1, 2), key.to(dtype).transpose(1, 2), angles.cos(), angles.sin()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "rows", "dim"), [(4, 2, 5, 16), (3, 3, 1, 80), (7, 1, 2, 128), (1, 1, 3, 2)]
)
def test_heads_have_the_bits_of_the_twin_and_lie_row_by_row(heads, kv_heads, rows, dim, dtype):
    before = asked(heads, kv_heads, rows, dim, dtype)
    for found, expected in zip(turn_triton(*before), turn_torch(*before), strict=True):
        assert found.dtype == torch.float32
        assert same(found.contiguous(), expected.contiguous())
        assert found.transpose(1, 2).is_contiguous()


def test_heads_may_lie_anyhow_and_what_is_not_finite_stays_in_its_head():
    query, key, cosines, sines = asked(4, 2, 3, 32)
    query, key = query.contiguous(), torch.cat([key, key], 1)[:, 1:3]
    query[0, 1, 2, 5], key[0, 0, 0, 31] = torch.inf, torch.nan
    for found, expected in zip(
        turn_triton(query, key, cosines, sines), turn_torch(query, key, cosines, sines), strict=True
    ):
        assert torch.equal(found.isfinite(), expected.isfinite())
        assert same(found.nan_to_num().contiguous(), expected.nan_to_num().contiguous())
