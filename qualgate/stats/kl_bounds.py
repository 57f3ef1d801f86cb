"""Bounds on KL(p || q) from two lists of likeliest tokens, where neither distribution is fully known.

Lower bound. Merging tokens into buckets can only lower a KL (data processing). The buckets: each token that both list,
the tokens that only p lists, and the rest. Of q's mass in the second bucket only this is known: none of its tokens is
likelier than the last that q lists. The KL is least at the largest possible mass.

Upper bound. A token that q does not list can be as unlikely as the least likely one of the vocabulary. If that is
known, a token that only p lists costs at most p log(p / least). The tokens that p does not list share the rest of its
probability, none likelier than the last that p lists, and cost at most that rest times log(most / least). If it is
unknown there is no upper bound, however little p leaves over: q may exclude such a token.

Every log-prob may be off by `within`, and each term is at its worst inside that.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log

import numpy as np
from numpy.typing import NDArray

ROUNDED = 1e-12  # allowed rounding of a sum of float64 probabilities


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Listed:
    """A partly known distribution. tokens: int64 [n], ascending, each once; logprobs: float64 [n], nats; most, least:
    bounds in nats of every other token's log-prob (-inf: unknown)."""

    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float64]
    most: float
    least: float = -inf


def kl_bounds(p: Listed, q: Listed, vocabulary: int, within: float) -> tuple[float, float]:
    """(lower, upper) bound of KL(p || q) in nats; inf if nothing bounds it from above. vocabulary: common tokens.
    within: nats by which the log-probs may be off."""
    _, in_p, in_q = np.intersect1d(p.tokens, q.tokens, assume_unique=True, return_indices=True)
    a, b = p.logprobs[in_p], q.logprobs[in_q]
    only_p, only_q = np.delete(p.logprobs, in_p), np.delete(q.logprobs, in_q)
    unlisted = _left(p, vocabulary, within)
    shared = float(_least(a, b + within, within).sum())
    below = shared + _rest_below(only_p, unlisted, q, _one_less(b, within), within)
    above = float(_most(a, b - within, within).sum())
    above += _rest_above(only_p, unlisted, p.most, q.least, only_q, vocabulary - len(p.tokens) - len(only_q), within)
    return max(0.0, below), max(0.0, below, above)


Span = tuple[float, float]


def _one_less(logprobs: NDArray, within: float) -> Span:
    """Range of the remaining probability."""
    total = float(np.exp(logprobs).sum())
    return max(0.0, 1 - total * exp(within) - ROUNDED), max(0.0, 1 - total * exp(-within) + ROUNDED)


def _left(p: Listed, vocabulary: int, within: float) -> Span:
    return _one_less(p.logprobs, within) if len(p.tokens) < vocabulary else (0.0, 0.0)


def _least(a: NDArray, b: NDArray | float, within: float) -> NDArray:
    """Minimum of e^x (x - b) for x within `within` of a: it falls up to b - 1, and rises from there."""
    minimizer = np.clip(b - 1.0, a - within, a + within)
    return np.exp(minimizer) * (minimizer - b)


def _most(a: NDArray, b: NDArray | float, within: float) -> NDArray:
    """Maximum of e^x (x - b) for x within `within` of a: at one of the ends."""
    low, high = a - within, a + within
    return np.maximum(np.exp(low) * (low - b), np.exp(high) * (high - b))


def _least_of(span: Span, q: float) -> float:
    """Minimum of x log(x / q) for x in `span`."""
    if q <= 0:
        return 0.0 if span[0] <= 0 else inf
    minimizer = min(max(q / np.e, span[0]), span[1])
    return minimizer * log(minimizer / q) if minimizer > 0 else 0.0


def _rest_below(only_p: NDArray, unlisted: Span, q: Listed, rest: Span, within: float) -> float:
    """Return a lower bound of the unshared part.

    only_p: log-probs that only p lists. unlisted: p's unlisted probability. rest: q's probability of both.
    """
    mass = float(np.exp(only_p).sum())
    listed = mass * exp(-within), mass * exp(within)
    together = _least_of((listed[0] + unlisted[0], listed[1] + unlisted[1]), rest[1])
    cap = min(1.0, len(only_p) * exp(q.most + within))
    if not listed[0] or cap >= rest[1] or cap * (listed[0] + unlisted[1]) >= rest[1] * listed[0]:
        return together  # q may distribute it as p does
    return max(together, _least_of(listed, cap) + _least_of(unlisted, rest[1] - cap))


def _rest_above(
    only_p: NDArray, unlisted: Span, most: float, least: float, only_q: NDArray, neither: int, within: float
) -> float:
    """Return an upper bound of the unshared part, infinite if q may give 0 to what p may not.

    only_p, only_q: log-probs that only p or only q lists. neither: tokens that neither lists.
    """
    bound = 0.0
    if len(only_p):
        if least == -inf:
            return inf
        bound = float(_most(only_p, least - within, within).sum())
    if unlisted[1] <= 0:
        return bound
    floor = min(float(only_q.min(initial=inf)), least if neither else inf)
    if floor == -inf:
        return inf
    one_by_one = max(mass * (most + 2 * within - floor) for mass in unlisted)
    all_in_one = max(mass * (log(mass) + within - floor) if mass > 0 else 0.0 for mass in unlisted)
    return bound + min(one_by_one, all_in_one)
