"""A linear layer whose weight stays packed."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from qualgate.quant.activations import Rounding, round_inputs
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import TENSORS, PackedWeight


class QuantizedLinear(nn.Module):
    """y = x @ W.T + bias with W dequantized afresh in every forward: only what is packed is held in memory.

    activations: how x is rounded first; None takes it as it is.
    """

    def __init__(
        self, weight: PackedWeight, bias: torch.Tensor | None = None, activations: Rounding | None = None
    ) -> None:
        super().__init__()
        self.activations = activations
        self.out_features, self.in_features = weight.shape
        self._packed = weight
        for name in TENSORS:  # buffers, so that they move with the model and are counted
            self.register_buffer(name, getattr(weight, name))
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    @property
    def packed(self) -> PackedWeight:
        if self._packed.codes is not self._buffers["codes"]:  # the module was moved to another device
            self._packed = replace(self._packed, **{name: self._buffers[name] for name in TENSORS})
        return self._packed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features] → [..., out_features], in x's dtype."""
        if self.activations is not None:
            x = round_inputs(x, self.activations)
        return nn.functional.linear(x, dequantize_torch(self.packed).to(x.dtype), self.bias)

    def extra_repr(self) -> str:
        inputs = f", {self.activations.label} activations" if self.activations else ""
        return f"{self.in_features}, {self.out_features}, {self.packed.format}{inputs}"
