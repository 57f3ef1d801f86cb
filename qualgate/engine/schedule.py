"""Which rows the next pass has: from what was asked and what was said so far, without tensors.

A stream is one text: its prompt, then what it said or what it is given to read. Of that text `kept` positions stand in
its blocks, and logits are wanted from `wanted` on. Everything an engine does is that one rule: a prompt is read in
chunks, an answer is read behind it, a token that was said is the last of the text, a draft stands behind it, and a
stream that had to leave its blocks to others reads its text again. Requests join and leave at every pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qualgate.engine.blocks import BlockPool
from qualgate.engine.request import Request
from qualgate.speculation.propose import Asked
from qualgate_kernels.slots import SLOTS

NOTHING: Mapping[int, Sequence[int]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """rows: of a pass that reads, more than which it takes no further chunk, drafts not counted: nobody waits because
    others are drafted for; sequences: that go on side by side."""

    rows: int = 512
    sequences: int = 64


@dataclass(slots=True, eq=False)
class Stream:
    """A request on its way. text: token ids; forced: how many of them, from the end of the prompt, are given to read.

    kept: positions in its blocks; wanted: the first position whose logits nobody has seen
    """

    index: int
    request: Request
    text: list[int]
    said: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    kept: int = 0
    wanted: int = 0
    forced: int = 0
    proposed: int = 0
    accepted: int = 0

    @property
    def decodes(self) -> bool:
        """Whether its next row is a token of its own that it said."""
        return bool(self.said) and self.kept == len(self.text) - 1

    @property
    def room(self) -> int:
        """Tokens that a draft may have: the limit's last one is the model's own in any case."""
        return max(0, self.request.max_new_tokens - len(self.said) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Rows of one stream in a pass: `tokens` from position `first` on, the last `drafted` of them a draft; logits
    are wanted of the last `wants`."""

    stream: Stream
    first: int
    tokens: Sequence[int]
    wants: int
    drafted: int = 0

    @property
    def decodes(self) -> bool:
        """Whether it reads nothing but what was said or drafted."""
        return self.wants == len(self.tokens) and not self.stream.forced


class Schedule:
    """What was asked, in one of three places: waiting, going, ended."""

    def __init__(self, requests: Sequence[Request], pool: BlockPool, limits: Limits) -> None:
        """MemoryError for a request that all of the pool's blocks would not hold."""
        self.pool, self.limits = pool, limits
        self._waiting: deque[Stream] = deque(
            sorted(map(_begun, range(len(requests)), requests), key=lambda one: -_expected(one.request))
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
        """Whether nothing waits or goes on."""
        return not self._waiting and not self.going

    def abort(self, index: int) -> None:
        """End a request before the next pass. What is not there any more stays as it ended."""
        self._aborted.append(index)

    def taken_out(self) -> list[Stream]:
        """Those that were aborted: they hold no blocks any more, and are told nothing."""
        aborted = set[int]()
        while self._aborted:
            aborted.add(self._aborted.popleft())
        if not aborted:
            return []
        out = [one for one in (*self.going, *self._waiting) if one.index in aborted]
        for one in out:
            self._release(one)
        self.going = [one for one in self.going if one.index not in aborted]
        self._waiting = deque(one for one in self._waiting if one.index not in aborted)
        return out

    @property
    def decoding(self) -> list[Stream]:
        """Those that say a token in the next pass, or several where they are drafted."""
        return [one for one in self.going if one.decodes]

    @property
    def draftable(self) -> list[Asked]:
        """Those of them that have room for a draft."""
        return [
            Asked(one.index, one.request.prompt, one.said, one.room, round=(len(one.said),))
            for one in self.decoding
            if one.room
        ]

    def next(self, drafts: Mapping[int, Sequence[int]] = NOTHING) -> list[Part]:
        """The next pass's parts: every sequence that decodes, then chunks of what is to be read, up to the limit.

        Parts are in an order in which each may use blocks that an earlier one fills. drafts: of some that decode, by
        index, tokens that they may say next, cut to `Stream.room`
        """
        parts, rows, waited = [], 0, len(self._waiting)
        for one in self.decoding:
            if one not in self.going:  # it had to leave its blocks to one before it
                continue
            drafted = drafts.get(one.index, ())[: min(one.room, self._spare(one))]
            if self._room(one, len(one.text) + len(drafted)):
                parts.append(Part(one, one.kept, [one.text[-1], *drafted], 1 + len(drafted), len(drafted)))
                rows += 1
        for one in [one for one in self.going if not one.decodes]:
            if rows < self.limits.rows and one in self.going and (part := self._chunk(one, self.limits.rows - rows)):
                parts.append(part)
                rows += len(part.tokens)
        if len(self._waiting) > waited:  # who left its blocks does not come back at once
            return [part for part in parts if part.stream in self.going]
        while rows < self.limits.rows and (one := self._joins()) is not None:
            if part := self._chunk(one, self.limits.rows - rows):
                parts.append(part)
                rows += len(part.tokens)
        return parts

    def lend(self, index: int, positions: int) -> list[int] | None:
        """The blocks of one that decodes, for who drafts behind its text: as many as so many positions take, None where
        they would be taken from others."""
        one = next((one for one in self.going if one.index == index), None)
        if one is None:
            return None
        wanted = _blocks(positions) - len(one.blocks)
        if wanted > 0:
            if wanted > self.pool.free - len(self.going):
                return None
            one.blocks += [self.pool.take() for _ in range(wanted)]
        return one.blocks

    def copies(self) -> list[tuple[int, int]]:
        """(block, its copy) of all that must be copied before the pass that `next` told, each once."""
        told, self._copies = self._copies, []
        return told

    def passed(self, parts: Sequence[Part]) -> None:
        """The pass is over: what it read is kept. What became of drafts, `said` tells."""
        self.pool.filled()
        for part in parts:
            end = part.first + len(part.tokens) - part.drafted
            part.stream.kept = end
            part.stream.wanted = max(part.stream.wanted, end)

    def said(self, one: Stream, tokens: Sequence[int]) -> None:
        """`tokens`, one or more, were said: the first follows what was read last, the others were read as a draft."""
        one.said += tokens
        if one.forced:  # what it was given to read goes, and what it said stands there instead
            del one.text[len(one.request.prompt) :]
            one.text += one.said
            one.forced = 0
        else:
            one.text += tokens
        one.kept = one.wanted = len(one.text) - 1
        surplus = one.blocks[_blocks(len(one.text)) :]
        if surplus:
            self.pool.release(surplus)
            del one.blocks[len(one.blocks) - len(surplus) :]

    def end(self, one: Stream) -> None:
        """It needs no further row."""
        self.going.remove(one)
        self._release(one)

    def _joins(self) -> Stream | None:
        """The next that waits, once there is room for its text and for a block more of each that goes on."""
        if not self._waiting or len(self.going) >= self.limits.sequences:
            return None
        one = self._waiting[0]
        if self.going and self.pool.free < _blocks(len(one.text)) + len(self.going):
            return None
        self._waiting.popleft()
        one.blocks = self.pool.shared(one.text[: one.wanted], most=one.wanted // SLOTS)
        one.kept = len(one.blocks) * SLOTS
        block, same = self.pool.alike(one.blocks, one.text[: one.wanted])
        if same and self.pool.free:
            one.blocks.append(self.pool.take())
            one.kept += same
            self._copies.append((block, one.blocks[-1]))
        self.going.append(one)
        return one

    def _chunk(self, one: Stream, most: int) -> Part | None:
        tokens = one.text[one.kept : one.kept + most]
        end = one.kept + len(tokens)
        if not self._room(one, end):
            return None
        prompt = one.request.prompt
        self.pool.know(one.blocks, prompt[: min(end, len(prompt))])
        return Part(one, one.kept, tokens, max(0, end - max(one.wanted, one.kept)))

    def _room(self, one: Stream, positions: int) -> bool:
        """Blocks for so many positions of a sequence; the youngest of the others leave theirs if there are no more."""
        while len(one.blocks) < _blocks(positions):
            if self.pool.free:
                one.blocks.append(self.pool.take())
                continue
            youngest = self.going[-1]
            self.going.pop()
            self._release(youngest)
            self._waiting.appendleft(youngest)
            if youngest is one:
                return False
        return True

    def _spare(self, one: Stream) -> int:
        """Tokens of a draft behind its text that take no block which another might need in this pass."""
        free = max(0, self.pool.free - len(self.going))
        return max(0, (len(one.blocks) + free) * SLOTS - len(one.text))

    def _release(self, one: Stream) -> None:
        self.pool.release(one.blocks)
        one.blocks, one.kept = [], 0


def blocks_for(requests: Sequence[Request], limits: Limits) -> int:
    """How many hold as many of the largest requests as may go on side by side, and a block more of each."""
    sizes = sorted((_blocks(request.longest) + 1 for request in requests), reverse=True)
    return sum(sizes[: limits.sequences])


def _begun(index: int, request: Request) -> Stream:
    text, known = [*request.prompt, *request.begun, *request.answer[:-1]], len(request.prompt) + len(request.begun)
    return Stream(index, request, text, said=list(request.begun), wanted=known - 1, forced=len(request.answer))


def _expected(request: Request) -> int:
    return len(request.prompt) + (request.expected or len(request.answer) or request.max_new_tokens)


def _blocks(positions: int) -> int:
    return -(-positions // SLOTS)
