"""Agreement between reviewers: Krippendorff's alpha, with bounds from the cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qualgate.stats.intervals import bootstrap

SEED, DRAWS = 0, 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Krippendorff's alpha: 1 is full agreement, 0 that of chance. units: rated by two or more."""

    alpha: float
    lower: float
    upper: float
    units: int


def agreement(units: Sequence[Sequence[float]], error: float = 0.025) -> Agreement | None:
    """Return Krippendorff's alpha for interval data; None without two ratings that differ, where it is not defined.

    units: ratings of each unit, by whoever rated it. error: of each bound. alpha = 1 − D_o / D_e: D_o is the mean
    squared difference of ratings of one unit, a unit of m ratings weighing m; D_e that of any two ratings. The
    bounds are percentiles over resampled units (Efron, 1979), since the ratings of one unit depend on each other; a
    resample without a difference counts as full agreement. Krippendorff, Content Analysis, 2004, 11.3.
    """
    rated = [np.asarray(values, float) for values in units if len(values) > 1]
    if not rated or np.ptp(np.concatenate(rated)) == 0:
        return None
    parts = np.array([_parts(values) for values in rated])

    def alphas(chosen: NDArray) -> NDArray:
        """chosen: [draws, units] → alpha of each draw."""
        n, total, squares, within = np.moveaxis(parts[chosen].sum(axis=1), -1, 0)
        expected = 2 * (n * squares - total**2) / (n - 1)  # n · D_e, as `within` is n · D_o
        return 1 - np.divide(within, expected, out=np.zeros_like(within), where=expected > 1e-12)

    drawn = bootstrap(alphas, len(parts), np.random.default_rng(SEED), DRAWS)
    bounds = drawn.bounds(0.0, error)
    return Agreement(alpha=drawn.estimate, lower=bounds.lower, upper=bounds.upper, units=len(parts))


def _parts(values: NDArray) -> tuple[float, float, float, float]:
    """Return the number m of a unit's ratings, their sum, sum of squares, and m times their mean squared difference."""
    m, total, squares = len(values), float(values.sum()), float(values @ values)
    return m, total, squares, 2 * (m * squares - total**2) / (m - 1)
