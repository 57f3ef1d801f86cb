"""Trajectories turn by turn: which turns either arm got right, and where each first diverged from what was recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from qualgate.metrics import BY_TRAJECTORY
from qualgate.records import turn_of
from qualgate.store.database import Store
from qualgate.store.queries.flipped import scored_pairs

MOST_SHOWN = 20  # lost trajectories of a set


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One repeat of a trajectory. Of each turn, in order: right, wrong, or None where nobody could judge."""

    name: str
    repeat: int
    turns: tuple[int, ...]  # their numbers
    baseline: tuple[bool | None, ...]
    variant: tuple[bool | None, ...]
    reasons: tuple[str, ...]  # the scorer's, of each turn of the variant's; "" where it has none

    @property
    def diverged(self) -> int | None:
        """The place in `turns` of the variant's first wrong action."""
        return first_wrong(self.variant)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLine:
    """One turn over all trajectories that have it."""

    turn: int
    asked: int
    baseline: int  # right
    variant: int
    baseline_diverged: int  # trajectories whose first wrong action is here
    variant_diverged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectories:
    """Those of one evalset; each repeat counts."""

    evalset: str
    count: int
    baseline: int  # right in all turns
    variant: int
    turns: tuple[TurnLine, ...]
    lost: int  # right in all turns by the baseline, and wrong in one by the variant
    first_lost: tuple[Trajectory, ...]  # the first `MOST_SHOWN` of them, by name


ScoredPair = tuple[
    str, str, int, float | None, float | None, str | None, str
]  # evalset, case, repeat, both values, the reason, the scorer


def first_wrong(turns: tuple[bool | None, ...]) -> int | None:
    """The place of the first wrong turn; None where none surely is."""
    return next((place for place, right in enumerate(turns) if right is False), None)


def trajectories(store: Store, run_id: str, variant: str) -> tuple[Trajectories, ...]:
    """By evalset, of those whose turns were scored: by `turns.correct`, or by `turns.state` alone."""
    return gathered(*(scored_pairs(store, run_id, variant, metric) for metric in BY_TRAJECTORY))


def gathered(*metrics: Iterable[ScoredPair]) -> tuple[Trajectories, ...]:
    """Of both arms' scores of single turns, in any order; what is no turn is left out. Each evalset by the first of the
    metrics that it has."""
    told: dict[str, Trajectories] = {}
    for rows in metrics:
        found: dict[str, dict[tuple[str, int], list[tuple[int, bool | None, bool | None, str]]]] = {}
        for evalset, case_id, repeat, was, now, reason, _ in rows:
            if (turn := turn_of(case_id)) is not None:
                of = found.setdefault(evalset, {}).setdefault((turn[0], repeat), [])
                of.append((turn[1], _right(was), _right(now), reason or ""))
        for evalset, of in found.items():
            if evalset not in told:
                told[evalset] = _told(evalset, [_one(*item) for item in sorted(of.items())])
    return tuple(told[name] for name in sorted(told))


def _right(value: float | None) -> bool | None:
    return None if value is None else value == 1


def _one(key: tuple[str, int], turns: list[tuple[int, bool | None, bool | None, str]]) -> Trajectory:
    numbers, was, now, reasons = zip(*sorted(turns, key=lambda one: one[0]), strict=True)
    return Trajectory(name=key[0], repeat=key[1], turns=numbers, baseline=was, variant=now, reasons=reasons)


def _told(evalset: str, found: list[Trajectory]) -> Trajectories:
    asked, right, diverged = Counter[int](), (Counter[int](), Counter[int]()), (Counter[int](), Counter[int]())
    for one in found:
        asked.update(one.turns)
        for side, turns in enumerate((one.baseline, one.variant)):
            right[side].update(turn for turn, value in zip(one.turns, turns, strict=True) if value)
            if (place := first_wrong(turns)) is not None:
                diverged[side][one.turns[place]] += 1
    lost = [one for one in found if all(one.baseline) and one.diverged is not None]
    return Trajectories(
        evalset=evalset,
        count=len(found),
        baseline=sum(all(one.baseline) for one in found),
        variant=sum(all(one.variant) for one in found),
        turns=tuple(
            TurnLine(
                turn=turn,
                asked=asked[turn],
                baseline=right[0][turn],
                variant=right[1][turn],
                baseline_diverged=diverged[0][turn],
                variant_diverged=diverged[1][turn],
            )
            for turn in sorted(asked)
        ),
        lost=len(lost),
        first_lost=tuple(lost[:MOST_SHOWN]),
    )
