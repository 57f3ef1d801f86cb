"""How often `decide` approves and blocks: every answer of a run is drawn, and the run put to `decide`.

This is the oracle of the planner, and shares no code with `gate.planning`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.decide import decide
from qualgate.gate.planning.assumed import Assumed
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.records import ArmEvidence, Policy, RunEvidence, UnitEvidence, UnitKey
from tests.verification.verdicts.faults.evidence import identity

Outcomes = dict[tuple[str, str], tuple[NDArray, NDArray]]  # (metric, set) → before, after: of every answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Shares of the draws."""

    approve: float
    block: float
    undecided: float
    draws: int


def simulated(
    sets: Sequence[PlannedSet], policy: Policy, assumed: Assumed, draws: int, seed: int = 5, *, times: float = 0.0
) -> Rates:
    """What `decide` says of drawn runs, whose variant loses `times` each set's smallest critical margin."""
    generator = np.random.default_rng([seed, int(times)])
    runs, losses = Runs(sets, replace(policy, uncounted="allow")), _margins(sets, policy, assumed)
    words: Counter[str] = Counter()
    keys = [(metric, one) for one in sets for metric in one.metrics]
    for _ in range(draws):
        outcomes = {
            (metric, one.name): drawn(one, metric, assumed, times * losses.get((metric, one.name), 0.0), generator)
            for metric, one in keys
        }
        words[runs.word(outcomes)] += 1
    share = {word: words[word] / draws for word in ("approve", "block", "undecided")}
    return Rates(**share, draws=draws)


def _margins(sets: Sequence[PlannedSet], policy: Policy, assumed: Assumed) -> dict[tuple[str, str], float]:
    """Of each metric and set the smallest that a critical rule has, a relative one's of its own rate."""
    found: dict[tuple[str, str], float] = {}
    for rule in (rule for rule in policy.rules if rule.tier == "critical" and rule.repeats == "mean"):
        for one in sets:
            marks = {mark for labels in one.labels for mark in labels}
            seen = rule.evalset in (None, one.name) and (rule.where is None or rule.where in marks)
            if seen and rule.metric in one.metrics:
                key = rule.metric, one.name
                relative = (rule.max_relative_drop or 0.0) * assumed.right(*key)
                found[key] = min(found.get(key, 1.0), rule.max_drop or relative)
    return found


def drawn(
    one: PlannedSet, metric: str, assumed: Assumed, loss: float, generator: np.random.Generator, times: int = 1
) -> tuple[NDArray, NDArray]:
    """Whether each answer of a set is right before and after, [answers], so many times one after the other.

    Each repeats its cluster's common outcome with the root of the correlation.
    """
    flips, right = assumed.flips(metric, one.name), assumed.right(metric, one.name)
    sizes = np.tile(np.array(one.clusters or (1,) * one.cases), times)
    cluster = np.repeat(np.arange(len(sizes)), sizes * one.repeats)
    alike = (one.repeats - 1) * assumed.repeat_correlation + (sizes - 1) * one.repeats * assumed.correlation
    share = np.sqrt(alike / np.maximum(sizes * one.repeats - 1, 1))[cluster]
    u = np.where(
        generator.random(len(cluster)) < share, generator.random(len(sizes))[cluster], generator.random(len(cluster))
    )
    before = u < right
    return before, before & (u >= min(flips / 2 + loss, right)) | (u >= 1 - min(flips / 2, 1 - right))


def with_whole_questions(sets: Sequence[PlannedSet], assumed: Assumed, metric: str) -> Assumed:
    """With what any and all answers to a question come to, which follows from the answers: by 100,000 questions."""
    flips, right = dict(assumed.disagreement), dict(assumed.baseline)
    for one in (one for one in sets if one.repeats > 1):
        times = -(-100_000 // one.cases)
        sides = [side.reshape(-1, one.repeats) for side in
                 drawn(one, metric, assumed, 0.0, np.random.default_rng(1), times)]  # fmt: skip
        for word, over in (("any", np.any), ("all", np.all)):
            before, after = (over(side, axis=1) for side in sides)
            right[f"{metric} {word}", one.name] = float(before.mean())
            flips[f"{metric} {word}", one.name] = float((before != after).mean())
    return replace(assumed, disagreement=flips, baseline=right)


class Runs:
    """Runs of these sets, as `decide` is given them. Those of cases by themselves are known by their counts."""

    def __init__(self, sets: Sequence[PlannedSet], policy: Policy) -> None:
        self.sets, self.policy = sets, policy
        self.alone = all(not one.clusters and one.repeats == 1 for one in sets)
        self.labels = {(one.name, str(case)): marks for one in sets for case, marks in enumerate(one.labels)}
        self.kinds = {}  # set → of each case the number of its labels
        for one in (one for one in sets if one.labels):
            numbers = {marks: number for number, marks in enumerate(dict.fromkeys(one.labels))}
            self.kinds[one.name] = np.array([numbers[marks] for marks in one.labels])
        self.known: dict[tuple[bytes, ...], str] = {}
        self.made: dict[tuple, UnitEvidence] = {}

    def word(self, outcomes: Outcomes) -> str:
        """Of the first run with these counts, which stands for all of them."""
        key = tuple(self._counts(one, outcomes) for one in self.sets) if self.alone else ()
        if key not in self.known or not key:
            self.known[key] = decide(self._evidence(outcomes), self.policy).verdicts[0].word
        return self.known[key]

    def _counts(self, one: PlannedSet, outcomes: Outcomes) -> bytes:
        code = self.kinds.get(one.name, np.zeros(one.cases, int))
        for metric in one.metrics:
            before, after = outcomes[metric, one.name]
            code = 4 * code + 2 * before + after
        return np.bincount(code).tobytes()

    def _evidence(self, outcomes: Outcomes) -> RunEvidence:
        arms = [
            ArmEvidence(
                name=name,
                identity=identity(name),
                units=tuple(unit for one in self.sets for unit in self._units(name, one, [
                    outcomes[metric, one.name][side].tolist() for metric in one.metrics])),
            )
            for side, name in enumerate(("baseline", "variant"))
        ]  # fmt: skip
        return RunEvidence(
            run_id="drawn", expected=tuple(unit.key for arm in arms for unit in arm.units),
            metrics={one.name: one.metrics for one in self.sets}, baseline=arms[0], variants=(arms[1],),
            labels=self.labels or None,
        )  # fmt: skip

    def _units(self, arm: str, one: PlannedSet, scores: list[list[bool]]) -> list[UnitEvidence]:
        cluster = np.repeat(np.arange(len(one.clusters)), np.array(one.clusters, int) * one.repeats).tolist()
        found = []
        for at, values in enumerate(zip(*scores, strict=True)):
            place = arm, one.name, at, values
            if place not in self.made:
                case, repeat = divmod(at, one.repeats)
                self.made[place] = UnitEvidence(
                    key=UnitKey(arm, one.name, str(case), repeat), case_hash=f"{one.name} {case}", status="done",
                    values=dict(zip(one.metrics, map(float, values), strict=True)), tokens=9,
                    scorers=dict.fromkeys(one.metrics, "1"), cluster=str(cluster[at]) if cluster else None,
                )  # fmt: skip
            found.append(self.made[place])
        return found
