"""Draw tokens at a temperature: the argmax of logits / temperature + Gumbel noise, an exact draw from their softmax.
Top-k, top-p and min-p come before the noise: then argmax and softmax are over the remaining tokens.

The noise is a pure function of (seed, case and repeat, position in the answer, token), so a draw depends on the row's
own logits alone: not on its batch, earlier draws, the worker, or a draft. Both arms of a pair get the same noise: each
draw is exact by itself, and equal weights draw equal answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

import torch

from qualgate.engine.truncation import cut
from qualgate.records import Sampling, UnitKey
from qualgate_kernels.dispatch import likeliest
from qualgate_kernels.gumbel import MOST, gumbel

AT_ONCE = 2**22  # numbers of float64 scores: 32 MB
DEAD_END = -1  # in place of a token: none is admitted
LIKELIEST = 64  # tokens of a row whose noise is computed first


class Said(NamedTuple):
    """Chosen tokens of some rows and positions, each [...]."""

    tokens: torch.Tensor
    logprobs: torch.Tensor  # of these tokens, nats
    margins: torch.Tensor  # their lead over the runner-up, in logits (and noise, where tokens are drawn)
    finite: torch.Tensor  # no logit is NaN or infinite


def greedy(logits: torch.Tensor) -> Said:
    """Return the likeliest tokens of logits [..., vocabulary]."""
    return Said(*likeliest(logits))


def log_total(logits: torch.Tensor) -> torch.Tensor:
    """Return log Σ exp(logits) over the vocabulary, [...]: log-probs are the logits less this.

    torch splits the sum of a single large row among its threads, and so rounds it differently than beside a second row.
    """
    if logits.numel() > logits.shape[-1]:
        return logits.logsumexp(-1)
    return torch.stack([logits, logits]).logsumexp(-1)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """The noise of a batch. cases: int64 [rows], see `noise_cases`; sampling: one that draws."""

    seed: int
    cases: torch.Tensor
    sampling: Sampling

    def sample(self, logits: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor) -> Said:
        """Draw tokens from logits [n, vocabulary]; rows: [n], of the batch; positions: [n], in the answer, from 0.

        Log-probs are the model's own, at temperature 1 and over all tokens. Margins are the lead, noise included and in
        logits, over the runner-up among the tokens that could have been drawn; at most about 23 times the temperature.
        They do not show how near a token was to truncation.
        """
        at_once = max(1, AT_ONCE // logits.shape[-1])
        every = logits, self.cases.to(rows.device)[rows], positions
        parts = [self._sample(*chunk) for chunk in zip(*(column.split(at_once) for column in every), strict=True)]
        return Said(*(torch.cat(columns) for columns in zip(*parts, strict=True)))

    def _sample(self, logits: torch.Tensor, cases: torch.Tensor, positions: torch.Tensor) -> Said:
        """Draw the tokens of a few rows; see `sample`. cases: the noise's case of each row."""
        scaled = cut(logits.double() / self.sampling.temperature, self.sampling)
        likeliest = scaled.topk(min(LIKELIEST, scaled.shape[-1]), dim=-1)
        noised = likeliest.values + gumbel(self.seed, likeliest.indices, positions[:, None], cases[:, None])
        # No token below this can be drawn, whatever its noise; where a model is sure, most of a vocabulary is.
        least = noised.amax(-1, keepdim=True) - MOST
        row, token = torch.nonzero(scaled >= least, as_tuple=True)
        scores = torch.full_like(scaled, -torch.inf)
        scores[row, token] = scaled[row, token] + gumbel(self.seed, token, positions[row], cases[row])
        best, second = scores.topk(2, dim=-1).values.unbind(-1)
        second = second.maximum(least[:, 0])  # there may be no other
        tokens = scores.argmax(-1)  # the first of equals
        logprobs = (logits.gather(-1, tokens[:, None])[:, 0] - log_total(logits)).clamp_(max=0.0)
        return Said(tokens, logprobs, ((best - second) * self.sampling.temperature).float(), logits.isfinite().all(-1))


def say(draws: Draws | None, logits: torch.Tensor, rows: Sequence[int], positions: Sequence[int]) -> Said:
    """Choose tokens for rows of logits [n, vocabulary]: the likeliest, or drawn. See `Draws.sample`."""
    if draws is None:
        return greedy(logits)
    return draws.sample(logits, *(torch.tensor(numbers, device=logits.device) for numbers in (rows, positions)))


def noise_cases(keys: Sequence[UnitKey], device: torch.device) -> torch.Tensor:
    """Return the number of each unit's noise, int64 [units]; all arms have the same."""
    return noise_numbers([f"{key.evalset}\0{key.case_id}\0{key.repeat}" for key in keys], device)


def noise_numbers(names: Sequence[str], device: torch.device) -> torch.Tensor:
    """Return numbers for independent noise, int64 [names]."""
    digests = [sha256(name.encode("utf-8", "surrogatepass")).digest() for name in names]
    numbers = [int.from_bytes(digest[:8], "little", signed=True) for digest in digests]
    return torch.tensor(numbers, dtype=torch.int64, device=device)
