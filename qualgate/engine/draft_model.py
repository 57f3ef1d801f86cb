"""A proposer that runs a model: all rows draft side by side in packed passes.

A row's text is what its keys and values (`draft_blocks`) stand for. Each request is compared with that text: the part
that agrees stays, the rest of its blocks is overwritten. So nobody reports what was accepted, at any level. A draft for
its own drafts (a cascade) joins its passes as drafts join the target's.
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
from qualgate.engine.speculation.accept import accepted
from qualgate.engine.speculation.lengths import FEW, Lengths
from qualgate.engine.speculation.propose import NO_DRAFT, Draft, DraftRequest
from qualgate.engine.speculation.steps import Drafts
from qualgate.engine.speculation.text import MOST_MATCHED

ROWS = 512  # of a pass that reads


class Head(Protocol):
    """An output head, or the part of one that target and draft share."""

    vocabulary: int

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """float32 [..., vocabulary] of states [..., width]."""
        ...


@dataclass(slots=True, eq=False)
class _Row:
    """A row of a draft model. cached: tokens whose keys and values stand in `blocks`, from the text's beginning on;
    text: to be read; drafted: the current draft; first: position of its first token in the answer; round: see
    `DraftRequest`; drawn_from: see `Draft`, one piece per pass; margins: likewise, one per token."""

    index: int
    prompt: Sequence[int]
    cached: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    text: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    first: int = 0
    most: int = 0
    round: tuple[int, ...] = ()
    drawn_from: list[torch.Tensor] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    over: bool = False

    @property
    def left(self) -> int:
        """Tokens that it may still draft."""
        return 0 if self.over else self.most - len(self.drafted)

    @property
    def pending(self) -> int:
        """Tokens to read before it drafts the next."""
        return len(self.text) - len(self.cached)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Rows of one text in a pass: see `schedule.Part`."""

    stream: _Row
    first: int
    tokens: Sequence[int]
    wants: int
    draft: Sequence[int] = ()


class DraftModel:
    """Draft with `decoder`, greedily or with the target's noise. under: who drafts for this model, or None."""

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
        """blocks: a row without free blocks is not drafted for. draws: the target's, or those of its run's rule; under
        a rule a draft draws by chances of its own and reports their distribution."""
        self.name = name
        self.course: Lengths | None = None  # decides after each step who drafts on; None: up to the limits
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

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """See `Proposer`. Returns no drafts once memory was short."""
        if self._off:
            return [NO_DRAFT] * len(requests)
        self._asked = {request.row for request in requests}
        rows = [self._row(request) for request in requests]
        try:
            began = perf_counter()
            while parts := self._parts([row for row in rows if row.left > 0]):
                margins = self._pass(parts)
                if self.course is not None:
                    now = perf_counter()
                    self._stepped(self.course, parts, margins, now - began)
                    began = now
        except Exception as error:
            if not is_short(error):
                raise
            self._off = True
            for row in list(self._rows):
                self.ended(row)
        return [self._drafted(row) if row.drafted else NO_DRAFT for row in rows]

    def _stepped(
        self, course: Lengths, parts: Sequence[_Part], margins: Mapping[int, Sequence[float]], seconds: float
    ) -> None:
        """Report a step to `course`, and end the drafts of rows that should stop."""
        read_count = sum(len(part.tokens) for part in parts if len(part.tokens) - len(part.draft) > FEW)
        rows = sum(len(part.tokens) for part in parts)
        course.stepped(len(parts), rows, read_count, sum(map(len, margins.values())), seconds)
        unfinished = [part.stream for part in parts if part.stream.index in margins and part.stream.left > 0]
        continuing = course.goes_on(margins, [row.index for row in unfinished])
        for row in unfinished:
            if row.index not in continuing:
                row.most = len(row.drafted)

    def _drafted(self, row: _Row) -> Draft:
        drawn_from = torch.cat(row.drawn_from)[: len(row.drafted)] if row.drawn_from else None
        return Draft(tuple(row.drafted), self.name, MOST_MATCHED, drawn_from, tuple(row.margins))

    def ended(self, row: int) -> None:
        """See `Proposer`."""
        if ended_row := self._rows.pop(row, None):
            self._blocks.release(ended_row)
        if self._drafting is not None:
            self._drafting.ended(row)

    @property
    def blocks_used(self) -> int:
        """Number of blocks in use for drafts alone."""
        return self._blocks.used

    def _row(self, request: DraftRequest) -> _Row:
        """Return the row of a request, rewound to the generated tokens."""
        row = self._rows.get(request.row)
        if row is None:
            row = self._rows[request.row] = _Row(request.row, request.prompt)
        row.text = [*request.prompt, *request.generated]
        row.drafted, row.first, row.most, row.over = [], len(request.generated), request.most, False
        row.round, row.drawn_from, row.margins = request.round, [], []
        self._blocks.rewind(row)
        row.over = max(row.text[len(row.cached) :]) >= self._head.vocabulary  # it has no such token
        return row

    def _parts(self, rows: Sequence[_Row]) -> list[_Part]:
        """Return the parts of the next pass, none if nothing is left to draft: texts to read, up to a limit, each
        followed by a draft for this model once it is read to its end."""
        passing, count = [], 0
        for row in rows:  # the others wait, so nobody drafts for them now
            if count >= ROWS:
                break
            passing.append((row, row.text[len(row.cached) :][: max(1, ROWS - count)]))
            count += len(passing[-1][1])
        complete = {row.index for row, tokens in passing if len(tokens) == row.pending}
        draftable = [row for row, tokens in passing if row.index in complete and len(tokens) <= FEW]
        drafts = self._drafts(draftable, len(passing))
        parts = []
        for row, tokens in passing:
            draft = drafts.get(row.index, ())
            idle = (candidate for candidate in self._rows.values() if candidate.index not in self._asked)
            if not self._blocks.reach(row, len(row.cached) + len(tokens) + len(draft), idle):
                row.over = True
                continue
            wants = 1 + len(draft) if row.index in complete else 0
            parts.append(_Part(row, len(row.cached), [*tokens, *draft], wants, draft))
        return parts

    def _drafts(self, rows: Sequence[_Row], sequences: int) -> dict[int, Sequence[int]]:
        """Return the drafts that this model is to verify, by row; none if it has no drafter, or while that rests."""
        if self._drafting is None or self._drafting.rests(sequences):
            return {}
        requests = [
            DraftRequest(
                row.index, row.prompt, row.text[len(row.prompt) :], row.left - 1, (*row.round, len(row.drafted))
            )
            for row in rows
            if row.left > 1
        ]
        return self._drafting.draft(requests, sequences)

    def _pass(self, parts: Sequence[_Part]) -> dict[int, Sequence[float]]:
        """Run a pass. Return the margins of each row's new tokens; rows that only read have none."""
        began = perf_counter()
        if self._drafting is not None:
            self._drafting.begins(len(parts))
        blocks = self._blocks
        states = self._decoder.forward(batch(parts, blocks.count), blocks.states, self._threads)
        wanting = [part for part in parts if part.wants]
        for part in parts:
            read_count = len(part.tokens) - len(part.draft)
            part.stream.cached += part.tokens[:read_count]
            blocks.know(part.stream)
        if not wanting:
            return {}
        rows = [part.stream.index for part in wanting for _ in range(part.wants)]
        positions = [part.stream.first + len(part.stream.drafted) + at for part in wanting for at in range(part.wants)]
        logits = self._head.logits(states)
        sampled = say(self._draws, logits, rows, positions)
        would, finite, margins, first = sampled.tokens.tolist(), sampled.finite.tolist(), sampled.margins.tolist(), 0
        before = {part.stream.index: len(part.stream.drafted) for part in wanting}
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
        """Return tokens, no margins, and Σ min(p, q) of each tested token of the draft below."""
        row, lower_draft = part.stream, NO_DRAFT
        if self._drafting is not None:
            lower_draft = self._drafting.offered(row.index, len(part.draft))
        draft, overlaps = ruling.drafted(row.index, (*row.round, len(row.drafted)), lower_draft, logits, self.name)
        assert draft.drawn_from is not None, "a rule tells what it drew from"
        row.drawn_from.append(draft.drawn_from)
        return draft.tokens, (), overlaps

    def _goes_on(
        self, part: _Part, would: Sequence[int], margins: Sequence[float], overlaps: Sequence[float] = ()
    ) -> None:
        """Extend a row by the accepted tokens of its draft and the model's own next one.

        would: this model's tokens; margins: theirs, none under a rule; overlaps: see `Drafting.record`.
        """
        row = part.stream
        outcome = accepted(part.draft[: len(would) - 1], would, self._stop_ids, row.left)
        if self._drafting is not None:
            position = row.first + len(row.drafted)
            self._drafting.record(row.index, position, len(part.draft), outcome.tokens, outcome.count, overlaps)
        row.cached += outcome.tokens[: outcome.count]
        row.text += outcome.tokens
        row.drafted += outcome.tokens
        row.margins += margins[: len(outcome.tokens)]
        row.over = outcome.ended
