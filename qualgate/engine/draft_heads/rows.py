"""Rows for a draft head: the states from its target, and how far they were read.

A pair is a state with the token behind it. The states of a text's first positions may be missing, if its target shared
blocks for them. A head then starts from its own blocks for the same pairs, as far as there are any, and continues with
the first state that it has; its layer never sees what lies between. That only costs acceptance.
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
    """A row of a draft head. cached: pairs in `blocks`; next: place in the text of the pair behind them; states: from
    there on, each piece with its first position. text: prompt and answer; drafted: the current draft, from position
    `first` of the answer on; state: of its last token; round: see `DraftRequest`; drawn_from: see `Draft`, one row per
    token."""

    index: int
    prompt: Sequence[int]
    cached: int = 0
    next: int = 0
    blocks: list[int] = field(default_factory=list)
    states: list[tuple[int, torch.Tensor]] = field(default_factory=list)
    text: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    state: torch.Tensor | None = None
    first: int = 0
    most: int = 0
    round: tuple[int, ...] = ()
    drawn_from: list[torch.Tensor] = field(default_factory=list)
    over: bool = False

    @property
    def whole(self) -> bool:
        """Whether no pair before the next is missing."""
        return self.next == self.cached

    @property
    def end(self) -> int:
        """The first position without a state."""
        return self.states[-1][0] + len(self.states[-1][1]) if self.states else self.next

    @property
    def left(self) -> int:
        """Tokens that it may still draft."""
        return 0 if self.over else self.most - len(self.drafted)

    @property
    def pending(self) -> int:
        """Pairs to read before it drafts."""
        return len(self.text) - 1 - self.next

    def add(self, first: int, states: torch.Tensor) -> bool:
        """Add states from position `first` on, replacing later ones; return whether they continue those that it has."""
        if first > self.end:
            return False
        if first < self.next:
            first, states = self.next, states[self.next - first :]
        while self.states and self.states[-1][0] >= first:
            self.states.pop()
        if self.states:
            begins, previous = self.states[-1]
            self.states[-1] = begins, previous[: first - begins]
        if len(states):
            self.states.append((first, states))
        return True

    def take(self, pairs: int) -> torch.Tensor:
        """Return the states of the next pairs, float32 [pairs, width], which then count as read."""
        joined = torch.cat([states for _, states in self.states])
        self.cached, self.next = self.cached + pairs, self.next + pairs
        self.states = [(self.next, joined[pairs:])] if len(joined) > pairs else []
        return joined[:pairs]


def pairs_of(prompt: Sequence[int]) -> list[int]:
    """Return a number for each token of a prompt together with the next: pairs are indexed in blocks by these."""
    return [token << 32 | following for token, following in pairwise(prompt)]


def begun(index: int, prompt: Sequence[int], first: int, pool: BlockPool) -> Row:
    """Return a new row whose states arrive from position `first` on, with the blocks that its prompt shares."""
    row = Row(index, prompt, next=first)
    adopt(row, pool)
    return row


def adopt(row: Row, pool: BlockPool) -> None:
    """Reuse indexed blocks for the first pairs of the row's prompt. A row with cached pairs stays as it is.

    States that the blocks already cover are dropped.
    """
    if row.cached:
        return
    pairs = pairs_of(row.prompt)
    row.blocks = pool.shared(pairs, most=len(pairs) // SLOTS)
    row.cached = len(row.blocks) * SLOTS
    waiting, row.states, row.next = row.states, [], max(row.next, row.cached)
    for first, states in waiting:
        row.add(first, states)
