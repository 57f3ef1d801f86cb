"""Contenders that answer the same prompts in turns, so that a busy machine slows all alike: wall and CPU seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time
from typing import Any, TypeVar

from tests.benchmarks.shape import told

Said = TypeVar("Said")
MOST_UNLIKE = 0.01  # of the cases: near ties fall either way in other arithmetic, more would be other work


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """answer: the kind of prompts → what was said to each; cpu: seconds of processors that it has taken so far."""

    answer: Callable[[str], Sequence[Any]]
    cpu: Callable[[], float] = process_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Lap:
    """One contender's turn over one kind. said: to each prompt."""

    seconds: float
    cpu: float
    said: Sequence[Any]


Round = dict[str, dict[str, Lap]]  # kind → contender → its turn


def race(name: str, contenders: Mapping[str, Contender], kinds: Sequence[str], rounds: int) -> list[Round]:
    """Every round each contender answers each kind once, the order of the contenders turned from round to round."""
    names = list(contenders)
    found: list[Round] = []
    for at in told(name, range(rounds), lambda done: f"round {done + 1}"):
        order = names[at % len(names) :] + names[: at % len(names)]
        found.append({kind: {one: lap(contenders[one], kind) for one in order} for kind in kinds})
    return found


def lap(contender: Contender, kind: str) -> Lap:
    """One turn."""
    cpu, began = contender.cpu(), perf_counter()
    said = contender.answer(kind)
    seconds = perf_counter() - began
    return Lap(seconds=seconds, cpu=contender.cpu() - cpu, said=said)


def best_sizes(
    answer: Callable[[str, int], Sequence[Any]], kinds: Mapping[str, int], sizes: Sequence[int]
) -> dict[str, int]:
    """Of each kind (and how many prompts it has) the size at which `answer` is fastest; a size beyond its prompts is
    not tried where one before it took them all."""
    found = {}
    for kind, prompts in kinds.items():
        tried = [size for at, size in enumerate(sizes) if at == 0 or sizes[at - 1] < prompts]
        seconds = {
            size: lap(Contender(answer=lambda kind, size=size: answer(kind, size)), kind).seconds for size in tried
        }
        found[kind] = min(seconds, key=lambda size: seconds[size])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one contender stood against another: over all kinds, and by kind. ratios: of each round, the other's seconds
    over its own; cpu: the same of CPU seconds; unlike: cases that were answered otherwise at least once."""

    ratios: Sequence[float]
    cpu: Sequence[float]
    by_kind: dict[str, float]
    cases: int
    unlike: int

    @property
    def ratio(self) -> float:
        """The middle round's."""
        return median(self.ratios)

    @property
    def shown(self) -> dict[str, Any]:
        """What a row of the table tells beside its median and spread."""
        return {
            "cpu": median(self.cpu),
            "cpu_spread": [min(self.cpu), max(self.cpu)],
            "kinds": self.by_kind,
            "cases": self.cases,
            "cases_with_other_tokens": self.unlike,
        }


def standing(rounds: Sequence[Round], ours: str, theirs: str) -> Standing:
    """Of `ours` against `theirs`."""

    def ratio(one: Round, kinds: Sequence[str], what: str) -> float:
        took = {name: sum(getattr(one[kind][name], what) for kind in kinds) for name in (ours, theirs)}
        return took[theirs] / took[ours]

    kinds = list(rounds[0])
    unlike = 0
    for kind in kinds:
        pairs = [zip(one[kind][ours].said, one[kind][theirs].said, strict=True) for one in rounds]
        unlike += sum(any(a != b for a, b in of_case) for of_case in zip(*pairs, strict=True))
    return Standing(
        ratios=[ratio(one, kinds, "seconds") for one in rounds],
        cpu=[ratio(one, kinds, "cpu") for one in rounds],
        by_kind={kind: median(ratio(one, [kind], "seconds") for one in rounds) for kind in kinds},
        cases=sum(len(rounds[0][kind][ours].said) for kind in kinds),
        unlike=unlike,
    )


def shown(name: str, rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """The rounds as the result tells them: seconds, CPU seconds and answers of each turn."""
    return [
        {
            "race": name,
            **{
                kind: {
                    one: {"seconds": turn.seconds, "cpu": turn.cpu, "said": sum(map(len, turn.said))}
                    for one, turn in turns.items()
                }
                for kind, turns in one_round.items()
            },
        }
        for one_round in rounds
    ]
