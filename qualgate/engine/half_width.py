"""A model's own modules in bfloat16 or float16, as transformers computes in these: each operation's result is rounded
where it is stored. Products stay our kernels', which sum in float32, and angles stay in float32 until heads are turned.
"""

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

PRODUCTS = DenseLinear, QuantizedLinear  # which add their bias in float32


@contextmanager
def half_width(model: PreTrainedModel, dtype: str) -> Iterator[None]:
    """Inside the block, `model` computes in `dtype`; "float32": as it did. Its weights were rounded to that before, so
    that they are afterwards what they were."""
    narrow = getattr(torch, dtype)
    if narrow == torch.float32:
        yield
        return
    widened = [(one, one.data) for one in _own_floats(model)]
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
    """Parameters that a model's modules compute with themselves: norms, biases of their own, positions."""
    ours = {id(one) for module in model.modules() if isinstance(module, PRODUCTS) for one in module.parameters()}
    return [one for one in model.parameters() if one.is_floating_point() and id(one) not in ours]


def _rounded(angles: Any, dtype: torch.dtype) -> Any:
    """Cosines and sines as a server stores them, but in float32: so are heads until they have been turned."""
    if isinstance(angles, tuple) and all(isinstance(one, torch.Tensor) for one in angles):
        return tuple(one.to(dtype).float() for one in angles)
    return angles
