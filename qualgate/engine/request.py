"""Requests and events of an engine: its whole interface to the layers above."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import torch

    from qualgate.engine.head import OutputHead
    from qualgate.engine.sampling import Draws, Said
    from qualgate.engine.speculation.steps import Drafts
    from qualgate.engine.steering import Steering
    from qualgate.records import Overflow

Reason = Literal["eos", "stop", "length", "abort", "broken", "dead_end"]
"""What ends a request: its end token, a text, its limit, `abort`; "broken": logits that are NaN or infinite;
"dead_end": behind what it said its constraint admits no token of the vocabulary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Tokens to read, and an answer to give.

    prompt: token ids, one or more; answer: given token ids behind it, at each of which the engine reports the model's
    own token. max_new_tokens: 0 reads only; else the model answers, and `answer` is a draft. begun: tokens of the
    answer that exist already and are not reported again. stop_ids: tokens that end the answer; stops: whether the
    generated tokens contain a stop text. expected: likely length of the answer, 0 if unknown. steering: changes to its
    logits, for one run.
    """

    prompt: tuple[int, ...]
    max_new_tokens: int = 0
    answer: tuple[int, ...] = ()
    begun: tuple[int, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    stops: Callable[[Sequence[int]], bool] | None = None
    expected: int = 0
    steering: Steering | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.prompt:
            raise ValueError("prompt: expected a token or more")
        if self.max_new_tokens < 0 or not (self.max_new_tokens or self.answer):
            raise ValueError("max_new_tokens: expected 1 or more, or an answer to read")
        if self.begun and (self.answer or len(self.begun) >= self.max_new_tokens):
            raise ValueError("begun: expected no answer beside it, and a token that is still to be said")

    @property
    def longest(self) -> int:
        """Positions that it may read at most."""
        return len(self.prompt) + max(self.max_new_tokens, len(self.answer)) - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spoken:
    """Tokens generated in one pass, one entry per token; those of one request arrive in order.

    requests: index of each; positions: in its answer, from 0; logprobs: nats; margins: see `Said`; states: input of the
    output head, [n, width] (see `OutputHead.whole`), or None if some tokens come from a given answer, whose states
    `Read` reported; seconds: since the start of the run
    """

    requests: Sequence[int]
    positions: Sequence[int]
    tokens: Sequence[int]
    logprobs: Sequence[float]
    margins: Sequence[float]
    states: torch.Tensor | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Read:
    """Positions of given answers, with the fields of `Spoken`; `predicted` is what the model generates there.

    answer: int64 [n], the given tokens; logits: float32 [n, vocabulary]
    """

    requests: Sequence[int]
    positions: Sequence[int]
    answer: torch.Tensor
    predicted: Said
    states: torch.Tensor
    logits: torch.Tensor
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The last event of a request. proposed, accepted: draft tokens, those of `Request.answer` included."""

    request: int
    reason: Reason
    seconds: float
    proposed: int = 0
    accepted: int = 0


Event = Spoken | Read | Ended


@dataclass(slots=True)
class Tally:
    """Counts of an engine so far. passes: forward passes; tokens: generated; forked: requests that left the answer they
    were offered; rejoined: those that came back to a known one; parted: passes that were split for want of memory."""

    passes: int = 0
    tokens: int = 0
    forked: int = 0
    rejoined: int = 0
    parted: int = 0


class Engine(Protocol):
    """An engine that answers requests, in packed or padded passes."""

    name: str
    head: OutputHead
    tally: Tally

    @property
    def overflow(self) -> tuple[Overflow, ...]:
        """Values so far beyond the range of the server's dtype, by module."""
        ...

    def run(
        self,
        requests: Sequence[Request],
        drafts: Drafts | None,
        on_event: Callable[[Event], None],
        draws: Draws | None = None,
    ) -> None:
        """Answer all requests, in whatever order is fastest; each gets one `Ended`. drafts: drafts for the answers;
        draws: None decodes greedily."""
        ...

    def abort(self, request: int) -> None:
        """End a request of the current run, from `on_event` or another thread."""
        ...
