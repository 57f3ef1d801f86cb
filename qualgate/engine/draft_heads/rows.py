"""Rows for a draft head: the states that its target handed over, and the places up to which it has read them.

A pair is a state with the token behind it. The states of a text's first positions may be missing, where its target
found them in blocks that it shares. A head then begins behind blocks of its own, as far as these hold the same pairs,
and goes on with the first state that it has: what lies between, its layer never sees. That costs acceptance alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch

from qualgate.engine.blocks import BlockPool
from qualgate_kernels.slots import SLOTS

HELD = 512  # states of a row that wait to be read


@dataclass(slots=True, eq=False)
class Row:
    """kept: pairs that stand in `blocks`; next: place in the text of the pair behind them; states: from there on, each
    piece with its first. text: prompt and answer; said: what is drafted now, from `first` of the answer on; state: of
    the last of it; round: see `Asked`; drawn_from: of what is drafted, see `Draft`, a row each."""

    index: int
    prompt: Sequence[int]
    kept: int = 0
    next: int = 0
    blocks: list[int] = field(default_factory=list)
    states: list[tuple[int, torch.Tensor]] = field(default_factory=list)
    text: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)
    state: torch.Tensor | None = None
    first: int = 0
    most: int = 0
    round: tuple[int, ...] = ()
    drawn_from: list[torch.Tensor] = field(default_factory=list)
    over: bool = False

    @property
    def whole(self) -> bool:
        """Whether no pair before the next is left out."""
        return self.next == self.kept

    @property
    def end(self) -> int:
        """The first position whose state nobody handed over."""
        return self.states[-1][0] + len(self.states[-1][1]) if self.states else self.next

    @property
    def left(self) -> int:
        """Tokens that it may still draft."""
        return 0 if self.over else self.most - len(self.said)

    @property
    def pending(self) -> int:
        """Pairs to be read before it drafts."""
        return len(self.text) - 1 - self.next

    def add(self, first: int, states: torch.Tensor) -> bool:
        """States from position `first` on, in the place of what was there from it on; whether they go on from those
        that it has."""
        if first > self.end:
            return False
        if first < self.next:
            first, states = self.next, states[self.next - first :]
        while self.states and self.states[-1][0] >= first:
            self.states.pop()
        if self.states:
            begins, last = self.states[-1]
            self.states[-1] = begins, last[: first - begins]
        if len(states):
            self.states.append((first, states))
        return True

    def take(self, pairs: int) -> torch.Tensor:
        """States of the next pairs, float32 [pairs, width], which then count as read."""
        joined = torch.cat([states for _, states in self.states])
        self.kept, self.next = self.kept + pairs, self.next + pairs
        self.states = [(self.next, joined[pairs:])] if len(joined) > pairs else []
        return joined[:pairs]


def pairs_of(prompt: Sequence[int]) -> list[int]:
    """A number for each token of a prompt with the one behind it: of blocks of pairs what tokens are of others."""
    return [one << 32 | other for one, other in pairwise(prompt)]


def begun(index: int, prompt: Sequence[int], first: int, pool: BlockPool) -> Row:
    """A row whose states are handed over from position `first` on."""
    row = Row(index, prompt, next=first)
    adopt(row, pool)
    return row


def adopt(row: Row, pool: BlockPool) -> None:
    """Begin behind the known blocks that hold the first pairs of its prompt, where it holds none."""
    if row.kept:
        return
    pairs = pairs_of(row.prompt)
    row.blocks = pool.shared(pairs, most=len(pairs) // SLOTS)
    row.kept = len(row.blocks) * SLOTS
    waiting, row.states, row.next = row.states, [], max(row.next, row.kept)
    for first, states in waiting:
        row.add(first, states)
