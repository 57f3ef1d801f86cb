"""Distribution-free interval of a quantile.

The number of n independent values at or below the true p-quantile is binomial, whatever their distribution: so two of
the values, chosen by rank in advance, enclose it. David and Nagaraja, Order Statistics, 7.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from scipy.special import bdtr, bdtrc


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """A quantile and its interval. value: the smallest value that at least a share p of them do not exceed. low, high:
    None if the values are too few for that bound."""

    value: float
    low: float | None
    high: float | None
    count: int


def quantile(values: Sequence[float], p: float, confidence: float = 0.95) -> Quantile | None:
    """The p-quantile, 0 < p < 1, with an interval of equal tails; None without values. Dependent values, such as
    neighbours under load, make it too narrow."""
    if not values:
        return None
    ordered, n = sorted(values), len(values)
    low, high = ranks(n, p, confidence)
    return Quantile(
        value=ordered[max(1, ceil(p * n - 1e-9)) - 1],
        low=ordered[low - 1] if low >= 1 else None,
        high=ordered[high - 1] if high <= n else None,
        count=n,
    )


def ranks(n: int, p: float, confidence: float) -> tuple[int, int]:
    """Ranks from 1 of the two order statistics; 0 and n + 1 stand for missing bounds.

    The lower is above the quantile where fewer than `low` values are at or below it, the upper below it where `high`
    or more are: each with at most half of what the confidence leaves.
    """
    tail = (1 - confidence) / 2
    hits = np.arange(n + 1)
    low = int(np.searchsorted(bdtr(hits, n, p), tail))  # the least with P(B <= low) >= tail, so P(B < low) < tail
    high = int(np.count_nonzero(bdtrc(hits, n, p) > tail)) + 1  # P(B >= high) = P(B > high - 1) <= tail
    return low, high


def interpolated(values: Sequence[float], p: float) -> float | None:
    """The quantile interpolated between neighbouring values, as in numpy and `vllm bench serve`."""
    return float(np.quantile(np.asarray(values), p)) if values else None
