"""Row `monotone`: a variant's answer turned from right to wrong never improves a verdict.

Evidence and policies are drawn, and `decide` is asked twice: as drawn, and with one answer of the variant turned. Of
right or wrong answers that stand by themselves no verdict may improve. Clustered or graded ones are judged by tests
that estimate a spread, which a loss can narrow: there a bound may improve by a tenth of the margin at most.

python -m tests.verification.verdicts.monotone [DRAWS]     a line for each that improved: seed, kind, codes, move
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from qualgate.gate.decide import decide
from qualgate.records import (
    ArmEvidence,
    Comparison,
    Policy,
    Quarantine,
    Rule,
    RunEvidence,
    UnitEvidence,
    UnitKey,
)
from qualgate.records.policy import Tier
from tests.gate.planted import identity, of
from tests.verification.goals import DECISIONS

ID, SEED, DRAWS, QUICK = "monotone", 20261128, 10_000, 400
BEST_FIRST = (0, 11, 12, 10)
MOST_MOVED = 0.1  # of the margin
PLAIN, CLUSTERED, GRADED = "right or wrong", "clustered", "graded"
KINDS = (PLAIN, PLAIN, PLAIN, CLUSTERED, GRADED)
SIZES = (20, 41, 60, 97, 120, 163, 200, 240, 300, 400)  # few, as the tests keep what they worked out for each
MARGINS = (0.03, 0.05, 0.08, 0.12, 0.15)
NOW = "2026-11-28T00:00:00+00:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """One evalset: scores in 0..1 of each case on both sides (None: nobody could say), and the cluster of each case."""

    baseline: Sequence[float | None]
    variant: Sequence[float | None]
    clusters: Sequence[int] | None = None

    def turned(self, case: int, value: float = 0.0) -> Answers:
        """The same with the variant's answer to a case at this score."""
        return replace(self, variant=[value if at == case else one for at, one in enumerate(self.variant)])


def evidence_of(sets: Sequence[Answers], metric: str) -> RunEvidence:
    """A run with one variant. Every second case is `hard`, and of three cases one has no task and no `kind`."""
    arms = []
    for name in ("baseline", "int4"):
        units = [
            UnitEvidence(
                key=UnitKey(name, f"s{number}", f"c{case}"),
                case_hash=f"s{number} c{case}",
                status="done",
                values={metric: value},
                unsaid={} if value is not None else {metric: "timeout"},
                scorers={metric: "scorer/1"},
                cluster=None if one.clusters is None else f"p{one.clusters[case]}",
                tokens=20,
            )
            for number, one in enumerate(sets)
            for case, value in enumerate(one.baseline if name == "baseline" else one.variant)
        ]
        arms.append(ArmEvidence(name=name, identity=identity(name), units=tuple(units)))
    labels = {(unit.key.evalset, unit.key.case_id): _labels(int(unit.key.case_id[1:])) for unit in arms[0].units}
    return replace(of(*arms, metrics={f"s{number}": (metric,) for number in range(len(sets))}), labels=labels)


def _labels(case: int) -> tuple[str, ...]:
    part = ((), ("task:add", "tag:kind:short"), ("task:sort", "tag:kind:long"))[case % 3]
    return (*part, "tag:hard") if case % 2 else part


# -------------------------------------------------------------------------------------------------------- the draws


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What `decide` is asked of: as drawn, and with one answer turned."""

    kind: str
    policy: Policy
    before: RunEvidence
    after: RunEvidence
    turned: str


def drawn(seed: int) -> Draw:
    """1 to 3 sets, 1 to 3 rules, a loss from none to three times the least margin, and one of the variant's right
    answers turned."""
    generator = np.random.default_rng([SEED, seed])
    kind = str(generator.choice(KINDS))
    metric = "f1" if kind == GRADED else "exact_match"
    policy = _policy(generator, metric)
    margin = min(rule.max_drop or rule.max_relative_drop or 1.0 for rule in policy.rules)
    margin *= generator.choice((0.1, 0.2, 0.4, 0.6, 1.0, 2.0))  # where verdicts turn: many at once would tell little
    sets = [_answers(generator, kind, margin) for _ in range(generator.integers(1, 4))]
    number = int(generator.integers(len(sets)))
    chosen = sets[number]
    case = _right_answer(generator, chosen)
    was = chosen.variant[case] or 0.0
    value = was * generator.random() if kind == GRADED and generator.random() < 0.5 else 0.0
    after = [one.turned(case, value) if at == number else one for at, one in enumerate(sets)]
    turned = f"s{number} c{case}: {was:.3g} -> {value:.3g}"
    return Draw(kind=kind, policy=policy, before=evidence_of(sets, metric), after=evidence_of(after, metric),
                turned=turned)  # fmt: skip


def _policy(generator: Generator, metric: str) -> Policy:
    def rule(tier: Tier) -> Rule:
        scope = str(generator.choice(("pooled", "pooled", "pooled", "evalset", "evalset", "task", "tag:kind")))
        bound = float(generator.choice(MARGINS))
        where = "tag:hard" if generator.random() < 0.1 else None
        points, share = (None, bound) if generator.random() < 0.1 else (bound, None)
        return Rule(metric=metric, scope=scope, tier=tier, where=where, max_drop=points, max_relative_drop=share)

    tiers: tuple[Tier, ...] = ("critical", "critical", "supporting", "advisory")
    more = generator.choice(len(tiers), generator.choice((0, 0, 1, 2)))
    held = (Quarantine(case="c4", owner="ann", expires="2999-01-01", reason="flaky"),)
    return Policy(
        rules=(rule("critical"), *(rule(tiers[at]) for at in more)),
        alpha=float(generator.choice((0.05, 0.05, 0.05, 0.1, 0.01))),
        quarantine=held if generator.random() < 0.05 else (),
        review="always" if generator.random() < 0.05 else "never",
    )


def _answers(generator: Generator, kind: str, margin: float) -> Answers:
    n = int(max(generator.choice(SIZES, 2)))  # small ones are mostly undecided
    level, lost, gained = (
        generator.uniform(0.6, 1.0),
        generator.uniform(0.5, 1.5) * margin,
        generator.uniform(0, 0.5) * margin,
    )
    size = int(generator.integers(2, 6)) if kind == CLUSTERED or (kind == GRADED and generator.random() < 0.3) else 1
    clusters = np.arange(n) // size

    # A cluster's cases change together as often as not, so that its spread is not that of single cases.
    def chances() -> NDArray:
        together = generator.random(n)[clusters]
        return np.where(generator.random(n) < 0.5, together, generator.random(n)) if size > 1 else together

    before = (generator.random(n) < level).astype(float)
    after = np.where(chances() < lost, 0.0, before)
    after = np.where(chances() < gained, 1.0, after)
    if kind == GRADED:
        before, after = (np.round(one * generator.choice((1.0, 1.0, 0.8, 0.5, 0.25), n), 3) for one in (before, after))
        same = generator.random(n) < 0.7
        after = np.where(same, np.minimum(after, before), after)
    after[0] = 1.0  # one at least is there to be turned
    unsaid = generator.choice((0.0, 0.0, 0.0, 0.02))
    scores = [[None if at and generator.random() < unsaid else score for at, score in enumerate(side.tolist())]
              for side in (before, after)]  # fmt: skip
    return Answers(baseline=scores[0], variant=scores[1], clusters=None if size == 1 else clusters.tolist())


def _right_answer(generator: Generator, one: Answers) -> int:
    """A case on which the variant scores: half of the time one that the baseline has wrong, where there is one."""
    scored = [case for case, value in enumerate(one.variant) if value]
    gains = [case for case in scored if one.baseline[case] == 0]
    return int(generator.choice(gains if gains and generator.random() < 0.5 else scored))


# ------------------------------------------------------------------------------------------------------ what is found


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Exit codes before and after, and how far a bound improved, as a share of its rule's margin."""

    codes: tuple[int, int]
    moved: float

    @property
    def improved(self) -> bool:
        return BEST_FIRST.index(self.codes[1]) < BEST_FIRST.index(self.codes[0])


def outcome(draw: Draw) -> Outcome:
    """What the one door says before and after."""
    (before,), (after,) = (decide(one, draw.policy, NOW).verdicts for one in (draw.before, draw.after))
    moves = [_moved(old, new, draw.policy) for old, new in zip(before.comparisons, after.comparisons, strict=True)]
    return Outcome(codes=(before.exit, after.exit), moved=max(moves, default=0.0))


def _moved(old: Comparison, new: Comparison, policy: Policy) -> float:
    margins = {rule.id: rule.max_drop or rule.max_relative_drop for rule in policy.rules}
    margin = margins[old.rule]
    assert margin
    bounds = ((old.lower, new.lower), (old.upper, new.upper))
    moves = [(b - a) / margin for a, b in bounds if a is not None and b is not None and np.isfinite([a, b]).all()]
    return max(moves, default=0.0)


def improvements(draws: int) -> Iterator[tuple[int, Draw, Outcome]]:
    """Every draw with what came of it."""
    for seed in range(draws):
        draw = drawn(seed)
        yield seed, draw, outcome(draw)


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(a round for each draw of which a verdict or a bound improved, the goal's row)."""
    draws = QUICK if quick else DRAWS
    rounds, wrong, words = [], [], Counter()
    moved = {CLUSTERED: 0.0, GRADED: 0.0}
    improved: Counter[str] = Counter()
    for seed, draw, found in improvements(draws):
        words[f"{found.codes[0]} to {found.codes[1]}"] += 1
        improved[draw.kind] += found.improved
        if draw.kind == PLAIN:
            wrong += [seed] * found.improved
        else:
            moved[draw.kind] = max(moved[draw.kind], found.moved)
        if found.improved or (draw.kind != PLAIN and found.moved > MOST_MOVED):
            rounds.append({"seed": seed, "kind": draw.kind, "turned": draw.turned, "exit": list(found.codes),
                           "moved": found.moved})  # fmt: skip
    measured = {"draws": draws, "codes": dict(words), "improved": dict(improved), "moved": moved, "wrong": wrong}
    met = not wrong and max(moved.values()) <= MOST_MOVED
    few = f"{draws:,} of {DRAWS:,}" if quick else None
    return rounds, [DECISIONS.row(ID, measured, met=met, few=few)]


if __name__ == "__main__":
    for seed, draw, found in improvements(int(sys.argv[1]) if len(sys.argv) > 1 else DRAWS):
        if found.improved or (draw.kind != PLAIN and found.moved > 0):
            print(seed, draw.kind, draw.turned, *found.codes, f"{found.moved:.3f}", sep=" | ", flush=True)
