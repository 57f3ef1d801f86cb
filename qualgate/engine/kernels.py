"""Fuse an arm's packed layers for the kernels, and report what multiplies them."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from torch import nn

from qualgate.quant.layers import fused_with
from qualgate.quant.linear import QuantizedLinear, fuse_together

LONGEST = 200  # characters that a store keeps


def choose_kernels(model: nn.Module, kernels: Literal["fused", "torch"]) -> str:
    """Fuse every packed layer that a kernel of its device supports (or none, with "torch"). The model is on its device.
    Layers with the same input (q, k and v; gate and up) become one matrix if possible.

    Returns what multiplies them: "" without packed layers, "c avx512", or, for several, each with its number of layers:
    "c avx512 (35), torch twin: nf4 ... (1)".
    """
    layers = {name: module for name, module in model.named_modules() if isinstance(module, QuantizedLinear)}
    served: Counter[str] = Counter()
    if kernels == "torch":
        served["torch twin: asked for"] = len(layers)
    else:
        for together in dict.fromkeys(
            tuple(member for member in fused_with(name) if member in layers) for name in layers
        ):
            served.update(fuse_together([layers[name] for name in together]))
    served = +served  # without what serves nothing
    if len(served) == 1:
        return next(iter(served))[:LONGEST]
    return ", ".join(f"{name} ({count})" for name, count in sorted(served.items()))[:LONGEST]
