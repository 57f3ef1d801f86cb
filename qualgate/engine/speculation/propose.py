"""The interface of all proposers, whatever they know or run.

The target verifies a draft, so a wrong one costs time and never a token. Each request carries the whole text: a
proposer with state (keys and values, a grammar) compares it with its own text, commits what agrees and rewinds the
rest, at every level of a cascade alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens that may come next, and their source; kind "" is no draft.

    kind: "baseline", "sibling", "own" (see `known`), or a proposer's name. matched: how many of the last generated
    tokens precede them there, at most 8; 8 too if all of them match from the beginning, or for a model's tokens.
    Acceptance is learned by kind and by this. drawn_from: float64 [tokens, vocabulary], the distributions of the
    tokens; None: not drawn, each is the only candidate (one-hot). margins: of each token its lead over the runner-up,
    in logits (and noise, if it was drawn by the target's); (): unknown.
    """

    tokens: tuple[int, ...]
    kind: str
    matched: int = 0
    drawn_from: torch.Tensor | None = field(default=None, compare=False)
    margins: tuple[float, ...] = field(default=(), compare=False)

    def cut(self, most: int) -> Draft:
        """Return the first `most` tokens; no draft if none is left."""
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
    """A proposer for the rows of a run. name: for people; runs_model: its tokens cost passes, so only as many as pay
    are requested; else it returns all it has; broken: drafts that ended with logits that are not finite."""

    name: str
    runs_model: bool
    broken: int

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Return one draft per request, all made together."""
        ...

    def ended(self, row: int) -> None:
        """Forget a row that has ended."""
        ...


@runtime_checkable
class Stepwise(Protocol):
    """A proposer that drafts step by step, and can be told after each step which rows go on. tells: whether it reports
    margins; reads: whether it reads a text before its first draft; course: a `lengths.Lengths`; None: each row drafts
    to its limit."""

    tells: bool
    reads: bool
    course: Any


class Reader(Protocol):
    """A proposer that uses its target's states, which it receives for everything that the target reads."""

    def read(self, row: int, prompt: Sequence[int], first: int, states: torch.Tensor) -> None:
        """Receive a row's states from position `first` of its text on: inputs of the target's output head, float32
        [rows, width], or outputs of some of its layers, side by side. The last ones may belong to a rejected draft: the
        next call begins where the text goes on."""
        ...
