"""Drift in Triton, through its interpreter, against its torch twin.

The interpreter takes bfloat16 for integers, so float32 and float16 only; shapes are small because it is slow.
`test_interpreted.py` runs this file in a process of its own.
"""

from __future__ import annotations

import pytest
import torch

from qualgate_kernels.drift import Drift, Head, drift_torch
from qualgate_kernels.drift_gpu import Tile, drift_triton
from qualgate_kernels.gumbel import Noise
from tests.kernels.one_shape import one_shape

TILE = Tile(rows=16, tokens=32, width=16, slice=16, group=2, warps=4, stages=1)


def heads(rows: int, width: int, vocabulary: int, dtype: torch.dtype) -> tuple[Head, Head]:
    torch.manual_seed(rows)
    hidden, weight = torch.randn(rows, width).to(dtype), (torch.randn(vocabulary, width) / 2).to(dtype)
    other = (weight.float() + torch.randn(vocabulary, width) / 50).to(dtype)
    return Head(hidden=hidden, weight=weight, bias=torch.randn(vocabulary)), Head(hidden=hidden, weight=other)


DRAWN = [(19, 24, 150, torch.float32), (1, 16, 33, torch.float32), (3, 33, 600, torch.float16)]


@pytest.mark.parametrize(("rows", "width", "vocabulary", "dtype"), one_shape(*DRAWN))
def test_drift_is_its_twin(rows, width, vocabulary, dtype):
    p, q = heads(rows, width, vocabulary, dtype)
    labels = torch.arange(rows) * 11 % vocabulary
    noise = Noise(seed=2**40 + 1, cases=torch.arange(rows) + 2**40, positions=torch.arange(rows) * 3)
    found = drift_triton(p, q, labels, noise, tile=TILE, programs=3)
    expected = drift_torch(p, q, labels=labels, noise=noise)
    for name in ("kl", "entropy", "margin", "logprob"):  # float32 logits of about 5
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=5e-6, atol=5e-6)
    assert torch.equal(found.top, expected.top)
    assert torch.equal(found.sample, expected.sample)
    assert (found.sample != found.top).any() or rows == 1
    plain = drift_triton(p, q, None, None, tile=TILE, programs=1)
    assert torch.equal(plain.kl, found.kl)
    assert plain.logprob is None
    assert plain.sample is None


@pytest.mark.proof
def test_a_drift_row_does_not_notice_the_others():
    p, q = heads(20, 24, 150, torch.float32)
    whole = drift_triton(p, q, None, None, tile=TILE, programs=2)
    hidden = p.hidden[17:18].contiguous()
    alone = drift_triton(
        Head(hidden=hidden, weight=p.weight, bias=p.bias), Head(hidden=hidden, weight=q.weight), None, None,
        tile=TILE, programs=1,
    )  # fmt: skip
    for name in ("kl", "entropy", "top", "margin"):
        assert torch.equal(getattr(alone, name), getattr(whole, name)[:, 17:18]), name


@pytest.mark.proof
def test_a_tie_goes_to_the_lowest_token_and_a_broken_row_is_nan_alone():
    weight = torch.zeros(100, 16)
    weight[[5, 6, 40, 99]] = 1
    hidden = torch.ones(3, 16)
    hidden[1, 3] = torch.nan
    head = Head(hidden=hidden, weight=weight)
    found: Drift = drift_triton(head, head, None, None, tile=TILE, programs=1)
    assert found.top.tolist() == [[5, -1, 5]] * 2
    assert found.margin[:, [0, 2]].eq(0).all()
    assert found.kl[:, [0, 2]].eq(0).all()
    assert found.kl[:, 1].isnan().all()
    assert found.entropy[:, 1].isnan().all()
