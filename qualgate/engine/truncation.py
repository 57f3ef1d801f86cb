"""Which tokens may be drawn: top-k, top-p and min-p, as transformers cuts a distribution.

The temperature comes first, then, in this order, at least the likeliest token being left by each:

- top-k leaves tokens that are as likely as the k-th likeliest, or likelier: more than k where some equal it.
- top-p leaves, of those, the likeliest until they hold the share p of them all: a token stays while those before it
  hold less than p. Of equals at the cut the lowest ids stay; transformers leaves as many, whichever its sort put last.
- min-p leaves tokens that are at least min_p times as likely as the likeliest. It asks for a ratio, which is the same
  before and after the cuts above.

vLLM cuts by min-p first, so that its top-p is a share of what min-p left: with both it may leave fewer tokens; with one
of them, alone or beside top-k, the same.

A row's cut depends on its own scores alone: shares are summed as whole numbers, in which any order, number of rows and
of threads gives the same sum. They are rounded to 2**-44 of the likeliest token's (for 150,000 tokens), so p is met to
some 1e-8 of the whole; transformers' sums are of float32.
"""

from __future__ import annotations

from math import log

import torch

from qualgate.records import Sampling

WIDTHS = 64, 1024, 16384  # of the likeliest tokens among which top-p's last is looked for, before all are sorted


def cut(scores: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """scores: float64 [n, vocabulary], logits / temperature; the same with -inf for tokens that may not be drawn.

    The cut of a row with NaN or infinity means nothing.
    """
    if not sampling.cuts:
        return scores
    least = torch.full_like(scores[:, :1], -torch.inf)
    if 0 < sampling.top_k < scores.shape[-1]:
        least = scores.topk(sampling.top_k, dim=-1).values[:, -1:]
    left_out = None
    if sampling.top_p < 1:
        last, equals = _last_of_top_p(scores, _shares(scores, least), sampling.top_p)
        left_out = _surplus(scores, last, equals)
        least = last
    if sampling.min_p:
        least = least.maximum(scores.amax(-1, keepdim=True) + log(sampling.min_p))
    kept = scores >= least
    if left_out is not None:
        kept[left_out] = False
    return scores.masked_fill(~kept, -torch.inf)


def _shares(scores: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """int64 [n, vocabulary]: how likely a token is beside the likeliest; 0 below `least` [n, 1]. No sum overflows."""
    bits = 62 - scores.shape[-1].bit_length()
    likely = (scores - scores.amax(-1, keepdim=True)).exp_().mul_(2.0**bits).long()
    return likely.masked_fill_(scores < least, 0)


def _last_of_top_p(scores: torch.Tensor, shares: torch.Tensor, p: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each row the score of the least likely token that top-p leaves, and how many of its equals stay: [n, 1]."""
    last = torch.empty_like(scores[:, :1])
    equals = torch.empty_like(shares[:, :1])
    enough = p * shares.sum(-1, keepdim=True).double()
    open_, vocabulary = torch.arange(len(scores), device=scores.device), scores.shape[-1]
    for width in (*(width for width in WIDTHS if width < vocabulary), vocabulary):
        values, tokens = scores[open_].topk(width, dim=-1)
        held = shares[open_].gather(-1, tokens)
        before = held.cumsum(-1) - held
        stay = (before < enough[open_]).sum(-1, keepdim=True).clamp_(min=1)
        found = values.gather(-1, stay - 1)
        last[open_] = found
        equals[open_] = stay - (values > found).sum(-1, keepdim=True)
        open_ = open_[stay[:, 0] == width]  # more may stay than were looked at
        if not len(open_):
            break
    return last, equals


def _surplus(
    scores: torch.Tensor, last: torch.Tensor, equals: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Where a token is as likely as the last that stays, and too many of a lower id are: (rows, tokens), or None."""
    same = scores == last
    rows = torch.nonzero(same.sum(-1, keepdim=True) > equals)[:, 0]
    if not len(rows):
        return None
    at, tokens = torch.nonzero(same[rows] & (same[rows].cumsum(-1) > equals[rows]), as_tuple=True)
    return rows[at], tokens
