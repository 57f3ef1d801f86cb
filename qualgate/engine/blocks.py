"""Assign positions of sequences to blocks. Only numbers here; the tensors belong to attention.

A block holds SLOTS positions of every layer. A block full of prompt tokens is indexed by them and by all tokens before
them, so that a prompt with the same beginning finds it (T19: hash-chained blocks); if only the first tokens agree, that
part can be copied. Unused blocks stay indexed until they are needed, least recently used first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile
from operator import eq

from qualgate_kernels.slots import SLOTS

ROOT = 0  # what stands before a sequence's first block
LOOKED_AT = 64  # candidates compared behind the same text


class BlockPool:
    """A pool of `count` blocks with reference counts."""

    def __init__(self, count: int) -> None:
        """Create `count` empty blocks."""
        self.count = count
        self._empty = list(range(count - 1, -1, -1))
        self._idle: dict[int, None] = {}  # known, without a user: the longest unused first
        self._users = [0] * count
        self._known: dict[int, dict[tuple[int, ...], int]] = {}  # serial of the block before → tokens → block
        self._unread = set[int]()  # known in this pass, which is to fill them
        self._names: dict[int, tuple[tuple[int, tuple[int, ...]], int]] = {}  # block → its name, its own serial
        self._serials = ROOT

    @property
    def free(self) -> int:
        """Number of blocks that `take` can give."""
        return len(self._empty) + len(self._idle)

    @property
    def used(self) -> int:
        """Number of blocks in use."""
        return self.count - self.free

    def take(self) -> int:
        """Return an exclusive block. IndexError when none is free."""
        if self._empty:
            block = self._empty.pop()
        elif self._idle:
            block = next(iter(self._idle))
            del self._idle[block]
            self._forget(block)
        else:
            raise IndexError("no block is free")
        self._users[block] = 1
        return block

    def release(self, blocks: Sequence[int]) -> None:
        """Give blocks back, once for every `take` or `shared` that returned them."""
        for block in reversed(blocks):  # a chain's end goes before its beginning, which more prompts share
            self._users[block] -= 1
            if self._users[block] == 0:
                if block in self._names:
                    self._idle[block] = None
                else:
                    self._empty.append(block)
            elif self._users[block] < 0:
                raise ValueError(f"block {block} was given back twice")

    def shared(self, tokens: Sequence[int], most: int) -> list[int]:
        """Return the blocks of the longest indexed prefix of `tokens`, at most `most`, with one more user each."""
        chain, before = [], ROOT
        for start in range(0, min(len(tokens) // SLOTS, most) * SLOTS, SLOTS):
            block = self._known.get(before, {}).get(tuple(tokens[start : start + SLOTS]))
            if block is None:
                break
            self._idle.pop(block, None)
            self._users[block] += 1
            before = self._names[block][1]
            chain.append(block)
        return chain

    def alike(self, blocks: Sequence[int], tokens: Sequence[int]) -> tuple[int, int]:
        """Return (block, number of matching tokens) for the filled block behind `blocks` (the result of `shared` for
        `tokens`) that matches the next tokens longest; (0, 0) without a match."""
        before = self._names[blocks[-1]][1] if blocks else ROOT
        next_tokens, best = tokens[len(blocks) * SLOTS : (len(blocks) + 1) * SLOTS], (0, 0)
        for known_tokens, block in islice(reversed(self._known.get(before, {}).items()), LOOKED_AT):
            matching = len(list(takewhile(bool, map(eq, known_tokens, next_tokens))))
            if matching > best[1] and block not in self._unread:
                best = block, matching
        return best

    def filled(self) -> None:
        """Mark the blocks of the finished pass as filled."""
        self._unread.clear()

    def know(self, blocks: Sequence[int], tokens: Sequence[int]) -> None:
        """Index the full blocks that hold `tokens` from a sequence's beginning on. They must not be written to any
        more."""
        before = ROOT
        for index, start in enumerate(range(0, len(tokens) // SLOTS * SLOTS, SLOTS)):
            name = before, tuple(tokens[start : start + SLOTS])
            block = self._known.get(before, {}).get(name[1])
            if block is None:
                block = blocks[index]
                if block in self._names:  # known by another chain of the same tokens
                    return
                self._serials += 1
                self._known.setdefault(before, {})[name[1]] = block
                self._names[block] = name, self._serials
                self._unread.add(block)
            before = self._names[block][1]

    def _forget(self, block: int) -> None:
        (before, tokens), _ = self._names.pop(block)
        del self._known[before][tokens]
        if not self._known[before]:
            del self._known[before]
