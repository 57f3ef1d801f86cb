"""What drafts gain, cell by cell: who drafts x how many tokens x batch x task, each beside what the law foretells.

Three things are measured apart: acceptance on the un-widened model, passes by themselves (`pass_times`), and the gain
itself, on the widened model in turns with plain decoding. Only the last is the gain's own run. Passes are measured
anew before and after each batch and task: how fast a machine reads memory changes within minutes. A batch's prompts are
read in one pass: who is drafted for while others are read is ahead when the seconds begin to count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import exp, log
from statistics import mean
from typing import Any

from qualgate.bench.shape import told
from qualgate.bench.speculating import Told, answered
from qualgate.bench.speedup import Accepted, PassTimes, accepted_of_each, predicted
from qualgate.engine.load import LoadedArm
from qualgate.records import Prompt

TOKENS = (2, 4, 8)
AUTO = 0
PLAIN = ("plain", 0)
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


Fates = Mapping[tuple[str, str, int], Sequence[Accepted]]  # of each answer, by who drafts, task and batch


def fates(
    arms: Mapping[str, LoadedArm], prompts: Mapping[str, Sequence[Prompt]], batches: Sequence[int]
) -> dict[tuple[str, str, int], list[Accepted]]:
    """What becomes of the drafts for the prompts of each cell, answer by answer, by who makes them."""
    found = {}
    for by, arm in arms.items():
        for task, mine in prompts.items():
            for batch in batches:
                group = [one for group in _groups(mine, batch) for one in group]
                found[by, task, batch] = accepted_of_each(
                    answered(arm, group, batch=len(group), at_once=True).levels[0], len(group)
                )
    return found


def measure(
    plain: LoadedArm,
    drafted: Mapping[tuple[str, int], LoadedArm],
    prompts: Mapping[str, Sequence[Prompt]],
    batches: Sequence[int],
    fate: Fates,
    passes: Callable[[Sequence[int], Callable[[], None]], Mapping[str, PassTimes]],
) -> list[Cell]:
    """All cells. drafted: by who drafts and γ; prompts: of each task, as many for a batch as go on side by side, and
    some for a batch of one; fate: empty where nothing is to be foretold; passes: measures what passes over so many
    sequences take while something is done, by who drafts."""
    cells: list[Cell] = []
    places = [(batch, task) for batch in batches for task in prompts]
    for at in told("speculation, cells", range(len(places)), lambda at: f"{places[at][1]} by {places[at][0]}"):
        batch, task = places[at]
        runs: dict[tuple[str, int], list[Told]] = {way: [] for way in (PLAIN, *drafted)}
        around = partial(_in_turns, {PLAIN: plain, **drafted}, _groups(prompts[task], batch), at, runs)
        times = passes([count for count in batches if count <= batch], around)
        cells += [
            _cell(
                way, batch, task, (runs[PLAIN], runs[way]), (fate[way[0], task, batch], times[way[0]]) if fate else None
            )
            for way in drafted
        ]
    return cells


def _in_turns(
    arms: Mapping[tuple[str, int], LoadedArm],
    groups: Sequence[Sequence[Prompt]],
    at: int,
    runs: Mapping[tuple[str, int], list[Told]],
) -> None:
    """Every way answers each batch twice, in an order that turns from place `at` on; into `runs`."""
    ways = [*arms]
    for count, group in enumerate(groups):
        first = (at + count) % len(ways)
        order = ways[first:] + ways[:first]
        turns = [{way: answered(arms[way], group, batch=len(group), at_once=True) for way in order} for _ in range(2)]
        for way in ways:  # the sooner of two: what else a machine does only ever takes time
            runs[way].append(min((turn[way] for turn in turns), key=_seconds))


def _groups(prompts: Sequence[Prompt], batch: int) -> list[Sequence[Prompt]]:
    return [prompts[:batch]] if batch > 1 else [prompts[at : at + 1] for at in range(min(SINGLES, len(prompts)))]


def _cell(
    way: tuple[str, int],
    batch: int,
    task: str,
    runs: tuple[Sequence[Told], Sequence[Told]],
    known: tuple[Sequence[Accepted], PassTimes] | None,
) -> Cell:
    plain, own = runs
    seconds = sum(map(_seconds, plain))
    foretold = None
    if way[1] != AUTO and known:
        fate, times = known
        expected, left = 0.0, iter(fate)
        for one in plain:
            lengths, mine = [len(said) for said in one.tokens], list(islice(left, len(one.tokens)))
            expected += _seconds(one) / predicted(lengths, way[1], mine, times)
        foretold = seconds / expected
    return Cell(
        by=way[0],
        tokens=way[1],
        batch=batch,
        task=task,
        gain=seconds / sum(map(_seconds, own)),
        foretold=foretold,
        unlike=sum(
            a != b for one, other in zip(plain, own, strict=True) for a, b in zip(one.tokens, other.tokens, strict=True)
        ),
    )


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
