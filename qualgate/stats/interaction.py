"""Interaction of two changes in a score: the difference of differences over the same cases.

d = (both − one) − (the other − neither), case by case: 0 in the mean if the two changes do not interact, below 0 if
together they lose more than each alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from qualgate.stats.bounded import bounded_mean
from qualgate.stats.intervals import clustered_ratio
from qualgate.stats.paired.compare import MIN_CLUSTERS, compare_clustered_pairs, compare_pairs

METHOD_EXACT = "interaction_exact_unconditional/3"
METHOD_CLUSTERED = "interaction_clustered/3"
NO_LOSS = 1e-9  # the margin of "any loss at all": `compare_pairs` wants one over 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interacting:
    """The mean of d, and the test of "the two changes together lose no more than each alone"."""

    n: int
    clusters: int
    changed: int  # cases whose d is not 0
    estimate: float  # −2..2
    lower: float  # one-sided bounds, confidence 1 − alpha each
    upper: float
    p_worse: float  # of "the mean of d is at least 0": small = an interaction that loses
    method: str


def interaction(outcomes: ArrayLike, clusters: ArrayLike, alpha: float = 0.05) -> Interacting:
    """Test the interaction. outcomes: [n, 4] scores in 0..1 of neither change, one, the other, both. clusters: labels.

    Scores of 0 and 1 and independent cases, none of which changes by two: the exact unconditional test of
    `compare_pairs`, so the error is at most alpha at every n and every share of changed cases. Otherwise the
    clustered test, a change by two counting as two changes of one cluster. ValueError for no case.
    """
    table = np.asarray(outcomes, float).reshape(-1, 4)
    n, labels = len(table), np.asarray(clusters)
    if n == 0:
        raise ValueError("no case was answered by all four arms")
    d = (table[:, 3] - table[:, 2]) - (table[:, 1] - table[:, 0])
    groups = len(np.unique(labels))
    whole = bool(np.isin(d, (-2, -1, 0, 1, 2)).all())
    if whole and groups == n and bool((np.abs(d) <= 1).all()):
        result = compare_pairs(int((d < 0).sum()), int((d > 0).sum()), n, NO_LOSS, alpha)
        lower, upper, p_worse, method = result.lower, result.upper, result.p_beyond, METHOD_EXACT
    elif whole:
        once = np.clip(d, -1, 1)
        twice = once != d  # a change by two is two changes of one cluster
        steps, rows = (d, labels) if not twice.any() else (np.concatenate([once, d - once]), np.tile(labels, 2))
        result = compare_clustered_pairs(np.zeros(len(steps)), steps, rows, NO_LOSS, alpha)
        scale = len(steps) / n
        lower, upper, p_worse, method = scale * result.lower, scale * result.upper, result.p_beyond, METHOD_CLUSTERED
    else:
        mean, bounded = clustered_ratio(d, np.ones(n), labels, 0.0, alpha), bounded_mean(d, labels, 0.0, alpha, (-2, 2))
        lower, upper = min(mean.lower, bounded.lower), max(mean.upper, bounded.upper)
        p_worse, method = max(mean.p_below, bounded.p_below), METHOD_CLUSTERED
    if groups < MIN_CLUSTERS:  # too few clusters to estimate their spread: nothing is proven
        p_worse, lower, upper = 1.0, -2.0, 2.0
    return Interacting(
        n=n,
        clusters=groups,
        changed=int((d != 0).sum()),
        estimate=float(d.mean()),
        lower=max(lower, -2.0),
        upper=min(upper, 2.0),
        p_worse=p_worse,
        method=method,
    )
