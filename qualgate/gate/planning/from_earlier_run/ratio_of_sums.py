"""Predict the rates of a rule on a ratio of sums: of times, and of costs per accepted answer.

The log of a ratio is assumed normal; its standard error comes from the gate's own bounds in the earlier run and shrinks
with the root of the clusters. The variant most like the baseline counts, ideally the baseline against itself. The
assumed truths: 1 to be approved, twice the allowance (1 + 2 (r − 1)) to be blocked.

A ratio below 1 asks for a saving, which nothing identical has: then r² (twice the saving) is to be approved, and no
saving to be blocked.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from qualgate.gate.comparisons.pairs import clusters_of, pairs_of
from qualgate.gate.planning.from_earlier_run.chances import UNTOLD, Chances
from qualgate.gate.planning.from_earlier_run.earlier_run import EarlierRun
from qualgate.gate.rules import Slice
from qualgate.records.metrics import METRICS
from qualgate.stats import cost_ratio, latency
from qualgate.stats.intervals import independent_clusters, independent_trials
from qualgate.stats.paired.compare import MIN_CLUSTERS

NO_RATIO = Chances(approve=lambda sizes: 0.0, note="nothing takes no time and costs nothing")


def true_ratios(limit: float) -> tuple[float, float]:
    """(ratio to be approved, ratio to be blocked)."""
    return (1.0, 1 + 2 * (limit - 1)) if limit >= 1 else (limit * limit, 1.0)


def saving_note(limit: float, note: str) -> str:
    """Explain what "approve" and "block" mean for a ratio below 1, which asks for a saving."""
    if limit >= 1:
        return note
    return f"{note}; asks for a saving: proven if it takes {limit * limit:.3g} times as much, broken if as much"


def ratio_chances(slice_: Slice, before: EarlierRun, alpha: float, strict: float) -> Chances:
    """Chances of a rule by `max_ratio`. strict: the alpha of a block."""
    limit, costs = slice_.rule.max_ratio or 0.0, METRICS[slice_.rule.metric].kind == "cost"
    spread = _spread(slice_, before, alpha)
    if limit <= 0:
        return NO_RATIO
    if isinstance(spread, str):
        return Chances(note=spread)
    good, bad = true_ratios(limit)

    def chance(sizes: NDArray, truth: float, level: float) -> float:
        """Return the chance that a bound of the ratio clears the limit. truth: true ratio, above the limit for a
        block.
        """
        # Answers of one batch share its time: batches as large as those of the earlier run.
        clusters = spread.timed * min(len(sizes), sizes.sum() * spread.clusters / spread.cases)
        if spread.timed * len(sizes) < MIN_CLUSTERS or clusters < MIN_CLUSTERS:
            return 0.0
        # See `SumsOfTurns` and `accepted_cost_ratio`: a share of the cases may be of a kind not drawn.
        trials = spread.timed * spread.even * independent_clusters(sizes, alpha)
        error = spread.error * sqrt(spread.clusters / clusters)
        if not costs:
            gap = latency.detectable_log_ratio(error, trials, clusters, limit, level, truth > limit) - log(truth)
            return (
                float(ndtr((-gap if truth > limit else gap) / error))
                if error > 0
                else float((gap > 0) != (truth > limit))
            )
        unseen = _unseen(trials, alpha)
        slow = latency.UNSEEN_SECONDS["of_limit"] * limit * unseen / (1 - unseen)
        effective_limit = limit / (1 - unseen) if truth > limit else limit - slow
        if effective_limit <= 0:
            return 0.0
        distance = log(truth / effective_limit) if truth > limit else log(effective_limit / truth)
        return _tail(distance, error, level, cost_ratio.DRAWS)

    return Chances(
        approve=lambda sizes: chance(sizes, good, alpha),
        block=lambda sizes: chance(sizes, bad, strict),
        note=saving_note(limit, f"varies as {spread.arm} did in run {before.run}"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spread:
    """The spread of a ratio in an earlier run."""

    arm: str
    error: float  # standard error of its log
    clusters: int
    cases: int
    timed: float  # share of the cases that count: answers of one token have no time per further token
    even: float = 1.0  # share of the independent cases left when they count by their seconds


def _spread(slice_: Slice, before: EarlierRun, alpha: float) -> _Spread | str:
    """Spread of the variant most like the baseline that has bounds, or why there is none.

    Taken from the lower bound: the upper one also allows for slow cases that were not drawn.
    """
    why, metric = UNTOLD, slice_.rule.metric
    for arm, measured in before.measured(slice_):
        comparison, pairs = measured.comparison, pairs_of(slice_, arm.pairs)
        if not comparison.lower or comparison.upper is None or not comparison.baseline or not comparison.variant:
            why = before.silence(slice_, measured)
            continue
        labels, costs = clusters_of(pairs), METRICS[metric].kind == "cost"
        weights = [1.0 if costs else pair.baseline.values.get(metric) or 0.0 for pair in pairs]
        trials = independent_trials(weights, labels, alpha)
        # What of the bound is for cases never drawn: all of a margin of its own, or what it is on average.
        unseen = _unseen(trials, alpha) if costs else 1 / (trials + 1)
        width = log(comparison.variant / comparison.baseline * (1 - unseen) / comparison.lower)
        return _Spread(
            arm=arm.variant,
            error=max(width, 0.0) / float(ndtri(1 - alpha)),
            clusters=comparison.clusters or comparison.n,
            cases=comparison.n,
            timed=comparison.n / len(pairs),
            even=trials / independent_trials(np.ones(len(labels)), labels, alpha),
        )
    return why


def _unseen(trials: float, alpha: float) -> float:
    """Share of cases that may be of a kind not drawn: see `accepted_cost_ratio`."""
    return 1 - alpha ** (1 / trials)


def _tail(distance: float, error: float, alpha: float, draws: int) -> float:
    """P(a bound at alpha lies on the near side of a limit so far away), on the log scale.

    A bootstrap's p-value is (1 + k) / (1 + draws): below the least of them nothing is ever decided.
    """
    reached = floor(alpha * (1 + draws) + 1e-9) / (1 + draws)
    if reached <= 0:
        return 0.0
    if error <= 0:
        return float(distance > 0)
    return float(ndtr(distance / error + ndtri(reached)))
