"""Trajectories turn by turn: which turns each arm got right, and where it first diverged from the recorded actions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from qualgate.records import turn_of
from qualgate.records.metrics import BY_TRAJECTORY
from qualgate.store.database import Store
from qualgate.store.queries.flipped import scored_pairs

MOST_SHOWN = 20  # most lost trajectories of a set that are listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One repeat of a trajectory. Each turn, in order, is right, wrong, or None if it could not be judged."""

    name: str
    repeat: int
    turns: tuple[int, ...]  # their numbers
    baseline: tuple[bool | None, ...]
    variant: tuple[bool | None, ...]
    reasons: tuple[str, ...]  # the scorer's, for each turn of the variant; "" without one

    @property
    def diverged(self) -> int | None:
        """Index in `turns` of the variant's first wrong action; None if there is none."""
        return first_wrong(self.variant)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLine:
    """Counts of one turn over all trajectories that have it."""

    turn: int
    asked: int
    baseline: int  # right
    variant: int
    baseline_diverged: int  # trajectories whose first wrong action is here
    variant_diverged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectories:
    """Counts of one evalset's trajectories; each repeat counts."""

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
    """Return the index of the first wrong turn; None if none is known to be wrong."""
    return next((index for index, right in enumerate(turns) if right is False), None)


def trajectories(store: Store, run_id: str, variant: str) -> tuple[Trajectories, ...]:
    """Return the trajectories of each evalset with scored turns: by `turns.correct`, else by `turns.state`."""
    return gathered(*(scored_pairs(store, run_id, variant, metric) for metric in BY_TRAJECTORY))


def gathered(*metrics: Iterable[ScoredPair]) -> tuple[Trajectories, ...]:
    """Group both arms' scores of single turns, in any order, by evalset; other cases are left out. Each evalset is
    counted by the first of the metrics that it has."""
    by_set: dict[str, Trajectories] = {}
    for rows in metrics:
        turns_of: dict[str, dict[tuple[str, int], list[tuple[int, bool | None, bool | None, str]]]] = {}
        for evalset, case_id, repeat, was, now, reason, _ in rows:
            if (turn := turn_of(case_id)) is not None:
                turns = turns_of.setdefault(evalset, {}).setdefault((turn[0], repeat), [])
                turns.append((turn[1], _right(was), _right(now), reason or ""))
        for evalset, turns in turns_of.items():
            if evalset not in by_set:
                by_set[evalset] = _summary(evalset, [_trajectory(*item) for item in sorted(turns.items())])
    return tuple(by_set[name] for name in sorted(by_set))


def _right(value: float | None) -> bool | None:
    return None if value is None else value == 1


def _trajectory(key: tuple[str, int], turns: list[tuple[int, bool | None, bool | None, str]]) -> Trajectory:
    numbers, was, now, reasons = zip(*sorted(turns, key=lambda turn: turn[0]), strict=True)
    return Trajectory(name=key[0], repeat=key[1], turns=numbers, baseline=was, variant=now, reasons=reasons)


def _summary(evalset: str, repeats: list[Trajectory]) -> Trajectories:
    """Count an evalset's trajectories: right ones, right answers by turn, the turn of each first error, and those
    that only the variant gets wrong. repeats: each trajectory of each repeat."""
    counts, right, diverged = Counter[int](), (Counter[int](), Counter[int]()), (Counter[int](), Counter[int]())
    for repeat in repeats:
        counts.update(repeat.turns)
        for side, turns in enumerate((repeat.baseline, repeat.variant)):
            right[side].update(turn for turn, value in zip(repeat.turns, turns, strict=True) if value)
            if (index := first_wrong(turns)) is not None:
                diverged[side][repeat.turns[index]] += 1
    lost = [repeat for repeat in repeats if all(repeat.baseline) and repeat.diverged is not None]
    return Trajectories(
        evalset=evalset,
        count=len(repeats),
        baseline=sum(all(repeat.baseline) for repeat in repeats),
        variant=sum(all(repeat.variant) for repeat in repeats),
        turns=tuple(
            TurnLine(
                turn=turn,
                asked=counts[turn],
                baseline=right[0][turn],
                variant=right[1][turn],
                baseline_diverged=diverged[0][turn],
                variant_diverged=diverged[1][turn],
            )
            for turn in sorted(counts)
        ),
        lost=len(lost),
        first_lost=tuple(lost[:MOST_SHOWN]),
    )
