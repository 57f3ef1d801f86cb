"""Test a loss as a share of the baseline's own rate.

Such a loss has two unknowns. The rate is first bounded with a small part of alpha; the loss is then tested, with the
rest, against the least favourable margin within that bound. The error stays within alpha for any rate (Berger and Boos,
JASA 89, 1994), and a few flips are handled as exactly as by the paired test.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from qualgate.stats.intervals import binomial_lower, binomial_upper, clustered_share
from qualgate.stats.paired.compare import compare_clustered_pairs, compare_pairs

METHOD_RELATIVE = "relative_two_stage/3"
RATE_PART = 0.02  # of alpha, spent on the baseline's rate


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativeResult:
    """(variant − baseline) / baseline, against a loss of `limit`."""

    change: float | None  # None: the baseline is right on nothing
    lower: float | None  # one-sided bounds, confidence 1 − alpha each; None: no bound
    upper: float | None
    p_within: float  # of "the loss is at least `limit`": small = proven smaller
    p_beyond: float  # of "the loss is at most `limit`": small = proven larger


def compare_relative(
    baseline: ArrayLike, variant: ArrayLike, clusters: ArrayLike, limit: float, alpha: float = 0.05
) -> RelativeResult:
    """Test outcomes in 0..1, dependent within clusters; 0 < limit < 1. Single 0/1 outcomes: exact to 20,000 pairs."""
    base, other, labels = np.asarray(baseline, float), np.asarray(variant, float), np.asarray(clusters)
    n, spent = len(base), RATE_PART * alpha
    exact = len(np.unique(labels)) == n and bool(np.isin(base, (0, 1)).all() and np.isin(other, (0, 1)).all())
    if exact:
        low_rate, high_rate = binomial_lower(int(base.sum()), n, spent), binomial_upper(int(base.sum()), n, spent)
        lost, gained = int((other < base).sum()), int((other > base).sum())
    else:
        rate = clustered_share(base, np.ones(n), labels, 0.0, spent)
        low_rate, high_rate, lost, gained = rate.lower, rate.upper, 0, 0
    if low_rate <= 0:
        return RelativeResult(change=None, lower=None, upper=None, p_within=1.0, p_beyond=1.0)

    def compare(margin: float):
        if exact:
            return compare_pairs(lost, gained, n, margin, alpha - spent)
        return compare_clustered_pairs(base, other, labels, margin, alpha - spent, margin_known=False)

    hard, easy = compare(limit * low_rate), compare(min(limit * high_rate, 1 - 1e-9))
    lower = hard.lower / (low_rate if hard.lower < 0 else high_rate)  # the rate that makes the loss the largest share
    upper = easy.upper / (high_rate if easy.upper < 0 else low_rate)
    return RelativeResult(
        change=float(other.mean() / base.mean() - 1),
        lower=lower if lower > -inf else None,
        upper=upper if upper < inf else None,
        p_within=min(1.0, hard.p_within + spent),
        p_beyond=min(1.0, easy.p_beyond + spent),
    )
