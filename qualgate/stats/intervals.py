"""One-sided confidence bounds of one quantity: a rate, a ratio of sums over clusters, a percentile.

Every bound has confidence 1 − alpha on its own side; lower and upper together are a 1 − 2·alpha interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log, log1p, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv, ndtri, stdtr, stdtrit


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


def clustered_error(values: ArrayLike, clusters: ArrayLike) -> float | None:
    """Return the cluster-robust standard error of the mean; None for fewer than two clusters.

    sqrt(G / (G − 1) Σ_g (Σ_{i in g} (x_i − mean))²) / n for G clusters, which are independent and whose values may
    depend on each other in any way (Liang and Zeger, Biometrika 73, 1986).
    """
    x = np.asarray(values, np.float64)
    labels, members = np.unique(np.asarray(clusters), return_inverse=True)
    if len(labels) < 2:
        return None
    sums = np.bincount(members, x - x.mean())
    return sqrt(len(labels) / (len(labels) - 1) * float(sums @ sums)) / len(x)


def clustered_ratio(
    numerator: ArrayLike, denominator: ArrayLike, clusters: ArrayLike, limit: float, alpha: float = 0.05
) -> Bounds:
    """Σ numerator / Σ denominator, with the cluster-robust (linearised) standard error and Student's t.

    clusters: integer label of each entry; entries of one cluster may depend on each other in any way. A mean is
    the ratio to ones; singletons give the ordinary t-interval. Degrees of freedom: clusters − 1; fewer than two
    clusters or a zero denominator give infinite bounds and p-values of 1. Cochran, Sampling Techniques, 6.
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


def nonnegative_ratio(
    numerator: ArrayLike,
    denominator: ArrayLike,
    clusters: ArrayLike,
    limit: float,
    alpha: float = 0.05,
    *,
    of_limit: float = 1.0,
    of_largest: float = 1.0,
    cases: ArrayLike | None = None,
) -> Bounds:
    """`clustered_ratio` of non-negative values, with an allowance for a kind of cluster that was not drawn.

    cases: the clusters of which a kind may be missing, if `clusters` also joins cases that share noise.

    A kind never seen in k clusters (of equal weight; see `independent_trials`) may still be a share q = 1 − alpha^(1/k)
    of them: as low as zero, or on average as high as `of_largest` times the largest cluster seen and at least
    `of_limit` times the limit. So the bounds have a width even if all values are equal, and one large value among few
    weighs against a proof.

    No bound of a mean holds against every tail (Bahadur and Savage, 1956); the two factors say against which this one
    does. Beyond its largest value seen a Pareto tail of index a has on average a / (a − 1) times that value: 3 for a =
    1.5. And with `of_limit` = c, values that are nonzero in one of c clusters only are rarely taken for zero: k zero
    clusters prove nothing before (1 − 1/c)^k is at most alpha, 59 for c = 20.
    """
    y, x = np.asarray(numerator, float), np.asarray(denominator, float)
    drawn_only = clustered_ratio(y, x, clusters, limit, alpha)
    if drawn_only.lower == -inf:
        return drawn_only
    kinds = clusters if cases is None else cases
    unseen = 1 - alpha ** (1 / independent_trials(x, kinds, alpha))  # by weight: a long case counts as it weighs
    _, members = np.unique(np.asarray(kinds), return_inverse=True)
    numerators, denominators = np.bincount(members, y), np.bincount(members, x)
    largest = float((numerators[denominators > 0] / denominators[denominators > 0]).max())
    high = max(of_limit * limit, of_largest * largest)
    below = clustered_ratio(y, x, clusters, (limit - unseen * high) / (1 - unseen), alpha)
    above = clustered_ratio(y, x, clusters, limit / (1 - unseen), alpha)
    return Bounds(
        estimate=drawn_only.estimate,
        lower=(1 - unseen) * max(drawn_only.lower, 0.0),
        upper=(1 - unseen) * drawn_only.upper + unseen * max(high, drawn_only.upper),
        p_below=below.p_below,
        p_above=above.p_above,
        clusters=drawn_only.clusters,
    )


def independent_trials(trials: ArrayLike, clusters: ArrayLike, alpha: float = 0.05) -> float:
    """Effective number of independent trials, see `independent_clusters`. trials: of each entry; clusters: labels."""
    _, members = np.unique(np.asarray(clusters), return_inverse=True)
    return independent_clusters(np.bincount(members, np.asarray(trials, float)), alpha)


def independent_clusters(sizes: ArrayLike, alpha: float = 0.05) -> float:
    """Effective number of equal clusters: as many as there are, or fewer if sizes are unequal.

    The large clusters may be those that fail. Clusters of weights w_i that fail as a whole with chances p_i fail in
    Σ w_i p_i of all trials, and with a chance of Π (1 − p_i) no failure is seen. Let q be the largest share of failures
    missed with a chance of alpha: p_i = 1 − c / w_i on the heaviest j clusters, c the j-th root of alpha Π w_i there.
    ln alpha / ln(1 − q) clusters of one size, each failing with chance q, miss it as often. Kish's number (1965) is
    right only if size and failure are unrelated: six passages of 40 questions beside 1,000 single ones count as 145
    there, as 38 here.

    A design effect estimated from the data does not help: where one cluster in a hundred fails as a whole, most samples
    contain none, look independent, and would give false proofs in a quarter of draws.
    """
    heavy = np.sort(np.asarray(sizes, float))[::-1]
    heavy = heavy[heavy > 0]
    if not len(heavy):
        return 0.0
    if heavy[0] == heavy[-1]:
        return float(len(heavy))
    weights, count = heavy / heavy.sum(), np.arange(1, len(heavy) + 1)
    level = np.exp((log(alpha) + np.cumsum(np.log(weights))) / count)
    last = int(np.flatnonzero(weights > level)[-1])
    missed = float(weights[: last + 1].sum() - count[last] * level[last])
    return log(alpha) / log1p(-missed)


def _at_most(k: ArrayLike, n: float, rate: float) -> NDArray:
    """P(at most k of n), extended to fractions of a trial."""
    k = np.asarray(k, float)
    return np.where(k >= n, 1.0, betainc(np.maximum(n - k, 1e-300), np.maximum(k, 0) + 1, 1 - rate))


def clustered_share(
    hits: ArrayLike, trials: ArrayLike, clusters: ArrayLike, limit: float, alpha: float = 0.05
) -> Bounds:
    """Σ hits / Σ trials, 0..1: the exact binomial test as if each cluster were one trial, so never of zero width.

    A cluster's share lies in 0..1, and an all-or-nothing share spreads the most. For unequal clusters, a rare event may
    have been missed: that side uses `independent_clusters`. An excess of it may come from one large cluster: that side
    counts all clusters as if of the largest's size (a sum of bounded independent parts spreads no more than one of
    fewer equal ones; Hoeffding, Ann. Math. Statist. 27, 1956). The limit says which event is rare; at 0 and 1 both
    sides count the first way.
    """
    count, total = len(np.unique(np.asarray(clusters))), float(np.sum(trials))
    if count < 2 or total == 0:
        return clustered_ratio(hits, trials, clusters, limit, alpha)
    share, below, above = float(np.sum(hits)) / total, *_trials_each_way(trials, clusters, limit, alpha)
    k, m = share * below, share * above
    return Bounds(
        estimate=share,
        lower=float(betaincinv(m, above - m + 1, alpha)) if m > 0 else 0.0,
        upper=float(betaincinv(k + 1, below - k, 1 - alpha)) if k < below else 1.0,
        p_below=float(_at_most(k, below, limit)),
        p_above=float(_at_most(above - m, above, 1 - limit)),
        clusters=count,
    )


def _trials_each_way(trials: ArrayLike, clusters: ArrayLike, limit: float, alpha: float) -> tuple[float, float]:
    """Return the independent trials for "the share is smaller" and for "it is larger", see `clustered_share`.

    To prove a rare event rarer, clusters count as by `independent_clusters`; to prove an excess of it, as if all were
    of the size of the largest.
    """
    _, members = np.unique(np.asarray(clusters), return_inverse=True)
    sizes = np.bincount(members, np.asarray(trials, float))
    few, fewest = independent_clusters(sizes, alpha), float(sizes.sum() / sizes.max())
    if not 0 < limit < 1:
        return few, few
    return (few, fewest) if limit < 0.5 else (fewest, few)


def clustered_percentile(
    values: ArrayLike, clusters: ArrayLike, percentile: float, limit: float, alpha: float = 0.05
) -> Bounds:
    """A percentile (0 < percentile < 100) of values that depend on each other within clusters.

    Woodruff (JASA 47, 1952): "the percentile is at most the limit" is "at most 1 − percentile/100 of the values exceed
    the limit", tested as in `clustered_share`. The bounds are the values at which the same test passes, so that a
    proof never stands beside a bound beyond the limit. Too few clusters for a bound: it is infinite.
    """
    ordered = np.sort(np.asarray(values, float))
    share, labels = percentile / 100, np.asarray(clusters)
    total, count = len(ordered), len(np.unique(labels))
    if total == 0:
        return Bounds(estimate=float("nan"), lower=-inf, upper=inf, p_below=1.0, p_above=1.0, clusters=0)
    rare, common = _trials_each_way(np.ones(total), labels, 1 - share, alpha)

    def p_below(exceeding: NDArray) -> NDArray:
        return _at_most(exceeding / total * rare, rare, 1 - share)

    def p_above(exceeding: NDArray) -> NDArray:
        return _at_most(common - exceeding / total * common, common, share)

    exceeding = total - np.searchsorted(ordered, ordered, side="right")
    high, low = np.flatnonzero(p_below(exceeding) <= alpha), np.flatnonzero(p_above(exceeding) <= alpha)
    over_limit = np.array(np.count_nonzero(ordered > limit))
    return Bounds(
        estimate=float(np.quantile(ordered, share)),
        lower=float(ordered[low[-1]]) if len(low) else -inf,
        upper=float(ordered[high[0]]) if len(high) else inf,
        p_below=float(p_below(over_limit)),
        p_above=float(p_above(over_limit)),
        clusters=count,
    )


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """A statistic of n entries and its resampled values, for any limit and alpha."""

    estimate: float
    values: NDArray  # [draws]
    n: int

    def bounds(self, limit: float, alpha: float = 0.05) -> Bounds:
        """Percentile bounds (Efron, 1979). A p-value is the share of draws on the wrong side of the limit,
        (1 + k) / (1 + draws), so it is never 0."""
        draws = len(self.values)
        return Bounds(
            estimate=self.estimate,
            lower=float(np.quantile(self.values, alpha, method="lower")),
            upper=float(np.quantile(self.values, 1 - alpha, method="higher")),
            p_below=(1 + int(np.count_nonzero(self.values >= limit))) / (1 + draws),
            p_above=(1 + int(np.count_nonzero(self.values <= limit))) / (1 + draws),
            clusters=self.n,
        )


def bootstrap(
    statistic: Callable[[NDArray], NDArray], n: int, generator: np.random.Generator, draws: int = 2000
) -> Bootstrap:
    """Resample a statistic. statistic: index rows [draws, n] → one value per row. Blocks of about a million indices."""
    estimate = float(statistic(np.arange(n)[None, :])[0])
    block = max(1, 1_000_000 // max(n, 1))
    values = [
        statistic(generator.integers(0, n, (min(block, draws - start), n), dtype=np.int32))
        for start in range(0, draws, block)
    ]
    return Bootstrap(estimate, np.concatenate(values), n)


def normal_quantile(probability: float) -> float:
    """Standard normal quantile."""
    return float(ndtri(probability))
