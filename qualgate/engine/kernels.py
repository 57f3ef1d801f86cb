"""Hands an arm's packed layers to the fused kernels, and says what multiplies them."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from torch import nn

from qualgate.quant.linear import QuantizedLinear

LONGEST = 200  # characters that a store keeps


def choose_kernels(model: nn.Module, kernels: Literal["fused", "torch"]) -> str:
    """Fuse every packed layer that a kernel of its device covers (or none, with "torch"). The model is on its device.

    Returns what serves: "" without packed layers, "c avx512", or, where several do, each with its number of layers:
    "c avx512 (35), torch twin: nf4 ... (1)".
    """
    layers = [module for module in model.modules() if isinstance(module, QuantizedLinear)]
    served = Counter(layer.fuse() if kernels == "fused" else "torch twin: asked for" for layer in layers)
    if len(served) == 1:
        return next(iter(served))[:LONGEST]
    return ", ".join(f"{name} ({count})" for name, count in sorted(served.items()))[:LONGEST]
