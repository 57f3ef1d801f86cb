"""GPTQ: round one input column at a time and let the columns still to come make up for what it changed.

Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers" (2022), algorithm 1:
with H = sum of x x^T over the calibration tokens, rounding column k by e_k changes the output least when every later
column j moves by -e_k * U[k, j] / U[k, k], U the upper Cholesky factor of H's inverse.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from qualgate.quant.rounding import SHRINKS, Clip, Grid, fit_grid
from qualgate_kernels.packed import PackedWeight, pack_codes

DAMPING = 0.01  # of H's mean diagonal, added to it: calibration never spans every direction
_BLOCK = 128  # columns between two updates of all that follow


def gptq(
    weight: torch.Tensor,
    hessian: torch.Tensor,
    *,
    bits: int,
    group_size: int,
    symmetric: bool = True,
    act_order: str = "",
    clip: Clip = "",
    scale_dtype: torch.dtype = torch.bfloat16,
) -> PackedWeight:
    """Quantize `weight` [out_features, in_features] for inputs whose mean x x^T is `hessian` [in, in].

    act_order: "" left to right; "group" by falling H[k, k], and columns that follow each other share a scale, so the
    result has a g_idx; "static" in that order too, each column keeping the scale of its place. A column that no
    calibration token reached is rounded to nearest. Zero points are at least 1: the format of this method's first
    libraries, v1, stores them less one and has no place for 0. A float64 weight is worked on in float64, all others
    in float32. Raises ArithmeticError when H is not finite.
    """
    rows, columns = weight.shape
    size = group_size or columns
    original = weight if weight.dtype == torch.float64 else weight.float()
    order = torch.arange(columns, device=weight.device)
    if act_order:
        order = torch.argsort(hessian.diagonal(), descending=True, stable=True)
    inverse = _inverse_factor(hessian[order][:, order]).to(original.dtype)
    remaining = original[:, order].clone()

    def fit(group: torch.Tensor, importance: torch.Tensor) -> Grid:
        """Return the grid for `group` [out, size]; a clip search weighs each column by how much its rounding costs."""
        return fit_grid(
            group, bits, symmetric=symmetric, clip=clip, dtype=scale_dtype, shrinks=SHRINKS, least_zero=1,
            cost=lambda change: (change.square() * importance).sum(-1, keepdim=True),
        )  # fmt: skip

    # The cost of rounding column k when later columns make up for it: 1 / U[k, k]**2.
    cost = inverse.diagonal().reciprocal().square()
    places: list[int] = order.tolist()
    static: list[Grid] = []
    if act_order == "static":
        placed = torch.empty_like(cost).scatter_(0, order, cost)
        static = [fit(original[:, k : k + size], placed[k : k + size]) for k in range(0, columns, size)]
    grids: list[Grid] = list(static)

    def grid_of(column: int) -> Grid:
        """Return the grid of a column in working order; a group's is fitted at its first column."""
        if static:
            return static[places[column] // size]
        if column % size == 0:
            grids.append(fit(remaining[:, column : column + size], cost[column : column + size]))
        return grids[-1]

    codes = torch.empty(rows, columns, dtype=torch.uint8, device=weight.device)
    codes[:, order] = _compensated(remaining, inverse, grid_of, size if size >= _BLOCK else _BLOCK // size * size)
    g_idx = _groups(order, size) if act_order == "group" and group_size else None
    zeros = None if symmetric else torch.cat([grid.zero for grid in grids], 1).to(torch.uint8)
    return PackedWeight(
        code="int", bits=bits, shape=(rows, columns), group_size=group_size, codes=pack_codes(codes, bits),
        scales=torch.cat([grid.scale for grid in grids], 1), zero_points=zeros, g_idx=g_idx,
    )  # fmt: skip


def _groups(order: torch.Tensor, size: int) -> torch.Tensor:
    """int32 [in]: which group each column is in, when those that follow each other in `order` share one."""
    g_idx = torch.empty(len(order), dtype=torch.int32, device=order.device)
    g_idx[order] = torch.arange(len(order), dtype=torch.int32, device=order.device) // size
    return g_idx


def _compensated(left: torch.Tensor, inverse: torch.Tensor, grid_of: Callable[[int], Grid], block: int) -> torch.Tensor:
    """Return uint8 codes [out, in] of `left`, rounded column by column; each error moves the later columns, in place.

    inverse: U above; block: columns between two updates of all that follow.
    """
    codes = torch.empty(left.shape, dtype=torch.uint8, device=left.device)
    for start in range(0, left.shape[1], block):
        stop = min(start + block, left.shape[1])
        errors = left.new_empty(len(left), stop - start)
        for column in range(start, stop):
            grid, values = grid_of(column), left[:, column : column + 1]
            chosen = grid.codes(values)
            codes[:, column] = chosen.squeeze(1).to(torch.uint8)
            error = (values - grid.values(chosen)) / inverse[column, column]
            left[:, column + 1 : stop] -= error * inverse[column, column + 1 : stop]
            errors[:, column - start] = error.squeeze(1)
        left[:, stop:] -= errors @ inverse[start:stop, stop:]
    return codes


def _inverse_factor(hessian: torch.Tensor, damping: float = DAMPING) -> torch.Tensor:
    """Return the upper Cholesky factor of the damped inverse, float64; damping grows tenfold until it suffices."""
    if not hessian.isfinite().all():
        raise ArithmeticError("the inputs of this layer are not finite")
    damped = hessian.double()
    diagonal = damped.diagonal()
    untouched = diagonal == 0
    diagonal[untouched] = 1.0  # no token reached this input: nothing to make up for, and nothing known
    mean = diagonal[~untouched].mean() if not untouched.all() else diagonal.mean()
    while True:
        try:
            lower = torch.linalg.cholesky(damped + damping * mean * torch.eye(len(damped), device=damped.device))
            return torch.linalg.cholesky(torch.cholesky_inverse(lower), upper=True)
        except torch.linalg.LinAlgError:
            if damping > 10:
                raise ArithmeticError("the Hessian H cannot be inverted, even with damping") from None
            damping *= 10
