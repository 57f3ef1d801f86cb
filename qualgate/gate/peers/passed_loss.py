"""Which loss a peer's rule lets pass on this evidence: its power, told as points.

Variants with a planted loss are drawn from the baseline's own answers: answers flip as often as they did here where a
loss is not meant, and the loss on top takes right answers away. Of each draw the largest loss that still passes is
found by bisection over one order of the answers, so that a larger loss contains the smaller one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.peers.rule import Outcomes, PeerVerdict, Sample

DRAWS = 20
FINE = 200  # the bisection ends at this share of the answers
MOST_CASES = 20_000  # beyond, a draw takes this many of them
SEED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedLoss:
    """Losses, in the metric's unit, that a rule lets pass on this many cases; −1: it blocks an equal variant, too."""

    half: float  # it passes in half of the draws
    tenth: float  # it passes in one draw of ten: a larger one is caught with 90 %


def passed_loss(judge: Callable[[Outcomes], PeerVerdict], outcomes: Outcomes) -> PassedLoss | None:
    """The losses that the rule lets pass; None where it cannot judge, or no answer can be lost."""
    baseline, _ = (np.array(scores) for scores in outcomes.scores)
    baseline = baseline[:MOST_CASES]
    if not len(baseline) or not baseline.any() or judge(outcomes).says == "cannot":
        return None
    churn = min(outcomes.lost, outcomes.gained) / max(outcomes.difference.n, 1)
    generator = np.random.default_rng(SEED)
    largest = sorted(_largest(judge, outcomes, baseline, churn, generator) for _ in range(DRAWS))
    half, tenth = largest[DRAWS // 2], largest[-(DRAWS // 10)]
    return PassedLoss(half=half, tenth=tenth)


def _largest(
    judge: Callable[[Outcomes], PeerVerdict],
    outcomes: Outcomes,
    baseline: NDArray[np.float64],
    churn: float,
    generator: np.random.Generator,
) -> float:
    """The largest true loss of one draw that passes; -1 where none does. churn: share of answers that flip each way."""
    equal = baseline.copy()
    for flipping, value in ((np.flatnonzero(baseline > 0), 0.0), (np.flatnonzero(baseline < 1), 1.0)):
        count = min(generator.binomial(len(baseline), churn), len(flipping))
        equal[generator.choice(flipping, count, replace=False)] = value
    right = np.flatnonzero(equal > 0)
    chances = generator.random(len(right))  # an answer is lost where the loss exceeds its chance
    order = np.argsort(chances)

    def passes(count: int) -> bool:
        variant = equal.copy()
        variant[right[order[:count]]] = 0
        return judge(_outcomes(outcomes, baseline, variant)).says == "pass"

    if not passes(0):
        return -1.0
    low, high = 0, len(order)
    while high - low > max(1, len(order) // FINE):
        middle = (low + high) // 2
        low, high = (middle, high) if passes(middle) else (low, middle)
    share = chances[order[low]] if low < len(order) else 1.0
    return float(share * equal.mean())


def _outcomes(known: Outcomes, baseline: NDArray[np.float64], variant: NDArray[np.float64]) -> Outcomes:
    differences = variant - baseline
    return Outcomes(
        evalset=known.evalset,
        metric=known.metric,
        baseline=_sample(baseline),
        variant=_sample(variant),
        difference=_sample(differences),
        paired_level=float(baseline.mean()),
        lost=int((differences < 0).sum()),
        gained=int((differences > 0).sum()),
        differences=tuple(differences.tolist()),
        scores=(tuple(baseline.tolist()), tuple(variant.tolist())),
    )


def _sample(values: NDArray[np.float64]) -> Sample:
    n = len(values)
    return Sample(n=n, mean=float(values.mean()), sd=float(values.std(ddof=1)) if n > 1 else 0.0)
