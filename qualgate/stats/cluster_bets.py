"""Test by bets whether the mean loss of clusters of outcomes is within a margin, at stakes fixed before any data.

A cluster of s cases loses x of them, −s..s. If the loss over all Σ s cases is at least the margin m, the bets
Π (1 + λ (m s − x) / largest), 0 ≤ λ ≤ 1 / (1 − m), gain nothing on average: with one λ for all, and clusters that are
independent and otherwise arbitrary, the product's mean is at most the power of the factors' mean, which is at most 1
(the geometric mean is at most the arithmetic one). So it reaches 1 / alpha with a chance of at most alpha (Markov), for
any number and sizes of clusters, and whichever of them fail as a whole: an exact statement, where `unseen_clusters`
combines t's error with the chance that none was drawn. The product does not depend on the clusters' order.

`STAKES` of the largest λ is used: at the full λ one wholly lost cluster would rule out any proof. Markov's bound wastes
little while a proof lacks clusters rather than precision, so bets are used up to `MOST_TRIALS` times the clusters that
prove the margin without any flip: there they need up to a third fewer clusters for an identical variant than t, whose
design effect needs flips in 20 of them. Beyond that, at margins under 5 points, with clusters mostly of one case, or
where a few very large ones dominate, t needs fewer. Sizes, margin and alpha alone choose the test, so the choice costs
no error (rows `errors`, `undecided.planned`).
"""

from __future__ import annotations

from math import inf, log, log1p, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qualgate.stats.intervals import independent_clusters, normal_quantile
from qualgate.stats.unseen_clusters import trials_needed

STAKES = 0.95  # of the stakes at which one cluster could lose the whole capital
LEAST_MARGIN = 0.05
MOST_TRIALS = 2.0  # independent clusters, over those that the margin needs at least
_LEAST_CASES = 1.5  # of a cluster, on average
_LEAST_EVEN = 0.93  # (cases / size of the largest cluster) / independent clusters
_HALVINGS = 40  # closer to a limit of 1, the bets vanish in rounding


def bets_serve(sizes: ArrayLike, margin: float, alpha: float = 0.05) -> bool:
    """Whether bets judge clusters of these sizes against this margin; does not depend on outcomes."""
    each = np.asarray(sizes, float)
    if margin < LEAST_MARGIN or not len(each) or each.sum() < _LEAST_CASES * len(each):
        return False
    trials, needed = independent_clusters(each, alpha), trials_needed(margin, alpha)
    return needed <= trials <= MOST_TRIALS * needed and float(each.sum() / each.max()) >= _LEAST_EVEN * trials


def log_bets(loss: ArrayLike, sizes: ArrayLike, margin: float, largest: float) -> NDArray:
    """Log of the factor by which each cluster's bet multiplies the capital, in the shape of `loss`.

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
    """Estimate how many clusters of one size prove an identical variant with chance `power`, by the normal law.

    moment: mean square of a cluster's loss as a share of its size; jump: size of the single losses and gains in it.
    """
    still, stakes, jumping = 1 + STAKES / (1 - margin) * margin, STAKES / (1 - margin) * jump, moment / jump**2
    lost, gained = (log1p(sign * stakes / still) for sign in (-1, 1))
    growth = log(still) + jumping * (lost + gained) / 2
    luck = normal_quantile(power) * sqrt(jumping * (lost**2 + gained**2) / 2)
    return ((luck + sqrt(luck**2 - 4 * growth * log(alpha))) / (2 * growth)) ** 2 if growth > 0 else inf
