"""Test the mean of clusters of outcomes in −1..1, allowing for undrawn clusters that fail as a whole.

Student's t uses only the observed spread. If one passage in fifty is lost as a whole, a sample often contains none:
then t sees only the small independent flips of the others, and falsely proves a loss below 2 points in 42 % of draws of
40 passages of 40 questions.

So the mean combines two kinds: a share 1 − U of the clusters is as observed, with t's error, and an undrawn share U is
at −1 as a whole. With k clusters, a share of at least u stays undrawn with chance at most (1 − u)^k, so U has that tail
(Beta(1, k)); the p-value is the chance that both together reach the limit. Without any flip it is (1 + limit)^k, as of
k exact trials. Adding both worst cases, margin for margin, costs far more: with 150 clusters of 5, a third of the
identical variants are approved at 3 points instead of three quarters, while the error is at most alpha this way, too
(row `errors` of the benchmarks).
"""

from __future__ import annotations

from math import ceil, inf, log

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, stdtr, stdtrit

from qualgate.stats.bounded import least_mean
from qualgate.stats.intervals import Bounds, clustered_ratio, independent_trials

_NODES, _WEIGHTS = (array / 2 for array in np.polynomial.legendre.leggauss(64))
_NODES += 0.5
_NEGLIGIBLE = 1e-12


def clustered_mean(values: ArrayLike, clusters: ArrayLike, limit: float, alpha: float = 0.05) -> Bounds:
    """Bound the mean of `values`, −1..1, and test it against `limit`, strictly between −1 and 1.

    clusters: integer label of each value; values of one cluster may depend on each other in any way. k is the number of
    clusters, less if their sizes are unequal (`independent_trials`). Fewer than two clusters give infinite bounds.
    """
    x = np.asarray(values, float)
    drawn_only = clustered_ratio(x, np.ones(len(x)), clusters, limit, alpha)
    if drawn_only.lower == -inf:
        return drawn_only
    count, trials = drawn_only.clusters, independent_trials(np.ones(len(x)), clusters, alpha)
    # The standard error that `clustered_ratio` had: its interval reaches t times as far to either side.
    error = (drawn_only.upper - drawn_only.lower) / 2 / float(stdtrit(count - 1, 1 - alpha))

    def p_above(truth: float) -> float:
        """Return the p-value of "the mean is at most `truth`"."""
        return float(p_at_most(drawn_only.estimate, error, count, trials, truth))

    def p_below(truth: float) -> float:
        return float(p_at_most(-drawn_only.estimate, error, count, trials, -truth))

    return Bounds(
        estimate=drawn_only.estimate,
        lower=least_mean(p_above, limit, -1.0, drawn_only.estimate, alpha),
        upper=-least_mean(lambda truth: p_below(-truth), -limit, -1.0, -drawn_only.estimate, alpha),
        p_below=p_below(limit),
        p_above=p_above(limit),
        clusters=count,
    )


def p_at_most(mean: ArrayLike, error: ArrayLike, count: float, trials: float, limit: ArrayLike) -> NDArray:
    """P-value of "the mean is at most `limit`", for one draw or many of equally many clusters.

    mean, error: observed mean, −1..1, and its standard error. count: clusters; trials: effective number of them.
    With μ = mean + error · T it is E[min(1, ((1 + limit) / (1 + μ))^trials)], T being Student's.
    """
    mean, error, limit = np.broadcast_arrays(*(np.asarray(array, float) for array in (mean, error, limit)))
    with np.errstate(divide="ignore"):
        p = np.array(np.exp(np.minimum(trials * (np.log1p(limit) - np.log1p(np.maximum(mean, -1.0))), 0.0)))
    spread = (error > 0) & (mean > -1)
    if not spread.any():
        return p
    middle, scale, limit, freedom = mean[spread], error[spread], limit[spread], count - 1
    # Up to `start` the observed part reaches the limit alone; `far` beyond it no undrawn share does.
    start, farthest = (limit - middle) / scale, -stdtrit(freedom, _NEGLIGIBLE)
    far = (1 + limit) * (_NEGLIGIBLE ** (-1 / trials) - 1) / scale
    low = np.clip(start, -farthest, farthest)
    high = np.clip(start + far, low, farthest)
    t = low[:, None] + (high - low)[:, None] * _NODES
    density = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - np.log(freedom * np.pi) / 2
    density = density - (freedom + 1) / 2 * np.log1p(t * t / freedom)
    unseen = trials * (np.log1p(limit)[:, None] - np.log1p(middle[:, None] + scale[:, None] * t))
    p[spread] = stdtr(freedom, low) + (high - low) * (np.exp(density + np.minimum(unseen, 0.0)) @ _WEIGHTS)
    return np.minimum(p, 1.0)


def trials_needed(margin: float, alpha: float = 0.05) -> int:
    """Least clusters of one size that can exclude a loss of `margin` or more: without any flip."""
    return ceil(log(alpha) / log(1 - margin))


def least_provable(trials: float, alpha: float = 0.05) -> float:
    """The smallest margin that so many clusters can prove: q = 1 − alpha^(1/k)."""
    return 1 - alpha ** (1 / trials)
