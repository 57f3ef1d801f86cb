"""Evalsets as the planner sees them: sizes, clusters, labels and repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from math import ceil

from qualgate.records import Evalset, turn_of
from qualgate.records.metrics import BY_TRAJECTORY

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
    quarantined: int = 0  # more questions, which run and do not count
    repeats: int = 1
    labels: tuple[Marks, ...] = ()  # of each question that counts, cluster after cluster; empty when none has any
    quarantined_labels: tuple[Marks, ...] = ()  # of those that do not count: rules may name them
    whole: PlannedSet | None = None  # of turns: the same set by trajectory, each of which is told by its first turn

    def __post_init__(self) -> None:
        if (self.clusters and sum(self.clusters) != self.cases) or (self.labels and len(self.labels) != self.cases):
            raise ValueError(f"{self.name}: clusters and labels are not those of {self.cases} questions")

    @classmethod
    def of(cls, evalset: Evalset, quarantined: frozenset[str] = frozenset(), repeats: int = 1) -> PlannedSet:
        """quarantined: ids of cases. repeats: answers to each case."""
        members: dict[tuple[str, bool], list[Marks]] = {}
        for case in evalset.cases:
            if case.id not in quarantined:
                members.setdefault((case.cluster or case.id, case.cluster is None), []).append(case.labels)
        sizes = tuple(map(len, members.values()))
        firsts = tuple(case for case in evalset.cases if (turn := turn_of(case.id)) and turn[1] == 1)
        of_turns = bool({*BY_TRAJECTORY} & {*evalset.metrics}) and firsts != evalset.cases
        return cls(
            name=evalset.name,
            metrics=evalset.metrics,
            cases=sum(sizes),
            clusters=sizes if max(sizes, default=1) > 1 else (),
            quarantined=len(evalset.cases) - sum(sizes),
            repeats=repeats,
            labels=tuple(marks for cluster in members.values() for marks in cluster),
            quarantined_labels=tuple(sorted({case.labels for case in evalset.cases if case.id in quarantined})),
            whole=cls.of(replace(evalset, cases=firsts), quarantined, repeats) if of_turns else None,
        )

    def each(self) -> Iterator[Kind]:
        """The kind of every cluster, in order; an independent question is a cluster."""
        labels = iter(self.labels)
        for size in self.clusters or (1,) * self.cases:
            yield tuple(sorted(Counter(islice(labels, size)).items())) if self.labels else (((), size),)

    @cached_property
    def kinds(self) -> Counter[Kind]:
        """How many clusters there are of each kind."""
        if self.labels:
            return Counter(self.each())
        sizes = Counter(self.clusters) if self.clusters else {1: self.cases}
        return Counter({(((), size),): count for size, count in sizes.items() if count})

    @cached_property
    def marks(self) -> tuple[Marks, ...]:
        """All distinct marks of questions, quarantined ones included."""
        return tuple(sorted({marks for kind in self.kinds for marks, _ in kind} | set(self.quarantined_labels)))

    def grown(self, cases: int) -> PlannedSet:
        """The set with more cases of the same kinds: clusters repeat, they do not grow. Labels may add a few."""
        if cases == self.cases:
            return self
        if self.whole is not None:
            whole = self.whole.grown(-(-self.whole.cases * cases // self.cases))
            return replace(replace(self, whole=None).grown(cases), whole=whole)
        if self.labels:
            return self.multiplied(cases / self.cases, lambda marks: True)
        if not self.clusters:
            return replace(self, cases=cases)
        times = -(-cases * len(self.clusters) // self.cases)
        sizes = (self.clusters * -(-times // len(self.clusters)))[:times]
        return replace(self, cases=sum(sizes), clusters=sizes)

    def multiplied(self, times: float, chosen: Callable[[Marks], bool]) -> PlannedSet:
        """Multiply clusters of each kind with a chosen question by `times`, rounded up; keep the others."""

        def wanted(kind: Kind, count: int) -> int:
            return ceil(count * times - 1e-9) if any(chosen(marks) for marks, _ in kind) else count

        clusters = [kind for kind, count in self.kinds.items() for _ in range(wanted(kind, count))]
        sizes = tuple(sum(count for _, count in kind) for kind in clusters)
        labels = tuple(marks for kind in clusters for marks, count in kind for _ in range(count))
        return replace(
            self,
            cases=sum(sizes),
            clusters=sizes if self.clusters else (),
            labels=labels if self.labels else (),
            whole=self.whole and self.whole.multiplied(times, chosen),
        )
