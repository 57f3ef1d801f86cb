"""Is the mean loss of clusters of outcomes within a margin? Bets on the clusters' sums, at stakes set before any data.

A cluster of s cases loses x of them, −s..s. Were the loss of all Σ s cases at least the margin m, then nobody gains on
average by the bets Π (1 + λ (m s − x) / largest), 0 ≤ λ ≤ 1 / (1 − m): with the same λ for all, and clusters that are
independent and otherwise of any kind, the product's mean is at most the power of the factors' mean, which is at most 1
(the geometric mean is at most the arithmetic one). So it reaches 1 / alpha with a chance of at most alpha (Markov),
however many clusters there are, of whatever sizes, and whichever of them fail as a whole: an exact statement where
`unseen_clusters` joins t's error to the chance that none was drawn. The product does not hang on the clusters' order.

`STAKES` of the largest λ are laid: at all of it one cluster that is wholly lost would end every proof. What Markov's
bound wastes is little while the number of clusters, and not their noise, is what a proof lacks, so the bets serve to
`MOST_TRIALS` times the clusters that prove the margin without any flip: there an identical variant is proven with up
to a third fewer clusters than by t, whose design effect needs flips in 20 of them. Beyond that, at margins under 5
points, among clusters mostly of one case, or where a few are so large that the others hardly count, t needs fewer. It
is the sizes, the margin and alpha that choose, so the choice costs no error (rows `errors`, `undecided.planned`).
"""

from __future__ import annotations

from math import inf, log, log1p, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qualgate.stats.intervals import independent_clusters, normal_quantile
from qualgate.stats.unseen_clusters import trials_needed

STAKES = 0.95  # of those at which one cluster could take everything
LEAST_MARGIN = 0.05
MOST_TRIALS = 2.0  # independent clusters, over those that the margin needs at least
_LEAST_CASES = 1.5  # of a cluster, on average
_LEAST_EVEN = 0.93  # all cases in clusters of the largest's size, over the independent clusters that there are
_HALVINGS = 40  # nearer to a limit of 1 than these come, the bets are lost in rounding


def bets_serve(sizes: ArrayLike, margin: float, alpha: float = 0.05) -> bool:
    """Whether clusters of these sizes are judged by bets against this margin; known before any outcome is."""
    each = np.asarray(sizes, float)
    if margin < LEAST_MARGIN or not len(each) or each.sum() < _LEAST_CASES * len(each):
        return False
    trials, needed = independent_clusters(each, alpha), trials_needed(margin, alpha)
    return needed <= trials <= MOST_TRIALS * needed and float(each.sum() / each.max()) >= _LEAST_EVEN * trials


def log_bets(loss: ArrayLike, sizes: ArrayLike, margin: float, largest: float) -> NDArray:
    """log of what each cluster's bet multiplies the capital by, in the shape of `loss`.

    loss: cases lost − cases gained of a cluster, at most its size; largest: the size of the largest. −1 < margin < 1.
    """
    beyond = margin * np.asarray(sizes, float) - np.asarray(loss, float)
    return np.log1p(STAKES / (1 - margin) / largest * beyond)


def proof_by_bets(loss: ArrayLike, sizes: ArrayLike, margin: float, alpha: float = 0.05) -> tuple[float, float]:
    """(p-value of "the loss is at least the margin", the largest loss that is not excluded, confidence 1 − alpha).

    loss, sizes: [clusters], as in `log_bets`. The bound is at most the margin just when p is at most alpha.
    """
    x, each = np.asarray(loss, float), np.asarray(sizes, float)
    largest, enough = float(each.max()), -log(alpha)

    def capital(limit: float) -> float:
        return float(log_bets(x, each, limit, largest).sum())

    p = min(1.0, float(np.exp(-capital(margin))))
    low, high = float(x.sum() / each.sum()), 1.0  # at the mean the capital is below 1, and it grows with the limit
    if low >= 1:
        return p, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if capital(middle) >= enough else (middle, high)
    return p, min(high, margin) if p <= alpha else max(high, float(np.nextafter(margin, 2)))


def clusters_by_bets(margin: float, moment: float, jump: float, power: float, alpha: float = 0.05) -> float:
    """About how many clusters of one size prove an identical variant with that chance, by the normal law.

    moment: the mean square of a cluster's loss, as a share of its size; jump: a loss or gain of which it is made up.
    """
    still, stakes, jumping = 1 + STAKES / (1 - margin) * margin, STAKES / (1 - margin) * jump, moment / jump**2
    lost, gained = (log1p(sign * stakes / still) for sign in (-1, 1))
    growth = log(still) + jumping * (lost + gained) / 2
    luck = normal_quantile(power) * sqrt(jumping * (lost**2 + gained**2) / 2)
    return ((luck + sqrt(luck**2 - 4 * growth * log(alpha))) / (2 * growth)) ** 2 if growth > 0 else inf
