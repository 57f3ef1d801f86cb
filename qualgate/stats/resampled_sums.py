"""Σ numerator / Σ denominator of several columns at once, with percentile bounds from one bootstrap over clusters.

All ratios of one arm use the same draws, so they can be compared. A resample only repeats the sample: if every cluster
has the same ratio its bounds have no width, except for a share of 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qualgate.stats.intervals import binomial_lower, binomial_upper
from qualgate.stats.paired.compare import MIN_CLUSTERS

DRAWS = 2000
SEED = 20261205  # of the draws: the same columns and clusters give the same bounds
AT_ONCE = 1_000_000  # numbers of a block of draws


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A ratio and its one-sided bounds at 1 − alpha each; `reason` explains a None."""

    value: float | None
    lower: float | None = None
    upper: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Sums:
    """Named sums over all entries, and over the entries of each draw of whole clusters."""

    whole: Mapping[str, float]
    drawn: Mapping[str, NDArray]  # [draws]
    clusters: int
    with_any: Mapping[str, int]  # clusters whose sum is not 0

    @classmethod
    def of(cls, columns: Mapping[str, ArrayLike], clusters: ArrayLike, seed: int = SEED, draws: int = DRAWS) -> Sums:
        """Sum and resample columns (name → a number for each entry). clusters: a label for each entry; as many clusters
        as there are, drawn with replacement (Efron, 1979; Cameron, Gelbach and Miller, 2008)."""
        labels, members = np.unique(np.asarray(clusters), return_inverse=True)
        count = len(labels)
        sums = np.stack([np.bincount(members, np.asarray(column, float), count) for column in columns.values()], axis=1)
        generator, block = np.random.default_rng(seed), max(1, AT_ONCE // max(count, 1))
        parts = []
        for start in range(0, draws if count else 0, block):
            resamples = generator.integers(0, count, (min(block, draws - start), count))
            offsets = count * np.arange(len(resamples))[:, None]
            counts = np.bincount((resamples + offsets).ravel(), minlength=count * len(resamples)).reshape(
                len(resamples), count
            )
            parts.append(counts @ sums)
        totals = np.concatenate(parts) if parts else np.zeros((0, len(columns)))
        return cls(
            whole=dict(zip(columns, sums.sum(axis=0).tolist(), strict=True)),
            drawn=dict(zip(columns, totals.T, strict=True)),
            clusters=count,
            with_any=dict(zip(columns, np.count_nonzero(sums, axis=0).tolist(), strict=True)),
        )

    def ratio(self, numerator: str, denominator: str, alpha: float, *, nothing: str) -> Ratio:
        """Σ numerator / Σ denominator. nothing: the reason if the denominator is 0."""
        if not self.whole[denominator]:
            return Ratio(value=None, reason=nothing)
        return self.statistic(lambda of: of[numerator] / of[denominator], alpha)

    def share(self, numerator: str, denominator: str, alpha: float, *, nothing: str) -> Ratio:
        """`ratio` of a numerator that is part of the denominator. At 0 or 1 the other bound is Clopper and Pearson's,
        with the clusters that have any as trials, so it is never too narrow."""
        ratio, trials = self.ratio(numerator, denominator, alpha, nothing=nothing), self.with_any[denominator]
        if ratio.lower is None or ratio.value not in (0.0, 1.0):
            return ratio
        if ratio.value:
            return replace(ratio, lower=binomial_lower(trials, trials, alpha))
        return replace(ratio, upper=binomial_upper(0, trials, alpha))

    def statistic(self, formula: Callable[[Mapping[str, NDArray]], NDArray], alpha: float) -> Ratio:
        """Any formula of the sums (name → [draws]) to [draws] that is finite for the whole sample.

        Without bounds if clusters are few, or if some draws divide by zero.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            value = float(formula({name: np.array([total]) for name, total in self.whole.items()})[0])
            values = formula(self.drawn)
        if self.clusters < MIN_CLUSTERS:
            return Ratio(value=value, reason=f"{self.clusters} prompts are too few for bounds ({MIN_CLUSTERS} needed)")
        if not np.isfinite(values).all():
            return Ratio(value=value, reason="seen in too few prompts for bounds")
        return Ratio(
            value=value,
            lower=min(value, float(np.quantile(values, alpha, method="lower"))),
            upper=max(value, float(np.quantile(values, 1 - alpha, method="higher"))),
        )
