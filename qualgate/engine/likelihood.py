"""KL divergence, from logits alone."""

from __future__ import annotations

import torch

FLOAT64_AT_ONCE = 2**20  # numbers: 8 MB in each of a few float64 tensors


def kl_divergence(baseline_logits: torch.Tensor, variant_logits: torch.Tensor) -> torch.Tensor:
    """Return KL(p_baseline || p_variant) at each position, in nats, float64 [positions], over the full vocabulary.

    Both: [positions, vocabulary]; a few are widened at a time. Zero for equal logits; never negative.
    """
    chunk = max(1, FLOAT64_AT_ONCE // variant_logits.shape[-1])
    pairs = zip(baseline_logits.split(chunk), variant_logits.split(chunk), strict=True)
    return torch.cat([_kl(_logs(baseline_rows), _logs(variant_rows)) for baseline_rows, variant_rows in pairs])


def _logs(logits: torch.Tensor) -> torch.Tensor:
    return logits.log_softmax(-1, dtype=torch.float64)


def _kl(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    return log_p.sub(log_q).mul_(log_p.exp_()).sum(-1).clamp_(min=0.0)
