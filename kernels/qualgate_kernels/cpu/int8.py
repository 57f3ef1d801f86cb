"""int8 inputs times int8 weights (W8A8): inputs rounded one scale a token, products summed exactly in int32.

Another format, not a faster way to compute int8 weights: choose it by what the checkpoint says, never by row count.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from qualgate_kernels.activations import round_tokens_torch
from qualgate_kernels.cpu.layout import BLOCK, Unsupported
from qualgate_kernels.cpu.library import INT8_PATHS, Library, check, default_threads, load
from qualgate_kernels.dequantize import scales_float
from qualgate_kernels.packed import PackedWeight
from qualgate_kernels.pages import zeros

DEEPEST = 131071  # in_features whose products of -128 * -128 still fit an int32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedInt8:
    """codes: int8 [blocks, in / 4, 64, 4]; sums: int32, 128 * each column's sum; scales: float32 [blocks * 64]"""

    shape: tuple[int, int]
    codes: torch.Tensor
    sums: torch.Tensor
    scales: torch.Tensor


def round_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x [M, K] → int8 codes and float32 scales [M]."""
    codes, scales = round_tokens_torch(x, "int8")
    return codes, scales.squeeze(-1)


def prepare_int8(packed: PackedWeight) -> PreparedInt8:
    """Return a symmetric int8 weight with one scale a row or for all. Unsupported (a ValueError) for any other."""
    if not isinstance(library := load(), Library):
        raise Unsupported(library)
    rows, columns = packed.shape
    plain = packed.zero_points is None and packed.offsets is None and packed.g_idx is None
    if packed.code != "int" or packed.bits != 8 or packed.groups != 1 or packed.block_rows > 1 or not plain:
        raise Unsupported(f"{packed.format}: int8 products take symmetric int8 weights, one scale a row")
    if packed.codes.device.type != "cpu" or columns > DEEPEST:
        raise Unsupported(f"{packed.format}: expected up to {DEEPEST} in_features on the CPU")
    codes = (packed.codes.to(torch.int16) - 128).to(torch.int8)
    codes = torch.nn.functional.pad(codes, (0, -columns % 4, 0, -rows % BLOCK))
    scales = torch.zeros(codes.shape[0])
    scales[:rows] = scales_float(packed).flatten()
    fours = codes.view(-1, BLOCK, codes.shape[1] // 4, 4).transpose(1, 2)
    return PreparedInt8(
        shape=packed.shape,
        codes=zeros(tuple(fours.shape), torch.int8).copy_(fours),
        sums=(codes.sum(-1, dtype=torch.int64) * 128).to(torch.int32),
        scales=scales,
    )


def matmul_int8(
    x: torch.Tensor, x_scales: torch.Tensor, weight: PreparedInt8, *, threads: int | None = None, path: str = ""
) -> torch.Tensor:
    """float32 [M, N] = float32(x @ codes.T) * x_scales[:, None] * scales, in that order, each rounded to float32.

    x: int8 [M, K] and x_scales: float32 [M], of `round_rows`; path: one of INT8_PATHS, for tests: all give these bits
    """
    columns = weight.shape[1]
    if x.dtype != torch.int8 or x.dim() != 2 or x.shape[0] < 1 or x.shape[1] != columns or not x.is_contiguous():
        raise ValueError(f"x: expected contiguous int8 [rows >= 1, {columns}], got {x.dtype} {list(x.shape)}")
    if x_scales.dtype != torch.float32 or x_scales.shape != x.shape[:1] or not x_scales.is_contiguous():
        raise ValueError(f"x_scales: expected float32 [{x.shape[0]}], got {x_scales.dtype} {list(x_scales.shape)}")
    if x.device.type != "cpu" or x_scales.device.type != "cpu":
        raise ValueError(f"x, x_scales: expected tensors on the CPU, got {x.device}, {x_scales.device}")
    threads = default_threads() if threads is None else threads
    if type(threads) is not int or threads < 1:
        raise ValueError(f"threads: expected 1 or more, got {threads!r}")
    if not isinstance(library := load(), Library):
        raise ValueError(f"the CPU kernels are not there: {library}")
    out = torch.empty((x.shape[0], weight.shape[0]))
    check(
        library.handle.qualgate_matmul_int8(
            weight.codes.data_ptr(), weight.codes.nbytes, weight.sums.data_ptr(), weight.scales.data_ptr(),
            weight.scales.nbytes, *weight.shape, x.data_ptr(), x_scales.data_ptr(), x.shape[0], out.data_ptr(),
            threads, INT8_PATHS[path or library.int8_paths[-1]],
        )
    )  # fmt: skip
    return out


def matmul_int8_torch(x: torch.Tensor, x_scales: torch.Tensor, packed: PackedWeight) -> torch.Tensor:
    """The torch twin, which is the specification: sums in int64, equal to the bit."""
    sums = x.long() @ (packed.codes.long() - 128).T
    return sums.float() * x_scales[:, None] * scales_float(packed).flatten()
