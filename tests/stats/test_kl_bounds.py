"""The true KL lies between what two lists of likeliest tokens prove of it."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite

import numpy as np
import pytest
from numpy.typing import NDArray

from qualgate.stats.kl_bounds import Listed, kl_bounds

WITHIN = 1e-5


def listed(logprobs: NDArray, k: int, also: int | None = None, *, floor: bool = True) -> Listed:
    """The k likeliest tokens, one more, and what the least likely one has."""
    order = np.argsort(-logprobs, kind="stable")
    tokens = np.unique([*order[:k], *([] if also is None else [also]), *([order[-1]] if floor else [])])
    least = float(logprobs.min()) if floor else -inf
    return Listed(tokens=tokens, logprobs=logprobs[tokens], most=float(logprobs[order[k - 1]]), least=least)


def log_softmax(logits: NDArray) -> NDArray:
    top = logits.max()
    return logits - top - np.log(np.exp(logits - top).sum())


def pairs(seed: int, n: int) -> Iterator[tuple[NDArray, NDArray]]:
    """Log-probs of two distributions: near and far, sharp and flat, with ties, with other tokens on top, with one that
    all but rules out what the other believes."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        size = int(rng.integers(2, 200))
        p = rng.normal(size=size) * rng.choice([0.01, 1.0, 3.0, 12.0])
        match int(rng.integers(6)):
            case 0:
                q = p + rng.normal(size=size) * rng.choice([1e-4, 1e-2, 0.3])
            case 1:
                q = rng.permutation(p)
            case 2:
                q = -p
            case 3:
                q, hidden = p.copy(), np.argsort(-p)[: max(1, size // 3)]
                q[rng.choice(hidden)] -= 40  # believed by p alone
            case 4:
                p = np.round(p)
                q = np.round(p + rng.normal(size=size))
            case _:
                q = np.full(size, -30.0)
                q[int(rng.integers(size))] = 0.0
        yield log_softmax(p), log_softmax(q)


def truth(p: NDArray, q: NDArray) -> float:
    return float((np.exp(p) * (p - q)).sum())


@pytest.mark.parametrize("floor", [True, False])
def test_the_truth_is_inside_whatever_the_distributions(floor):
    rng, finite = np.random.default_rng(7), 0
    for p, q in pairs(1, 2_000 if floor else 500):
        k = int(rng.integers(1, len(p) + 1))
        also = int(rng.integers(len(p)))
        off = rng.uniform(-WITHIN, WITHIN, (2, len(p)))
        off[:, [p.argmin(), q.argmin()]] = 0  # keeps the order of ranks honest at the floor
        one, other = listed(p + off[0], k, also, floor=floor), listed(q + off[1], k, also, floor=floor)
        below, above = kl_bounds(one, other, len(p), WITHIN)
        assert below - 1e-12 <= truth(p, q) <= above + 1e-12
        finite += isfinite(above)
    assert finite > (1_980 if floor else 0)


def test_whole_lists_tell_the_kl_itself():
    for p, q in pairs(2, 300):
        below, above = kl_bounds(listed(p, len(p)), listed(q, len(p)), len(p), 0.0)
        assert below == pytest.approx(truth(p, q), abs=1e-9)
        assert above == pytest.approx(truth(p, q), abs=1e-9)


def test_without_the_least_likely_token_a_tail_has_no_upper_bound():
    p, q = log_softmax(np.array([5.0, 1.0, 0.0, 0.0])), log_softmax(np.array([4.0, 1.0, 0.5, 0.0]))
    below, above = kl_bounds(listed(p, 2, floor=False), listed(q, 2, floor=False), 4, WITHIN)
    assert 0 <= below < truth(p, q)
    assert above == inf


def test_the_lower_bound_is_that_of_the_coarsened_distributions_at_least():
    seen = 0
    for p, q in pairs(4, 200):
        k = max(1, len(p) // 4)
        one, other = listed(p, k, floor=False), listed(q, k, floor=False)
        shared = np.intersect1d(one.tokens, other.tokens)
        coarse = [np.append(np.exp(of[shared]), max(0.0, 1 - np.exp(of[shared]).sum())) for of in (p, q)]
        if coarse[1][-1] < 1e-6:  # there rounding has a say
            continue
        held, seen = coarse[0] > 1e-12, seen + 1
        expected = float((coarse[0][held] * np.log(coarse[0][held] / np.maximum(coarse[1][held], 1e-300))).sum())
        assert kl_bounds(one, other, len(p), 0.0)[0] >= min(expected, truth(p, q)) - 1e-9
    assert seen > 120
