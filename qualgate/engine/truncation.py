"""Top-k, top-p and min-p truncation, as in transformers.

Temperature comes first, then in this order; each keeps at least the likeliest token:

- top-k keeps tokens at least as likely as the k-th likeliest: more than k if some equal it.
- top-p keeps, of those, the likeliest until they hold the share p of them all: a token stays while those before it
  hold less than p. Of equals at the cut the lowest ids stay; transformers keeps as many, in the order of its sort.
- min-p keeps tokens at least min_p times as likely as the likeliest. That ratio is the same before and after the cuts
  above.
vLLM applies min-p first, so that its top-p is a share of what min-p keeps: with both it may keep fewer tokens; with one
of them, alone or beside top-k, the same.

A row's cut depends on its own scores alone: shares are summed as integers, so that order, rows and threads do not
matter. They are rounded to 2**-44 of the likeliest token's (for 150,000 tokens), so p is met to some 1e-8 of the whole;
transformers' sums are of float32.
"""

from __future__ import annotations

from math import log

import torch

from qualgate.records import Sampling

WIDTHS = 64, 1024, 16384  # of the top tokens searched for top-p's last, before all are sorted


def cut(scores: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Return the scores with -inf for tokens that may not be drawn. scores: float64 [n, vocabulary], logits /
    temperature.

    The cut of a row with NaN or infinity is meaningless.
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
    allowed = scores >= least
    if left_out is not None:
        allowed[left_out] = False
    return scores.masked_fill(~allowed, -torch.inf)


def _shares(scores: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """Return each token's likelihood relative to the likeliest, int64 [n, vocabulary]; 0 below `least` [n, 1]. Sums do
    not overflow."""
    bits = 62 - scores.shape[-1].bit_length()
    likely = (scores - scores.amax(-1, keepdim=True)).exp_().mul_(2.0**bits).long()
    return likely.masked_fill_(scores < least, 0)


def _last_of_top_p(scores: torch.Tensor, shares: torch.Tensor, p: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return, for each row, the score of the least likely token that top-p keeps, and how many of its equals stay: [n,
    1]."""
    least_kept = torch.empty_like(scores[:, :1])
    equals = torch.empty_like(shares[:, :1])
    enough = p * shares.sum(-1, keepdim=True).double()
    open_, vocabulary = torch.arange(len(scores), device=scores.device), scores.shape[-1]
    for width in (*(width for width in WIDTHS if width < vocabulary), vocabulary):
        values, tokens = scores[open_].topk(width, dim=-1)
        sorted_shares = shares[open_].gather(-1, tokens)
        before = sorted_shares.cumsum(-1) - sorted_shares
        stay = (before < enough[open_]).sum(-1, keepdim=True).clamp_(min=1)
        cutoff = values.gather(-1, stay - 1)
        least_kept[open_] = cutoff
        equals[open_] = stay - (values > cutoff).sum(-1, keepdim=True)
        open_ = open_[stay[:, 0] == width]  # more may stay than were looked at
        if not len(open_):
            break
    return least_kept, equals


def _surplus(
    scores: torch.Tensor, last: torch.Tensor, equals: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return (rows, tokens) of equals of the last kept token that exceed their number, highest ids; None if there are
    none."""
    is_equal = scores == last
    rows = torch.nonzero(is_equal.sum(-1, keepdim=True) > equals)[:, 0]
    if not len(rows):
        return None
    row, tokens = torch.nonzero(is_equal[rows] & (is_equal[rows].cumsum(-1) > equals[rows]), as_tuple=True)
    return rows[row], tokens
