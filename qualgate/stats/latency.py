"""Ratio of a latency, variant / baseline, over the same cases."""

from __future__ import annotations

from math import ceil, log

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qualgate.stats.intervals import Bounds, bootstrap

SEED = 20260101  # of the bootstrap's draws; part of the formula id, so that a stored verdict can be derived again
METHOD_PERCENTILES = f"ratio_of_percentiles_bootstrap/2 seed {SEED}"
METHOD_SUMS = f"ratio_of_sums_bootstrap/2 seed {SEED}"
DRAWS = 1000


def clusters_needed(percentile: float | None, alpha: float = 0.05) -> int:
    """Independent cases of which, with confidence 1 − alpha, one lies beyond the percentile; 59 for p95 at 0.05.

    With fewer, the slowest case seen may be faster than the percentile itself, and no resampling of them can tell.
    """
    if percentile is None:
        return 1
    return ceil(log(alpha) / log(max(percentile, 100 - percentile) / 100))


def latency_ratio(
    baseline: ArrayLike,
    variant: ArrayLike,
    clusters: ArrayLike,
    percentile: float | None,
    limit: float,
    alpha: float = 0.05,
) -> Bounds:
    """percentile(variant) / percentile(baseline), or Σ variant / Σ baseline when `percentile` is None.

    baseline, variant: seconds of the same cases in the same order; whole clusters of pairs are drawn. Percentiles
    interpolate linearly (numpy's default). The caller sees to `clusters_needed`. ValueError for no case, or when the
    baseline's sum is zero.
    """
    base, other = np.asarray(baseline, float), np.asarray(variant, float)
    if len(base) == 0 or len(base) != len(other) or base.sum() <= 0:
        raise ValueError("latencies must be of the same cases, and the baseline's not all zero")
    labels, members = np.unique(np.asarray(clusters), return_inverse=True)

    def level(seconds: NDArray) -> float:
        return float(seconds.sum() if percentile is None else np.percentile(seconds, percentile))

    def ratio(draws: NDArray) -> NDArray:
        ratios = np.full(len(draws), np.inf)
        for row, drawn in enumerate(draws):
            times = np.bincount(drawn, minlength=len(labels))[members]
            bottom = level(np.repeat(base, times))
            if bottom > 0:
                ratios[row] = level(np.repeat(other, times)) / bottom
        return ratios

    return bootstrap(ratio, len(labels), limit, np.random.default_rng(SEED), alpha, DRAWS)
