"""Ratio of a latency, variant / baseline, over the same cases."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qualgate.stats.intervals import Bounds, bootstrap

SEED = 20260101  # of the bootstrap's draws; part of the formula id, so that a stored verdict can be derived again
METHOD_PERCENTILES = f"ratio_of_percentiles_bootstrap/1 seed {SEED}"
METHOD_SUMS = f"ratio_of_sums_bootstrap/1 seed {SEED}"
DRAWS = 1000


def latency_ratio(
    baseline: ArrayLike, variant: ArrayLike, percentile: float | None, limit: float, alpha: float = 0.05
) -> Bounds:
    """percentile(variant) / percentile(baseline), or Σ variant / Σ baseline when `percentile` is None.

    baseline, variant: seconds of the same cases in the same order; cases are drawn as pairs. Percentiles interpolate
    linearly (numpy's default). ValueError for no case, or when the baseline's sum is zero.
    """
    base, other = np.asarray(baseline, float), np.asarray(variant, float)
    if len(base) == 0 or len(base) != len(other) or base.sum() <= 0:
        raise ValueError("latencies must be of the same cases, and the baseline's not all zero")

    def ratio(index: NDArray) -> NDArray:
        if percentile is None:
            top, bottom = other[index].sum(axis=1), base[index].sum(axis=1)
        else:
            top, bottom = (
                np.percentile(drawn, percentile, axis=1, overwrite_input=True) for drawn in (other[index], base[index])
            )
        return np.divide(top, bottom, out=np.full(len(top), np.inf), where=bottom > 0)

    return bootstrap(ratio, len(base), limit, np.random.default_rng(SEED), alpha, DRAWS)
