"""The engine of packed passes: read, verify and decode in one pass after another, until nothing waits.

A request's answer is the same bit for bit as alone with one token per pass, whatever else is in the batch, cached or
drafted. That property comes from the kernels, and `row_check` tests it on every model first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby
from time import perf_counter
from typing import Protocol

import torch

from qualgate.engine.advance import advance
from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import Batch, batch
from qualgate.engine.blocks import BlockPool
from qualgate.engine.drafting import Drafting
from qualgate.engine.handed_over import handed_over
from qualgate.engine.head import OutputHead
from qualgate.engine.request import Ended, Event, Read, Reason, Request, Spoken, Tally
from qualgate.engine.room import is_short
from qualgate.engine.ruling import Ruled, Ruling
from qualgate.engine.sampling import DEAD_END, Draws, Said, say
from qualgate.engine.schedule import Limits, Part, Schedule, Stream, blocks_for
from qualgate.engine.speculation.propose import Reader
from qualgate.engine.speculation.steps import Drafts
from qualgate.engine.steering import Steered, Steering, choose
from qualgate.records import Overflow
from qualgate_kernels.slots import SLOTS

LOGITS_AT_ONCE = 2**22  # numbers: 16 MB of float32


class Decoder(Protocol):
    """A decoder for packed passes: transformers' modules, or the plain decoder in C."""

    def forward(self, batch: Batch, states: KeysValues, threads: int) -> torch.Tensor:
        """Input of the head at the wanted rows, [wanted, width]; keys and values of all rows go to `states`."""
        ...

    @property
    def overflow(self) -> tuple[Overflow, ...]:
        """Values so far beyond the range of the server's dtype."""
        ...


Tapped = Callable[[Batch, KeysValues, int], tuple[torch.Tensor, torch.Tensor]]
"""See `FastDecoder.tapped`."""


class PackedEngine:
    """Answer requests with `decoder`. states: empty; room: bytes that they may take; position_bytes: of one
    position."""

    name = "packed"

    def __init__(
        self,
        decoder: Decoder,
        head: OutputHead,
        states: KeysValues,
        *,
        room: int,
        position_bytes: int,
        threads: int,
        limits: Limits,
    ) -> None:
        """Prepare an engine. room: bytes for keys and values; position_bytes: bytes of one position in all layers."""
        self.head, self.tally = head, Tally()
        self.threads, self.limits, self._decoder = threads, limits, decoder
        self._most = max(1, room // (position_bytes * SLOTS))
        self._states, self._pool = states, BlockPool(0)
        self._schedule: Schedule | None = None
        self.reader: Reader | None = None  # the drafter that reads the states of every row
        self.tapped: Tapped | None = None  # makes the passes if it reads inner states

    @property
    def decoder(self) -> Decoder:
        """The decoder of its passes."""
        return self._decoder

    @property
    def overflow(self) -> tuple[Overflow, ...]:
        """See `Engine.overflow`."""
        return self._decoder.overflow

    def abort(self, request: int) -> None:
        """See `Engine.abort`."""
        schedule = self._schedule  # the run may end meanwhile
        if schedule is not None:
            schedule.abort(request)

    def run(
        self,
        requests: Sequence[Request],
        drafts: Drafts | None,
        on_event: Callable[[Event], None],
        draws: Draws | None = None,
    ) -> None:
        """See `Engine.run`. MemoryError for a request that does not fit into the room."""
        self._make_room(requests)
        try:
            self._schedule = Schedule(requests, self._pool, self.limits)
            steers = any(request.steering is not None for request in requests)
            _Run(self, self._schedule, drafts, on_event, draws, steers).go()
        except BaseException:
            self._pool = BlockPool(0)  # blocks may be known that were never filled
            raise
        finally:
            self._schedule = None

    def _make_room(self, requests: Sequence[Request]) -> None:
        """Allocate blocks for as many of the largest requests as may run side by side, plus one each, which `Schedule`
        keeps free for joining; or as many as fit. Existing blocks stay, with the prompt prefixes that they hold."""
        count = min(self._most, blocks_for(requests, self.limits))
        if self._pool.count < count:
            self._pool, self._states = BlockPool(count), self._states.emptied()

    @property
    def states(self) -> KeysValues:
        """Keys and values."""
        return self._states

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self._pool.count

    def lend(self, request: int, positions: int) -> list[int] | None:
        """See `Schedule.lend`."""
        return None if self._schedule is None else self._schedule.lend(request, positions)

    def copy(self, blocks: Sequence[tuple[int, int]]) -> None:
        """See `KeysValues.copy`."""
        self._states.copy(blocks)

    def _read(self, passed: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return, for every row, the input of the head and what the drafter reads."""
        if self.tapped is not None:
            return self.tapped(passed, self._states, self.threads)
        states = self._decoder.forward(passed, self._states, self.threads)
        return states, states

    def states_of(self, parts: Sequence[Part]) -> torch.Tensor:
        """States of a pass, [wanted rows, width]; split into two smaller passes if memory is short, down to one row."""
        try:
            passed = batch(parts, self._pool.count, whole=self.reader is not None)
            if self.reader is None:
                return self._decoder.forward(passed, self._states, self.threads)
            return handed_over(self.reader, parts, *self._read(passed))
        except Exception as error:
            if sum(len(part.tokens) for part in parts) < 2 or not is_short(error):
                raise
        self.tally.parted += 1
        return torch.cat([self.states_of(half) for half in _halves(parts)])


def _halves(parts: Sequence[Part]) -> tuple[Sequence[Part], Sequence[Part]]:
    """Return two smaller passes; a single part is split into its first and last rows."""
    half = len(parts) // 2
    if half:
        return parts[:half], parts[half:]
    [part] = parts
    half = len(part.tokens) // 2
    wants = min(part.wants, len(part.tokens) - half)
    last = Part(part.stream, part.first + half, part.tokens[half:], wants)
    return [Part(part.stream, part.first, part.tokens[:half], part.wants - wants)], [last]


@dataclass(slots=True)
class _Columns:
    """Results of some rows, one entry per row."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    finite: list[bool] = field(default_factory=list)

    def add(self, sampled: Said) -> None:
        """Append further rows."""
        for column, values in zip(self._all, sampled, strict=True):
            column += values.tolist()

    def take(self, other: _Columns, start: int, stop: int) -> None:
        """Append rows start to stop - 1 of another."""
        for column, source in zip(self._all, other._all, strict=True):
            column += source[start:stop]

    @property
    def _all(self) -> tuple[list, ...]:
        return self.tokens, self.logprobs, self.margins, self.finite


class _Run:
    """The passes of one run."""

    def __init__(
        self,
        engine: PackedEngine,
        schedule: Schedule,
        drafts: Drafts | None,
        on_event: Callable[[Event], None],
        draws: Draws | None,
        steers: bool,
    ) -> None:
        """Prepare a run. on_event: receives its events; draws: None for greedy decoding; steers: whether a request's
        logits are steered."""
        self._steers = steers  # whether a request's logits are steered
        self._engine, self._schedule, self._tell, self._draws = engine, schedule, on_event, draws
        self._drafting = None if drafts is None else Drafting(drafts)
        self._ruling = None if drafts is None or draws is None or drafts.rule == "keyed" else Ruling(drafts.rule, draws)
        self._ruled: dict[int, Ruled] = {}  # results of the rule in this pass, by request
        self._would: dict[int, _Columns] = {}  # results for answers that are being read
        self._started = perf_counter()

    def go(self) -> None:
        """Run passes until nothing is left."""
        schedule, drafting = self._schedule, self._drafting
        while not schedule.done:
            for stream in schedule.taken_out():
                self._would.pop(stream.index, None)
                self._tell(self._ended(stream, "abort"))
            offered = {}
            if drafting is not None and not drafting.rests(len(schedule.going)):
                offered = drafting.draft(schedule.draftable, len(schedule.going))
            began = perf_counter()
            parts = schedule.next(offered)
            self._engine.copy(schedule.copies())
            if not parts:
                continue
            if drafting is not None:
                drafting.begins(len(parts))
            states = self._engine.states_of(parts)
            self._engine.tally.passes += 1
            schedule.passed(parts)
            self._say(parts, states)
            if drafting is not None and not drafting.resting and all(part.decodes for part in parts):
                drafting.passed(len(parts), sum(part.wants for part in parts), perf_counter() - began)

    def _say(self, parts: Sequence[Part], states: torch.Tensor) -> None:
        """Turn the wanted rows' states into tokens, and send the events of this pass."""
        seconds = perf_counter() - self._started
        columns = self._columns(parts, states, seconds)
        rows: list[int] = []  # of this pass that said something
        requests: list[int] = []
        positions: list[int] = []
        spoken, ended, first = _Columns(), list[tuple[Stream, Reason]](), 0
        for part in parts:
            stream, start, first = part.stream, first, first + part.wants
            if not part.wants:
                continue
            if stream.forced:
                would = self._would.setdefault(stream.index, _Columns())
                would.take(columns, start, first)
                if stream.wanted < len(stream.text):
                    continue
                del self._would[stream.index]
                draft, source, start = stream.request.answer, would, 0
            else:
                draft, source = part.tokens[len(part.tokens) - part.drafted :], columns
            if not stream.request.max_new_tokens:
                self._schedule.end(stream)
                ended.append((stream, "length" if all(source.finite) else "broken"))
                continue
            position = len(stream.generated)
            count, reason = self._advance(stream, draft, source, start)
            requests += [stream.index] * count
            positions += range(position, position + count)
            rows += range(start, start + count) if source is columns else [-1] * count
            spoken.take(source, start, start + count)
            if reason is not None:
                self._schedule.end(stream)
                ended.append((stream, reason))
        if rows:
            self._tell(
                Spoken(
                    requests=requests,
                    positions=positions,
                    tokens=spoken.tokens,
                    logprobs=spoken.logprobs,
                    margins=spoken.margins,
                    states=None if -1 in rows else states if len(rows) == len(states) else states[rows],
                    seconds=perf_counter() - self._started,
                )
            )
        for stream, reason in ended:
            self._tell(self._ended(stream, reason))

    def _columns(self, parts: Sequence[Part], states: torch.Tensor, seconds: float) -> _Columns:
        """Return the results of every wanted row, and send `Read` events for given answers."""
        head, columns = self._engine.head, _Columns()
        wanted_rows = [
            (part, offset) for part in parts for offset in range(len(part.tokens) - part.wants, len(part.tokens))
        ]
        requests = [part.stream.index for part, _ in wanted_rows]
        positions = [part.first + offset + 1 - len(part.stream.request.prompt) for part, offset in wanted_rows]
        forced = [row for row, (part, _) in enumerate(wanted_rows) if part.stream.forced]
        texts = _steered(parts) if self._steers else {}
        for start, stop in self._pieces(parts):
            logits = head.logits(states[start:stop])
            sampled = say(self._draws, logits, requests[start:stop], positions[start:stop])
            steered = None
            if texts:
                steered = choose(self._draws, logits, requests[start:stop], positions[start:stop], texts, sampled)
            if self._ruling is not None:
                self._rule(self._ruling, requests[start:stop], logits, sampled, steered)
            columns.add(sampled)
            if given_rows := [row for row in forced if start <= row < stop]:
                places = torch.tensor(given_rows, device=logits.device) - start
                answers = [wanted_rows[row][0].stream.request.answer[positions[row]] for row in given_rows]
                self._tell(
                    Read(
                        requests=[requests[row] for row in given_rows],
                        positions=[positions[row] for row in given_rows],
                        answer=torch.tensor(answers, device=logits.device),
                        predicted=Said(*(column[places] for column in sampled)),
                        states=states[start:stop][places],
                        logits=logits[places],
                        seconds=seconds,
                    )
                )
        return columns

    def _pieces(self, parts: Sequence[Part]) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows (first, last + 1) whose logits are computed together: not too many, and for a rule all
        of a row's draft."""
        most = max(1, LOGITS_AT_ONCE // self._engine.head.vocabulary)
        count = sum(part.wants for part in parts)
        ends = [count] if self._ruling is None else list(accumulate(part.wants for part in parts))
        start = 0
        while start < count:
            stop = max((end for end in ends if end <= start + most), default=0)
            if stop <= start:
                stop = min(start + most, count) if self._ruling is None else next(end for end in ends if end > start)
            yield start, stop
            start = stop

    def _rule(
        self, ruling: Ruling, requests: Sequence[int], logits: torch.Tensor, sampled: Said, steered: Steered | None
    ) -> None:
        """Replace each position's own draw by the rule's result."""
        assert self._drafting is not None, "a rule judges drafts"
        first, lengths = 0, {stream.index: len(stream.generated) for stream in self._schedule.going}
        for index, rows in groupby(requests):
            start, first = first, first + len(list(rows))
            if not sampled.finite[start:first].all():  # the answer ends here
                continue
            draft = self._drafting.offered(index, first - start - 1)
            steered_logits = None if steered is None else steered.logits[start:first]
            ruled = ruling.verify(index, (lengths[index],), draft, logits[start:first], steered_logits)
            self._ruled[index] = ruled
            count = len(ruled.tokens)
            sampled.tokens[start : start + count] = torch.tensor(ruled.tokens)
            sampled.logprobs[start : start + count] = torch.tensor(ruled.logprobs)
            sampled.margins[start : start + count] = 0.0  # there was no runner-up
        if steered is not None:
            sampled.tokens[steered.dead] = DEAD_END

    def _advance(
        self, stream: Stream, draft: Sequence[int], columns: _Columns, start: int
    ) -> tuple[int, Reason | None]:
        """Advance an answer by the agreed tokens and one more. Return how many tokens that is, and the reason if it
        ended."""
        rows = slice(start, start + (len(draft) if stream.forced else len(draft) + 1))
        ruled = self._ruled.pop(stream.index, None)
        if ruled is not None:
            rows = slice(start, start + len(ruled.tokens))
        outcome = advance(stream.request, stream.generated, draft, columns.tokens[rows], columns.finite[rows])
        if (
            ruled is not None and len(ruled.tokens) <= outcome.agreed
        ):  # its own token is not the draft's, even if the same
            outcome = replace(outcome, agreed=len(ruled.tokens) - 1)
        stream.proposed += len(draft)
        stream.accepted += outcome.agreed
        tally = self._engine.tally
        tally.tokens += len(outcome.tokens)
        tally.forked += bool(stream.forced) and outcome.agreed < len(draft) and outcome.reason is None
        drafting = self._drafting
        if drafting is not None and drafting.resting and len(outcome.tokens) == 1 and not stream.forced:
            drafting.untold.setdefault(stream.index, len(stream.generated))
        elif drafting is not None:
            overlaps = () if ruled is None else ruled.overlaps
            tally.rejoined += drafting.record(
                stream.index, len(stream.generated), len(draft), outcome.tokens, outcome.agreed, overlaps
            )
        self._schedule.extend(stream, outcome.tokens)
        return len(outcome.tokens), outcome.reason

    def _ended(self, stream: Stream, reason: Reason) -> Ended:
        """Return the event of a stream's end, and forget its drafts."""
        if self._drafting is not None:
            self._drafting.ended(stream.index, len(stream.generated))
        return Ended(
            request=stream.index,
            reason=reason,
            seconds=perf_counter() - self._started,
            proposed=stream.proposed,
            accepted=stream.accepted,
        )


def _steered(parts: Sequence[Part]) -> dict[int, tuple[Steering, list[int]]]:
    """Return, by request, the steering and the answer as far as this pass reads it."""
    texts = dict[int, tuple[Steering, list[int]]]()
    for part in parts:
        stream, steering = part.stream, part.stream.request.steering
        if steering is not None and part.wants:
            begins = len(stream.request.prompt)
            texts[stream.index] = (
                steering,
                [*stream.text[begins : part.first], *part.tokens[max(0, begins - part.first) :]],
            )
    return texts
