"""Run a model's own modules in bfloat16 or float16 as transformers does: each result is rounded when it is stored.
Products stay in our kernels, which sum in float32, and angles stay in float32 until heads are rotated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from qualgate.engine.dense import DenseEmbedding, DenseLinear
from qualgate.quant.linear import QuantizedLinear

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PRODUCTS = DenseLinear, QuantizedLinear  # modules that add their bias in float32


@contextmanager
def half_width(model: PreTrainedModel, dtype: str) -> Iterator[None]:
    """Make `model` compute in `dtype` inside the block; "float32" changes nothing. Its weights are rounded to `dtype`
    before, so they are unchanged afterwards."""
    narrow = getattr(torch, dtype)
    if narrow == torch.float32:
        yield
        return
    widened = [(parameter, parameter.data) for parameter in _own_floats(model)]
    hooks = []
    for module in model.modules():
        if isinstance(module, DenseEmbedding | nn.Embedding):
            hooks.append(module.register_forward_hook(lambda module, inputs, out: out.to(narrow)))
        elif type(module).__name__.endswith("RotaryEmbedding"):
            hooks.append(module.register_forward_hook(lambda module, inputs, out: _rounded(out, narrow)))
    try:
        for parameter, numbers in widened:
            parameter.data = numbers.to(narrow)
        yield
    finally:
        for parameter, numbers in widened:
            parameter.data = numbers
        for hook in hooks:
            hook.remove()


def _own_floats(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that a model's modules compute with directly: norms, own biases, positions."""
    product_ids = {
        id(parameter) for module in model.modules() if isinstance(module, PRODUCTS) for parameter in module.parameters()
    }
    return [
        parameter
        for parameter in model.parameters()
        if parameter.is_floating_point() and id(parameter) not in product_ids
    ]


def _rounded(angles: Any, dtype: torch.dtype) -> Any:
    """Round cosines and sines as a server stores them, but keep float32, as heads are until they are rotated."""
    if isinstance(angles, tuple) and all(isinstance(table, torch.Tensor) for table in angles):
        return tuple(table.to(dtype).float() for table in angles)
    return angles
