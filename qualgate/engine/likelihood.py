"""How likely a model finds what it reads, and how far two models' predictions of it are apart: of logits alone."""

from __future__ import annotations

import torch

FLOAT64_AT_ONCE = 2**20  # numbers: 8 MB in each of a few float64 tensors


def given(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Nats, float64 [positions]: the log-prob that logits [positions, vocabulary] give to tokens [positions]."""
    chunk = max(1, FLOAT64_AT_ONCE // logits.shape[-1])
    parts = [
        some.double().log_softmax(-1).gather(-1, own[:, None])[:, 0].clamp_(max=0.0)
        for some, own in zip(logits.split(chunk), tokens.split(chunk), strict=True)
    ]
    return torch.cat(parts) if parts else logits.new_zeros(0, dtype=torch.float64)


def kl_divergence(baseline_logits: torch.Tensor, variant_logits: torch.Tensor) -> torch.Tensor:
    """KL(p_baseline || p_variant) at each position, in nats, float64 [positions], over the full vocabulary.

    Both: [positions, vocabulary]; a few at a time are widened. Zero where the logits are equal; never negative.
    """
    positions, vocabulary = variant_logits.shape
    chunk = max(1, FLOAT64_AT_ONCE // vocabulary)
    parts = []
    for start in range(0, positions, chunk):
        stop = min(start + chunk, positions)
        log_p = baseline_logits[start:stop].double().log_softmax(-1)
        log_q = variant_logits[start:stop].double().log_softmax(-1)
        parts.append((log_p.exp() * (log_p - log_q)).sum(-1).clamp_(min=0.0))
    return torch.cat(parts) if parts else variant_logits.new_zeros(0, dtype=torch.float64)
