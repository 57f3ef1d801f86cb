"""The likeliest token of each row of logits, its log-prob, its lead, and whether the logits mean anything.

`likeliest_torch` is what is computed, cpu/likeliest.py the kernel in C, which goes through the logits once from memory
and gives a row the bits that it has alone, on any number of threads; `dispatch.likeliest` chooses.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class Likeliest(NamedTuple):
    """Of rows of logits [..., vocabulary], each [...].

    tokens: int64, the first of the highest logits, or the first NaN; logprobs: of these tokens, nats, 0 or less, in
    the logits' dtype as leads are; leads: over the second highest logit, infinity where there is none; finite: bool, no
    logit is NaN or infinite. Where logits are NaN, or the highest are infinite, a log-prob is NaN.
    """

    tokens: torch.Tensor
    logprobs: torch.Tensor
    leads: torch.Tensor
    finite: torch.Tensor


def likeliest_torch(logits: torch.Tensor) -> Likeliest:
    """Return the likeliest tokens of floats [..., vocabulary], vocabulary at least 1: the torch twin."""
    if logits.numel() == logits.shape[-1]:  # torch would part the sum of a large row among threads, and round otherwise
        return Likeliest(*(column[0] for column in likeliest_torch(torch.stack([logits, logits]))))
    tokens = logits.argmax(-1)
    best, second = logits, torch.full_like(logits, -torch.inf)
    if logits.shape[-1] > 1:
        best, second = logits.topk(2, dim=-1).values.split(1, dim=-1)
    logprobs = 0 - (logits - best).exp().sum(-1).log()
    return Likeliest(tokens, logprobs, (best - second).squeeze(-1), logits.isfinite().all(-1))
