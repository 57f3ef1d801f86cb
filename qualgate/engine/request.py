"""An engine's requests and events: all that those above it see of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import torch

    from qualgate.engine.head import OutputHead
    from qualgate.engine.sampling import Draws, Said
    from qualgate.engine.steering import Steering
    from qualgate.records import Overflow
    from qualgate.speculation.steps import Drafts

Reason = Literal["eos", "stop", "length", "abort", "broken", "dead_end"]
"""What ends a request: its end token, a text, its limit, `abort`; "broken": logits that are NaN or infinite;
"dead_end": behind what it said its constraint admits no token of the vocabulary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Tokens to read, and an answer to give.

    prompt: token ids, one or more; answer: token ids read behind it, at each of which the engine tells what the model
    would have said there. max_new_tokens: 0 reads only; else the model answers, and `answer` is a draft of what it may
    say. begun: tokens of the answer that are said already, and are not told again. stop_ids: tokens that end the
    answer; stops: of the tokens said so far, whether a text that ends it was said. expected: tokens that the answer
    may have, as far as one knows; 0: unknown. steering: what is done to its logits in one run, none other's.
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
        """Positions that it may come to read."""
        return len(self.prompt) + max(self.max_new_tokens, len(self.answer)) - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spoken:
    """Tokens that rows of one pass said, one entry a token; of one request they come in order.

    requests: index of each in what was asked; positions: in its answer, from 0; logprobs: nats; margins: see `Said`;
    states: what entered the output head, [n, width] (see `OutputHead.whole`), or None where some of the tokens were
    known from an answer that was read, whose states `Read` told; seconds: since the run began
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
    """Positions of answers that were read, as `Spoken` has them: `said` is what the model would have said there.

    answer: int64 [n], the tokens that stand there; logits: float32 [n, vocabulary]
    """

    requests: Sequence[int]
    positions: Sequence[int]
    answer: torch.Tensor
    said: Said
    states: torch.Tensor
    logits: torch.Tensor
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The last that is told of a request. proposed, accepted: tokens of drafts, those of `Request.answer` included."""

    request: int
    reason: Reason
    seconds: float
    proposed: int = 0
    accepted: int = 0


Event = Spoken | Read | Ended


@dataclass(slots=True)
class Tally:
    """What an engine has done so far. passes: forward passes; tokens: that they said; forked: requests that left the
    answer they were offered, and rejoined: those of them that came back to one that is known; parted: passes that were
    made in parts, for want of memory."""

    passes: int = 0
    tokens: int = 0
    forked: int = 0
    rejoined: int = 0
    parted: int = 0


class Engine(Protocol):
    """What answers requests: with packed passes, or with padded ones where these cannot be."""

    name: str
    head: OutputHead
    tally: Tally

    @property
    def overflow(self) -> tuple[Overflow, ...]:
        """Values so far that the dtype of the model's server would not have held, by module."""
        ...

    def run(
        self,
        requests: Sequence[Request],
        drafts: Drafts | None,
        on_event: Callable[[Event], None],
        draws: Draws | None = None,
    ) -> None:
        """Answer all, in whatever order is fastest; every request gets one `Ended`. drafts: by which
        answers go on; draws: None answers greedily."""
        ...

    def abort(self, request: int) -> None:
        """End a request of the run that goes on, from `on_event` or another thread."""
        ...
