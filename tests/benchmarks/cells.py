"""What drafts gain, cell by cell: who drafts x how many tokens x batch x task, each beside what the law foretells.

Three things are measured apart: acceptance on the un-widened model, passes by themselves (`pass_times`), and the gain
itself, on the widened model beside plain decoding. Only the last is the gain's own run. A turn answers every way and
measures every kind of pass, all in a drawn order, for how fast a machine reads memory changes within minutes; a cell is
the middle one of its turns. A batch's prompts are read in one pass: who is drafted for while others are read is ahead
when the seconds begin to count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import exp, log
from random import Random
from statistics import mean, median
from typing import Any

from qualgate.engine.loaded import LoadedArm
from qualgate.records import Prompt
from tests.benchmarks.pass_times import Kind, times_of
from tests.benchmarks.shape import told
from tests.benchmarks.speculating import Told, answered
from tests.benchmarks.speedup import Accepted, PassTimes, accepted_of_each, predicted

TOKENS = (2, 4, 8)
AUTO = 0
PLAIN = ("plain", 0)
MODEL = "mxfp4"  # who drafts at a cost: what texts draft is looked up
SINGLES = 4  # prompts of a task that are answered one after the other


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """tokens: γ, AUTO as many as pay; gain: plain seconds over its own, from the first tokens on; foretold: by the law,
    None where it was not asked and of AUTO, which has no one γ; unlike: answers that are not plain decoding's."""

    by: str
    tokens: int
    batch: int
    task: str
    gain: float
    foretold: float | None
    unlike: int

    @property
    def shown(self) -> dict[str, Any]:
        """As a result has it."""
        return {name: getattr(self, name) for name in self.__slots__}


Way = tuple[str, int]  # who drafts, and γ
Fates = Mapping[tuple[Way, str, int], Sequence[Accepted]]  # of each answer, by way, task and batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What each way told of each batch; what passes took meanwhile, by who drafts, {} where that is not asked."""

    runs: Mapping[Way, Sequence[Told]]
    times: Mapping[str, PassTimes]


def fates(
    arms: Mapping[Way, LoadedArm], prompts: Mapping[str, Sequence[Prompt]], batches: Sequence[int]
) -> dict[tuple[Way, str, int], list[Accepted]]:
    """What becomes of the drafts for the prompts of each cell, answer by answer, by way."""
    found = {}
    for way, arm in arms.items():
        for task, mine in prompts.items():
            for batch in batches:
                group = [one for group in _groups(mine, batch) for one in group]
                found[way, task, batch] = accepted_of_each(
                    answered(arm, group, batch=len(group), at_once=True).levels[0], len(group)
                )
    return found


def measure(
    arms: Mapping[Way, LoadedArm],
    prompts: Mapping[str, Sequence[Prompt]],
    batches: Sequence[int],
    fate: Fates,
    passes: Callable[[Sequence[int]], Mapping[Kind, Callable[[], float]]],
    turns: int,
) -> tuple[list[Cell], list[Turn]]:
    """All cells, and the turns that they are of. arms: by way, PLAIN among them; prompts: of each task, as many for a
    batch as go on side by side, and some for a batch of one; fate: empty where nothing is to be foretold; passes: what
    measures passes over so many sequences."""
    cells, all_turns = list[Cell](), list[Turn]()
    places = [(batch, task) for batch in batches for task in prompts]
    for at in told("speculation, cells", range(len(places)), lambda at: f"{places[at][1]} by {places[at][0]}"):
        batch, task = places[at]
        timed = passes([count for count in batches if count <= batch])
        of = [_turn(arms, _groups(prompts[task], batch), timed, Random(turns * at + turn)) for turn in range(turns)]
        cells += [_cell(way, batch, task, of, fate.get((way, task, batch))) for way in arms if way != PLAIN]
        all_turns += of
    return cells, all_turns


def _turn(
    arms: Mapping[Way, LoadedArm],
    groups: Sequence[Sequence[Prompt]],
    timed: Mapping[Kind, Callable[[], float]],
    draw: Random,
) -> Turn:
    jobs: dict[Any, Callable[[], Any]] = {**timed}
    for at, group in enumerate(groups):
        jobs |= {(way, at): partial(answered, arms[way], group, batch=len(group), at_once=True) for way in arms}
    done = {one: jobs[one]() for one in draw.sample([*jobs], len(jobs))}
    times = times_of({kind: done[kind] for kind in timed}) if timed else None
    return Turn(
        runs={way: [done[way, at] for at in range(len(groups))] for way in arms},
        times={by: times if by == MODEL else replace(times, draft={}) for by, _ in arms} if times else {},
    )


def _groups(prompts: Sequence[Prompt], batch: int) -> list[Sequence[Prompt]]:
    return [prompts[:batch]] if batch > 1 else [prompts[at : at + 1] for at in range(min(SINGLES, len(prompts)))]


def _cell(way: Way, batch: int, task: str, turns: Sequence[Turn], fate: Sequence[Accepted] | None) -> Cell:
    return Cell(
        by=way[0],
        tokens=way[1],
        batch=batch,
        task=task,
        gain=median(sum(map(_seconds, one.runs[PLAIN])) / sum(map(_seconds, one.runs[way])) for one in turns),
        foretold=None if fate is None else median(_foretold(way, one, fate) for one in turns),
        unlike=sum(
            a != b
            for turn in turns
            for one, other in zip(turn.runs[PLAIN], turn.runs[way], strict=True)
            for a, b in zip(one.tokens, other.tokens, strict=True)
        ),
    )


def _foretold(way: Way, turn: Turn, fate: Sequence[Accepted]) -> float:
    expected, left = 0.0, iter(fate)
    for one in turn.runs[PLAIN]:
        lengths, mine = [len(said) for said in one.tokens], list(islice(left, len(one.tokens)))
        expected += _seconds(one) / predicted(lengths, way[1], mine, turn.times[way[0]])
    return sum(map(_seconds, turn.runs[PLAIN])) / expected


def _seconds(one: Told) -> float:
    return max(one.last) - max(one.first)


def within(cells: Sequence[Cell], share: float) -> float:
    """Of the cells that the law foretells, those whose gain is so near to it."""
    foretold = [one for one in cells if one.foretold is not None]
    return mean(abs(one.foretold / one.gain - 1) <= share for one in foretold if one.foretold)


def against_best(cells: Sequence[Cell]) -> dict[str, float]:
    """Of each who drafts: the gain of as many tokens as pay over that of the one γ that is best over all batches and
    tasks, plain decoding being one of them; geometric means."""
    found = {}
    for by in {one.by for one in cells}:
        means = {
            tokens: mean(log(one.gain) for one in cells if (one.by, one.tokens) == (by, tokens))
            for tokens in {one.tokens for one in cells if one.by == by}
        }
        best = max(0.0, *(value for tokens, value in means.items() if tokens != AUTO))
        found[by] = exp(means[AUTO] - best)
    return found
