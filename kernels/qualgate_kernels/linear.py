"""A quantized linear layer: `prepare` a PackedWeight once, `matmul` it with activations ever after.

On a GPU the Triton kernels multiply the packed weight as it lies in memory. What they do not cover, and every other
device, is left to the torch twin, `matmul_torch`, which is also what they must compute. The choice is made once, by
`prepare`, and stands in what it returns.
"""

from __future__ import annotations

import torch

from qualgate_kernels.activations import rounded_torch
from qualgate_kernels.availability import unavailable
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.packed import PackedWeight
from qualgate_kernels.planes import Prepared, lay_out, left_to_twin

FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def prepare(packed: PackedWeight, activations: str = "") -> Prepared:
    """`packed` laid out for the kernels on the device it is on, or for the torch twin; `twin_because` says why.

    activations: "" takes x as it is; "int8", "fp8" (one scale a token), "fp8 g128" (one for 128 in_features) round it
    """
    if reason := unavailable(packed.codes.device, activations):
        return left_to_twin(packed, activations, reason)
    return lay_out(packed, activations)


def matmul(x: torch.Tensor, prepared: Prepared, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x [M, K] times the weight's transpose, plus bias [N]: [M, N] in x's dtype, summed in float32.

    x: float16, bfloat16 or float32, rows any distance apart. A row of the result does not depend on the other rows.
    The kernels split float32 into three bfloat16 terms that add up to it, so no bit of it is lost.
    """
    _check(x, prepared, bias)
    if prepared.twin is not None:
        return matmul_torch(x, prepared.twin, prepared.activations, bias)
    from qualgate_kernels import launch

    if prepared.order is not None:
        x = x.index_select(1, prepared.order)
    return launch.product(x, prepared, bias)


def matmul_torch(
    x: torch.Tensor, packed: PackedWeight, activations: str = "", bias: torch.Tensor | None = None
) -> torch.Tensor:
    """What `matmul` must return, in plain torch: rounded activations and dequantized weight, multiplied in float32."""
    rounded = rounded_torch(x, activations) if activations else x.float()
    added = None if bias is None else bias.float()
    return torch.nn.functional.linear(rounded, dequantize_torch(packed), added).to(x.dtype)


def _check(x: torch.Tensor, prepared: Prepared, bias: torch.Tensor | None) -> None:
    """Raise ValueError for inputs or a bias that the kernels do not take."""
    out_features, in_features = prepared.like.shape
    if x.dtype not in FLOATS:
        raise ValueError(f"x: expected float16, bfloat16 or float32, got {x.dtype}")
    if x.ndim != 2 or x.shape[1] != in_features:
        raise ValueError(f"x: expected [rows, {in_features}], got {list(x.shape)}")
    if x.shape[0] == 0:
        raise ValueError("x: expected at least one row, got none")
    if x.stride(1) != 1 and in_features > 1:
        raise ValueError(f"x: expected in_features side by side in memory, got stride {x.stride(1)}")
    if x.shape[0] > 1 and x.stride(0) < in_features:
        raise ValueError(f"x: expected rows that do not overlap, got stride {x.stride(0)}")
    if x.device != prepared.device:
        raise ValueError(f"x: expected a tensor on {prepared.device}, where the weight is, got {x.device}")
    if bias is not None and (
        bias.dtype not in FLOATS or tuple(bias.shape) != (out_features,) or bias.device != x.device
        or not bias.is_contiguous()
    ):  # fmt: skip
        raise ValueError(
            f"bias: expected a contiguous float tensor [{out_features}] on {x.device}, "
            f"got {bias.dtype} {list(bias.shape)} on {bias.device}"
        )
