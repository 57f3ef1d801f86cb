"""Bounds on KL(p || q) by two lists of likeliest tokens, where neither distribution is known whole.

Lower bound. Tokens are put together into buckets, which can only lessen a KL (data processing): each token that both
list, those that p alone lists, and the rest. Of q's share of the second bucket no more is known than that none of its
tokens is likelier than the last that q lists; what it can be at most is where the KL is least.

Upper bound. A token that q does not list can be as unlikely as the least likely one of the vocabulary. Where that is
known, a token that p lists and q does not costs p log(p / least) at most. What p does not list holds the rest of its
probability, no token of it more than the last that p lists, and costs that much times log(most / least) at most. Where
it is not known there is no upper bound, however little p leaves over: q may rule such a token out.

Every log-prob is taken to be within `within` of the true one, and each term at its worst inside that.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log

import numpy as np
from numpy.typing import NDArray

ROUNDED = 1e-12  # by which a sum of float64 probabilities may be off: nothing is ruled out by a rounding


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Listed:
    """A distribution of which some tokens are known. tokens: int64 [n], ascending, each once; logprobs: float64 [n],
    nats; most, least: nats that no other token's log-prob is above, or below (-inf: not known)."""

    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float64]
    most: float
    least: float = -inf


def kl_bounds(p: Listed, q: Listed, vocabulary: int, within: float) -> tuple[float, float]:
    """(least, most) of KL(p || q) in nats; most is inf where nothing bounds it. vocabulary: tokens that both have.
    within: nats by which the log-probs may be off."""
    _, in_p, in_q = np.intersect1d(p.tokens, q.tokens, assume_unique=True, return_indices=True)
    a, b = p.logprobs[in_p], q.logprobs[in_q]
    own, theirs = np.delete(p.logprobs, in_p), np.delete(q.logprobs, in_q)
    left = _left(p, vocabulary, within)
    shared = float(_least(a, b + within, within).sum())
    below = shared + _rest_below(own, left, q, _one_less(b, within), within)
    above = float(_most(a, b - within, within).sum())
    above += _rest_above(own, left, p.most, q.least, theirs, vocabulary - len(p.tokens) - len(theirs), within)
    return max(0.0, below), max(0.0, below, above)


Span = tuple[float, float]


def _one_less(logprobs: NDArray, within: float) -> Span:
    """What these leave of a probability of 1, at least and at most."""
    total = float(np.exp(logprobs).sum())
    return max(0.0, 1 - total * exp(within) - ROUNDED), max(0.0, 1 - total * exp(-within) + ROUNDED)


def _left(p: Listed, vocabulary: int, within: float) -> Span:
    return _one_less(p.logprobs, within) if len(p.tokens) < vocabulary else (0.0, 0.0)


def _least(a: NDArray, b: NDArray | float, within: float) -> NDArray:
    """The least that e^x (x - b) comes to for x within `within` of a: it falls up to b - 1, and rises from there."""
    at = np.clip(b - 1.0, a - within, a + within)
    return np.exp(at) * (at - b)


def _most(a: NDArray, b: NDArray | float, within: float) -> NDArray:
    """The most: at one end or the other."""
    low, high = a - within, a + within
    return np.maximum(np.exp(low) * (low - b), np.exp(high) * (high - b))


def _least_of(span: Span, q: float) -> float:
    """The least that x log(x / q) comes to for x in `span`."""
    if q <= 0:
        return 0.0 if span[0] <= 0 else inf
    at = min(max(q / np.e, span[0]), span[1])
    return at * log(at / q) if at > 0 else 0.0


def _rest_below(own: NDArray, left: Span, q: Listed, rest: Span, within: float) -> float:
    """own: log-probs that p alone lists; left: what p lists nothing of; rest: what q holds of both."""
    mass = float(np.exp(own).sum())
    mine = mass * exp(-within), mass * exp(within)
    together = _least_of((mine[0] + left[0], mine[1] + left[1]), rest[1])
    cap = min(1.0, len(own) * exp(q.most + within))
    if not mine[0] or cap >= rest[1] or cap * (mine[0] + left[1]) >= rest[1] * mine[0]:
        return together  # q may share it out as p does
    return max(together, _least_of(mine, cap) + _least_of(left, rest[1] - cap))


def _rest_above(
    own: NDArray, left: Span, most: float, least: float, theirs: NDArray, neither: int, within: float
) -> float:
    """theirs: log-probs that q alone lists; neither: tokens that nobody lists."""
    bound = 0.0
    if len(own):
        if least == -inf:
            return inf
        bound = float(_most(own, least - within, within).sum())
    if left[1] <= 0:
        return bound
    floor = min(float(theirs.min(initial=inf)), least if neither else inf)
    if floor == -inf:
        return inf
    one_by_one = max(mass * (most + 2 * within - floor) for mass in left)
    all_in_one = max(mass * (log(mass) + within - floor) if mass > 0 else 0.0 for mass in left)
    return bound + min(one_by_one, all_in_one)
