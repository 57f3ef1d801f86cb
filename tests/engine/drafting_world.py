"""A target and who drafts for it as costs and chances, on a clock of their own: what a policy of drafts takes there is
the same number again on any machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from qualgate.engine.drafting import Drafting
from qualgate.engine.speculation.accept import accepted
from qualgate.engine.speculation.lengths import FEW, Learned, Lengths
from qualgate.engine.speculation.propose import NO_DRAFT, Draft, DraftRequest
from qualgate.engine.speculation.steps import Drafts, Step

EASY, HARD = 0.995, 0.45  # the chance that a draft's token is right


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """hard: share of tokens that are; lengths: of answers; prompt: tokens; rows: of how many one is all hard."""

    name: str
    hard: float
    lengths: tuple[int, int]
    prompt: int = 40
    bad_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds of a pass of (texts, rows) of the target, and of the draft; of a text's token that the draft reads."""

    target: Callable[[int, int], float]
    draft: Callable[[int, int], float]
    reading: float = 0.0


@dataclass(slots=True, eq=False)
class Row:
    index: int
    task: str
    prompt: tuple[int, ...]
    hard: list[bool]
    right: list[bool]
    margins: list[float]
    generated: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        return len(self.right)


def rows_of(tasks: Sequence[Task], each: int, seed: int = 0) -> list[Row]:
    """Rows of all tasks in turn."""
    draw, rows = Random(seed), list[Row]()
    for at in range(each):
        for task in tasks:
            length = draw.randint(*task.lengths)
            share = 1.0 if task.bad_rows and at % task.bad_rows == 0 else task.hard
            hard = [draw.random() < share for _ in range(length)]
            rows.append(
                Row(
                    len(rows),
                    task.name,
                    tuple(range(task.prompt)),
                    hard,
                    [draw.random() < (HARD if one else EASY) for one in hard],
                    [draw.uniform(0.0, 2.0) if one else draw.uniform(1.5, 9.0) for one in hard],
                )
            )
    return rows


class Drafter:
    """Who drafts by a model in this world. course: see `DraftModel`."""

    name, runs_model = "draft", True

    def __init__(self, world: World, rows: Sequence[Row], name: str = "draft") -> None:
        self.name, self._world, self._texts = name, world, {one.index: one for one in rows}
        self.course: Lengths | None = None
        self.tells = self.reads = True
        self._read: dict[int, int] = {}
        self.seconds = 0.0

    def propose(self, asked: Sequence[DraftRequest]) -> list[Draft]:
        began = self._world.now
        drafts = {one.row: 0 for one in asked}
        going = list(asked)
        while going:
            before = self._world.now
            read = 0
            for one in going:
                if not drafts[one.row]:
                    unread = len(one.prompt) + len(one.generated) - self._read.get(one.row, 0)
                    read += unread if unread > FEW else 0
            costs = self._world.costs
            self._world.now += costs.draft(len(going), len(going)) + read * costs.reading
            said = dict[int, list[float]]()
            for one in going:
                said[one.row] = [self._texts[one.row].margins[len(one.generated) + drafts[one.row]]]
                drafts[one.row] += 1
            going = [
                one
                for one in going
                if drafts[one.row] < one.most and len(one.generated) + drafts[one.row] < self._texts[one.row].length
            ]
            if self.course is not None:
                self.course.stepped(len(said), len(said), read, len(said), self._world.now - before)
                on = self.course.goes_on(said, [one.row for one in going])
                going = [one for one in going if one.row in on]
        self.seconds += self._world.now - began
        found = [self._draft(self._texts[one.row], len(one.generated), drafts[one.row]) for one in asked]
        for one, draft in zip(asked, found, strict=True):
            self._read[one.row] = len(one.prompt) + len(one.generated) + (*draft.tokens, -1).index(-1)
        return found

    def _draft(self, row: Row, at: int, count: int) -> Draft:
        tokens = tuple(place if row.right[place] else -1 for place in range(at, at + count))
        return Draft(tokens, self.name, 8, None, tuple(row.margins[at : at + count])) if count else NO_DRAFT

    def ended(self, row: int) -> None:
        self._read.pop(row, None)


@dataclass(slots=True, eq=False)
class World:
    """A target of these costs, with so many texts side by side at most. overhead: seconds of a pass in which drafts
    were looked for."""

    costs: Costs
    sequences: int
    now: float = 0.0

    def answers(self, rows: Sequence[Row], drafts: Drafts | None) -> float:
        """Seconds until all are answered."""
        began, waiting = self.now, list(rows)
        going: list[Row] = []
        drafting = None if drafts is None else Drafting(drafts, lambda: self.now)
        for one in rows:
            one.generated = []
        while waiting or going:
            joined = False
            while waiting and len(going) < self.sequences:
                going.append(waiting.pop(0))
                going[-1].generated.append(0)  # with the prompt
                joined = True
            self._pass(going, drafting, joined)
            for one in [one for one in going if len(one.generated) >= one.length]:
                going.remove(one)
                if drafting is not None:
                    drafting.ended(one.index)
        return self.now - began

    def _pass(self, going: Sequence[Row], drafting: Drafting | None, joined: bool) -> None:
        offered = {}
        texts = [one for one in going if len(one.generated) < one.length]
        if drafting is not None and texts and not drafting.rests(len(texts)):
            asked = [
                DraftRequest(one.index, one.prompt, one.generated, 200, round=(len(one.generated),)) for one in texts
            ]
            offered = drafting.draft(asked, len(texts))
        if not texts:
            return
        count = len(texts) + sum(map(len, offered.values()))
        took = self.costs.target(len(texts), count)
        self.now += took
        for one in texts:
            draft, at = offered.get(one.index, ()), len(one.generated)
            would = [*range(at, at + len(draft) + 1)]
            got = accepted(draft, would, (), one.length - at)
            if drafting is not None:
                drafting.record(one.index, at, len(draft), got.tokens, got.count)
            one.generated += got.tokens
        if drafting is not None and not joined:
            drafting.passed(len(texts), count, took)


def seconds(world_of: Callable[[], World], rows: Sequence[Row], tokens: int | None) -> tuple[float, list[Step]]:
    """With drafts of so many tokens, None none, 0 as many as pay; what became of them."""
    world, steps = world_of(), list[Step]()
    if tokens is None:
        return world.answers(rows, None), steps
    drafter, learned, costs, shapes = Drafter(world, rows), Learned(), world.costs, (1, 4, 16)
    learned.seed({(count, rows): costs.target(count, rows) for count in shapes for rows in (count, 3 * count)})
    learned.lengths("draft").seed({count: costs.draft(count, count) for count in shapes}, costs.reading)
    drafts = Drafts(drafter, tokens, steps, learned, tasks=[one.task for one in rows])
    return world.answers(rows, drafts), steps
