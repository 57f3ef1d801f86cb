"""Root-mean-square norms on GPUs, by our own kernel: torch may add up a row otherwise beside others than alone.

Which of a model's modules are such norms is tried on them, not looked up: one that does more keeps its own code, and
whether its rows are then their own is for `row_check` to say.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from qualgate_kernels.dense import norm, norm_torch

NEAR = 1e-5


class RowNorm(nn.Module):
    """weight * x / root of the mean of squares, in float32; of x in half of the width rounded before the weight, as
    transformers rounds it."""

    def __init__(self, was: Any) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = was.weight, float(was.variance_epsilon)
        self.was = (was,)  # in a tuple: no part of the model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., width], in x's dtype."""
        if not x.numel():
            return x
        if x.dtype == torch.float32:
            return norm(x, self.weight, self.variance_epsilon)
        scaled = norm(x.float(), torch.ones_like(self.weight), self.variance_epsilon)
        return self.weight * scaled.to(x.dtype)


def lay_out(model: nn.Module) -> None:
    """Put a RowNorm in the place of every module that is such a norm."""
    for name, module in _all(model):
        if _is_one(module):
            model.set_submodule(name, RowNorm(module))


def take_back(model: nn.Module) -> None:
    """Undo `lay_out`."""
    for name, module in _all(model):
        if isinstance(module, RowNorm):
            model.set_submodule(name, module.was[0])


def _all(model: nn.Module) -> list[tuple[str, nn.Module]]:
    return list(model.named_modules(remove_duplicate=False))


def _is_one(module: Any) -> bool:
    """By its name, by what it holds, and by what it makes of a few numbers."""
    weight, eps = getattr(module, "weight", None), getattr(module, "variance_epsilon", None)
    if not type(module).__name__.endswith("RMSNorm") or not isinstance(weight, torch.Tensor) or weight.dim() != 1:
        return False
    if not isinstance(eps, float) or len(list(module.parameters())) != 1 or len(list(module.buffers())):
        return False
    probe = torch.linspace(-2, 3, 2 * len(weight), device=weight.device).view(2, -1)
    with torch.inference_mode():
        return bool(torch.allclose(module(probe).float(), norm_torch(probe, weight, eps), rtol=NEAR, atol=NEAR))
