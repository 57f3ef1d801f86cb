"""How often a policy would approve an identical variant, and how often block one that loses twice its margins.

Outcomes are drawn for each metric and evalset (`gate.outcomes`); every rule decides on the sums over its own sets, as
the gate would, so rules on the same cases agree or err together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import sqrt
from operator import add

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.measure import LEAST_BASELINE_RATE, SENSITIVITY_ALPHA, UNSEEN_KL
from qualgate.gate.outcomes import Assumed, Drawn, PlannedSet, decide_cases, decide_clusters, draw, outcome_chances
from qualgate.gate.rules import Slice, check_policy
from qualgate.metrics import MARGINS_OF_BASELINE, METRICS
from qualgate.numbers import counted
from qualgate.records import Policy
from qualgate.stats.intervals import binomial_lower
from qualgate.stats.latency import clusters_needed
from qualgate.stats.paired import MIN_CLUSTERS
from qualgate.stats.power import pairs_to_approve

ENOUGH = 0.8  # a policy that approves an identical variant more rarely is told to change
DRAWS = 22_500  # 3 standard errors of any rate are at most 1 point
_SINGLE_CELLS = 6_000_000  # draws x clusters that are drawn one by one
_LEAST_DRAWS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRule:
    rule: str  # Rule.id
    slice: str
    tier: str
    n: int
    clusters: int | None
    approve: float | None  # P(proven | identical); None: not predicted
    block: float | None  # P(broken, after Holm's correction | this slice alone loses twice the margin)
    disagreement: float | None  # assumed, over the slice's cases
    needed: int | None  # cases at which an identical variant is proven in `ENOUGH` of runs; None: not known or too many
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A policy on its sets under what is assumed. Same fields, same numbers. UsageError: a policy that does not fit."""

    sets: tuple[PlannedSet, ...]
    policy: Policy
    assumed: Assumed
    draws: int = DRAWS  # at most: fewer where many clusters have to be drawn one by one
    seed: int = 0

    @cached_property
    def slices(self) -> tuple[Slice, ...]:
        return check_policy(self.policy, {one.name: one.metrics for one in self.sets})

    @cached_property
    def used(self) -> int:
        """Draws of every rate."""
        single = sum(one.drawn_singly for one in self.sets)
        return min(self.draws, max(_SINGLE_CELLS // single, _LEAST_DRAWS)) if single else self.draws

    @property
    def error(self) -> float:
        """The largest standard error that a rate can have from drawing."""
        return 0.5 / sqrt(self.used)

    @property
    def quality(self) -> list[Slice]:
        return [part for part in self.slices if METRICS[part.rule.metric].kind == "quality"]

    @property
    def critical(self) -> list[Slice]:
        return [part for part in self.quality if part.rule.tier == "critical"]

    def among(self, part: Slice) -> list[PlannedSet]:
        return [one for one in self.sets if one.name in part.evalsets]

    def cases(self, part: Slice) -> int:
        return sum(one.cases for one in self.among(part))

    def sizes(self, part: Slice) -> Counter[int]:
        """Clusters of each size."""
        return sum((one.sizes for one in self.among(part)), Counter())

    def clustered(self, part: Slice) -> bool:
        return any(one.clusters for one in self.among(part))

    def mean(self, part: Slice, rate: Callable[[str, str], float]) -> float:
        """Of a rate by (metric, evalset), over the slice's cases."""
        return sum(rate(part.rule.metric, one.name) * one.cases for one in self.among(part)) / max(1, self.cases(part))

    def family(self, tier: str) -> int:
        return sum(part.rule.tier == tier for part in self.slices)

    @cached_property
    def _proven(self) -> tuple[dict[str, NDArray], NDArray]:
        """[draws] proven by slice, and [draws] nothing broken, both of an identical variant."""
        drawn, proven, unbroken = self._draw({}, 0), {}, np.ones(self.used, bool)
        for part in self.quality:
            proven[part.head], beyond = self._decide(part, drawn)
            if part.rule.tier != "advisory":
                unbroken &= ~beyond
        return proven, unbroken

    @cached_property
    def approve(self) -> float:
        """P(every critical rule proven, nothing broken | identical)."""
        if any(part.rule.tier == "critical" and too_few(part, self.among(part)) for part in self.slices):
            return 0.0
        proven, approved = self._proven
        for part in self.critical:
            approved = approved & proven[part.head]
        return float(approved.mean())

    @cached_property
    def block(self) -> float:
        """P(block | every set loses twice the smallest margin of a critical rule on it)."""
        twice: dict[tuple[str, str], float] = {}
        for part in self.critical:
            for name in part.evalsets:
                key = (part.rule.metric, name)
                twice[key] = min(twice.get(key, 1.0), 2 * (part.rule.max_drop or 0))
        worse = self._draw(twice, 1)
        return float(np.any([self._decide(part, worse)[1] for part in self.critical], axis=0).mean())

    def rules(self) -> tuple[PlannedRule, ...]:
        return tuple(self._rule(part, index) for index, part in enumerate(self.slices))

    def _rule(self, part: Slice, index: int) -> PlannedRule:
        margin, proven = part.rule.max_drop, self._proven[0].get(part.head)
        block = disagreement = needed = None
        if proven is not None and margin is not None:
            alone = {(part.rule.metric, name): 2 * margin for name in part.evalsets}
            block = float(self._decide(part, self._draw(alone, 2 + index, only=part))[1].mean())
            disagreement = self.mean(part, self.assumed.flips)
            if proven.mean() < ENOUGH and not self.clustered(part):
                needed = pairs_to_approve(margin, disagreement, ENOUGH, self.policy.alpha)
        return PlannedRule(
            rule=part.rule.id,
            slice=part.name,
            tier=part.rule.tier,
            n=self.cases(part),
            clusters=self.sizes(part).total() if self.clustered(part) else None,
            approve=None if proven is None else float(proven.mean()),
            block=block,
            disagreement=disagreement,
            needed=needed,
            note=too_few(part, self.among(part))
            or ("" if proven is not None else "not predicted: decides on what is measured"),
        )

    def _draw(
        self, losses: Mapping[tuple[str, str], float], stream: int, *, only: Slice | None = None
    ) -> dict[tuple[str, str], Drawn]:
        """losses: extra P(lost) by (metric, evalset). stream: draws of the same stream are the same."""
        wanted = [only] if only else self.quality
        sizes = {one.name: one for one in self.sets}
        return {
            key: draw(
                sizes[key[1]],
                outcome_chances(*key, losses.get(key, 0.0), self.assumed),
                self.used,
                np.random.default_rng([self.seed, stream, index]),
            )
            for index, key in enumerate(sorted({(part.rule.metric, name) for part in wanted for name in part.evalsets}))
        }

    def _decide(self, part: Slice, drawn: Mapping[tuple[str, str], Drawn]) -> tuple[NDArray, NDArray]:
        """[draws] proven, and [draws] broken by Holm's first step, which is where a block begins."""
        margin, alpha = part.rule.max_drop or 0.0, self.policy.alpha
        strict = alpha / self.family(part.rule.tier)
        sums = reduce(add, (drawn[part.rule.metric, name] for name in part.evalsets))
        cases, sizes = self.cases(part), self.sizes(part)
        if too_few(part, self.among(part)):
            return np.zeros(self.used, bool), np.zeros(self.used, bool)
        if not self.clustered(part):
            within, beyond = decide_cases(sums, cases, margin, alpha, strict)
        else:
            within, beyond = decide_clusters(sums, sizes, margin, alpha, strict)
        trials = cases**2 / sum(size * size * many for size, many in sizes.items())  # surely independent ones (Kish)
        return within & surely_right(sums.right / cases, trials, margin), beyond


def surely_right(share: NDArray, trials: float, margin: float, alpha: float = SENSITIVITY_ALPHA) -> NDArray:
    """Is the baseline right often enough to lose `margin`? share: of its cases, [draws]. alpha: of its lower bound."""
    return share >= _least_share(trials, max(LEAST_BASELINE_RATE, MARGINS_OF_BASELINE * margin), alpha)


def _least_share(trials: float, enough: float, alpha: float) -> float:
    """Share of right answers at which the baseline's lower bound reaches `enough`; above 1 when none does."""
    low, high = 0.0, trials
    if binomial_lower(trials, trials, alpha) < enough:  # type: ignore[arg-type]  # fractions are fine
        return 2.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if binomial_lower(middle, trials, alpha) >= enough else (middle, high)  # type: ignore[arg-type]
    return high / trials - 1e-9


def too_few(part: Slice, chosen: Sequence[PlannedSet]) -> str:
    """Why a slice could say nothing at all, in words; empty when it could."""
    if empty := [one.name for one in chosen if not one.cases]:
        return f"no case of {empty[0]} counts"
    units, least = sum(len(one.clusters) or one.cases for one in chosen), units_needed(part, chosen)
    return (
        f"{counted(units, 'independent case is', 'independent cases are')} too few ({least} needed)"
        if units < least
        else ""
    )


def units_needed(part: Slice, chosen: Sequence[PlannedSet]) -> int:
    """Independent cases without which the slice says nothing."""
    kind, rule = METRICS[part.rule.metric].kind, part.rule
    if rule.metric == "drift.kl_mean":
        return clusters_needed(100 - 100 / UNSEEN_KL["of_limit"], 0.05)
    if kind == "latency":
        return max(MIN_CLUSTERS, clusters_needed(rule.percentile, 0.05))
    return MIN_CLUSTERS if kind != "quality" or any(one.clusters for one in chosen) else 1
