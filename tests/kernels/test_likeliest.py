"""The likeliest token of a row of logits, against numpy in float64; and each row's bits, whatever rides along."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from qualgate_kernels import cpu, dispatch
from qualgate_kernels.cpu import likeliest as in_c
from qualgate_kernels.likeliest import Likeliest, likeliest_torch

PATHS = [path for path in ("scalar", "avx2", "avx512") if path in cpu.paths()] if not in_c.missing() else []
needs_c = pytest.mark.skipif(not PATHS, reason="the kernels were not compiled here")
ANY = st.floats(width=32)
NEAR = st.floats(-30, 30, width=32)
SUMS_ERR = 2e-5  # relative: 256 numbers of a lane added up in float32, e**x within 2 ulp

NAN, INF, LEAST = math.nan, math.inf, float(np.finfo(np.float32).min)


def ways(logits: torch.Tensor) -> dict[str, Likeliest]:
    """What every path says, and the twin."""
    return {path: in_c.likeliest(logits, 1, path) for path in PATHS} | {"twin": likeliest_torch(logits)}


def expected(row: np.ndarray) -> tuple[int, float, float, bool]:
    """Token, log-prob, lead, finite of float32 [vocabulary], from the definition."""
    odd = np.flatnonzero(np.isnan(row))
    if len(odd):
        return int(odd[0]), NAN, NAN, False
    token = row.tolist().index(max(row.tolist()))
    best, others = row[token], np.delete(row, token)
    with np.errstate(over="ignore", invalid="ignore"):
        lead = best - max(others, default=np.float32(-INF))
        logprob = -math.log(np.exp(row.astype(np.float64) - float(best)).sum()) if np.isfinite(best) else NAN
    return token, logprob, float(lead), bool(np.isfinite(row).all())


def same(one: Likeliest, other: Likeliest) -> bool:
    """To the bit; a NaN for a NaN."""
    return all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(one, other, strict=True))


def rows(elements: st.SearchStrategy[float]) -> st.SearchStrategy[list[float]]:
    return st.integers(1, 80).flatmap(lambda size: st.lists(elements, min_size=size, max_size=size))


@given(rows(ANY) | rows(NEAR) | rows(st.sampled_from([0.0, -0.0, 1.0, INF, -INF, NAN, LEAST, -LEAST])))
@example([0.0])
@example([-INF])
@example([INF])
@example([NAN])
@example([1.0, 1.0])
@example([-INF, -INF, -INF])
@example([LEAST] * 17)
@example([-0.0, 0.0] * 9)
@example([*[0.0] * 16, INF, INF])
@example([*[0.0] * 31, NAN, INF, NAN])
@example([3e38, -3e38])
@example([*[-INF] * 20, 5.0])
@example([5.0, *[-INF] * 20])
@example([*range(33)])
@example([*range(33, 0, -1)])
def test_of_any_logits_every_way_says_the_definition(row):
    logits = torch.tensor([row], dtype=torch.float32)
    token, logprob, lead, finite = expected(logits[0].numpy())
    for way, found in ways(logits).items():
        assert found.tokens.tolist() == [token], way
        assert found.finite.tolist() == [finite], way
        np.testing.assert_array_equal(found.leads.item(), lead, way)
        np.testing.assert_allclose(found.logprobs.item(), logprob, rtol=1e-6, atol=SUMS_ERR, err_msg=way)
        assert not found.logprobs.item() > 0
        assert math.copysign(1, found.logprobs.item()) == 1 or found.logprobs.item() != 0, "a sure token's is 0, not -0"


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 15, 16, 17, 768, 1023, 1024, 1025, 1100, 32_003, 151_936])
@pytest.mark.parametrize("scale", [0.0, 0.01, 3.0, 40.0])
def test_vocabularies_of_any_size(vocabulary, scale):
    logits = scale * torch.randn(3, vocabulary, generator=torch.Generator().manual_seed(vocabulary))
    wanted = [expected(row.numpy()) for row in logits]
    for way, found in ways(logits).items():
        assert found.tokens.tolist() == [one[0] for one in wanted], way
        assert found.leads.tolist() == [one[2] for one in wanted], way
        assert found.finite.all(), way
        np.testing.assert_allclose(found.logprobs.numpy(), [one[1] for one in wanted], rtol=2e-7, atol=2e-6)


@needs_c
@pytest.mark.parametrize("path", PATHS)
def test_a_row_has_its_bits_alone_among_others_and_on_any_threads(path):
    generator = torch.Generator().manual_seed(5)
    for count, vocabulary in ((40, 37), (40, 1030), (7, 60_001)):
        logits = 4 * torch.randn(count, vocabulary, generator=generator)
        logits[count // 2, vocabulary // 3] = NAN
        whole = in_c.likeliest(logits, 1, path)
        for threads in (2, 3, 200):
            assert same(in_c.likeliest(logits, threads, path), whole)
        for part in (*torch.randperm(count, generator=generator).split(3), *torch.arange(count).split(1)):
            alone = in_c.likeliest(logits[part], 2, path)
            assert same(alone, Likeliest(*(column[part] for column in whole)))


@pytest.mark.parametrize("threads", [1, 3])
def test_the_twin_gives_a_row_its_bits_too(threads):
    logits, before = 3 * torch.randn(5, 70_001, generator=torch.Generator().manual_seed(6)), torch.get_num_threads()
    whole = likeliest_torch(logits)
    try:
        torch.set_num_threads(threads)
        for row in range(5):
            assert same(likeliest_torch(logits[row : row + 1]), Likeliest(*(column[row : row + 1] for column in whole)))
    finally:
        torch.set_num_threads(before)


def test_what_is_given_has_the_shape_of_what_is_asked_whoever_serves():
    logits = torch.randn(2, 3, 50, generator=torch.Generator().manual_seed(1))
    whole = dispatch.likeliest(logits)
    types = [torch.int64, torch.float32, torch.float32, torch.bool]
    assert [(column.shape, column.dtype) for column in whole] == [((2, 3), kind) for kind in types]
    one = dispatch.likeliest(logits[1, 2])
    assert same(one, Likeliest(*(column[1, 2] for column in whole)))
    assert [column.shape for column in dispatch.likeliest(logits[:0])] == [(0, 3)] * 4
    for other in (logits.transpose(0, 2).contiguous().transpose(0, 2), logits.double(), logits.bfloat16().float()):
        assert torch.equal(dispatch.likeliest(other).tokens, other.argmax(-1))


@needs_c
def test_c_serves_what_an_engine_asks_and_nothing_that_it_would_misread():
    logits = torch.randn(4, 60)
    assert in_c.serves(logits)
    for other in (logits[:, ::2], logits.T, logits.double(), logits.bfloat16(), logits[:0], logits.to("meta")):
        assert not in_c.serves(other)
    with pytest.raises(RuntimeError, match="out of range"):
        in_c.likeliest(logits, 0)
