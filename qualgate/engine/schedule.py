"""Choose the rows of the next pass, from requests and generated tokens, without tensors.

A stream is one text: its prompt, then its generated or given answer. `cached` positions of it stand in its blocks, and
logits are wanted from `wanted` on. One rule covers everything: a prompt is read in chunks, a given answer behind it, a
generated token is the last of the text, a draft stands behind it, and a stream that gave up its blocks reads its text
again. Requests join and leave at every pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qualgate.engine.blocks import BlockPool
from qualgate.engine.request import Request
from qualgate.engine.speculation.propose import DraftRequest
from qualgate_kernels.slots import SLOTS

NOTHING: Mapping[int, Sequence[int]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """rows: of a pass, drafts not counted: beyond it no further chunk is read, so nobody waits for others' drafts;
    sequences: that run side by side."""

    rows: int = 512
    sequences: int = 64


@dataclass(slots=True, eq=False)
class Stream:
    """A request in progress. text: token ids; forced: how many of them, from the end of the prompt, are a given answer.

    cached: positions in its blocks; wanted: the first position whose logits are still needed
    """

    index: int
    request: Request
    text: list[int]
    generated: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    cached: int = 0
    wanted: int = 0
    forced: int = 0
    proposed: int = 0
    accepted: int = 0

    @property
    def decodes(self) -> bool:
        """Whether its next row is a token that it generated."""
        return bool(self.generated) and self.cached == len(self.text) - 1

    @property
    def room(self) -> int:
        """Tokens that a draft may have: the last token before the limit is always the model's own."""
        return max(0, self.request.max_new_tokens - len(self.generated) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Rows of one stream in a pass: `tokens` from position `first` on, the last `drafted` of them a draft; logits are
    wanted for the last `wants`."""

    stream: Stream
    first: int
    tokens: Sequence[int]
    wants: int
    drafted: int = 0

    @property
    def decodes(self) -> bool:
        """Whether it reads only generated or drafted tokens."""
        return self.wants == len(self.tokens) and not self.stream.forced


class Schedule:
    """The requests of a run, waiting or running."""

    def __init__(self, requests: Sequence[Request], pool: BlockPool, limits: Limits) -> None:
        """Raise MemoryError for a request that does not fit into all of the pool's blocks."""
        self.pool, self.limits = pool, limits
        self._waiting: deque[Stream] = deque(
            sorted(map(_begun, range(len(requests)), requests), key=lambda stream: -_expected(stream.request))
        )
        self.going: list[Stream] = []
        self._aborted: deque[int] = deque()  # another thread may fill it
        self._copies: list[tuple[int, int]] = []
        for request in requests:
            if _blocks(request.longest) > pool.count:
                raise MemoryError(
                    f"a request of {request.longest} tokens takes {_blocks(request.longest)} blocks of keys and "
                    f"values, and {pool.count} fit into memory"
                )

    @property
    def done(self) -> bool:
        """Whether nothing waits or runs."""
        return not self._waiting and not self.going

    def abort(self, index: int) -> None:
        """End a request before the next pass. Ended ones stay as they are."""
        self._aborted.append(index)

    def taken_out(self) -> list[Stream]:
        """Remove and return the aborted streams; their blocks are free."""
        aborted = set[int]()
        while self._aborted:
            aborted.add(self._aborted.popleft())
        if not aborted:
            return []
        removed = [stream for stream in (*self.going, *self._waiting) if stream.index in aborted]
        for stream in removed:
            self._release(stream)
        self.going = [stream for stream in self.going if stream.index not in aborted]
        self._waiting = deque(stream for stream in self._waiting if stream.index not in aborted)
        return removed

    @property
    def decoding(self) -> list[Stream]:
        """Streams that generate in the next pass: one token, or several with a draft."""
        return [stream for stream in self.going if stream.decodes]

    @property
    def draftable(self) -> list[DraftRequest]:
        """Draft requests for those of them that have room for a draft."""
        return [
            DraftRequest(
                stream.index, stream.request.prompt, stream.generated, stream.room, round=(len(stream.generated),)
            )
            for stream in self.decoding
            if stream.room
        ]

    def next(self, drafts: Mapping[int, Sequence[int]] = NOTHING) -> list[Part]:
        """Return the parts of the next pass: every sequence that decodes, then chunks to read, up to the limit.

        Parts are ordered so that each may use blocks filled by an earlier one. drafts: by index, tokens that may come
        next, cut to `Stream.room`
        """
        parts, rows, waited = [], 0, len(self._waiting)
        for stream in self.decoding:
            if stream not in self.going:  # it had to leave its blocks to one before it
                continue
            drafted = drafts.get(stream.index, ())[: min(stream.room, self._spare(stream))]
            if self._room(stream, len(stream.text) + len(drafted)):
                parts.append(Part(stream, stream.cached, [stream.text[-1], *drafted], 1 + len(drafted), len(drafted)))
                rows += 1
        for stream in [stream for stream in self.going if not stream.decodes]:
            if (
                rows < self.limits.rows
                and stream in self.going
                and (part := self._chunk(stream, self.limits.rows - rows))
            ):
                parts.append(part)
                rows += len(part.tokens)
        if len(self._waiting) > waited:  # who left its blocks does not come back at once
            return [part for part in parts if part.stream in self.going]
        while rows < self.limits.rows and (stream := self._joins()) is not None:
            if part := self._chunk(stream, self.limits.rows - rows):
                parts.append(part)
                rows += len(part.tokens)
        return parts

    def lend(self, index: int, positions: int) -> list[int] | None:
        """Return a decoding stream's blocks, enough for so many positions, to whoever drafts behind its text; None if
        others would lose blocks."""
        stream = next((stream for stream in self.going if stream.index == index), None)
        if stream is None:
            return None
        needed = _blocks(positions) - len(stream.blocks)
        if needed > 0:
            if needed > self.pool.free - len(self.going):
                return None
            stream.blocks += [self.pool.take() for _ in range(needed)]
        return stream.blocks

    def copies(self) -> list[tuple[int, int]]:
        """Return (block, its copy) for all copies needed before the pass of the last `next`, each once."""
        copies, self._copies = self._copies, []
        return copies

    def passed(self, parts: Sequence[Part]) -> None:
        """Finish a pass: what it read is cached. `extend` handles the drafts."""
        self.pool.filled()
        for part in parts:
            end = part.first + len(part.tokens) - part.drafted
            part.stream.cached = end
            part.stream.wanted = max(part.stream.wanted, end)

    def extend(self, stream: Stream, tokens: Sequence[int]) -> None:
        """Append `tokens`, one or more: the first follows what was read last, the others were read as a draft."""
        stream.generated += tokens
        if stream.forced:  # what it was given to read goes, and what it said stands there instead
            del stream.text[len(stream.request.prompt) :]
            stream.text += stream.generated
            stream.forced = 0
        else:
            stream.text += tokens
        stream.cached = stream.wanted = len(stream.text) - 1
        surplus = stream.blocks[_blocks(len(stream.text)) :]
        if surplus:
            self.pool.release(surplus)
            del stream.blocks[len(stream.blocks) - len(surplus) :]

    def end(self, stream: Stream) -> None:
        """End a stream that needs no further row."""
        self.going.remove(stream)
        self._release(stream)

    def _joins(self) -> Stream | None:
        """Return the next waiting stream, if there is room for its text and one more block for each running one."""
        if not self._waiting or len(self.going) >= self.limits.sequences:
            return None
        stream = self._waiting[0]
        if self.going and self.pool.free < _blocks(len(stream.text)) + len(self.going):
            return None
        self._waiting.popleft()
        stream.blocks = self.pool.shared(stream.text[: stream.wanted], most=stream.wanted // SLOTS)
        stream.cached = len(stream.blocks) * SLOTS
        block, matching = self.pool.alike(stream.blocks, stream.text[: stream.wanted])
        if matching and self.pool.free:
            stream.blocks.append(self.pool.take())
            stream.cached += matching
            self._copies.append((block, stream.blocks[-1]))
        self.going.append(stream)
        return stream

    def _chunk(self, stream: Stream, most: int) -> Part | None:
        """Return the next chunk of a text, at most `most` tokens; None if there are no blocks for it."""
        tokens = stream.text[stream.cached : stream.cached + most]
        end = stream.cached + len(tokens)
        if not self._room(stream, end):
            return None
        prompt = stream.request.prompt
        self.pool.know(stream.blocks, prompt[: min(end, len(prompt))])
        return Part(stream, stream.cached, tokens, max(0, end - max(stream.wanted, stream.cached)))

    def _room(self, stream: Stream, positions: int) -> bool:
        """Return whether there are blocks for so many positions, once the youngest other streams lost theirs if
        needed."""
        while len(stream.blocks) < _blocks(positions):
            if self.pool.free:
                stream.blocks.append(self.pool.take())
                continue
            youngest = self.going[-1]
            self.going.pop()
            self._release(youngest)
            self._waiting.appendleft(youngest)
            if youngest is stream:
                return False
        return True

    def _spare(self, stream: Stream) -> int:
        """How many draft tokens fit behind its text without a block that another stream might need in this pass."""
        free = max(0, self.pool.free - len(self.going))
        return max(0, (len(stream.blocks) + free) * SLOTS - len(stream.text))

    def _release(self, stream: Stream) -> None:
        self.pool.release(stream.blocks)
        stream.blocks, stream.cached = [], 0


def blocks_for(requests: Sequence[Request], limits: Limits) -> int:
    """Return the blocks for as many of the largest requests as may run side by side, and one more each."""
    sizes = sorted((_blocks(request.longest) + 1 for request in requests), reverse=True)
    return sum(sizes[: limits.sequences])


def _begun(index: int, request: Request) -> Stream:
    """Return the stream of a request that has not run yet. The last token of a given answer is never read."""
    text, given_count = (
        [*request.prompt, *request.begun, *request.answer[:-1]],
        len(request.prompt) + len(request.begun),
    )
    return Stream(
        index, request, text, generated=list(request.begun), wanted=given_count - 1, forced=len(request.answer)
    )


def _expected(request: Request) -> int:
    return len(request.prompt) + (request.expected or len(request.answer) or request.max_new_tokens)


def _blocks(positions: int) -> int:
    return -(-positions // SLOTS)
