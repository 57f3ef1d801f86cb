"""Ratio of one percentile of two samples of the same cases, tested at every level that the percentile may have.

A percentile bootstrap cannot produce unseen values: if 5.5 % of a variant's answers stall, one sample of 60 in five has
so few stalls that its 95th percentile is proven to be that of the others (18 % of draws; of 300 for the 99th 20 %). And
the baseline's own percentile is unknown, too: if it may lie among its stalls or below them, taking the observed one
gives false proofs in 11 to 18 % of draws.

So every level b is tested: could the baseline's percentile be b and the variant's be beyond limit · b? It is excluded
by any of three tests, each at its own part of alpha (so at the true b all three err at most at alpha, and no b is left
out):

- too few of the variant's values exceed limit · b for b's percentile (exact binomial test),
- fewer of the variant's values exceed limit · b than of the baseline's exceed b, case by case (`unseen_clusters`); this
  one uses the pairing, so that a mix of long and short cases costs little,
- b is too low to be the baseline's percentile (exact binomial test).

The largest p-value over b is that of the ratio. The test for a broken limit is the mirror image. Times that ran
together are one cluster; the binomial tests count a cluster as one trial (`clustered_percentile`).

Simulated at the limit with the least clusters, twice and four times as many, of one case and of eight (stalls just
beyond the percentile, of either arm, of cases and of batches; Pareto with index 1.5; times shared by case): at most
2.5 % false proofs, either way. The price: if the answers' times spread by a factor of 1.8 (sigma 0.6), an equal variant
is proven below 1.25 in 0, 95 and 100 % of draws of 120, 240 and 320 batches of eight at p95, in 72 and 100 % of 40 and
60 at the median, in 30 to 55 % of 800 at p99. A stall in one case of a hundred moves a 95th percentile by a tenth
there, and only 300 cases can exclude it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf, log, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc

from qualgate.stats.intervals import Bounds, independent_trials
from qualgate.stats.unseen_clusters import p_at_most

METHOD = "ratio_of_percentiles_levels/1"
PARTS = (0.3, 0.4, 0.3)  # of alpha: for the three tests as they stand above
_LEVELS = 256  # at most between the levels that are surely too low and surely too high; and as many beyond
_SURELY = 1e-6
_STEPS = 40  # of halving, for a bound


def groups_needed(percentile: float, alpha: float = 0.05) -> int:
    """Least independent clusters for a proof at alpha, however alike both sides; 82 for p95 at 0.05.

    With fewer, the slowest value seen may be faster than the percentile itself, and no test can show that.
    """
    return ceil(log(PARTS[0] * alpha) / log(max(percentile, 100 - percentile) / 100))


def percentile_ratio(
    baseline: ArrayLike,
    variant: ArrayLike,
    clusters: ArrayLike,
    percentile: float,
    limit: float,
    alpha: float = 0.05,
) -> Bounds:
    """percentile(variant) / percentile(baseline), of non-negative values of the same cases in the same order.

    clusters: integer label of each case; those of one cluster may depend on each other in any way. Percentiles
    interpolate linearly (numpy's default). With too few clusters a bound is 0 or infinite.
    """
    sides = _Sides(baseline, variant, clusters, percentile)
    below, above = sides.p_below(limit, alpha / 100), sides.p_above(limit, alpha / 100)
    bottom, top = np.percentile(sides.base, percentile), np.percentile(sides.other, percentile)
    estimate = float(top / bottom) if bottom > 0 else inf
    upper = beyond(lambda ratio: sides.p_below(ratio, alpha), estimate, 2.0, alpha)
    lower = beyond(lambda ratio: sides.p_above(ratio, alpha), estimate, 0.5, alpha)
    return Bounds(
        estimate=estimate,
        lower=max(lower, limit) if above <= alpha else min(lower, limit),
        upper=min(upper, limit) if below <= alpha else max(upper, limit),
        p_below=below,
        p_above=above,
        clusters=sides.count,
    )


def p_below(
    baseline: ArrayLike, variant: ArrayLike, clusters: ArrayLike, percentile: float, limit: float, enough: float
) -> float:
    """P-value of "the ratio is above the limit"; exact only above `enough`."""
    return _Sides(baseline, variant, clusters, percentile).p_below(limit, enough)


def p_above(
    baseline: ArrayLike, variant: ArrayLike, clusters: ArrayLike, percentile: float, limit: float, enough: float
) -> float:
    """P-value of "the ratio is at most the limit"; exact only above `enough`."""
    return _Sides(baseline, variant, clusters, percentile).p_above(limit, enough)


class _Sides:
    """Both samples, in order of their clusters."""

    def __init__(self, baseline: ArrayLike, variant: ArrayLike, clusters: ArrayLike, percentile: float) -> None:
        labels = np.asarray(clusters)
        order = np.argsort(labels, kind="stable")
        self.base, self.other = np.asarray(baseline, float)[order], np.asarray(variant, float)[order]
        self.starts = np.flatnonzero(np.diff(labels[order], prepend=labels[order][:1] - 1))
        self.sizes = np.diff(self.starts, append=len(order)).astype(float)
        self.count, self.total, self.share = len(self.starts), len(order), percentile / 100
        self.trials = independent_trials(np.ones(len(order)), labels)
        self.sorted = np.sort(self.base)

    def p_below(self, limit: float, enough: float) -> float:
        """P-value of "the ratio is above the limit"; exact only above `enough`."""
        scaled, ordered = self._scaled(limit)
        # Between two neighbouring levels low <= b < high nothing changes; where some are skipped, the worst of them.
        levels = self._levels(ordered)
        low, high = np.append(-inf, levels), np.append(levels, inf)
        slow = self.total - np.searchsorted(ordered, low, side="right")
        under = np.searchsorted(self.sorted, high, side="left")
        p = np.minimum(self._few(slow, 1 - self.share) / PARTS[0], self._few(under, self.share) / PARTS[2])
        open_ = np.flatnonzero((p > enough) & (slow < self.total - under))  # elsewhere the pairs say nothing
        p[open_] = np.minimum(p[open_], self._fewer(scaled, low[open_], self.base, high[open_]) / PARTS[1])
        return min(1.0, float(p.max()))

    def p_above(self, limit: float, enough: float) -> float:
        """P-value of "the ratio is at most the limit"; exact only above `enough`."""
        scaled, ordered = self._scaled(limit)
        levels = self._levels(ordered)
        low, high = np.append(-inf, levels), np.append(levels, inf)
        fast = np.searchsorted(ordered, high, side="left")
        over = self.total - np.searchsorted(self.sorted, low, side="left")
        p = np.minimum(self._few(fast, self.share) / PARTS[0], self._few(over, 1 - self.share) / PARTS[2])
        open_ = np.flatnonzero((p > enough) & (over < self.total - fast))
        p[open_] = np.minimum(p[open_], self._fewer(self.base, low[open_], scaled, high[open_], above=True) / PARTS[1])
        return min(1.0, float(p.max()))

    def _scaled(self, limit: float) -> tuple[NDArray, NDArray]:
        """(the variant's values / limit, the same sorted)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = np.where(self.other > 0, self.other / limit, 0.0)
        return scaled, np.sort(scaled)

    def _levels(self, ordered: NDArray) -> NDArray:
        """Return the values of either sample that may be the baseline's percentile; a selection of very many."""
        ranks = np.arange(self.total + 1)
        low = np.flatnonzero(self._few(ranks, self.share) > _SURELY)[0]
        high = np.flatnonzero(self._few(self.total - ranks, 1 - self.share) > _SURELY)[-1]
        ends = self.sorted[max(low - 1, 0)], self.sorted[min(high, self.total - 1)]
        values = np.unique(np.concatenate([self.sorted, ordered]))
        parts = np.split(values, [np.searchsorted(values, ends[0]), np.searchsorted(values, ends[1], side="right")])
        return np.concatenate([part[_spread(len(part))] for part in parts])

    def _few(self, hits: NDArray, rate: float) -> NDArray:
        """P(at most `hits` cases if each is a hit with chance `rate`), a cluster being one trial."""
        k = hits / self.total * self.trials
        return np.where(hits >= self.total, 1.0, betainc(np.maximum(self.trials - k, 1e-300), k + 1, 1 - rate))

    def _fewer(self, few: NDArray, over: NDArray, more: NDArray, least: NDArray, above: bool = False) -> NDArray:
        """P-values of "no smaller share of `few` exceeds `over` than of `many` reaches `least`", one per level.

        above: count `few` that reach `over` instead of exceeding it.
        """
        means, errors = np.zeros(len(over)), np.zeros(len(over))
        for index, (a, b) in enumerate(zip(over, least, strict=True)):
            gap = (more >= b).astype(np.int8) - (few >= a if above else few > a)
            means[index] = gap.mean()
            residuals = np.add.reduceat(gap, self.starts, dtype=np.int64) - means[index] * self.sizes
            errors[index] = sqrt(self.count / (self.count - 1) * float(residuals @ residuals)) / self.total
        return p_at_most(means, errors, self.count, self.trials, 0.0)


def beyond(p: Callable[[float], float], estimate: float, away: float, alpha: float) -> float:
    """The ratio nearest to the estimate at which p is at most alpha, searched in steps of the factor `away`; infinite,
    or 0, if there is none."""
    unbounded = inf if away > 1 else 0.0
    near = estimate if 0 < estimate < inf else 1.0
    far = near * away
    while p(far) > alpha:
        near, far = far, far * away * away
        if not 1e-9 < far < 1e9:
            return unbounded
    for _ in range(_STEPS):
        middle = sqrt(near * far)
        near, far = (near, middle) if p(middle) <= alpha else (middle, far)
        if abs(log(far / near)) < 1e-5:
            break
    return far


def _spread(count: int) -> NDArray:
    """At most `_LEVELS` evenly spread positions, the first and the last included."""
    return np.unique(np.linspace(0, count - 1, min(count, _LEVELS)).astype(int))
