"""The source of a rule's random choices: an interface with two questions, and the noise that answers them in a run.

Rules draw only through this interface, so the same functions can be enumerated: tests answer both ways, each with its
probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from struct import pack
from typing import Protocol, Self

import torch


class Chance(Protocol):
    """Chances of one round of one row: each answer is independent of all others, of that round and of any other."""

    def accepts(self, probability: float) -> bool:
        """True with this probability; 0 and less: never, 1 and more: always."""
        ...

    def token(self, weights: torch.Tensor) -> int:
        """An index of float64 [vocabulary], drawn in proportion to these weights, which need not add up to 1."""
        ...


@dataclass(slots=True, kw_only=True)
class HashedChance:
    """Chances that repeat: a hash of seed, case, round and how many were drawn in it before, nothing else.

    seed, case: 64 bits each. A case tells a row's noise from every other's, and from that of its own in another arm if
    that arm's answers may be drafts: a draft must not know the chances by which it is judged.
    round: tells a round from every other of its case, and levels apart: how many tokens were said when it began, then
    which call it is of the level below, and so on. Positions alone would not do: what block verification keeps depends
    on tokens and chances behind it, and the next round would draw the same ones again.
    """

    seed: int
    case: int
    round: tuple[int, ...]
    _drawn: int = field(default=0, init=False)

    def within(self, *call: int) -> Self:
        """Return independent chances for a part of this round: a draft, or a level below."""
        return replace(self, round=(*self.round, *call))

    def uniform(self) -> float:
        """Return the next number, a multiple of 2**-53 in [0, 1). See `picked` for many rows at once."""
        words = self.next_key()
        digest = blake2b(pack(f"<{len(words)}q", *words), digest_size=8, person=b"chance").digest()
        return (int.from_bytes(digest, "little") >> 11) * 2.0**-53

    def next_key(self) -> tuple[int, ...]:
        """Return a key for the next number that no other draw has."""
        key = (self.seed, self.case, *self.round, self._drawn)
        self._drawn += 1
        return key

    def accepts(self, probability: float) -> bool:
        """See `Chance`."""
        return self.uniform() < probability

    def token(self, weights: torch.Tensor) -> int:
        """See `Chance`."""
        return picked(weights[None], [self.uniform()])[0]


def picked(weights: torch.Tensor, uniforms: Sequence[float]) -> list[int]:
    """Draw a token id for each row of weights, float64 [n, vocabulary], by inverse-CDF sampling.

    It is the first token at which the running sum exceeds uniforms[i] times the row's sum, so never one of weight 0.
    uniforms: [n], from 0, below 1. ValueError for weights that are negative, not finite, or all 0. Sums are added in
    float64, in the tokens' order and on the CPU, where neither threads nor the other rows change a bit.
    """
    if weights.dtype != torch.float64 or weights.dim() != 2 or len(weights) != len(uniforms):
        raise ValueError(
            f"weights: expected float64 [{len(uniforms)}, vocabulary], got {weights.dtype} {list(weights.shape)}"
        )
    weights = weights.cpu()
    sums = weights.cumsum(-1)
    totals = sums[:, -1:]
    if not (bool((weights >= 0).all()) and bool(totals.isfinite().all()) and bool((totals > 0).all())):
        raise ValueError("weights: expected finite numbers of 0 or more, not all 0, in every row")
    thresholds = totals * torch.tensor(uniforms, dtype=torch.float64)[:, None]
    thresholds = thresholds.minimum(totals.nextafter(torch.zeros_like(totals)))  # a product is rounded
    return torch.searchsorted(sums, thresholds, right=True)[:, 0].tolist()
