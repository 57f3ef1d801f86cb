"""AWQ: scale up the inputs that matter before rounding, then search how far each group's range may shrink.

Lin et al., "AWQ: Activation-aware Weight Quantization" (2023). The scale of an input is mean|x|**ratio; the ratio with
the least error in the layers' output is kept, 0 (no scaling) among them. The output error is exact: it is computed from
the mean of x x^T, not from a sample.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from qualgate.quant.inputs import output_error
from qualgate.quant.rounding import fit_grid
from qualgate_kernels.packed import PackedWeight, pack_codes

RATIOS = tuple(step / 20 for step in range(20))
SHRINKS = tuple(1 - step / 40 for step in range(21))  # 1.0 to 0.5


def search_scale(
    weights: Sequence[torch.Tensor],
    magnitude: torch.Tensor,
    gram: torch.Tensor,
    *,
    bits: int,
    group_size: int,
    symmetric: bool,
    spread: Sequence[int] | torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the best scale [channels] for layers `weights`, each [out, in], that read inputs with mean x x^T `gram`.

    magnitude: mean |x| of each channel; spread: [in_features], the channel of each input (None: one each).
    """
    channel_of_input = (
        torch.arange(len(magnitude), device=magnitude.device) if spread is None else torch.as_tensor(spread)
    )
    best, least = torch.ones_like(magnitude), float("inf")
    for ratio in RATIOS:
        scale = magnitude.clamp(min=1e-4).pow(ratio)
        scale = scale / (scale.max() * scale.min()).sqrt()
        input_scale = scale[channel_of_input]
        error = 0.0
        for weight in weights:
            scaled = (weight * input_scale).view(weight.shape[0], -1, group_size or weight.shape[1])
            rounded = fit_grid(scaled, bits, symmetric=symmetric).round(scaled).view(weight.shape) / input_scale
            error += output_error(rounded - weight, gram)
        if error < least:
            best, least = scale, error
    return best


def round_clipped(
    weight: torch.Tensor,
    gram: torch.Tensor,
    *,
    bits: int,
    group_size: int,
    symmetric: bool,
    scale_dtype: torch.dtype = torch.bfloat16,
) -> PackedWeight:
    """Round to nearest with the range of each group that changes the output least, as far as groups are independent."""
    rows, columns = weight.shape
    size = group_size or columns
    grouped = weight.float().view(rows, -1, size)
    groups = torch.arange(columns // size, device=weight.device)
    blocks = gram.view(len(groups), size, len(groups), size)[groups, :, groups]  # [groups, size, size]

    def cost(change: torch.Tensor) -> torch.Tensor:
        moved = torch.einsum("ngi,gij->ngj", change, blocks)
        return (moved * change).sum(-1, keepdim=True)

    grid = fit_grid(grouped, bits, symmetric=symmetric, clip="mse", cost=cost, dtype=scale_dtype, shrinks=SHRINKS)
    return PackedWeight(
        code="int", bits=bits, shape=(rows, columns), group_size=group_size,
        codes=pack_codes(grid.codes(grouped).to(torch.uint8).view(rows, columns), bits),
        scales=grid.scale.squeeze(-1),
        zero_points=None if symmetric else grid.zero.squeeze(-1).to(torch.uint8),
    )  # fmt: skip
