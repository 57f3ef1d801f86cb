"""Proposers that read their target's states, as they run, over states that a text's last two tokens make."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from qualgate.engine.draft_heads.loading import LoadedHead
from qualgate.engine.handed_over import handed_over
from qualgate.engine.request import Request
from qualgate.engine.schedule import Part, Stream
from qualgate.engine.speculation.propose import NO_DRAFT, Draft, DraftRequest, Proposer
from tests.engine.draft_heads.heads import tiny_shape
from tests.verification.lossless.chances import Enumerated, Numbers, every_way
from tests.verification.lossless.drafting import BLOCKS, PROMPT, UNDRAWN, Enumerating, Laws, add
from tests.verification.lossless.heads import laid_out
from tests.verification.lossless.models import Tokens

WIDTH = 16  # numbers of a state


@dataclass(frozen=True, slots=True)
class Reading:
    """A draft head of random numbers that draws; or says the likeliest, rule ""."""

    vocabulary: int
    rule: str = "speculative_sampling"
    by_last: bool = False
    _known: dict[Any, Laws] = field(default_factory=dict, init=False, repr=False, compare=False)

    def begun(self, numbers: Numbers, chance: type[Enumerated] = Enumerated) -> Proposer:
        head = _head(self.vocabulary)
        assert head.head is not None
        return head.proposer(
            "head",
            head.head,
            lambda ids: _random(self.vocabulary, WIDTH, seed=1)[ids],
            blocks=BLOCKS,
            threads=1,
            stop_ids=frozenset(),
            draws=Enumerating(self.rule, UNDRAWN, numbers, chance) if self.rule else None,
        )

    def drafts(self, said: Tokens, most: int) -> Laws:
        if (said, most) not in self._known:
            self._known[said, most] = found = Laws()
            for draft, numbers in every_way(lambda chance: self._draft(said, most, chance.numbers)):
                add(found, draft, numbers.probability)
        return self._known[said, most]

    def _draft(self, said: Tokens, most: int, numbers: Numbers) -> Draft:
        if not most:
            return NO_DRAFT
        proposer = self.begun(numbers)
        handed(proposer, (*PROMPT, *said[:-1]) if said else PROMPT[:-1], 0)
        return proposer.propose([DraftRequest(0, PROMPT, said, most)])[0]


def handed(proposer: Proposer, text: Tokens, first: int) -> None:
    """Hand over what the target's pass left that read a text from position `first` on, to a proposer that reads it."""
    reader: Any = proposer
    if hasattr(reader, "read"):
        stream = Stream(0, Request(prompt=PROMPT, max_new_tokens=1), list(text))
        states = torch.stack([_state(text[max(0, end - 2) : end]) for end in range(first + 1, len(text) + 1)])
        handed_over(reader, [Part(stream, first, text[first:], 1)], states, states)


@cache
def _head(vocabulary: int) -> LoadedHead:
    shape = tiny_shape(width=WIDTH, vocabulary=vocabulary, heads=1, kv_heads=1, head_dim=WIDTH, inner=WIDTH)
    return laid_out(shape)


@cache
def _state(tokens: Tokens) -> torch.Tensor:
    return _random(WIDTH, seed=hash(tokens) % 2**32)


@cache
def _random(*size: int, seed: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))
