"""What the planner is told: each evalset's size, clusters, labels and repeats, and what is taken for true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from math import ceil

import numpy as np

from qualgate.records import Evalset, RunEvidence
from qualgate.stats.betting import ASSUMED_DISAGREEMENT
from qualgate.stats.intervals import clustered_ratio
from qualgate.stats.paired.compare import MIN_CLUSTERS

ASSUMED_BASELINE = 0.8  # share of a set's cases that the baseline gets right
ASSUMED_CORRELATION = 0.1  # of the differences of two questions of one cluster
# Of the differences of two answers to one question. The reference model at temperature 0.7, 4 answers to each of 800
# questions of transform and arithmetic: 0.51 (95 % bound: at most 0.57) of int4, which loses 8 points; 0.03 (0.08) of
# int8, which loses none and changes 0.6 % of its answers.
REPEAT_CORRELATION = 0.6
COLLAPSED_ALIKE = "any or all of the repeats like one answer"

Marks = tuple[str, ...]  # of a question: "task:x", "tag:y"
Kind = tuple[tuple[Marks, int], ...]  # a cluster's questions, counted by their marks


@dataclass(frozen=True, kw_only=True)
class PlannedSet:
    """An evalset as the planner sees it. Counts are of questions, each of which gets `repeats` answers.

    ValueError: sizes or labels of another number of questions.
    """

    name: str
    metrics: tuple[str, ...]
    cases: int
    clusters: tuple[int, ...] = ()  # questions of each; empty when every question stands for itself
    held: int = 0  # more questions, which run and do not count
    repeats: int = 1
    labels: tuple[Marks, ...] = ()  # of each question that counts, cluster after cluster; empty when none has any
    held_labels: tuple[Marks, ...] = ()  # of those that do not count: rules may name them

    def __post_init__(self) -> None:
        if (self.clusters and sum(self.clusters) != self.cases) or (self.labels and len(self.labels) != self.cases):
            raise ValueError(f"{self.name}: clusters and labels are not those of {self.cases} questions")

    @classmethod
    def of(cls, evalset: Evalset, held: frozenset[str] = frozenset(), repeats: int = 1) -> PlannedSet:
        """held: ids of cases in quarantine. repeats: answers to each case."""
        members: dict[tuple[str, bool], list[Marks]] = {}
        for case in evalset.cases:
            if case.id not in held:
                members.setdefault((case.cluster or case.id, case.cluster is None), []).append(case.labels)
        sizes = tuple(map(len, members.values()))
        return cls(
            name=evalset.name,
            metrics=evalset.metrics,
            cases=sum(sizes),
            clusters=sizes if max(sizes, default=1) > 1 else (),
            held=len(evalset.cases) - sum(sizes),
            repeats=repeats,
            labels=tuple(marks for cluster in members.values() for marks in cluster),
            held_labels=tuple(sorted({case.labels for case in evalset.cases if case.id in held})),
        )

    def each(self) -> Iterator[Kind]:
        """The kind of every cluster, in order; a question that shares nothing is one."""
        labels = iter(self.labels)
        for size in self.clusters or (1,) * self.cases:
            yield tuple(sorted(Counter(islice(labels, size)).items())) if self.labels else (((), size),)

    @cached_property
    def kinds(self) -> Counter[Kind]:
        """How many clusters there are of each kind."""
        if self.labels:
            return Counter(self.each())
        sizes = Counter(self.clusters) if self.clusters else {1: self.cases}
        return Counter({(((), size),): many for size, many in sizes.items() if many})

    @cached_property
    def marks(self) -> tuple[Marks, ...]:
        """Every one that a question has, of those in quarantine too."""
        return tuple(sorted({marks for kind in self.kinds for marks, _ in kind} | set(self.held_labels)))

    def grown(self, cases: int) -> PlannedSet:
        """The set with more cases of the same kinds: clusters are repeated, not enlarged. With labels, a few over."""
        if cases == self.cases:
            return self
        if self.labels:
            return self.multiplied(cases / self.cases, lambda marks: True)
        if not self.clusters:
            return replace(self, cases=cases)
        times = -(-cases * len(self.clusters) // self.cases)
        sizes = (self.clusters * -(-times // len(self.clusters)))[:times]
        return replace(self, cases=sum(sizes), clusters=sizes)

    def multiplied(self, times: float, chosen: Callable[[Marks], bool]) -> PlannedSet:
        """The set with `times` as many of each kind of cluster that holds a chosen question."""
        kinds = [
            kind
            for kind, many in self.kinds.items()
            for _ in range(ceil(many * times - 1e-9) if any(chosen(marks) for marks, _ in kind) else many)
        ]
        sizes = tuple(sum(count for _, count in kind) for kind in kinds)
        return replace(
            self,
            cases=sum(sizes),
            clusters=sizes if self.clusters else (),
            labels=tuple(marks for kind in kinds for marks, count in kind for _ in range(count) if self.labels),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What is taken for true, by (outcome, evalset); what is not listed has the default.

    An outcome is a metric, or what a metric gives any or all of a question's answers: "exact_match any".
    """

    disagreement: Mapping[tuple[str, str], float] = field(default_factory=dict)
    baseline: Mapping[tuple[str, str], float] = field(default_factory=dict)
    default_disagreement: float = ASSUMED_DISAGREEMENT
    default_baseline: float = ASSUMED_BASELINE
    correlation: float = ASSUMED_CORRELATION
    repeat_correlation: float = REPEAT_CORRELATION
    source: str = "assumed: no earlier run tells"

    def flips(self, outcome: str, name: str) -> float:
        return self.disagreement.get((outcome, name), self.default_disagreement)

    def right(self, outcome: str, name: str) -> float:
        return self.baseline.get((outcome, name), self.default_baseline)

    def alike(self, questions: float, repeats: int) -> float:
        """Mean correlation of the differences of two answers in a cluster of so many questions; 0 of one alone."""
        others = questions * repeats - 1
        if others <= 0:
            return 0.0
        return ((repeats - 1) * self.repeat_correlation + (questions - 1) * repeats * self.correlation) / others


def seen_in(evidence: RunEvidence, repeats: int = 1) -> Assumed:
    """Disagreement and baseline rates of an earlier run, the least of its variants': the one most like the baseline.

    One flip is added, so that none seen is not taken for none ever. repeats: answers to each question that are planned;
    of as many the run also tells what any and all of them give, of another number they are taken to be like one answer.
    """
    before = {(u.key.evalset, u.key.case_id, u.key.repeat): u.values for u in evidence.baseline.units}
    told = 1 + max((repeat for *_, repeat in before), default=0)
    changed: dict[tuple[str, str], float] = {}
    right: dict[tuple[str, str], float] = {}
    alike: tuple[float, float] | None = None  # share of answers changed, and their correlation
    for arm in evidence.variants:
        found: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
        for unit in arm.units:
            base = before.get((unit.key.evalset, unit.key.case_id, unit.key.repeat), {})
            for metric in evidence.metrics.get(unit.key.evalset, ()):
                pair = base.get(metric), unit.values.get(metric)
                if pair[0] is not None and pair[1] is not None:
                    answers = found.setdefault((metric, unit.key.evalset), {})
                    answers.setdefault(unit.key.case_id, []).append((pair[0], pair[1]))
        for (metric, name), questions in found.items():
            pairs = [pair for answers in questions.values() for pair in answers]
            views = {metric: pairs}
            if repeats > 1:
                whole = [answers for answers in questions.values() if len(answers) == told == repeats]
                for word, over in (("any", max), ("all", min)):
                    collapsed = [(over(one for one, _ in a), over(other for _, other in a)) for a in whole]
                    views[f"{metric} {word}"] = collapsed or pairs
            for outcome, of in views.items():
                rate = (sum(one != other for one, other in of) + 1) / (len(of) + 1)
                changed[outcome, name] = min(rate, changed.get((outcome, name), 1.0))
                right[outcome, name] = sum(one for one, _ in of) / len(of)
        if told > 1 and found:
            everything = [pair for questions in found.values() for answers in questions.values() for pair in answers]
            rate = sum(one != other for one, other in everything) / len(everything)
            alike = min(alike or (2.0, 0.0), (rate, _alike(found)))
    source = f"as seen in run {evidence.run_id}"
    return Assumed(
        disagreement=changed,
        baseline=right,
        repeat_correlation=REPEAT_CORRELATION if alike is None else alike[1],
        source=source if repeats in (1, told) else f"{source}; {COLLAPSED_ALIKE}",
    )


def _alike(found: Mapping[tuple[str, str], Mapping[str, list[tuple[float, float]]]]) -> float:
    """Correlation of the differences of two answers to one question: the most that a 95 % bound leaves, 0 to 1.

    The moment estimator Σ dᵢ dⱼ / (k − 1) over Σ dᵢ², both over questions, d the difference less its mean. Of fewer
    than `MIN_CLUSTERS` questions with any difference never less than what is assumed without a run.
    """
    products, squares, asked, flipped = [], [], [], set()
    numbers: dict[tuple[str, str], int] = {}
    for (_, name), questions in found.items():
        several = {case: np.array([b - a for a, b in pairs]) for case, pairs in questions.items() if len(pairs) > 1}
        mean = np.concatenate([*several.values(), [0.0] * (not several)]).mean()
        for case, differences in several.items():
            off = differences - mean
            squares.append(float(off @ off))
            products.append((float(off.sum()) ** 2 - squares[-1]) / (len(off) - 1))
            asked.append(numbers.setdefault((name, case), len(numbers)))  # by several metrics perhaps
            flipped |= {asked[-1]} if differences.any() else set()
    least = REPEAT_CORRELATION if len(flipped) < MIN_CLUSTERS else 0.0
    return min(max(clustered_ratio(products, squares, asked, 0.0).upper, least), 1.0) if flipped else least
