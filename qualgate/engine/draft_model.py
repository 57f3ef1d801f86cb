"""A proposer that runs a model: all rows draft side by side in packed passes.

Its text of a row is what its keys and values (`draft_blocks`) stand for. When it is asked again, what was said is held
against that text: what agrees stays, the rest of its blocks is written over. So nobody tells it what was accepted, at
whatever level it drafts. A draft of its own draft (a cascade) rides in its passes as drafts do in the target's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

import torch

from qualgate.engine.batch import batch
from qualgate.engine.draft_blocks import Blocks
from qualgate.engine.drafting import Drafting
from qualgate.engine.packed import Decoder
from qualgate.engine.room import is_short
from qualgate.engine.ruling import Ruling
from qualgate.engine.sampling import Draws, say
from qualgate.speculation.accept import accepted
from qualgate.speculation.lengths import FEW, Lengths
from qualgate.speculation.propose import NO_DRAFT, Asked, Draft
from qualgate.speculation.steps import Drafts
from qualgate.speculation.text import MOST_MATCHED

ROWS = 512  # of a pass that reads


class Head(Protocol):
    """An output head, or what target and draft have of one."""

    vocabulary: int

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """float32 [..., vocabulary] of states [..., width]."""
        ...


@dataclass(slots=True, eq=False)
class _Row:
    """kept: tokens whose keys and values stand in `blocks`, from the text's beginning on; text: what is to be read;
    said: what it drafts now; first: position of the first of these in the answer; round: see `Asked`; drawn_from: of
    what it drafts, see `Draft`, a piece a pass; margins: likewise, one a token"""

    index: int
    prompt: Sequence[int]
    kept: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    text: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)
    first: int = 0
    most: int = 0
    round: tuple[int, ...] = ()
    drawn_from: list[torch.Tensor] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    over: bool = False

    @property
    def left(self) -> int:
        """Tokens that it may still draft."""
        return 0 if self.over else self.most - len(self.said)

    @property
    def pending(self) -> int:
        """Tokens to be read before it says the next."""
        return len(self.text) - len(self.kept)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Rows of one text in a pass: see `schedule.Part`."""

    stream: _Row
    first: int
    tokens: Sequence[int]
    wants: int
    draft: Sequence[int] = ()


class DraftModel:
    """Drafts by `decoder`, greedily or with the noise by which the target draws. under: who drafts for it, or None."""

    runs_model = True

    def __init__(
        self,
        name: str,
        decoder: Decoder,
        head: Head,
        *,
        blocks: Blocks,
        threads: int,
        stop_ids: frozenset[int],
        draws: Draws | Ruling | None = None,
        under: Drafts | None = None,
    ) -> None:
        """blocks: a row that finds none is not drafted for. draws: the target's, or by the rule of its run; under one a
        draft is drawn by chances of its own, and tells what from."""
        self.name = name
        self.course: Lengths | None = None  # decides after each step who drafts on; None: as far as they are asked for
        self._drafting = None if under is None else Drafting(under)
        self.broken = 0  # drafts that ended with logits that are no numbers
        self._decoder, self._head, self._threads = decoder, head, threads
        self._stop_ids, self._ruling = stop_ids, draws if isinstance(draws, Ruling) else None
        self.tells = self._ruling is None
        self._draws = draws.draws if isinstance(draws, Ruling) else draws
        self._blocks, self.reads = blocks, blocks.reads
        self._rows: dict[int, _Row] = {}
        self._asked = set[int]()  # rows that are drafted for now
        self._off = False

    def propose(self, asked: Sequence[Asked]) -> list[Draft]:
        """See `Proposer`. No drafts any more once memory was short."""
        if self._off:
            return [NO_DRAFT] * len(asked)
        self._asked = {one.row for one in asked}
        rows = [self._row(one) for one in asked]
        try:
            began = perf_counter()
            while parts := self._parts([row for row in rows if row.left > 0]):
                said = self._pass(parts)
                if self.course is not None:
                    now = perf_counter()
                    self._told(self.course, parts, said, now - began)
                    began = now
        except Exception as error:
            if not is_short(error):
                raise
            self._off = True
            for row in list(self._rows):
                self.ended(row)
        return [self._drafted(row) if row.said else NO_DRAFT for row in rows]

    def _told(
        self, course: Lengths, parts: Sequence[_Part], said: Mapping[int, Sequence[float]], seconds: float
    ) -> None:
        """Tell what a step was, and end the drafts of rows that are not to go on."""
        read = sum(len(part.tokens) for part in parts if len(part.tokens) - len(part.draft) > FEW)
        rows = sum(len(part.tokens) for part in parts)
        course.stepped(len(parts), rows, read, sum(map(len, said.values())), seconds)
        able = [part.stream for part in parts if part.stream.index in said and part.stream.left > 0]
        on = course.goes_on(said, [row.index for row in able])
        for row in able:
            if row.index not in on:
                row.most = len(row.said)

    def _drafted(self, row: _Row) -> Draft:
        drawn_from = torch.cat(row.drawn_from)[: len(row.said)] if row.drawn_from else None
        return Draft(tuple(row.said), self.name, MOST_MATCHED, drawn_from, tuple(row.margins))

    def ended(self, row: int) -> None:
        """See `Proposer`."""
        if one := self._rows.pop(row, None):
            self._blocks.release(one)
        if self._drafting is not None:
            self._drafting.ended(row)

    @property
    def blocks_used(self) -> int:
        """Blocks that rows hold for drafts alone."""
        return self._blocks.used

    def _row(self, one: Asked) -> _Row:
        """Its row, rewound to what was said."""
        row = self._rows.get(one.row)
        if row is None:
            row = self._rows[one.row] = _Row(one.row, one.prompt)
        row.text = [*one.prompt, *one.said]
        row.said, row.first, row.most, row.over = [], len(one.said), one.most, False
        row.round, row.drawn_from, row.margins = one.round, [], []
        self._blocks.rewind(row)
        row.over = max(row.text[len(row.kept) :]) >= self._head.vocabulary  # it has no such token
        return row

    def _parts(self, rows: Sequence[_Row]) -> list[_Part]:
        """The next pass, none when nothing is left to draft: texts to be read up to a limit, behind those that are read
        their own drafts."""
        passing, count = [], 0
        for row in rows:  # the others wait, so nobody drafts for them now
            if count >= ROWS:
                break
            passing.append((row, row.text[len(row.kept) :][: max(1, ROWS - count)]))
            count += len(passing[-1][1])
        whole = {row.index for row, tokens in passing if len(tokens) == row.pending}
        able = [row for row, tokens in passing if row.index in whole and len(tokens) <= FEW]
        drafts = self._drafts(able, len(passing))
        parts = []
        for row, tokens in passing:
            draft = drafts.get(row.index, ())
            idle = (other for other in self._rows.values() if other.index not in self._asked)
            if not self._blocks.reach(row, len(row.kept) + len(tokens) + len(draft), idle):
                row.over = True
                continue
            wants = 1 + len(draft) if row.index in whole else 0
            parts.append(_Part(row, len(row.kept), [*tokens, *draft], wants, draft))
        return parts

    def _drafts(self, rows: Sequence[_Row], going: int) -> dict[int, Sequence[int]]:
        if self._drafting is None or self._drafting.rests(going):
            return {}
        asked = [
            Asked(row.index, row.prompt, row.text[len(row.prompt) :], row.left - 1, (*row.round, len(row.said)))
            for row in rows
            if row.left > 1
        ]
        return self._drafting.draft(asked, going)

    def _pass(self, parts: Sequence[_Part]) -> dict[int, Sequence[float]]:
        """The margins of what each row says, none of rows that were read only."""
        began = perf_counter()
        if self._drafting is not None:
            self._drafting.begins(len(parts))
        blocks = self._blocks
        states = self._decoder.forward(batch(parts, blocks.count), blocks.states, self._threads)
        wanting = [part for part in parts if part.wants]
        for part in parts:
            read = len(part.tokens) - len(part.draft)
            part.stream.kept += part.tokens[:read]
            blocks.know(part.stream)
        if not wanting:
            return {}
        rows = [part.stream.index for part in wanting for _ in range(part.wants)]
        positions = [part.stream.first + len(part.stream.said) + at for part in wanting for at in range(part.wants)]
        logits = self._head.logits(states)
        said = say(self._draws, logits, rows, positions)
        would, finite, margins, first = said.tokens.tolist(), said.finite.tolist(), said.margins.tolist(), 0
        before = {part.stream.index: len(part.stream.said) for part in wanting}
        for part in wanting:
            last = first + part.wants
            if not all(finite[first:last]):  # the target goes on alone
                self.broken += 1
                part.stream.over = True
            elif self._ruling is None:
                self._goes_on(part, would[first:last], margins[first:last])
            else:
                self._goes_on(part, *self._ruled(self._ruling, part, logits[first:last]))
            first = last
        if self._drafting is not None and all(len(part.tokens) - len(part.draft) <= FEW for part in parts):
            self._drafting.passed(len(parts), sum(len(part.tokens) for part in parts), perf_counter() - began)
        return {part.stream.index: part.stream.margins[before[part.stream.index] :] for part in wanting}

    def _ruled(
        self, ruling: Ruling, part: _Part, logits: torch.Tensor
    ) -> tuple[Sequence[int], Sequence[float], Sequence[float]]:
        """Tokens, no margins of them, and Σ min(p, q) of each of the draft below that was tested."""
        row, below = part.stream, NO_DRAFT
        if self._drafting is not None:
            below = self._drafting.offered(row.index, len(part.draft))
        draft, overlaps = ruling.drafted(row.index, (*row.round, len(row.said)), below, logits, self.name)
        assert draft.drawn_from is not None, "a rule tells what it drew from"
        row.drawn_from.append(draft.drawn_from)
        return draft.tokens, (), overlaps

    def _goes_on(
        self, part: _Part, would: Sequence[int], margins: Sequence[float], overlaps: Sequence[float] = ()
    ) -> None:
        row = part.stream
        got = accepted(part.draft[: len(would) - 1], would, self._stop_ids, row.left)
        if self._drafting is not None:
            at = row.first + len(row.said)
            self._drafting.said(row.index, at, len(part.draft), got.tokens, got.count, overlaps)
        row.kept += got.tokens[: got.count]
        row.text += got.tokens
        row.said += got.tokens
        row.margins += margins[: len(got.tokens)]
        row.over = got.ended
