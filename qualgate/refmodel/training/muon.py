"""Muon: momentum whose step is made orthogonal, for the hidden matrices of the reference model.

`torch.optim.Muon` does the Newton-Schulz iteration in bfloat16, matrix by matrix; on a CPU that costs more than the
model's own step. Here it runs over all matrices of one shape at once, in bfloat16 only where the CPU has units for it.
"""

# transformers and torch type these attributes and calls too loosely for a checker.
# pyrefly: ignore-errors[bad-override]
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # coefficients of the quintic, Jordan et al. 2024


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Return the nearest orthogonal matrices, approximately: [n, rows, columns] -> the same, singular values near 1."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised; a step of rms `0.2 * lr`, so that AdamW's learning rates carry over."""

    def __init__(
        self,
        matrices: Iterable[torch.Tensor],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        bf16: bool = False,
    ):
        """Optimize `matrices`. bf16: orthogonalise in bfloat16, else in float32."""
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.dtype = torch.bfloat16 if bf16 else torch.float32

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update every matrix by its gradient; matrices of one shape are orthogonalised together."""
        for group in self.param_groups:
            same_shape = defaultdict(list)
            for matrix in group["params"]:
                if "momentum" not in self.state[matrix]:
                    self.state[matrix]["momentum"] = torch.zeros_like(matrix)
                momentum = self.state[matrix]["momentum"].lerp_(matrix.grad, 1 - group["momentum"])
                same_shape[matrix.shape].append((matrix, torch.lerp(matrix.grad, momentum, group["momentum"])))
            for shape, pairs in same_shape.items():
                updates = orthogonal(torch.stack([update for _, update in pairs]).to(self.dtype)).float()
                scale = 0.2 * max(shape) ** 0.5 * group["lr"]
                for (matrix, _), update in zip(pairs, updates, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-scale)
