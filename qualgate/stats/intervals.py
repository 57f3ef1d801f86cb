"""One-sided confidence bounds of one quantity: a rate, a ratio of sums over clusters, a percentile.

Every bound has confidence 1 − alpha on its own side; lower and upper together are a 1 − 2·alpha interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtri, stdtr, stdtrit


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """An estimate, its one-sided bounds, and two one-sided tests against a limit."""

    estimate: float
    lower: float
    upper: float
    p_below: float  # of "the truth is at least the limit": small = proven to be smaller
    p_above: float  # of "the truth is at most the limit": small = proven to be larger
    clusters: int


def binomial_lower(successes: int, n: int, alpha: float = 0.05) -> float:
    """The rate at which `successes` or more of n have probability alpha; 0 for none. Clopper and Pearson, 1934."""
    return float(betaincinv(successes, n - successes + 1, alpha)) if successes > 0 else 0.0


def binomial_upper(successes: int, n: int, alpha: float = 0.05) -> float:
    """Mirror image of `binomial_lower`. 1 when every trial succeeded, and for n = 0."""
    return float(betaincinv(successes + 1, n - successes, 1 - alpha)) if successes < n else 1.0


def clustered_ratio(
    numerator: ArrayLike, denominator: ArrayLike, clusters: ArrayLike, limit: float, alpha: float = 0.05
) -> Bounds:
    """Σ numerator / Σ denominator, with the cluster-robust (linearised) standard error and Student's t.

    clusters: integer label of each entry; entries of one cluster may depend on each other in any way. A mean is
    the ratio to ones; singletons give the ordinary t-interval. Degrees of freedom: clusters − 1; fewer than two
    clusters or a zero denominator know nothing: infinite bounds, p-values 1. Cochran, Sampling Techniques, 6.
    """
    y, x = np.asarray(numerator, float), np.asarray(denominator, float)
    labels, members = np.unique(np.asarray(clusters), return_inverse=True)
    count, total = len(labels), float(x.sum())
    if count < 2 or total == 0:
        estimate = float(y.sum()) / total if total else float("nan")
        return Bounds(estimate=estimate, lower=-inf, upper=inf, p_below=1.0, p_above=1.0, clusters=count)
    estimate = float(y.sum()) / total
    residuals = np.bincount(members, y - estimate * x)
    error = sqrt(count / (count - 1) * float(residuals @ residuals)) / total
    reach = float(stdtrit(count - 1, 1 - alpha)) * error
    distance = estimate - limit
    t = distance / error if error > 0 else (inf if distance > 0 else -inf if distance < 0 else 0.0)
    return Bounds(
        estimate=estimate,
        lower=estimate - reach,
        upper=estimate + reach,
        p_below=float(stdtr(count - 1, t)),
        p_above=float(stdtr(count - 1, -t)),
        clusters=count,
    )


def clustered_percentile(
    values: ArrayLike, clusters: ArrayLike, percentile: float, limit: float, alpha: float = 0.05
) -> Bounds:
    """A percentile (0 < percentile < 100) of values that depend on each other within clusters.

    Woodruff (JASA 47, 1952): "the percentile is at most the limit" is "at most 1 − percentile/100 of the values exceed
    the limit", a clustered ratio; the bounds are the values at the bounds of the share below the estimate. Nothing is
    drawn at random. Too few values for a bound: the largest or smallest value cannot be excluded, so it is infinite.
    """
    ordered = np.sort(np.asarray(values, float))
    n, share = len(ordered), percentile / 100
    ones = np.ones(n)
    test = clustered_ratio(np.asarray(values) > limit, ones, clusters, 1 - share, alpha)
    estimate = float(np.quantile(ordered, share)) if n else float("nan")
    around = clustered_ratio(np.asarray(values) <= estimate, ones, clusters, share, alpha)
    reach = max(around.upper - around.estimate, 1 / max(n, 1))
    low, high = np.floor((share - reach) * n), np.ceil((share + reach) * n)
    return Bounds(
        estimate=estimate,
        lower=float(ordered[int(low)]) if low >= 0 else -inf,
        upper=float(ordered[int(high)]) if high < n else inf,
        p_below=test.p_below,
        p_above=test.p_above,
        clusters=test.clusters,
    )


def bootstrap(
    statistic: Callable[[NDArray], NDArray],
    n: int,
    limit: float,
    generator: np.random.Generator,
    alpha: float = 0.05,
    draws: int = 2000,
) -> Bounds:
    """Percentile bootstrap over n entries (Efron, 1979).

    statistic: index rows [draws, n] → one value a row. A p-value is the share of draws on the wrong side of the limit,
    (1 + k) / (1 + draws), so it is never 0. Draws are made in blocks of about a million indices.
    """
    estimate = float(statistic(np.arange(n)[None, :])[0])
    block = max(1, 1_000_000 // max(n, 1))
    drawn = [
        statistic(generator.integers(0, n, (min(block, draws - start), n), dtype=np.int32))
        for start in range(0, draws, block)
    ]
    values = np.concatenate(drawn)
    return Bounds(
        estimate=estimate,
        lower=float(np.quantile(values, alpha, method="lower")),
        upper=float(np.quantile(values, 1 - alpha, method="higher")),
        p_below=(1 + int(np.count_nonzero(values >= limit))) / (1 + draws),
        p_above=(1 + int(np.count_nonzero(values <= limit))) / (1 + draws),
        clusters=n,
    )


def normal_quantile(probability: float) -> float:
    """Standard normal quantile."""
    return float(ndtri(probability))
