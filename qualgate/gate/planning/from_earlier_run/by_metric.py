"""Predict the rates of rules on measured quantities, with the module for the metric's kind.

The spread of times, costs and divergences comes from an earlier run of the gate file, never from an assumption. Without
such a run only certainties are predicted: an identical variant neither drifts nor answers otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.advice import ENOUGH
from qualgate.gate.planning.from_earlier_run.agreement import share_chances
from qualgate.gate.planning.from_earlier_run.arm_facts import arm_chances
from qualgate.gate.planning.from_earlier_run.chances import Chances, Rate
from qualgate.gate.planning.from_earlier_run.drift import drift_chances
from qualgate.gate.planning.from_earlier_run.earlier_run import EarlierRun
from qualgate.gate.planning.from_earlier_run.goodput import goodput_chances
from qualgate.gate.planning.from_earlier_run.latency import latency_chances
from qualgate.gate.planning.from_earlier_run.ratio_of_sums import ratio_chances
from qualgate.gate.rules import Slice
from qualgate.records import Policy, RunEvidence
from qualgate.records.metrics import METRICS

MOST_CLUSTERS = 100_000

# By kind of metric: (slice, earlier run, alpha of an approval, alpha of a block: Holm's first step) → chances.
BY_KIND: dict[str, Callable[[Slice, EarlierRun, float, float], Chances]] = {
    "latency": latency_chances,
    "cost": ratio_chances,
    "drift": drift_chances,
    "length": drift_chances,
    "service": goodput_chances,
    "stability": share_chances,
    "arm": arm_chances,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """Prediction for one slice."""

    approve: float | None = None  # P(proven | identical, or twice the saving that is asked for); None: not known
    block: float | None = None  # P(broken at Holm's first step | twice the allowance, or no saving); None: not known
    needed: int | None = None  # clusters like the planned ones at which `approve` is `ENOUGH`; where it is less
    note: str = ""  # what it rests on, or why it is not known


def foretell(
    slices: Sequence[Slice],
    sizes: Callable[[Slice], Mapping[int, int]],
    policy: Policy,
    earlier: RunEvidence | None = None,
    chosen: Callable[[Slice], bool] = lambda _: True,
) -> dict[Slice, Foretold]:
    """Predict every slice of the policy that is no quality rule. The same arguments give the same numbers.

    sizes: of a slice, size of a cluster → planned clusters. earlier: a run of the same gate file; broken parts count as
    absent. chosen: selects slices.
    """
    before, family = EarlierRun.of(earlier, policy), Counter(slice_.rule.tier for slice_ in slices)
    foretold = {}
    for slice_ in filter(chosen, slices):
        kind = METRICS[slice_.rule.metric].kind
        if kind == "judged":
            foretold[slice_] = Foretold(note="what a judge or people will prefer is not foretold")
        if (chances_of := BY_KIND.get(kind)) is None:
            continue
        if slice_.obstacle:
            foretold[slice_] = Foretold(note=slice_.obstacle)
            continue
        planned = sizes(slice_)
        clusters = np.repeat(np.array([*planned], float), [*planned.values()])
        chances = chances_of(slice_, before, policy.alpha, policy.alpha / family[slice_.rule.tier])
        foretold[slice_] = _predict(chances, clusters)
    return foretold


def jointly(foretold: Mapping[Slice, Foretold]) -> float:
    """P(every predicted critical rule proven | identical), as if they were independent.

    Times of one run, and rules on their percentiles, rise and fall together, so the true chance can only be larger.
    """
    return prod(
        chances.approve
        for slice_, chances in foretold.items()
        if slice_.rule.tier == "critical" and chances.approve is not None
    )


def _predict(chances: Chances, clusters: NDArray) -> Foretold:
    """Evaluate the chances for the planned clusters. clusters: cases in each.

    The clusters needed are computed only if an approval is less likely than `ENOUGH`.
    """
    if not len(clusters):
        return Foretold(approve=0.0, block=0.0, note="no case counts")
    approve = needed = None
    if chances.approve is not None:
        approve = chances.approve(clusters)
        needed = _clusters_needed(chances.approve, clusters) if approve < ENOUGH else None
    return Foretold(
        approve=approve,
        block=chances.block(clusters) if chances.block else None,
        needed=needed,
        note=chances.note,
    )


def _clusters_needed(approve: Rate, clusters: NDArray) -> int | None:
    """Find the number of such clusters that reaches `ENOUGH`, to 1 %, by bisection; None above `MOST_CLUSTERS`."""
    low = high = len(clusters)
    while approve(np.resize(clusters, high)) < ENOUGH:
        low, high = high, 2 * high
        if high > MOST_CLUSTERS:
            return None
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if approve(np.resize(clusters, middle)) >= ENOUGH else (middle, high)
    return high
