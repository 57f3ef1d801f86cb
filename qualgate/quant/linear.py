"""A linear layer whose weight stays packed."""

from __future__ import annotations

import torch
from torch import nn

from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import PackedWeight


class QuantizedLinear(nn.Module):
    """y = x @ W.T + bias with W dequantized afresh in every forward: only codes and scales are held in memory."""

    codes: torch.Tensor
    scales: torch.Tensor

    def __init__(self, weight: PackedWeight, bias: torch.Tensor | None = None) -> None:
        super().__init__()
        self.format, self.group_size = weight.format, weight.group_size
        self.out_features, self.in_features = weight.shape
        self.register_buffer("codes", weight.codes)
        self.register_buffer("scales", weight.scales)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    @property
    def packed(self) -> PackedWeight:
        return PackedWeight(
            format=self.format,
            shape=(self.out_features, self.in_features),
            group_size=self.group_size,
            codes=self.codes,
            scales=self.scales,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features] → [..., out_features], in x's dtype."""
        return nn.functional.linear(x, dequantize_torch(self.packed).to(x.dtype), self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {self.format}, group_size={self.group_size}"
