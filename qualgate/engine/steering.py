"""Change a request's logits before a token is chosen: penalties, and the mask of a constraint.

Both depend on the answer so far, drafted tokens included, so each row of a pass has its own. They receive the text
before that row: penalties count it anew, and a mask compares its state with it, so nobody reports what was accepted.
Log-probs stay those of the model's own logits.
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

ALONE = 1000.0  # logits: the lead of the only admitted token


class Mask(Protocol):
    """The tokens of a vocabulary that a constraint admits."""

    def admitted(self, generated: Sequence[int], offered: Sequence[int]) -> list[bytes]:
        """Return a byte per token, 0 if it is not admitted: a row behind `generated`, and behind each further one of
        `offered` as long as these are admitted and end nothing: 1 to len(offered) + 1 rows, none if `generated` is not
        admitted."""
        ...


class Steered(NamedTuple):
    """Changed logits. logits: -inf for tokens that are not admitted; dead: rows of `logits` without an admitted token,
    which are unchanged."""

    logits: torch.Tensor
    dead: list[int]


@dataclass(slots=True, eq=False)
class Steering:
    """The steering of one request in one run. masked: position in the answer → share of the model's own probability
    there, at temperature 1, that its mask excludes. After a rejected draft a position is read again and its share
    overwritten, so the shares of all generated tokens are right."""

    prompt: Sequence[int]
    sampling: Sampling = GREEDY
    mask: Mask | None = None
    masked: dict[int, float] = field(default_factory=dict)

    def steered(self, logits: torch.Tensor, generated: Sequence[int], offered: Sequence[int]) -> Steered:
        """Steer logits, float32 [n, vocabulary], behind `generated` and behind each of `offered`, [n - 1]."""
        steered_logits = logits
        if self.sampling.penalties:
            steered_logits = penalized(logits, self.prompt, generated, offered, self.sampling)
        if self.mask is None:
            return Steered(steered_logits, [])
        rows = self.mask.admitted(generated, offered) or [
            bytes(logits.shape[-1])
        ]  # nothing behind an inadmissible text
        admitted = _as_bool(rows, logits)
        count = len(admitted)  # further rows follow a token that is not admitted
        steered_logits = torch.cat([steered_logits[:count].masked_fill(~admitted, -torch.inf), steered_logits[count:]])
        dead = torch.nonzero(~admitted.any(-1))[:, 0].tolist()
        steered_logits[dead] = logits[dead]
        for row, share in enumerate(masked_shares(logits[:count], admitted), start=len(generated)):
            self.masked[row] = share
        return Steered(steered_logits, dead)

    def mean_masked(self, tokens: int) -> float | None:
        """Return the mean over the first so many positions; None without a mask or tokens."""
        if self.mask is None or not tokens:
            return None
        return fsum(self.masked[position] for position in range(tokens)) / tokens


def _as_bool(rows: Sequence[bytes], logits: torch.Tensor) -> torch.Tensor:
    """Return bool [rows, vocabulary] on the device of `logits`; False for tokens that the mask does not know."""
    mask = torch.zeros(len(rows), logits.shape[-1], dtype=torch.bool)
    for row, admitted in zip(mask, rows, strict=True):
        known = torch.frombuffer(bytearray(admitted), dtype=torch.uint8)[: len(row)]
        row[: len(known)] = known != 0
    return mask.to(logits.device)


def masked_shares(logits: torch.Tensor, admitted: torch.Tensor) -> list[float]:
    """Return each row's probability of excluded tokens, from 0 to 1, summed in float64 in token order, so that neither
    threads nor other rows change a bit."""
    if not len(logits):
        return []
    likely = (logits.double() - logits.double().amax(-1, keepdim=True)).exp_()
    sums = torch.stack([likely.masked_fill(admitted, 0.0), likely]).cumsum(-1)[..., -1]
    return (sums[0] / sums[1]).tolist()


def choose(
    draws: Draws | None,
    logits: torch.Tensor,
    rows: Sequence[int],
    positions: Sequence[int],
    steered: Mapping[int, tuple[Steering, Sequence[int]]],
    sampled: Said,
) -> Steered:
    """Write the tokens chosen from steered logits into `sampled`, and return the steered logits of all rows.

    logits, rows, positions, sampled: as for `say`; steered: by request, its steering and its answer as far as it is
    read; a row at position p stands behind the first p tokens.
    """
    steered_logits, steered_rows, dead = logits.clone(), list[int](), list[int]()
    for index, group in groupby(range(len(rows)), key=rows.__getitem__):
        if index not in steered:
            continue
        places, (steering, text) = list(group), steered[index]
        first, last = positions[places[0]], positions[places[-1]]
        result = steering.steered(logits[places], text[:first], text[first:last])
        steered_logits[places] = result.logits
        steered_rows += places
        dead += [places[row] for row in result.dead]
    if not steered_rows:
        return Steered(steered_logits, dead)
    chosen = say(
        draws,
        steered_logits[steered_rows],
        [rows[row] for row in steered_rows],
        [positions[row] for row in steered_rows],
    )
    own_logits = logits[steered_rows]
    sampled.tokens[steered_rows] = chosen.tokens
    sampled.logprobs[steered_rows] = (
        own_logits.gather(-1, chosen.tokens[:, None])[:, 0] - log_total(own_logits)
    ).clamp_(max=0.0)
    sampled.margins[steered_rows] = chosen.margins.clamp(max=ALONE)
    sampled.tokens[dead] = DEAD_END
    return Steered(steered_logits, dead)
