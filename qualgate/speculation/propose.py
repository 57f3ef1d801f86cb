"""Who drafts: the one face of all proposers, whatever they know or run.

The target verifies a draft, so a wrong one costs time and never a token. What was said is told whole each time and is
all there is to tell: a proposer that keeps more (keys and values, a grammar's state) compares its own text with it, so
what agrees is committed and what does not is rewound, at every level of a cascade alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens that may come next, and where they are from; kind "" is no draft.

    kind: "baseline", "sibling", "own" (see `known`), or a proposer's name. matched: how many of the last tokens said
    stand before them there, at most 8; 8 too where all that was said stands there from the beginning, or a model says
    them. Acceptance is learned by kind and by this. drawn_from: float64 [tokens, vocabulary], the distributions that
    the tokens were drawn from; None: they were not drawn, each is all that was considered (one-hot). margins: of each
    token its lead over the runner-up, in logits (and noise, where it was drawn by the target's); none: not told.
    """

    tokens: tuple[int, ...]
    kind: str
    matched: int = 0
    drawn_from: torch.Tensor | None = field(default=None, compare=False)
    margins: tuple[float, ...] = field(default=(), compare=False)

    def cut(self, most: int) -> Draft:
        """Its first `most` tokens; no draft where none is left."""
        if most >= len(self.tokens):
            return self
        if most <= 0:
            return NO_DRAFT
        rows = None if self.drawn_from is None else self.drawn_from[:most]
        return replace(self, tokens=self.tokens[:most], drawn_from=rows, margins=self.margins[:most])


NO_DRAFT = Draft((), "")


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """A request for one row's draft. row: index of its request; prompt, generated: all token ids so far; most: tokens
    that the draft may have, one or more; round: a number unique to this request of the row, at whatever level."""

    row: int
    prompt: Sequence[int]
    generated: Sequence[int]
    most: int
    round: tuple[int, ...] = ()


class Proposer(Protocol):
    """Whoever drafts for the rows of a run. name: for people; runs_model: its tokens cost passes, so that it is asked
    for no more than pay; else it tells all it has; broken: drafts that ended with logits that are no numbers."""

    name: str
    runs_model: bool
    broken: int

    def propose(self, asked: Sequence[DraftRequest]) -> list[Draft]:
        """One draft for each, all of them made together."""
        ...

    def ended(self, row: int) -> None:
        """A row says nothing more: what is kept of it may go."""
        ...


@runtime_checkable
class Stepwise(Protocol):
    """A proposer that makes its drafts step by step, and can be told after each who drafts on. tells: whether it says
    how surely it drew its tokens; reads: whether it reads a text before its first draft; course: a `lengths.Lengths`;
    None: each row drafts as far as it is asked for."""

    tells: bool
    reads: bool
    course: Any


class Reader(Protocol):
    """Who drafts by what its target computes: it is handed the states of all that the target reads."""

    def read(self, row: int, prompt: Sequence[int], first: int, states: torch.Tensor) -> None:
        """Of a row, from position `first` of its text on: what entered the target's output head, float32 [rows, width],
        or what it left behind some of its layers, side by side.
        The last of them may be of a draft that is not accepted: what is read next begins where the text goes on."""
        ...
