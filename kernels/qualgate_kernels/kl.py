"""How far two models' next-token distributions are apart, from their logits.

`kl_torch` is what is computed, in float64 throughout. The kernel in C (cpu/kl.py) goes through both rows of logits once
from memory, and sums in float32 within 256 tokens: it is for large vocabularies, whose float64 copies would take longer
than the output heads, and its KL is within some 1e-6 nats. A row has the bits that it has alone, on any number of
threads; `dispatch.kl` chooses.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn.functional import pad

LARGE = 4096  # tokens of a vocabulary from which the kernel in C serves
FLOAT64_AT_ONCE = 2**20  # numbers: 8 MB in each of a few float64 tensors
GPU_AT_ONCE = 2**23  # on a GPU, whose launches cost more than its memory: as many as drift hands over at once


class Divergences(NamedTuple):
    """Of rows of logits, each [rows].

    kl: KL(P || Q), float64 nats, 0 or more, and exactly 0 for equal logits; NaN if a logit of either is NaN or
    infinite, and in C if two logits of a row are further apart than float32 holds. logprobs: of the given tokens under
    Q, float64 nats, 0 or less; NaN if a logit of Q is NaN or infinite. tokens: int64, P's likeliest, the first of
    equals; -1 if a logit of P is NaN or infinite.
    """

    kl: torch.Tensor
    logprobs: torch.Tensor
    tokens: torch.Tensor


def kl_torch(p: torch.Tensor, q: torch.Tensor, given: torch.Tensor) -> Divergences:
    """Compare the logits p and q, [rows, vocabulary]; given: int64 [rows], token ids. The torch twin."""
    at_once = max(1, (GPU_AT_ONCE if p.is_cuda else FLOAT64_AT_ONCE) // q.shape[-1])
    parts = []
    for p_rows, q_rows, tokens in zip(p.split(at_once), q.split(at_once), given.split(at_once), strict=True):
        missing = at_once - len(tokens) if p.is_cuda else 0  # a GPU's sums over other shapes round otherwise
        padding = (0, 0, 0, missing)
        found = _compared(pad(p_rows, padding), pad(q_rows, padding), pad(tokens, padding[2:]))
        parts.append([column[: len(tokens)] for column in found])
    return Divergences(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _compared(p: torch.Tensor, q: torch.Tensor, given: torch.Tensor) -> Divergences:
    log_p, log_q = p.log_softmax(-1, dtype=torch.float64), q.log_softmax(-1, dtype=torch.float64)
    broken_p, broken_q = ~p.isfinite().all(-1), ~q.isfinite().all(-1)
    kl = log_p.sub(log_q).mul_(log_p.exp_()).sum(-1).clamp_(min=0.0)
    logprobs = log_q.gather(-1, given[:, None])[:, 0].clamp_(max=0.0)
    return Divergences(
        kl.masked_fill_(broken_p | broken_q, torch.nan),
        logprobs.masked_fill_(broken_q, torch.nan),
        p.argmax(-1).masked_fill_(broken_p, -1),
    )


def check(p: torch.Tensor, q: torch.Tensor, given: torch.Tensor) -> None:
    """Raise ValueError unless both logits are float32 of one shape [rows, vocabulary], and `given` token ids of it."""
    if p.dtype != torch.float32 or q.dtype != torch.float32 or p.dim() != 2 or p.shape != q.shape or 0 in p.shape:
        raise ValueError(
            "logits: expected float32 [rows, vocabulary] of both models, "
            f"got {p.dtype} {list(p.shape)} and {q.dtype} {list(q.shape)}"
        )
    if given.dtype != torch.int64 or given.shape != p.shape[:1]:
        raise ValueError(f"given: expected int64 [{len(p)}], got {given.dtype} {list(given.shape)}")
    if not 0 <= int(given.min()) <= int(given.max()) < p.shape[1]:
        raise ValueError(f"given: expected token ids below {p.shape[1]}")
