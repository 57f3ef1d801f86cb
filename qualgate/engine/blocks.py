"""Which block holds which positions of which sequence: numbers alone, the tensors are the attention's.

A block holds SLOTS positions of every layer. One full of a prompt's tokens is known by them and by what stands before
them, exactly, so that a prompt that begins alike finds it (T19: hash-chained blocks); one that agrees with only the
first of its tokens finds what it may copy. Blocks nobody uses any longer stay known until they are needed, the longest
unused first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile
from operator import eq

from qualgate_kernels.slots import SLOTS

ROOT = 0  # what stands before a sequence's first block
LOOKED_AT = 64  # blocks behind the same text, of which the one that agrees longest is looked for


class BlockPool:
    """`count` blocks with reference counts."""

    def __init__(self, count: int) -> None:
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
        """Blocks that `take` can give."""
        return len(self._empty) + len(self._idle)

    @property
    def used(self) -> int:
        """Blocks that a sequence holds."""
        return self.count - self.free

    def take(self) -> int:
        """A block of one's own. IndexError when none is free."""
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
        """Give blocks back, each once for every `take` or `shared` that gave it."""
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
        """The blocks of the longest known beginning of `tokens`, at most `most`, now used once more."""
        found, before = [], ROOT
        for start in range(0, min(len(tokens) // SLOTS, most) * SLOTS, SLOTS):
            block = self._known.get(before, {}).get(tuple(tokens[start : start + SLOTS]))
            if block is None:
                break
            self._idle.pop(block, None)
            self._users[block] += 1
            before = self._names[block][1]
            found.append(block)
        return found

    def alike(self, blocks: Sequence[int], tokens: Sequence[int]) -> tuple[int, int]:
        """The filled block behind `blocks`, all that `shared` gave for `tokens`, that agrees with the next of these
        longest: (block, how many of its first tokens agree); (0, 0) where none does."""
        before = self._names[blocks[-1]][1] if blocks else ROOT
        wanted, found = tokens[len(blocks) * SLOTS : (len(blocks) + 1) * SLOTS], (0, 0)
        for there, block in islice(reversed(self._known.get(before, {}).items()), LOOKED_AT):
            same = len(list(takewhile(bool, map(eq, there, wanted))))
            if same > found[1] and block not in self._unread:
                found = block, same
        return found

    def filled(self) -> None:
        """The pass is over."""
        self._unread.clear()

    def know(self, blocks: Sequence[int], tokens: Sequence[int]) -> None:
        """Name the blocks that hold `tokens` from a sequence's beginning on; a block that is not full stays unnamed.
        They must not be written to any more.
        """
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
