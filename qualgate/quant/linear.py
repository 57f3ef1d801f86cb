"""A linear layer whose weight stays packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from qualgate.quant.activations import PER_TOKEN, Rounding, round_inputs
from qualgate.quant.mapped import give_back
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.dispatch import Fused, fuse
from qualgate_kernels.packed import TENSORS, PackedWeight
from qualgate_kernels.stacked import Together, stacked

# Roundings that a fused kernel may do itself, by the kernels' name for them.
KERNELS_ROUND: dict[Rounding | None, str] = {
    PER_TOKEN["int8"]: "int8",
    PER_TOKEN["fp8"]: "fp8",
    Rounding(code="e4m3", bits=8, group_size=128): "fp8 g128",
}


class QuantizedLinear(nn.Module):
    """y = x @ W.T + bias: only what is packed is held in memory.

    The torch twin dequantizes W afresh in every forward, until `fuse` hands the layer to the fused kernel.

    activations: how x is rounded first; None takes it as it is.
    """

    def __init__(
        self, weight: PackedWeight, bias: torch.Tensor | None = None, activations: Rounding | None = None
    ) -> None:
        """Hold a packed weight. activations: how inputs are rounded before the product, None for not at all."""
        super().__init__()
        self.activations = activations
        self.out_features, self.in_features = weight.shape
        self._packed = weight
        self._fused: Fused | None = None
        self._together: tuple[Together, int] | None = None  # the siblings' common product, and this layer's place in it
        for name in TENSORS:  # buffers, so that they move with the model and are counted
            self.register_buffer(name, getattr(weight, name))
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def fuse(self) -> str:
        """Lay the weight out for the fused kernel of the device it is on; to move it afterwards is not foreseen.

        Returns the kernel's name, or "torch twin: " and why there is none; then nothing changes.
        """
        fused = fuse(self.packed, KERNELS_ROUND.get(self.activations, ""))
        if isinstance(fused, str):
            return f"torch twin: {fused}"
        stored = self.packed.tensors.values()
        self._take(fused, fused.tensors)
        for tensor in stored:
            give_back(tensor)
        return fused.kernel

    def _take(self, fused: Fused, tensors: dict[str, torch.Tensor]) -> None:
        self._fused = fused
        for name in TENSORS:
            setattr(self, name, None)
        for name, tensor in tensors.items():  # counted, as the packed ones were
            self.register_buffer(f"fused_{name}", tensor)

    @property
    def packed(self) -> PackedWeight:
        """The weight as stored. RuntimeError once it is laid out for a fused kernel."""
        if self._fused is not None:
            raise RuntimeError("this layer's weight is laid out for a fused kernel; read it before `fuse`")
        if self._packed.codes is not self._buffers["codes"]:  # the module was moved to another device
            moved: dict[str, Any] = {name: self._buffers[name] for name in TENSORS}
            self._packed = replace(self._packed, **moved)
        return self._packed

    @property
    def layout(self) -> object:
        """The weight as a kernel in C has it that does all of this layer but its bias; None where none does."""
        if self._fused is None or (self.activations is not None and not self._fused.rounds):
            return None
        return self._fused.layout if self._together is None else self._together[0].fused.layout

    @property
    def together(self) -> Together | None:
        """What it was fused into with the layers that read its input."""
        return None if self._together is None else self._together[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features] → [..., out_features], in x's dtype; of no rows too."""
        if not x.numel():
            return x.new_zeros(*x.shape[:-1], self.out_features)
        if x.is_cpu and x.dtype != torch.float32:  # a bias is added before the sum is rounded
            return self.forward(x.float()).to(x.dtype)
        if self.activations is not None and not (self._fused and self._fused.rounds):
            x = round_inputs(x, self.activations)
        if self._fused is None:
            return nn.functional.linear(x, dequantize_torch(self.packed).to(x.dtype), self.bias)

        def rows() -> torch.Tensor:
            return x.reshape(-1, self.in_features).contiguous()

        if self._together is None:
            product = self._fused.multiply(rows())
        else:
            together, index = self._together
            product = together.product(index, x, rows)
        product = product.view(*x.shape[:-1], self.out_features)
        return product if self.bias is None else product.add_(self.bias)

    def extra_repr(self) -> str:
        """What torch prints of it."""
        inputs = f", {self.activations.label} activations" if self.activations else ""
        return f"{self.in_features}, {self.out_features}, {self._packed.format}{inputs}"


def fuse_together(layers: Sequence[QuantizedLinear]) -> list[str]:
    """Fuse each layer; layers that read one input become one matrix if their weights have a common layout."""
    if len(layers) > 1 and len({layer.activations for layer in layers}) == 1:
        activations = layers[0].activations
        stack = stacked([layer.packed for layer in layers])
        fused = None if stack is None else fuse(stack, KERNELS_ROUND.get(activations, ""))
        # Inputs rounded outside the kernel are a new tensor for each layer: nothing would be shared.
        if isinstance(fused, Fused) and (activations is None or fused.rounds):
            together = Together(fused, [layer.out_features for layer in layers])
            for index, layer in enumerate(layers):
                layer._take(fused, {} if index else fused.tensors)
                layer._together = (together, index)
            return [fused.kernel] * len(layers)
    return [layer.fuse() for layer in layers]
