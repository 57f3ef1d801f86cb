"""Weights that are not quantized, and norms: a row's bits are its own, which torch's float32 linear breaks.

`prepare_dense` once, then `matmul_dense` with any number of rows, by the kernels of the device that the weight is on:
on a GPU see dense_gpu.py; in C x times the weight's numbers as they are (a bfloat16
weight is read as bfloat16), fused and summed in float32 in the order that cpu/c/weight.h gives. x bfloat16 times a
bfloat16 weight takes the processor's bfloat16 products where it has them; times another it is widened first.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from qualgate_kernels import availability, cpu
from qualgate_kernels.cpu import rows
from qualgate_kernels.cpu.dense_layout import DENSE_CODES, PreparedDense, arrange_dense, holds
from qualgate_kernels.cpu.dense_layout import restore_dense as restore_in_c
from qualgate_kernels.cpu.library import load


@dataclass(frozen=True, slots=True, eq=False)
class HeldDense:
    """A weight for GPUs' kernels. values: bfloat16, float16 or float32 [out_features, in_features], contiguous."""

    values: torch.Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """[out_features, in_features]."""
        return self.values.shape[0], self.values.shape[1]


Dense = PreparedDense | HeldDense


def prepare_dense(weight: torch.Tensor) -> Dense | str:
    """Return the weight in the layout of its device's kernels, or why torch has to multiply it.

    weight: bfloat16, float16 or float32 [out_features, in_features], any strides. It is kept in the
    narrowest of bfloat16, float16 and float32 that holds its numbers to the bit.
    """
    on_gpu = availability.on_triton(weight.device)
    if not on_gpu and isinstance(library := load(), str):
        return library
    if (weight.device.type != "cpu" and not on_gpu) or weight.layout != torch.strided:
        return f"no kernels take dense weights that are {weight.layout} on {weight.device}"
    if weight.dtype not in DENSE_CODES:
        return f"the {'GPU' if on_gpu else 'CPU'} kernels have no {str(weight.dtype).removeprefix('torch.')} weights"
    if weight.dim() != 2 or not weight.numel():
        return f"expected a weight [out_features >= 1, in_features >= 1], got {list(weight.shape)}"
    weight = weight.detach()
    if on_gpu:
        return HeldDense(weight.to(narrowest(weight)).contiguous())
    return arrange_dense(weight, narrowest(weight))


def matmul_dense(x: torch.Tensor, weight: Dense) -> torch.Tensor:
    """Multiply float32 x [rows, in_features], contiguous, on the weight's device → float32 [rows, out_features]."""
    if isinstance(weight, PreparedDense):
        return cpu.matmul(x, weight)
    from qualgate_kernels.dense_gpu import matmul_dense_triton

    return matmul_dense_triton(x, weight.values)


def restore_dense(weight: Dense) -> torch.Tensor:
    """The weight's numbers, equal to the bit; by the kernels in C in the dtype that they had."""
    return restore_in_c(weight) if isinstance(weight, PreparedDense) else weight.values


def rows_of(weight: Dense, which: torch.Tensor) -> torch.Tensor:
    """Some rows of the weight, float32 [n, in_features]. which: int64 [n]. IndexError for one that it has not."""
    return rows.rows_of(weight, which) if isinstance(weight, PreparedDense) else weight.values[which].float()


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """As `norm_torch`, by the kernel of a GPU, where torch's sum of a row may be another's beside it."""
    from qualgate_kernels.dense_gpu import norm_triton

    return norm_triton(x.contiguous(), weight.contiguous(), eps)


def norm_torch(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Root-mean-square norm of float32 x [..., width], times weight [width]: the torch twin."""
    return weight.float() * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps))


def narrowest(weight: torch.Tensor) -> torch.dtype:
    """Of bfloat16, float16 and float32 the first that holds a weight's numbers to the bit; else its own dtype, as of a
    weight with a NaN, whose bits a conversion may change."""
    # The largest is NaN where any number is, and costs a sixth of looking at each.
    if weight.dtype not in DENSE_CODES or not weight.numel() or bool(weight.amax().isnan()):
        return weight.dtype
    return next(storage for storage in DENSE_CODES if holds(storage, weight))


def matmul_dense_torch(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The torch twin, which is the specification but for the order of its sums: a product in float32, in x's dtype."""
    return torch.nn.functional.linear(x.float(), weight.float()).to(x.dtype)
