"""Weights that are not quantized, for the C kernels: a row's bits are its own, which torch's float32 linear breaks.

`prepare_dense` once, then `cpu.matmul` with any number of rows: x times the weight's numbers as they are (a bfloat16
weight is read as bfloat16), fused and summed in float32 in the order that cpu/c/weight.h gives. x bfloat16 times a
bfloat16 weight takes the processor's bfloat16 products where it has them; times another it is widened first.
"""

from __future__ import annotations

import torch

from qualgate_kernels.cpu.dense_layout import DENSE_CODES, PreparedDense, arrange_dense, holds, restore_dense
from qualgate_kernels.cpu.library import load
from qualgate_kernels.cpu.rows import rows_of

__all__ = ["PreparedDense", "matmul_dense_torch", "narrowest", "prepare_dense", "restore_dense", "rows_of"]


def prepare_dense(weight: torch.Tensor) -> PreparedDense | str:
    """The weight in the kernels' layout, or why torch has to multiply it.

    weight: bfloat16, float16 or float32 [out_features, in_features] on the CPU, any strides. It is kept in the
    narrowest of bfloat16, float16 and float32 that holds its numbers to the bit.
    """
    library = load()
    if isinstance(library, str):
        return library
    if weight.device.type != "cpu" or weight.layout != torch.strided:
        return f"the CPU kernels take dense weights on the CPU, this one is {weight.layout} on {weight.device}"
    if weight.dtype not in DENSE_CODES:
        return f"the CPU kernels have no {str(weight.dtype).removeprefix('torch.')} weights"
    if weight.dim() != 2 or not weight.numel():
        return f"expected a weight [out_features >= 1, in_features >= 1], got {list(weight.shape)}"
    weight = weight.detach()
    return arrange_dense(weight, narrowest(weight))


def narrowest(weight: torch.Tensor) -> torch.dtype:
    """Of bfloat16, float16 and float32 the first that holds a weight's numbers to the bit; else its own dtype."""
    if weight.dtype not in DENSE_CODES:
        return weight.dtype
    return next(storage for storage in DENSE_CODES if holds(storage, weight))


def matmul_dense_torch(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The torch twin, which is the specification but for the order of its sums: a product in float32, in x's dtype."""
    return torch.nn.functional.linear(x.float(), weight.float()).to(x.dtype)
