"""Queries and keys turned by their positions: half of a head beside the other half, as transformers turns them.

`turn_torch` is the specification, rotary_gpu.py the kernel: one launch, where torch takes ten.
"""

from __future__ import annotations

import torch

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def turn_torch(
    query: torch.Tensor, key: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """x * cosine + (x with its halves exchanged, the then first one negated) * sine, each step rounded by itself.

    query: float [1, heads, rows, head_dim], head_dim even; key: [1, kv_heads, rows, head_dim] of the same dtype
    cosines, sines: float32 [1, rows, head_dim]. Returns float32, shaped like query and key.
    """
    cosines, sines = cosines.unsqueeze(1), sines.unsqueeze(1)
    turned = []
    for x in (query, key):
        first, second = x.chunk(2, -1)
        turned.append(x * cosines + torch.cat((-second, first), -1) * sines)
    return turned[0], turned[1]


def misfit(query: torch.Tensor, key: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> str:
    """Return why the kernel does not turn these; "" where it does."""
    if query.dim() != 4 or key.dim() != 4 or query.shape[0] != 1 or key.shape[0] != 1 or query.shape[-1] % 2:
        return f"heads: expected [1, heads, rows, head_dim], got {list(query.shape)} and {list(key.shape)}"
    if query.shape[2:] != key.shape[2:] or query.dtype != key.dtype or query.dtype not in FLOATS:
        return f"key: expected {query.dtype} {list(query.shape[2:])}, got {key.dtype} {list(key.shape[2:])}"
    if query.stride(-1) != 1 or key.stride(-1) != 1 or not query.numel() or not key.numel():
        return "heads: expected numbers, those of a head side by side"
    for angles in (cosines, sines):
        expected = 1, *query.shape[2:]
        if angles.dtype != torch.float32 or tuple(angles.shape) != expected or not angles.is_contiguous():
            return f"angles: expected float32 {list(expected)}, contiguous, got {angles.dtype} {list(angles.shape)}"
    if {key.device, cosines.device, sines.device} != {query.device}:
        return "heads and angles: expected them on one device"
    return ""
