"""Predict how often a policy approves an identical variant, and how often it blocks one that loses twice its margins.

Outcomes are drawn for each metric and evalset (`planning.outcomes`); every rule decides on the sums over its own sets,
as the gate would, so rules on the same cases agree or err together. Rules on what is measured (time, cost, drift …)
have the rates of `planning.from_earlier_run` and are taken to be independent of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from qualgate.errors import UsageError
from qualgate.gate.advice import LEAST_BASELINE_RATE, SENSITIVITY_ALPHA, advise_on_baseline, bound_of, enough_right
from qualgate.gate.comparisons.drift import UNSEEN_KL
from qualgate.gate.comparisons.latency import least_groups
from qualgate.gate.planning.assumed import Assumed
from qualgate.gate.planning.from_earlier_run.by_metric import Foretold, foretell, jointly
from qualgate.gate.planning.outcomes import (
    Bets,
    Drawn,
    View,
    decide_cases,
    decide_clusters,
    decide_relative,
    draw,
    drawn_singly,
    outcome_chances,
    shapes_of,
    trials_of,
)
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.rules import Slice, check_policy
from qualgate.records import Policy, Rule, RunEvidence
from qualgate.records.metrics import BY_TRAJECTORY, MARGINS_OF_BASELINE, METRICS
from qualgate.stats.cluster_bets import bets_serve
from qualgate.stats.intervals import binomial_lower
from qualgate.stats.latency import clusters_needed
from qualgate.stats.paired.compare import MIN_CLUSTERS
from qualgate.text.numbers import counted

DRAWS = 22_500  # 3 standard errors of any rate are at most 1 point
_SINGLE_CELLS = 6_000_000  # draws x clusters that are drawn one by one
_LEAST_DRAWS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRule:
    """Predicted rates of one slice of a rule."""

    rule: str  # Rule.id
    name: str  # likewise, with the slice in place of what spreads the rule
    slice: str
    tier: str
    n: int  # questions
    clusters: int | None
    approve: float | None  # P(proven | identical); None: not predicted
    block: float | None  # P(broken, after Holm's correction | this slice alone loses twice the margin)
    disagreement: float | None  # assumed, over the slice's cases
    needed: int | None  # cases at which an identical variant is proven in `AIM` of runs; None: not known or too many
    note: str = ""


Key = tuple[str, str]  # outcome, evalset


def outcome_of(rule: Rule, planned_set: PlannedSet) -> str:
    """The outcome drawn for a rule: its metric on each answer, or over any or all of the answers to a question."""
    if rule.repeats == "mean" or planned_set.repeats == 1:
        return rule.metric
    return f"{rule.metric} {'any' if rule.repeats == 'any' else 'all'}"  # pass^k: as its hardest, all there are


def answers_of(rule: Rule, planned_set: PlannedSet) -> int:
    """Answers to a question that count separately."""
    return planned_set.repeats if rule.repeats == "mean" else 1


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A policy on its sets under assumptions. The same fields give the same numbers. UsageError: an unfit policy."""

    sets: tuple[PlannedSet, ...]
    policy: Policy
    assumed: Assumed
    draws: int = DRAWS  # at most: fewer where many clusters have to be drawn one by one
    seed: int = 0
    earlier: RunEvidence | None = None  # a run of the gate file that tells how much times, costs and drift vary
    foretold: dict[tuple[object, ...], Foretold] = field(default_factory=dict, compare=False, repr=False)  # so far

    @cached_property
    def slices(self) -> tuple[Slice, ...]:
        """The policy's slices; a slice by label lists as its cases (evalset, number of a set of marks)."""
        labels = {
            (planned_set.name, str(number)): marks
            for planned_set in self.sets
            for number, marks in enumerate(planned_set.marks)
        }
        return check_policy(self.policy, {planned_set.name: planned_set.metrics for planned_set in self.sets}, labels)

    @cached_property
    def used(self) -> int:
        """Number of draws for every rate."""
        single = {}
        for key, slices in self.by_key(self.quality).items():
            planned_set, name = self._at(key[:2]), key[1]
            views = [self.view(slice_, planned_set) for slice_ in slices]
            shapes = shapes_of(planned_set, views, answers_of(slices[0].rule, planned_set))
            single[name] = max(drawn_singly(shapes), single.get(name, 0))
        cells = sum(single.values())
        return min(self.draws, max(_SINGLE_CELLS // cells, _LEAST_DRAWS)) if cells else self.draws

    @property
    def error(self) -> float:
        """The largest standard error that a rate can have from drawing."""
        return 0.5 / sqrt(self.used)

    @cached_property
    def quality(self) -> list[Slice]:
        """The slices of quality rules."""
        return [slice_ for slice_ in self.slices if METRICS[slice_.rule.metric].kind == "quality"]

    @property
    def critical(self) -> list[Slice]:
        """The critical quality slices."""
        return [slice_ for slice_ in self.quality if slice_.rule.tier == "critical"]

    @cached_property
    def measured(self) -> dict[Slice, Foretold]:
        """Predictions for each slice that is no quality rule."""
        slices = [slice_ for slice_ in self.slices if METRICS[slice_.rule.metric].kind != "quality"]

        def planned(slice_: Slice) -> Slice:
            """The planned slice for an earlier run's, which may have other cases."""
            return next(
                planned_slice
                for planned_slice in slices
                if (planned_slice.rule, planned_slice.name) == (slice_.rule, slice_.name)
            )

        def known(slice_: Slice) -> tuple[object, ...]:
            sizes = self.sizes(planned(slice_))
            return slice_.rule, slice_.name, self.family(slice_.rule.tier), frozenset(sizes.items())

        if missing := {(slice_.rule, slice_.name) for slice_ in slices if known(slice_) not in self.foretold}:
            foretold = foretell(
                self._slices_before,
                lambda slice_: self.sizes(planned(slice_)),
                self.policy,
                self.earlier,
                lambda slice_: (slice_.rule, slice_.name) in missing,
            )
            self.foretold.update({known(slice_): chances for slice_, chances in foretold.items()})
        return {slice_: self.foretold[known(slice_)] for slice_ in slices if known(slice_) in self.foretold}

    @property
    def _slices_before(self) -> tuple[Slice, ...]:
        """The policy's slices with the labels of the earlier run's cases; as planned where it cannot have them."""
        if self.earlier is None:
            return self.slices
        try:
            return check_policy(self.policy, self.earlier.metrics, self.earlier.labels)
        except UsageError:
            return tuple(replace(slice_, obstacle="the earlier run had other evalsets") for slice_ in self.slices)

    @cached_property
    def _named(self) -> dict[str, PlannedSet]:
        return {planned_set.name: planned_set for planned_set in self.sets}

    def _at(self, key: Key) -> PlannedSet:
        """The set whose questions count the outcome: by trajectory, or by case."""
        planned_set = self._named[key[1]]
        return (planned_set.whole or planned_set) if key[0].split()[0] in BY_TRAJECTORY else planned_set

    def among(self, slice_: Slice) -> list[PlannedSet]:
        """The sets that the slice covers."""
        return [
            self._at((slice_.rule.metric, planned_set.name))
            for planned_set in self.sets
            if planned_set.name in slice_.evalsets
        ]

    def view(self, slice_: Slice, planned_set: PlannedSet) -> View:
        """The questions of a set that a slice sees, by their marks."""
        if slice_.only is None:
            return None
        known = self._named[planned_set.name].marks  # by whose numbers `only` names them
        return frozenset(marks for number, marks in enumerate(known) if (planned_set.name, str(number)) in slice_.only)

    @cached_property
    def _questions(self) -> dict[Slice, dict[str, int]]:
        """Count the questions of each slice: slice → evalset → questions."""
        return {
            slice_: {
                planned_set.name: sum(size * count for size, count in self._sizes_in(slice_, planned_set, 1).items())
                for planned_set in self.among(slice_)
            }
            for slice_ in self.slices
        }

    def _sizes_in(self, slice_: Slice, planned_set: PlannedSet, answers: int) -> Counter[int]:
        """Count the clusters of a set by size, in answers that the slice sees. answers: counted ones to each
        question.
        """
        sizes: Counter[int] = Counter()
        for (_, ((_, size),)), clusters in shapes_of(planned_set, [self.view(slice_, planned_set)], answers).items():
            sizes[size] += clusters
        return sizes

    @cached_property
    def _sizes(self) -> dict[Slice, Counter[int]]:
        """Count each slice's clusters by size, over all its sets: slice → size → clusters."""
        return {
            slice_: sum(
                (
                    self._sizes_in(slice_, planned_set, answers_of(slice_.rule, planned_set))
                    for planned_set in self.among(slice_)
                ),
                Counter(),
            )
            for slice_ in self.slices
        }

    def cases(self, slice_: Slice) -> int:
        """Questions of the slice."""
        return sum(self._questions[slice_].values())

    def sizes(self, slice_: Slice) -> Counter[int]:
        """The slice's clusters of each size, in answers that count."""
        return self._sizes[slice_]

    def clustered(self, slice_: Slice) -> bool:
        """Whether any answer shares its cluster with another."""
        return max(self.sizes(slice_), default=1) > 1

    @cached_property
    def bets(self) -> dict[Slice, Bets | None]:
        """Bets that prove each slice, where its sizes and margin call for them."""
        return {slice_: self._bets_for(slice_) for slice_ in self.slices}

    def _bets_for(self, slice_: Slice) -> Bets | None:
        """Return the bets that prove the slice; None if its margin is relative, it is empty, or bets are of no use."""
        margin, sizes = slice_.rule.max_drop, self.sizes(slice_)
        if margin is None or not sizes:
            return None
        each = np.repeat(list(sizes), list(sizes.values()))
        return Bets(margin=margin, largest=max(sizes)) if bets_serve(each, margin, self.policy.alpha) else None

    def mean(self, slice_: Slice, rate: Callable[[str, str], float]) -> float:
        """Mean of a rate by (outcome, evalset) over the slice's questions."""
        questions, named = self._questions[slice_], self._named
        total = sum(rate(outcome_of(slice_.rule, named[name]), name) * count for name, count in questions.items())
        return total / max(1, self.cases(slice_))

    def family(self, tier: str) -> int:
        """Number of slices of the tier: the claims that Holm's correction covers."""
        return sum(slice_.rule.tier == tier for slice_ in self.slices)

    def too_few(self, slice_: Slice) -> str:
        """Say why a slice could decide nothing; "" when it could."""
        if empty := [planned_set.name for planned_set in self.among(slice_) if not planned_set.cases]:
            return f"no case of {empty[0]} counts"
        if not self.cases(slice_):
            return "none of its cases counts"
        units, least = self.sizes(slice_).total(), self.units_needed(slice_)
        few = f"{counted(units, 'independent case is', 'independent cases are')} too few ({least} needed)"
        return few if units < least else ""

    def units_needed(self, slice_: Slice) -> int:
        """Independent cases that the slice needs at least."""
        kind, rule = METRICS[slice_.rule.metric].kind, slice_.rule
        if rule.metric == "drift.kl_mean":
            return clusters_needed(100 - 100 / UNSEEN_KL["of_limit"], 0.05)
        if kind == "latency":
            return least_groups(rule.percentile)
        return MIN_CLUSTERS if kind != "quality" or self.clustered(slice_) else 1

    def twice_the_margin(self, slice_: Slice) -> dict[Key, float]:
        """(outcome, evalset) → twice the margin; a relative margin is of the baseline's rate on each set."""
        losses = {}
        for planned_set in self.among(slice_):
            key = (outcome_of(slice_.rule, planned_set), planned_set.name)
            rate = self.assumed.right(*key) if slice_.rule.max_drop is None else 1.0
            losses[key] = 2 * (slice_.rule.max_drop or slice_.rule.max_relative_drop or 0.0) * rate
        return losses

    @cached_property
    def _decided_if_identical(self) -> tuple[dict[Slice, NDArray], NDArray]:
        """Decide an identical variant: (slice → [draws] proven, [draws] in which no rule that can block is broken)."""
        outcomes, proven, unbroken = self._draw({}, 0), {}, np.ones(self.used, bool)
        for slice_ in self.quality:
            proven[slice_], broken = self._decide(slice_, outcomes)
            if slice_.rule.tier != "advisory":
                unbroken &= ~broken
        return proven, unbroken

    @cached_property
    def approve(self) -> float:
        """P(every critical rule proven, nothing broken | identical)."""
        if any(slice_.rule.tier == "critical" and self.too_few(slice_) for slice_ in self.slices):
            return 0.0
        return float((self._all_proven(self.critical) & self._decided_if_identical[1]).mean()) * jointly(self.measured)

    def _all_proven(self, slices: Sequence[Slice]) -> NDArray:
        """Return the [draws] in which every one of the slices is proven for an identical variant."""
        return np.all([self._decided_if_identical[0][slice_] for slice_ in slices], axis=0)

    @cached_property
    def twice(self) -> dict[Key, float]:
        """Loss of a variant that loses twice the smallest margin of a critical rule on each set."""
        twice: dict[Key, float] = {}
        for slice_ in self.critical:
            for key, loss in self.twice_the_margin(slice_).items():
                twice[key] = min(twice.get(key, 1.0), loss)
        return twice

    @cached_property
    def block(self) -> float:
        """P(block | every set loses twice the smallest margin of a critical rule on it)."""
        return self._any_broken(self.critical)

    def _any_broken(self, slices: Sequence[Slice]) -> float:
        """Return the share of draws in which any slice is broken, if every set loses twice its smallest margin."""
        worse = self._draw(self.twice, 1)
        return float(np.any([self._decide(slice_, worse)[1] for slice_ in slices], axis=0).mean())

    def rates(self, slices: Sequence[Slice]) -> tuple[float, float]:
        """P(all of some slices proven | identical), and P(any broken | twice the margins)."""
        return float(self._all_proven(slices).mean()), self._any_broken(slices)

    def alone(self, slice_: Slice) -> float:
        """P(proven | identical) of one slice, without drawing for the others."""
        return float(self._decide(slice_, self._draw({}, 0, only=slice_))[0].mean())

    def rules(self) -> tuple[PlannedRule, ...]:
        """Predictions for every slice, in order."""
        return tuple(self._planned_rule(slice_, index) for index, slice_ in enumerate(self.slices))

    def _planned_rule(self, slice_: Slice, index: int) -> PlannedRule:
        """Predict one slice. index: its place among the slices, which picks its own stream of random numbers.

        A prediction from an earlier run, where there is one, replaces the simulated chances.
        """
        proven = self._decided_if_identical[0].get(slice_)
        block = disagreement = needed = None
        if proven is not None:
            losing = self._draw(self.twice_the_margin(slice_), 2 + index, only=slice_)
            block = float(self._decide(slice_, losing)[1].mean())
            disagreement = self.mean(slice_, self.assumed.flips)
        approve = None if proven is None else float(proven.mean())
        note = self.too_few(slice_) or self._too_rarely_right(slice_)
        if forecast := self.measured.get(slice_):
            approve, block, note = forecast.approve, forecast.block, note or forecast.note
            needed = forecast.needed and ceil(forecast.needed * self.cases(slice_) / max(1, self.sizes(slice_).total()))
        return PlannedRule(
            rule=slice_.rule.id,
            name=replace(slice_.rule, evalset=slice_.name, where=None).id,
            slice=slice_.name,
            tier=slice_.rule.tier,
            n=self.cases(slice_),
            clusters=self.sizes(slice_).total() if self.clustered(slice_) else None,
            approve=approve,
            block=block,
            disagreement=disagreement,
            needed=needed,
            note=note,
        )

    def _too_rarely_right(self, slice_: Slice) -> str:
        """Say that no number of cases would show a loss, and what to do instead; "" where it could be shown."""
        right, enough = self.mean(slice_, self.assumed.right), enough_right(slice_.rule, bound_of(slice_.rule)[1])
        if slice_ not in self.quality or right > enough:
            return ""
        flips = None if self.clustered(slice_) else self.mean(slice_, self.assumed.flips)
        advice = advise_on_baseline(slice_.rule, right, flips, self.policy.alpha)
        return f"the baseline is right on {right:.1%}, under {enough:.0%} a loss would not show; {advice}"

    def by_key(self, chosen: Sequence[Slice]) -> dict[tuple[str, str, str], list[Slice]]:
        """Group slices by the outcomes to draw, a `Key` and the arm it is against; slices of one see the same draws."""
        grouped: dict[tuple[str, str, str], list[Slice]] = {}
        for slice_ in chosen:
            for planned_set in self.among(slice_):
                key = outcome_of(slice_.rule, planned_set), planned_set.name, slice_.rule.against
                grouped.setdefault(key, []).append(slice_)
        return dict(sorted(grouped.items()))

    def _draw(self, losses: Mapping[Key, float], stream: int, *, only: Slice | None = None) -> dict[Slice, Drawn]:
        """Draw outcomes for the slices and sum them over each one's sets.

        losses: extra P(lost) by outcome and evalset. stream: the same stream gives the same draws. only: draw for this
        slice alone; None: for all quality slices.
        """
        sums: dict[Slice, Drawn] = {}
        for index, (key, slices) in enumerate(self.by_key([only] if only else self.quality).items()):
            planned_set = self._at(key[:2])
            by_view = draw(
                planned_set,
                [self.view(slice_, planned_set) for slice_ in slices],
                outcome_chances(*key[:2], losses.get(key[:2], 0.0), self.assumed),
                self.assumed,
                self.used,
                np.random.default_rng([self.seed, stream, index]),
                answers_of(slices[0].rule, planned_set),
                [self.bets[slice_] for slice_ in slices],
            )
            for slice_, outcomes in zip(slices, by_view, strict=True):
                sums[slice_] = sums[slice_] + outcomes if slice_ in sums else outcomes
        return sums

    def _decide(self, slice_: Slice, outcomes: Mapping[Slice, Drawn]) -> tuple[NDArray, NDArray]:
        """Return ([draws] proven, [draws] broken by Holm's first step, which is where a block begins) of one slice.

        A slice with too few cases is neither. A proof also needs a baseline that is surely right often enough.
        """
        margin, alpha = slice_.rule.max_drop, self.policy.alpha
        if self.too_few(slice_):
            return np.zeros(self.used, bool), np.zeros(self.used, bool)
        sums, strict, sizes = outcomes[slice_], alpha / self.family(slice_.rule.tier), self.sizes(slice_)
        answers = sum(size * clusters for size, clusters in sizes.items())
        if margin is None:
            within, beyond = decide_relative(sums, sizes, slice_.rule.max_relative_drop or 0.0, alpha, strict)
        elif self.clustered(slice_):
            by_bets = self.bets[slice_] is not None
            within, beyond = decide_clusters(sums, sizes, (margin, margin), alpha, strict, by_bets=by_bets)
        else:
            within, beyond = decide_cases(sums, answers, (margin, margin), alpha, strict)
        right = surely_right(sums.right / answers, trials_of(sizes, SENSITIVITY_ALPHA), margin or 0.0)
        return within & right, beyond


def surely_right(share: NDArray, trials: float, margin: float, alpha: float = SENSITIVITY_ALPHA) -> NDArray:
    """Whether the baseline is surely right often enough to lose `margin`. share: [draws]. alpha: of its lower bound."""
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
