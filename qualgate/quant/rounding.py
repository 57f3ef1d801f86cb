"""From float weights to integer codes and scales: round to nearest, with a search for where the range should end.

Symmetric: q = clamp(round(w / scale)), scale = absmax / ((2**bits - 1) / 2), the zero in the middle of the codes. All
codes are used (for int2: -2, -1, 0, 1), as in GPTQ's and compressed-tensors' symmetric formats; with absmax / qmax
int2 would be ternary and round most weights to zero. Asymmetric: the range runs from the smallest to the largest
weight, zero included, and a zero point says which code is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

Clip = Literal["", "mse", "percentile"]
SHRINKS = tuple(1 - step / 50 for step in range(41))  # of the range: 1.00, 0.98, ... 0.20
PERCENTILES = (1.0, 0.9999, 0.999, 0.995, 0.99, 0.98, 0.97, 0.95, 0.93, 0.9)


@dataclass(frozen=True, slots=True)
class Grid:
    """The numbers that codes of one or many scales stand for: (code - zero) * scale, code = 0 .. 2**bits - 1.

    scale, zero: broadcast against the weights; scale in the dtype it is stored in, zero float32 and whole.
    """

    bits: int
    scale: torch.Tensor
    zero: torch.Tensor

    def codes(self, weight: torch.Tensor) -> torch.Tensor:
        """Nearest codes, float32: halves go to the even multiple of the scale."""
        return torch.round(weight / self.scale.float()).add_(self.zero).clamp_(0, 2**self.bits - 1)

    def values(self, codes: torch.Tensor) -> torch.Tensor:
        """What codes stand for."""
        return (codes - self.zero) * self.scale.float()

    def round(self, weight: torch.Tensor) -> torch.Tensor:
        """The nearest values."""
        return self.values(self.codes(weight))


def grid_of(
    low: torch.Tensor, high: torch.Tensor, bits: int, symmetric: bool, dtype: torch.dtype, least_zero: int = 0
) -> Grid:
    """Return the grid whose range is `low` (<= 0) to `high` (>= 0), its scale rounded to `dtype`.

    least_zero: the smallest zero point, where 0 is not to be had; the range then begins below the smallest weight.

    The codes belong to the scale as stored, so it is rounded first. A scale that is 0 in its dtype, as that of a group
    of zeros, becomes 1: every weight then gets the code of 0, and no reader meets a scale of 0.
    """
    steps = 2**bits - 1
    span = 2 * torch.maximum(-low, high) if symmetric else high - low
    scale = span / steps
    if least_zero and not symmetric:
        scale = torch.where(-low < (least_zero - 0.5) * scale, high / (steps - least_zero), scale)
    scale = scale.to(dtype)
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    zero = torch.full_like(span, 2 ** (bits - 1))
    if not symmetric:
        zero = (-low / scale.float()).round_().clamp_(least_zero, steps)
    return Grid(bits, scale, zero)


def fit_grid(
    weight: torch.Tensor,
    bits: int,
    *,
    symmetric: bool = True,
    clip: Clip = "",
    cost: Callable[[torch.Tensor], torch.Tensor] | None = None,
    dtype: torch.dtype = torch.bfloat16,
    shrinks: Sequence[float] = SHRINKS,
    least_zero: int = 0,
) -> Grid:
    """Return one grid for each group: weight float32 [..., n], scale and zero [..., 1].

    clip: "" takes the whole range; "mse" tries `shrinks`, fractions of it, "percentile" 10 quantiles of the weights,
    and each group keeps the one with the least cost. cost: from what rounding changed [..., n] to [..., 1], by default
    the sum of its squares.
    """
    best: Grid | None = None
    least = torch.empty(0)
    for low, high in _ranges(weight, symmetric, clip, shrinks):
        grid = grid_of(low, high, bits, symmetric, dtype, least_zero)
        if not clip:
            return grid
        change = grid.round(weight).sub_(weight)
        costs = change.square_().sum(-1, keepdim=True) if cost is None else cost(change)
        if best is None:
            best, least = grid, costs
            continue
        better = costs < least
        least = torch.where(better, costs, least)
        best = Grid(bits, torch.where(better, grid.scale, best.scale), torch.where(better, grid.zero, best.zero))
    assert best is not None
    return best


def _ranges(
    weight: torch.Tensor, symmetric: bool, clip: Clip, shrinks: Sequence[float]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the ranges (low, high) [.., 1] to try: by percentiles, shrunk by each of `shrinks`, or the full one."""
    if clip == "percentile":
        spread = weight.abs() if symmetric else weight
        ordered = spread.sort(-1).values
        for share in PERCENTILES:
            # Of the sorted weights, without interpolation: torch.quantile refuses more than 16 million of them.
            index = round(share * (weight.shape[-1] - 1))
            high = ordered[..., index : index + 1].clamp(min=0)
            low = -high if symmetric else ordered[..., weight.shape[-1] - 1 - index :][..., :1].clamp(max=0)
            yield low, high
        return
    low = weight.amin(-1, keepdim=True).clamp(max=0)
    high = weight.amax(-1, keepdim=True).clamp(min=0)
    for shrink in shrinks if clip else (1.0,):
        yield low * shrink, high * shrink


def round_to_nearest(
    weight: torch.Tensor,
    bits: int,
    group_size: int,
    *,
    symmetric: bool = True,
    clip: Clip = "",
    dtype: torch.dtype = torch.bfloat16,
    per_tensor: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return codes, scales and zero points of a whole weight [out_features, in_features].

    Returns codes as uint8 of that shape; scales in `dtype` [out_features, groups], or [1, 1] per tensor; zero points
    as uint8 of the scales' shape, None when symmetric. group_size 0: the whole row.
    """
    rows, columns = weight.shape
    grouped = weight.float().reshape((1, -1) if per_tensor else (rows, -1, group_size or columns))
    grid = fit_grid(grouped, bits, symmetric=symmetric, clip=clip, dtype=dtype)
    codes = grid.codes(grouped).to(torch.uint8).view(weight.shape)
    across = (1, 1) if per_tensor else (rows, -1)
    return codes, grid.scale.view(across), None if symmetric else grid.zero.to(torch.uint8).view(across)
