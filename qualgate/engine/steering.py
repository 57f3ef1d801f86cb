"""Changes to a request's logits before a token of them is chosen: penalties, and the mask of a constraint.

Both hang on the answer so far, drafted tokens included, so each row of a pass has its own. They are asked for with the
text before that row and no other news: what a penalty counts it counts afresh, what a mask keeps it holds against that
text, so nobody has to tell them what was accepted. Log-probs stay those of the model's own logits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import fsum
from typing import NamedTuple, Protocol

import torch

from qualgate.engine.penalties import penalized
from qualgate.engine.sampling import DEAD_END, Draws, Said, log_total, say
from qualgate.records import GREEDY, Sampling

ALONE = 1000.0  # logits: the lead of a token beside which no other may be said


class Mask(Protocol):
    """What a constraint admits of a vocabulary."""

    def admitted(self, said: Sequence[int], offered: Sequence[int]) -> list[bytes]:
        """Of each token a byte, 0 where it is not: behind `said`, and behind each further one of `offered` for as long
        as these are admitted themselves and end nothing: from 1 to len(offered) + 1 rows, none where `said` is not."""
        ...


class Steered(NamedTuple):
    """logits: of which tokens are chosen, -inf for those that may not be; dead: rows (places in `logits`) of which none
    may be: these are as they came."""

    logits: torch.Tensor
    dead: list[int]


@dataclass(slots=True, eq=False)
class Steering:
    """Of one request in one run. masked: position in the answer → share of the model's own probability there, at
    temperature 1, that its mask leaves out. Where a draft was rejected, the position is read again and its share
    written over, so of the tokens that were said all are right."""

    prompt: Sequence[int]
    sampling: Sampling = GREEDY
    mask: Mask | None = None
    masked: dict[int, float] = field(default_factory=dict)

    def steered(self, logits: torch.Tensor, said: Sequence[int], offered: Sequence[int]) -> Steered:
        """Of logits float32 [n, vocabulary] behind `said` and behind each of `offered`, [n - 1]."""
        found = logits
        if self.sampling.penalties:
            found = penalized(logits, self.prompt, said, offered, self.sampling)
        if self.mask is None:
            return Steered(found, [])
        rows = self.mask.admitted(said, offered) or [bytes(logits.shape[-1])]  # of what was said by mistake: nothing
        admitted = _as_bool(rows, logits)
        count = len(admitted)  # of further rows nobody hears: a token before them is not admitted
        found = torch.cat([found[:count].masked_fill(~admitted, -torch.inf), found[count:]])
        dead = torch.nonzero(~admitted.any(-1))[:, 0].tolist()
        found[dead] = logits[dead]
        for row, share in enumerate(masked_shares(logits[:count], admitted), start=len(said)):
            self.masked[row] = share
        return Steered(found, dead)

    def mean_masked(self, tokens: int) -> float | None:
        """Of the first so many positions; None without a mask, or where nothing was said."""
        if self.mask is None or not tokens:
            return None
        return fsum(self.masked[position] for position in range(tokens)) / tokens


def _as_bool(rows: Sequence[bytes], logits: torch.Tensor) -> torch.Tensor:
    """bool [rows, vocabulary] where `logits` are; of tokens that the head has and the mask does not know, False."""
    found = torch.zeros(len(rows), logits.shape[-1], dtype=torch.bool)
    for row, admitted in zip(found, rows, strict=True):
        known = torch.frombuffer(bytearray(admitted), dtype=torch.uint8)[: len(row)]
        row[: len(known)] = known != 0
    return found.to(logits.device)


def masked_shares(logits: torch.Tensor, admitted: torch.Tensor) -> list[float]:
    """Of each row the probability of what is not admitted, from 0 to 1, added in float64 and in the tokens' order, so
    that neither threads nor rows beside it change a bit."""
    if not len(logits):
        return []
    likely = (logits.double() - logits.double().amax(-1, keepdim=True)).exp_()
    both = torch.stack([likely.masked_fill(admitted, 0.0), likely]).cumsum(-1)[..., -1]
    return (both[0] / both[1]).tolist()


def choose(
    draws: Draws | None,
    logits: torch.Tensor,
    rows: Sequence[int],
    positions: Sequence[int],
    steered: Mapping[int, tuple[Steering, Sequence[int]]],
    said: Said,
) -> Steered:
    """Put in `said` what rows say of their steered logits, and return these, of all rows.

    logits, rows, positions, said: as `say` has them; steered: of requests that are, the answer as far as it is read,
    which a row at position p stands behind the first p of.
    """
    found, here, dead = logits.clone(), list[int](), list[int]()
    for index, group in groupby(range(len(rows)), key=rows.__getitem__):
        if index not in steered:
            continue
        places, (steering, text) = list(group), steered[index]
        first, last = positions[places[0]], positions[places[-1]]
        one = steering.steered(logits[places], text[:first], text[first:last])
        found[places] = one.logits
        here += places
        dead += [places[row] for row in one.dead]
    if not here:
        return Steered(found, dead)
    chosen = say(draws, found[here], [rows[row] for row in here], [positions[row] for row in here])
    own = logits[here]
    said.tokens[here] = chosen.tokens
    said.logprobs[here] = (own.gather(-1, chosen.tokens[:, None])[:, 0] - log_total(own)).clamp_(max=0.0)
    said.margins[here] = chosen.margins.clamp(max=ALONE)
    said.tokens[dead] = DEAD_END
    return Steered(found, dead)
