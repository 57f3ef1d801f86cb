"""KL divergence of two rows of logits, against numpy in float64; and each row's bits, whatever stands beside it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from qualgate_kernels import cpu, dispatch
from qualgate_kernels import kl as twin
from qualgate_kernels.cpu import kl as in_c
from qualgate_kernels.kl import LARGE, Divergences, kl_torch

PATHS = [path for path in ("scalar", "avx2", "avx512") if path in cpu.paths()] if not in_c.missing() else []
WAYS = (*PATHS, "twin")
CLOSE = 3e-6  # nats: sums of 16 to 64 products in a lane of float32, e**x within 2 ulp
NEAR = st.floats(-30, 30, width=32)


def measure(way: str, p: torch.Tensor, q: torch.Tensor, tokens: torch.Tensor, threads: int = 1) -> Divergences:
    """Compare by the twin, or by a path of the kernel in C."""
    return kl_torch(p, q, tokens) if way == "twin" else in_c.kl(p, q, tokens, threads, way)


def expected(p: np.ndarray, q: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """KL, log-prob and token from their definitions, of float32 [rows, vocabulary]."""
    log_p, log_q = (
        logits - (best + np.log(np.exp(logits - best).sum(-1, keepdims=True)))
        for logits, best in (
            (side.astype(np.float64), side.max(-1, keepdims=True).astype(np.float64)) for side in (p, q)
        )
    )
    return (np.exp(log_p) * (log_p - log_q)).sum(-1), log_q[np.arange(len(p)), tokens], p.argmax(-1)


def compare(way: str, p: torch.Tensor, q: torch.Tensor, tokens: torch.Tensor) -> None:
    found, (kl, logprobs, best) = measure(way, p, q, tokens), expected(p.numpy(), q.numpy(), tokens.numpy())
    np.testing.assert_allclose(found.kl, kl, rtol=CLOSE, atol=CLOSE)
    np.testing.assert_allclose(found.logprobs, logprobs, rtol=CLOSE, atol=CLOSE)
    np.testing.assert_array_equal(found.tokens, best)
    assert (found.kl >= 0).all()
    assert (found.logprobs <= 0).all()


def pair(rows: int, vocabulary: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits as a model has them, those of one that is near, and a token of each row."""
    generator = torch.Generator().manual_seed(seed)
    p = 4 * torch.randn(rows, vocabulary, generator=generator)
    q = p + 0.3 * torch.randn(rows, vocabulary, generator=generator)
    return p, q, torch.randint(vocabulary, (rows,), generator=generator)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("rows", "vocabulary"), [(1, 2), (3, 257), (5, 1025), (9, 31), (2, 50_000)])
def test_every_number_is_that_of_the_definition(way, rows, vocabulary):
    compare(way, *pair(rows, vocabulary))


@given(
    st.integers(1, 80).flatmap(lambda size: st.lists(st.tuples(NEAR, NEAR), min_size=size, max_size=size)), st.data()
)
@example([(0.0, 1.0)], None)
@example([(5.0, -5.0), *[(-30.0, 30.0)] * 40], None)
def test_of_any_finite_logits_every_way_says_the_definition(logits, data):
    p, q = torch.tensor(logits, dtype=torch.float32).T[:, None].contiguous()
    token = 0 if data is None else data.draw(st.integers(0, len(logits) - 1))
    for way in WAYS:
        compare(way, p, q, torch.tensor([token]))


@pytest.mark.parametrize("way", WAYS)
def test_equal_logits_have_no_divergence_at_all(way):
    p, _, tokens = pair(20, 5000)
    assert (measure(way, p, p.clone(), tokens).kl == 0).all()


@pytest.mark.parametrize("way", WAYS)
def test_a_row_does_not_notice_the_others_or_the_threads(way):
    p, q, tokens = pair(200, 4097)
    whole = measure(way, p, q, tokens)
    for rows, threads in (([70], 1), ([199, 70, 3], 2), ([*range(150, 40, -1)], 3)):
        part = measure(way, p[rows], q[rows], tokens[rows], threads)
        for one, other in zip(part, whole, strict=True):
            assert torch.equal(one, other[rows])


@pytest.mark.parametrize("way", WAYS)
def test_a_tie_goes_to_the_lowest_token(way):
    p = torch.zeros(1, 2600)
    p[0, [5, 6, 300, 1024, 2599]] = 1
    assert measure(way, p, p, torch.tensor([0])).tokens.tolist() == [5]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("moved", [1e4, -1e4])
def test_huge_logits_stay_finite_and_right(way, moved):
    p, q, tokens = pair(4, 600)
    compare(way, (p * 8).round() / 8 + moved, q * 400, tokens)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 700, 999])
def test_a_broken_row_is_nan_alone(way, bad, place):
    p, q, tokens = pair(7, 1000)
    whole, broken = measure(way, p, q, tokens), p.clone()
    broken[3, place] = bad
    others = [0, 1, 2, 4, 5, 6]
    by_p, by_q = measure(way, broken, q, tokens), measure(way, q, broken, tokens)
    assert all(torch.equal(one[others], other[others]) for one, other in zip(by_p, whole, strict=True))
    assert by_p.kl[3].isnan()
    assert by_q.kl[3].isnan()
    assert by_p.tokens[3] == -1
    assert by_p.logprobs[3] == whole.logprobs[3], "of Q, which is sound"
    assert by_q.logprobs[3].isnan()
    assert by_q.tokens[3] == q[3].argmax()


@pytest.mark.parametrize("way", PATHS)
@pytest.mark.parametrize("lowest", [-1e2, -1e4, -1e37, -1e38, -3.4e38])
@pytest.mark.parametrize("masked", [1, 1000, 4000])
def test_masked_tokens_of_the_baseline_count_as_the_twin_has_them(way, lowest, masked):
    p, q = torch.zeros(1, 8192), torch.zeros(1, 8192)
    p[0, -masked:] = lowest
    kl = [measure(one, p, q, torch.tensor([0])).kl.item() for one in (way, "twin")]
    assert kl[0] == pytest.approx(kl[1], abs=CLOSE)
    assert kl[0] > 1e-5
    if lowest == -3.4e38:
        p[0, 0] = 3e38  # a lead that is beyond float32
        assert math.isnan(measure(way, p, q, torch.tensor([0])).kl.item())


def test_c_serves_large_vocabularies_on_the_cpu_and_the_twin_all_others(monkeypatch):
    calls = []
    monkeypatch.setattr(dispatch.kl_cpu, "missing", lambda: "")
    monkeypatch.setattr(dispatch.kl_cpu, "kl", lambda *inputs: calls.append(inputs) or kl_torch(*inputs[:3]))
    for vocabulary in (LARGE - 1, LARGE):
        dispatch.kl(*pair(2, vocabulary))
    assert [len(p[0]) for p, *_ in calls] == [LARGE]
    monkeypatch.setattr(dispatch.kl_cpu, "missing", lambda: "not compiled")
    p, q, tokens = pair(2, LARGE)
    assert torch.equal(dispatch.kl(p, q, tokens).kl, kl_torch(p, q, tokens).kl)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": torch.zeros(3, 40, dtype=torch.float64)}, "logits: expected float32"),
        ({"q": torch.zeros(3, 41)}, "logits: expected"),
        ({"p": torch.zeros(0, 40), "q": torch.zeros(0, 40)}, "logits: expected"),
        ({"p": torch.zeros(40), "q": torch.zeros(40)}, "logits: expected"),
        ({"tokens": torch.arange(2)}, "given: expected int64"),
        ({"tokens": torch.zeros(3)}, "given: expected int64"),
        ({"tokens": torch.tensor([0, 1, 40])}, "token ids below 40"),
        ({"tokens": torch.tensor([0, -1, 1])}, "token ids below 40"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    inputs = {"p": torch.zeros(3, 40), "q": torch.zeros(3, 40), "tokens": torch.arange(3)} | change
    with pytest.raises(ValueError, match=message):
        dispatch.kl(*inputs.values())


def test_no_more_is_widened_than_fits(monkeypatch):
    p, q, tokens = pair(9, 700)
    whole = kl_torch(p, q, tokens)
    monkeypatch.setattr(twin, "FLOAT64_AT_ONCE", 2 * 700)
    assert all(torch.equal(one, other) for one, other in zip(kl_torch(p, q, tokens), whole, strict=True))
