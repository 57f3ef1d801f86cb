"""Ratio of two costs per accepted answer, and the interaction of two changes in cost, over the same cases.

An arm's cost per accepted answer is Σ cost of every attempt / number of accepted answers: infinite without any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qualgate.stats.intervals import Bootstrap, Bounds, bootstrap, independent_clusters
from qualgate.stats.latency import UNSEEN_SECONDS

SEED = 20260102  # of the bootstrap's draws; part of the formula id, so that a stored verdict can be derived again
DRAWS = 2000
METHOD_RATIO = f"cost_per_accepted_bootstrap/3 seed {SEED}"
METHOD_INTERACTION = f"cost_interaction_log_bootstrap/1 seed {SEED}"


def cost_per_accepted(costs: ArrayLike, accepted: ArrayLike) -> float:
    """Σ costs / Σ accepted; infinite if nothing was accepted, NaN without cases."""
    total, count = float(np.sum(costs)), float(np.sum(accepted))
    return total / count if count else (inf if np.size(costs) else float("nan"))


@dataclass(frozen=True, slots=True)
class CostRatio:
    """Bootstrap of the variant's cost per accepted answer / the baseline's, for any limit and alpha."""

    drawn: Bootstrap
    sizes: NDArray  # [clusters of cases], cases in each
    dearest: float  # the largest ratio of costs, of any one cluster of cases

    def bounds(self, limit: float, alpha: float = 0.05) -> Bounds:
        """Bounds and both tests, with an allowance for a kind of case that was not drawn.

        A resample only repeats the sample. So a share q = 1 − alpha^(1/k) of cases (k cases, fewer if unequal) may be
        of a kind on which one side accepts nothing, as if its accepted answers were 1 − q of those counted. On these
        the variant may also cost UNSEEN_SECONDS, against the tails named there. Twenty cases without a surprise prove
        nothing about one in eight."""
        unseen = 1 - alpha ** (1 / independent_clusters(self.sizes, alpha))
        dearer = unseen / (1 - unseen) * max(UNSEEN_SECONDS["of_limit"] * limit, self.dearest)
        within, beyond = self.drawn.bounds(limit - dearer, alpha), self.drawn.bounds(limit / (1 - unseen), alpha)
        return Bounds(
            estimate=within.estimate,
            lower=within.lower * (1 - unseen),
            upper=within.upper + dearer,
            p_below=within.p_below,
            p_above=beyond.p_above,
            clusters=self.drawn.n,
        )


def accepted_cost_ratio(
    baseline: tuple[ArrayLike, ArrayLike],
    variant: tuple[ArrayLike, ArrayLike],
    clusters: ArrayLike,
    cases: ArrayLike | None = None,
) -> CostRatio:
    """Resample whole clusters of the same cases for both sides.

    baseline, variant: (costs, accepted 0/1) of the same cases in the same order. cases: the clusters of the cases
    themselves, where `clusters` also joins what ran together and shares its time.
    ValueError when the baseline costs nothing or has nothing accepted: there is no ratio to it.
    """
    sums, _ = _by_cluster(clusters, *baseline, *variant)
    of_cases, sizes = _by_cluster(clusters if cases is None else cases, *baseline, *variant)
    if sums[:, 0].sum() <= 0 or sums[:, 1].sum() <= 0:
        raise ValueError("the baseline costs nothing or has no accepted answer, so nothing can be held against it")

    def ratio(counts: NDArray) -> NDArray:
        base_cost, base_good, cost, good = (counts @ sums).T
        with np.errstate(divide="ignore", invalid="ignore"):
            # A draw without the baseline's accepted answers says that the baseline is the dearer one: ratio 0.
            return np.where(good > 0, (cost / good) * (base_good / base_cost), np.where(base_good > 0, inf, 0.0))

    costly = of_cases[:, 0] > 0
    dearest = float((of_cases[costly, 2] / of_cases[costly, 0]).max())
    return CostRatio(_resampled(ratio, len(sums)), sizes, dearest)


def cost_interaction(
    arms: tuple[tuple[ArrayLike, ArrayLike], ...], clusters: ArrayLike, alpha: float = 0.05
) -> Bounds | None:
    """ln(X_baseline · X_both / (X_quantization · X_speculation)), X the cost per accepted answer: above 0, the two
    changes together cost more than their savings promise.

    arms: (costs, accepted) of baseline, quantization, speculation, both. None if one of them accepted nothing.
    """
    sums, _ = _by_cluster(clusters, *(column for arm in arms for column in arm))
    if (sums.sum(axis=0) <= 0).any():
        return None

    def interaction(counts: NDArray) -> NDArray:
        totals = counts @ sums
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.log(totals[:, 0::2]) - np.log(totals[:, 1::2])
            return np.nan_to_num(x[:, 0] + x[:, 3] - x[:, 1] - x[:, 2], nan=0.0)

    return _resampled(interaction, len(sums)).bounds(0.0, alpha)


def _by_cluster(clusters: ArrayLike, *columns: ArrayLike) -> tuple[NDArray, NDArray]:
    """([cluster, column] sums, cases in each cluster)."""
    _, members = np.unique(np.asarray(clusters), return_inverse=True)
    return (
        np.stack([np.bincount(members, np.asarray(column, float)) for column in columns], axis=1),
        np.bincount(members).astype(float),
    )


def _resampled(statistic: Callable[[NDArray], NDArray], count: int) -> Bootstrap:
    """`bootstrap` of a statistic of cluster counts ([draws, clusters])."""

    def of_draws(draws: NDArray) -> NDArray:
        return statistic(np.stack([np.bincount(indices, minlength=count) for indices in draws]).astype(float))

    return bootstrap(of_draws, count, np.random.default_rng(SEED), DRAWS)
