"""Ratio of a latency, variant / baseline, over the same cases.

Sums are compared by a paired t-test: is the mean over turns of D = variant − limit · baseline below 0? A turn is both
arms' times of the same cases, one right after the other, in random order (`gate/evidence/time_groups`). So if the
variant's times are truly `limit` times the baseline's, D is as likely to be d as −d in every turn, whatever the machine
did in it and in the turns before: the error is at most alpha however long slow periods last, and smaller under tails
without a variance. That needs the limit inside D. A ratio with its own standard error is skewed there: with 300 turns
whose times have a Pareto tail of index 1.5, 7 % were approved at the limit.
"""

from __future__ import annotations

from math import ceil, exp, inf, log, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from qualgate.stats.intervals import Bounds, independent_trials
from qualgate.stats.percentiles import beyond, percentile_ratio

METHOD_SUMS = "ratio_of_sums_paired_t/1"

# Assumed time of an undrawn kind of case, as a multiple of the limit, or of the longest case seen: beyond that a Pareto
# tail of index 1.5 averages 3 times as much (see `nonnegative_ratio`). With five, false proofs at a true ratio of 1.10
# stay at most at alpha if 2 % of the cases take 6 times as long, or 5 % of them 3 times, or each its own lognormal
# factor with sigma up to 1.5: 5 % of draws of 150 cases contain none of that kind, so no test may trust fewer. The
# price: for an equally fast variant whose answers vary by 5 %, about 300 cases prove a ratio below 1.10 if the answers'
# own times spread by sigma 0.3, 400 at 0.5 and 2,000 at 1.0. Rarer and worse stalls can be missed, such as one case in
# 100 at 11 times: by 200 cases, in one draw of eight.
UNSEEN_SECONDS = {"of_limit": 5.0, "of_largest": 3.0}

# Likewise for turns, which may be few and stall as a whole: distance of an undrawn turn from the average, as a multiple
# of the slowest turn's.
UNSEEN_TURNS = 2.5
# Nodes of an integral over levels; the levels are their cubes, dense near 0.
_NODES, _WEIGHTS = (array / 2 for array in np.polynomial.legendre.leggauss(64))
_NODES += 0.5
_WEIGHTS *= 3 * _NODES**2


def clusters_needed(percentile: float, alpha: float = 0.05) -> int:
    """Independent cases of which, with confidence 1 − alpha, one lies beyond the percentile; 59 for p95 at 0.05.

    With fewer, the slowest case seen may be faster than the percentile, and no resampling can show that.
    """
    return ceil(log(alpha) / log(max(percentile, 100 - percentile) / 100))


def cases_needed(limit: float, ratio: float, alpha: float = 0.05) -> int | None:
    """Least independent cases that can prove a ratio of sums of `ratio` to be below `limit`, however little they vary;
    None: no number can."""
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
    cases: the clusters of the cases themselves, if `clusters` also joins what ran together. The caller ensures
    `groups_needed`. ValueError for no case, or when the baseline's sum is zero.
    """
    base, other = np.asarray(baseline, float), np.asarray(variant, float)
    if len(base) == 0 or len(base) != len(other) or base.sum() <= 0:
        raise ValueError("latencies must be of the same cases, and the baseline's not all zero")
    if percentile is not None:
        return percentile_ratio(base, other, clusters, percentile, limit, alpha)
    labels = np.asarray(clusters)
    sums = SumsOfTurns(base, other, labels, labels if cases is None else np.asarray(cases), limit, alpha)
    below, above = sums.p_below(limit), sums.p_above(limit)
    lower = beyond(sums.p_above, sums.estimate, 0.5, alpha)
    upper = beyond(sums.p_below, sums.estimate, 2.0, alpha)
    return Bounds(
        estimate=sums.estimate,
        lower=max(lower, limit) if above <= alpha else min(lower, limit),
        upper=min(upper, limit) if below <= alpha else max(upper, limit),
        p_below=below,
        p_above=above,
        clusters=sums.count,
    )


class SumsOfTurns:
    """Both sides' seconds by turns and by cases, and the two tests of the ratio of their sums."""

    def __init__(
        self, base: NDArray, other: NDArray, turns: NDArray, cases: NDArray, limit: float, alpha: float
    ) -> None:
        """Sum both sides' seconds over turns, and set aside shares for turns and cases of kinds that were not drawn.

        limit: of the rule; scales the assumed time of undrawn kinds of cases.
        """
        before, after = _sums(turns, base, other)
        self.estimate, self.count = float(after.sum() / before.sum()), len(before)
        self._means = float(before.mean()), float(after.mean())
        self._spread = np.cov(before, after) / self.count
        slowest = _largest(*_sums(cases, base, other))
        by_case = max(UNSEEN_SECONDS["of_limit"] * limit, UNSEEN_SECONDS["of_largest"] * slowest)
        by_turn = self.estimate + UNSEEN_TURNS * max(_largest(before, after) - self.estimate, 0.0)
        alone, turned = (independent_trials(base, labels, alpha) for labels in (cases, turns))  # by weight: of seconds
        self._unseen = [(alone, by_case), (turned, by_turn)]

    def p_below(self, ratio: float) -> float:
        """P-value of "the ratio of sums is at least `ratio`"."""
        open_ = self._beyond(ratio)
        ratios = self._quantiles((1 - open_) * (1 - _NODES**3))
        return max(
            open_ + (1 - open_) * _missed(ratio - ratios, max(high, ratio) - ratios, trials)
            for trials, high in self._unseen
        )

    def p_above(self, ratio: float) -> float:
        """P-value of "the ratio of sums is at most `ratio`": undrawn cases may take no time at all."""
        beyond = self._beyond(ratio)
        ratios = self._quantiles(1 - beyond * (1 - _NODES**3))
        return 1 - beyond + beyond * _missed(ratios - ratio, ratios, self._unseen[0][0])

    def _beyond(self, ratio: float) -> float:
        """The paired t-test's p of "the mean of variant − ratio · baseline is not below 0"."""
        (x, y), ((xx, xy), (_, yy)) = self._means, self._spread
        mean, error = y - ratio * x, sqrt(max(yy - 2 * ratio * xy + ratio * ratio * xx, 0.0))
        return float(stdtr(self.count - 1, mean / error)) if error > 0 else float(mean >= 0)

    def _quantiles(self, levels: NDArray) -> NDArray:
        """Return the ratios at which p is 1 − level, by Fieller's theorem (J. R. Statist. Soc. B 16, 1954).

        They are infinite, or 0 for negative t, if the baseline's time itself is not surely above 0.
        """
        t = stdtrit(self.count - 1, np.clip(levels, 1e-15, 1 - 1e-15))
        (x, y), ((xx, xy), (_, yy)) = self._means, self._spread
        square, mixed, constant = x * x - t * t * xx, x * y - t * t * xy, y * y - t * t * yy
        with np.errstate(divide="ignore", invalid="ignore"):
            root = np.sqrt(np.maximum(mixed * mixed - square * constant, 0.0))
            ratios = (mixed + np.sign(t) * root) / square
        return np.where(square > 0, np.maximum(ratios, 0.0), np.where(t > 0, inf, 0.0))


def detectable_log_ratio(error: float, trials: float, turns: float, limit: float, level: float, above: bool) -> float:
    """Log of the estimated ratio from which the tests above distinguish it from the limit at `level`, for plans: the
    log of the ratio is assumed normal with this standard error. trials: independent cases."""
    tail = error * sqrt(turns) * float(ndtri(1 - 1 / (turns + 1)))  # of the slowest turn seen

    def p(estimate: float) -> float:
        beyond = float(ndtr((estimate - log(limit)) / error)) if error > 0 else float(estimate >= log(limit))
        levels = 1 - beyond * (1 - _NODES**3) if above else (1 - beyond) * (1 - _NODES**3)
        ratios = np.exp(estimate + error * ndtri(np.clip(levels, 1e-15, 1 - 1e-15)))
        if above:
            return 1 - beyond + beyond * _missed(ratios - limit, ratios, trials)
        by_turn = exp(estimate) * (1 + UNSEEN_TURNS * (exp(tail) - 1))
        kinds = [(trials, UNSEEN_SECONDS["of_limit"] * limit), (turns, max(by_turn, limit))]
        return max(beyond + (1 - beyond) * _missed(limit - ratios, high - ratios, count) for count, high in kinds)

    near, far = log(limit), log(limit) + (20.0 if above else -20.0)
    for _ in range(40):
        middle = (near + far) / 2
        near, far = (near, middle) if p(middle) <= level else (middle, far)
    return far


def _missed(lacks: NDArray, each: NDArray, trials: float) -> float:
    """P(an undrawn kind, each case adding `each`, makes up for `lacks`), given so many cases without one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.nan_to_num(lacks / each, nan=1.0)
    return float(np.clip(1 - share, 0.0, 1.0) ** trials @ _WEIGHTS)


def _sums(labels: NDArray, *columns: NDArray) -> list[NDArray]:
    """Sums by label, column by column."""
    _, members = np.unique(labels, return_inverse=True)
    return [np.bincount(members, column) for column in columns]


def _largest(before: NDArray, after: NDArray) -> float:
    """The largest single ratio after / before."""
    timed = before > 0
    return float((after[timed] / before[timed]).max())
