"""How surely a rule on what is measured would decide: asked of the module that knows the metric's kind.

How much times, costs and divergences vary from case to case is no assumption but what an earlier run of the gate file
measured. Without one, only what is sure is told: an identical variant neither drifts nor answers otherwise.
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
from qualgate.metrics import METRICS
from qualgate.records import Policy, RunEvidence

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
    """What is known beforehand of one slice."""

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
    """Every slice of the policy that is no quality rule. Same arguments, same numbers.

    sizes: of a slice, how many clusters are planned of each number of answers. earlier: a run of the same gate file;
    what it does not hold, or holds broken, is as if there were none. chosen: those that are wanted.
    """
    before, family = EarlierRun.of(earlier, policy), Counter(slice_.rule.tier for slice_ in slices)
    foretold = {}
    for slice_ in filter(chosen, slices):
        kind = METRICS[slice_.rule.metric].kind
        if kind == "judged":
            foretold[slice_] = Foretold(note="what a judge will prefer is not foretold")
        if (chances_of := BY_KIND.get(kind)) is None:
            continue
        if slice_.obstacle:
            foretold[slice_] = Foretold(note=slice_.obstacle)
            continue
        planned = sizes(slice_)
        clusters = np.repeat(np.array([*planned], float), [*planned.values()])
        chances = chances_of(slice_, before, policy.alpha, policy.alpha / family[slice_.rule.tier])
        foretold[slice_] = _foretold(chances, clusters)
    return foretold


def jointly(foretold: Mapping[Slice, Foretold]) -> float:
    """P(every critical rule of these proven | identical), of those foretold, taken to be independent.

    Times of one run rise and fall together, and with them rules on several of their percentiles: it can only be more.
    """
    return prod(
        chances.approve
        for slice_, chances in foretold.items()
        if slice_.rule.tier == "critical" and chances.approve is not None
    )


def _foretold(chances: Chances, clusters: NDArray) -> Foretold:
    """clusters: the cases in each of those that are planned."""
    if not len(clusters):
        return Foretold(approve=0.0, block=0.0, note="no case counts")
    approve = needed = None
    if chances.approve is not None:
        approve = chances.approve(clusters)
        needed = _needed(chances.approve, clusters) if approve < ENOUGH else None
    return Foretold(
        approve=approve,
        block=chances.block(clusters) if chances.block else None,
        needed=needed,
        note=chances.note,
    )


def _needed(approve: Rate, clusters: NDArray) -> int | None:
    """To 1 %, of clusters like these; None above `MOST_CLUSTERS`."""
    low = high = len(clusters)
    while approve(np.resize(clusters, high)) < ENOUGH:
        low, high = high, 2 * high
        if high > MOST_CLUSTERS:
            return None
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if approve(np.resize(clusters, middle)) >= ENOUGH else (middle, high)
    return high
