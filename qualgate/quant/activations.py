"""Activations rounded as they come, one symmetric scale a token: what a W8A8 layer multiplies its weight with."""

from __future__ import annotations

import torch
from torch import nn


def round_tokens(x: torch.Tensor, to: str) -> torch.Tensor:
    """The numbers that int8 or fp8 (e4m3) hold of x [..., in_features], in x's dtype.

    to: "int8" or "fp8", one scale a token; "fp8 g128": one for each 128 in_features of a token (the last may be fewer).
    As compressed-tensors rounds `dynamic` activations of strategy `token`: scale = absmax / half the range of the code,
    which for int8 is 127.5. A token of zeros stays zero. Each token is rounded by itself, whatever rows it comes with.
    """
    to, _, group_size = to.partition(" g")
    if group_size:
        width = x.shape[-1]
        groups = nn.functional.pad(x, (0, -width % int(group_size))).unflatten(-1, (-1, int(group_size)))
        return round_tokens(groups, to).flatten(-2)[..., :width]
    half = 127.5 if to == "int8" else torch.finfo(torch.float8_e4m3fn).max
    scale = x.abs().amax(-1, keepdim=True) / half
    steps = x / torch.where(scale == 0, torch.ones_like(scale), scale)
    if to == "int8":
        return steps.round_().clamp_(-128, 127) * scale
    return steps.clamp_(-half, half).to(torch.float8_e4m3fn).to(x.dtype) * scale
