"""Ratio of a latency, variant / baseline, over the same cases."""

from __future__ import annotations

from math import ceil, log

import numpy as np
from numpy.typing import ArrayLike

from qualgate.stats.intervals import Bounds, nonnegative_ratio
from qualgate.stats.percentiles import percentile_ratio

METHOD_SUMS = "ratio_of_sums_clustered_t/4"

# How much longer a case of a kind that nobody drew may take, in times of the limit (see `nonnegative_ratio`). Five
# keeps what is proven of a ratio truly at 1.10 at most at alpha where 2 % of the cases take 6 times as long, or 5 % of
# them 3 times, or each its own lognormal factor with sigma up to 1.5: of 150 cases without any, 5 % of draws are of
# that kind, so no test may believe fewer. The price: an equally fast variant whose answers vary by 5 % is proven to
# stay below 1.10 by about 300 cases where the answers' own times spread by sigma 0.3, by 400 at 0.5 and 2,000 at 1.0.
# Rarer and worse stalls than these can be missed, such as one case in 100 at 11 times: by 200 cases, in one draw of
# eight.
UNSEEN_SECONDS = {"of_limit": 5.0, "of_largest": 1.0}


def clusters_needed(percentile: float, alpha: float = 0.05) -> int:
    """Independent cases of which, with confidence 1 − alpha, one lies beyond the percentile; 59 for p95 at 0.05.

    With fewer, the slowest case seen may be faster than the percentile itself, and no resampling of them can tell.
    """
    return ceil(log(alpha) / log(max(percentile, 100 - percentile) / 100))


def cases_needed(limit: float, ratio: float, alpha: float = 0.05) -> int | None:
    """Independent cases without which no ratio of sums as low as `ratio` is proven to be below `limit`, however little
    they vary; None where no number of them would do."""
    unseen = (limit - ratio) / (UNSEEN_SECONDS["of_limit"] * limit - ratio)
    return ceil(log(alpha) / log(1 - unseen)) if 0 < unseen < 1 else None


def latency_ratio(
    baseline: ArrayLike,
    variant: ArrayLike,
    clusters: ArrayLike,
    percentile: float | None,
    limit: float,
    alpha: float = 0.05,
    cases: ArrayLike | None = None,
) -> Bounds:
    """percentile(variant) / percentile(baseline), or Σ variant / Σ baseline when `percentile` is None.

    baseline, variant: seconds of the same cases in the same order. clusters: times of one may depend on each other;
    cases: the clusters of the cases themselves, where `clusters` also joins what ran together. The caller sees to
    `groups_needed`. ValueError for no case, or when the baseline's sum is zero.
    """
    base, other = np.asarray(baseline, float), np.asarray(variant, float)
    if len(base) == 0 or len(base) != len(other) or base.sum() <= 0:
        raise ValueError("latencies must be of the same cases, and the baseline's not all zero")
    if percentile is None:  # what slows whole batches slows either arm and is noise; a prompt that slows one is not
        return nonnegative_ratio(other, base, clusters, limit, alpha, cases=cases, **UNSEEN_SECONDS)
    return percentile_ratio(base, other, clusters, percentile, limit, alpha)
