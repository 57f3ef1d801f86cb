"""RMS norms on GPUs by our own kernel: torch may sum a row differently inside a batch than alone.

Each module is tried, not looked up in a list: one that does more keeps its own code, and `row_check` decides whether
its rows are independent.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from qualgate_kernels.dense import norm, norm_torch

NEAR = 1e-5


class RowNorm(nn.Module):
    """weight * x / root mean square of x, in float32; a half-width x is rounded before the weight, as in
    transformers."""

    def __init__(self, was: Any) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = was.weight, float(was.variance_epsilon)
        self.was = (was,)  # in a tuple: no part of the model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the norm of x [..., width], in x's dtype."""
        if not x.numel():
            return x
        if x.dtype == torch.float32:
            return norm(x, self.weight, self.variance_epsilon)
        scaled = norm(x.float(), torch.ones_like(self.weight), self.variance_epsilon)
        return self.weight * scaled.to(x.dtype)


def lay_out(model: nn.Module) -> None:
    """Replace every RMS norm by a RowNorm."""
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
    """Recognize an RMS norm by its name, its contents, and its result on a few numbers."""
    weight, eps = getattr(module, "weight", None), getattr(module, "variance_epsilon", None)
    if not type(module).__name__.endswith("RMSNorm") or not isinstance(weight, torch.Tensor) or weight.dim() != 1:
        return False
    if not isinstance(eps, float) or len(list(module.parameters())) != 1 or len(list(module.buffers())):
        return False
    probe = torch.linspace(-2, 3, 2 * len(weight), device=weight.device).view(2, -1)
    with torch.inference_mode():
        return bool(torch.allclose(module(probe).float(), norm_torch(probe, weight, eps), rtol=NEAR, atol=NEAR))
