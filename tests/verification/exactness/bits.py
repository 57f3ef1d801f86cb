"""What an engine said, to the bit, and where two ways of asking it differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from qualgate.engine.request import Ended, Event, Read, Request, Spoken

if TYPE_CHECKING:
    from qualgate.engine.head import OutputHead


@dataclass(slots=True)
class Answer:
    """What one request said: an entry a token. logits: of the positions whose states were told, float32 [vocabulary]
    each, by position."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    logits: dict[int, torch.Tensor] = field(default_factory=dict)
    reason: str = ""


class Heard:
    """Takes the events of a run of `requests`. proposed, accepted: tokens of drafts, in all."""

    def __init__(self, requests: Sequence[Request], head: OutputHead) -> None:
        self._requests, self._head = requests, head
        self._read: list[dict[int, torch.Tensor]] = [{} for _ in requests]
        self.answers = [Answer() for _ in requests]
        self.proposed = self.accepted = 0

    def __call__(self, event: Event) -> None:
        """Take an event of the run."""
        if isinstance(event, Spoken):
            self._spoken(event)
        elif isinstance(event, Read):
            for row, position, logits in zip(event.requests, event.positions, event.logits, strict=True):
                self._read[row][position] = logits
        else:
            self._ended(event)

    def _spoken(self, event: Spoken) -> None:
        logits = None if event.states is None else self._head.logits(event.states)
        columns = zip(event.requests, event.positions, event.tokens, event.logprobs, event.margins, strict=True)
        for at, (row, position, token, logprob, margin) in enumerate(columns):
            answer = self.answers[row]
            assert position == len(answer.tokens), f"request {row} said position {position} out of its turn"
            answer.tokens.append(token)
            answer.logprobs.append(logprob)
            answer.margins.append(margin)
            if logits is not None:
                answer.logits[position] = logits[at]

    def _ended(self, event: Ended) -> None:
        answer, given = self.answers[event.request], self._requests[event.request].answer
        # What it was given to read is its own text up to the first other token, whose place it still read right.
        same = agreed(answer.tokens, given)
        own = {at: logits for at, logits in self._read[event.request].items() if at <= same and at < len(answer.tokens)}
        answer.logits = own | answer.logits
        answer.reason = event.reason
        self.proposed += event.proposed
        self.accepted += event.accepted
        self._read[event.request] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Of answers and what they are held against. tokens: compared; logits: rows of them compared whole; other_tokens:
    unlike, missing or too many; other_bits: positions up to the first other token whose log-prob, margin or logits
    have another bit."""

    tokens: int
    logits: int
    other_tokens: int
    other_bits: int


def difference(found: Sequence[Answer], expected: Sequence[Answer]) -> Difference:
    """Request by request."""
    tokens = logits = other_tokens = other_bits = 0
    for one, other in zip(found, expected, strict=True):
        tokens += len(other.tokens)
        same = agreed(one.tokens, other.tokens)
        pairs = zip(one.tokens, other.tokens, strict=False)
        other_tokens += sum(a != b for a, b in pairs) + abs(len(one.tokens) - len(other.tokens))
        if same == len(one.tokens) == len(other.tokens) and one.reason != other.reason:
            other_tokens += 1  # the end that one saw and the other did not
        upto = min(same + 1, len(one.tokens), len(other.tokens))
        numbers = unlike(one.logprobs[:upto], other.logprobs[:upto]) | unlike(one.margins[:upto], other.margins[:upto])
        both = [at for at in range(upto) if at in one.logits and at in other.logits]
        logits += len(both)
        numbers |= {at for at in both if not same_bits(one.logits[at], other.logits[at])}
        other_bits += len(numbers)
    return Difference(tokens=tokens, logits=logits, other_tokens=other_tokens, other_bits=other_bits)


def agreed(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    return next(
        (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(map(len, (one, other)))
    )


def unlike(one: Sequence[float], other: Sequence[float]) -> set[int]:
    """Places of two lists of float32, as long as each other, that have another bit."""
    found = np.asarray(one, np.float32).view(np.int32) != np.asarray(other, np.float32).view(np.int32)
    return set(np.flatnonzero(found).tolist())


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Of float32; NaN for NaN, zero's sign too."""
    return torch.equal(one.view(torch.int32), other.view(torch.int32))
