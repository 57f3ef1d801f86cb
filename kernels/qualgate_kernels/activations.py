"""Activations rounded to 8 bits as they come, each token by itself: the other operand of a W8A8 layer."""

from __future__ import annotations

import torch

GROUP = 128  # in_features that share a scale with "fp8 g128"
HALF = {"int8": 127.5, "fp8": 448.0}  # half the range of the code, as compressed-tensors counts it


def round_tokens_torch(x: torch.Tensor, to: str) -> tuple[torch.Tensor, torch.Tensor]:
    """x [M, K] → codes int8 or float8_e4m3fn [M, K], and scales float32 [M, 1] or, with "fp8 g128", [M, ceil(K / 128)].

    scale = absmax / half the code's range, in float32; code = x / scale, rounded to nearest even and clamped. Zeros
    have scale 0 and stay zeros.
    """
    to, _, grouped = to.partition(" ")
    rows, columns = x.shape
    x = x.float()
    if grouped:
        x = torch.nn.functional.pad(x, (0, -columns % GROUP)).view(-1, GROUP)
    scales = x.abs().amax(-1, keepdim=True) / HALF[to]
    steps = x / torch.where(scales == 0, torch.ones_like(scales), scales)
    if to == "int8":
        codes = steps.round().clamp(-128, 127).to(torch.int8)
    else:
        codes = steps.clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes.view(rows, -1)[:, :columns], scales.view(rows, -1)


def rounded_torch(x: torch.Tensor, to: str) -> torch.Tensor:
    """The numbers those codes stand for, float32 [M, K]."""
    codes, scales = round_tokens_torch(x, to)
    return codes.float() * scales.repeat_interleave(GROUP if "g128" in to else x.shape[1], 1)[:, : x.shape[1]]
