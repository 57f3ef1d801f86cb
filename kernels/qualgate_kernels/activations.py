"""Activations rounded to 8 bits as they come, each token by itself: the other operand of a W8A8 layer."""

from __future__ import annotations

import torch

GROUP = 128  # in_features that share a scale with "fp8 g128"


def half_range(bits: int) -> float:
    """Half the range of integers, as compressed-tensors counts it: what absmax is divided by for their scale."""
    return (2**bits - 1) / 2


HALF = {"int8": half_range(8), "fp8": 448.0}  # the fp8 code's largest number


def divisor(scale: torch.Tensor) -> torch.Tensor:
    """1 for a scale of 0, whose numbers become 0 all the same."""
    return torch.where(scale == 0, 1.0, scale)


def integers(x: torch.Tensor, scale: torch.Tensor, bits: int, zero_point: torch.Tensor | int = 0) -> torch.Tensor:
    """Return the codes nearest to x / scale, halves to the even one, the ends saturating, less their zero point;
    float32."""
    lowest = -(2 ** (bits - 1))
    steps = x / divisor(scale)
    return steps.add_(zero_point).round_().clamp_(lowest, -lowest - 1).sub_(zero_point)


def round_tokens_torch(x: torch.Tensor, to: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Round x [M, K] to codes int8 or float8_e4m3fn [M, K], and scales float32 [M, 1] or, with "fp8 g128", [M, ceil(K /
    128)].

    scale = absmax / half the code's range, in float32; code = x / scale, rounded to nearest even and clamped. Zeros
    have scale 0 and stay zeros.
    """
    to, _, grouped = to.partition(" ")
    rows, columns = x.shape
    x = x.float()
    if grouped:
        x = torch.nn.functional.pad(x, (0, -columns % GROUP)).view(-1, GROUP)
    scales = x.abs().amax(-1, keepdim=True) / HALF[to]
    if to == "int8":
        codes = integers(x, scales, bits=8).to(torch.int8)
    else:
        codes = (x / divisor(scales)).clamp(-HALF[to], HALF[to]).to(torch.float8_e4m3fn)
    return codes.view(rows, -1)[:, :columns], scales.view(rows, -1)


def rounded_torch(x: torch.Tensor, to: str) -> torch.Tensor:
    """Return the numbers that those codes stand for, float32 [M, K]. to: as for `round_tokens_torch`."""
    codes, scales = round_tokens_torch(x, to)
    return codes.float() * scales.repeat_interleave(GROUP if "g128" in to else x.shape[1], 1)[:, : x.shape[1]]
