"""Weights that are not quantized, and norms, on GPUs (Triton): a row's bits are its own, which torch's products break.

x is float32. A bfloat16 weight multiplies the three bfloat16 terms that add up to it, on tensor cores; another weight
takes float32 products, of which no tensor core has one. How K is parted follows from the weight's shape alone, and
parts are added in ascending order, whether they run side by side or one after the other. Tiles are narrow, so that
every one multiplies by the same instruction: Hopper's and Blackwell's wider ones may add in another order. torch twins:
`matmul_dense_torch` and `norm_torch` of dense.py. Compiled and interpreted; not run on a GPU yet.
"""

# pyrefly: ignore-errors[bad-argument-type, unexpected-keyword]
# Triton's decorator keeps the signature, but a kernel is launched with other arguments than its own.
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from qualgate_kernels.availability import interpreted
from qualgate_kernels.terms import product, terms

ROWS = 64  # out_features of a program
TILES = (16, 32)  # rows of x of a program
SIDE_BY_SIDE = 32  # rows of x up to which parts of K are programs of their own
PROGRAMS = 264  # two for each multiprocessor of an H200
MOST_PARTS = 8
ADDED = 512  # out_features of a program that adds parts


@triton.jit(do_not_specialize=["M"])
def dense_kernel(
    x, weight, out, M, N, K, blocks, parts,
    TERMS: tl.constexpr, OPERAND: tl.constexpr, ROWS: tl.constexpr, TOKENS: tl.constexpr, BLOCK: tl.constexpr,
    SPLIT: tl.constexpr,
):  # fmt: skip
    """Grid (N / ROWS, parts or 1, M / TOKENS). x: float32 [M, K]; out: float32 [M, N], of SPLIT [parts, M, N]; blocks:
    of a part."""
    n, m = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(2) * TOKENS + tl.arange(0, TOKENS)
    columns = tl.arange(0, BLOCK)
    begin, end = 0, parts
    if SPLIT:
        begin, end = tl.program_id(1), tl.program_id(1) + 1
    x_at = x + m.to(tl.int64)[:, None] * K + columns[None, :]
    weight_at = weight + n.to(tl.int64)[None, :] * K + columns[:, None]
    there, wanted = (m < M)[:, None], (n < N)[None, :]
    total = tl.zeros([TOKENS, ROWS], tl.float32)
    for part in range(begin, end):
        first = part * blocks * BLOCK
        made = tl.zeros([TOKENS, ROWS], tl.float32)
        for k in range(first, tl.minimum(first + blocks * BLOCK, K), BLOCK):
            inside = k + columns < K
            numbers = tl.load(x_at + k, mask=there & inside[None, :], other=0.0)
            w = tl.load(weight_at + k, mask=wanted & inside[:, None], other=0.0).to(OPERAND)
            x1, x2, x3 = terms(numbers, TERMS, OPERAND)
            made += product(x1, x2, x3, w, TERMS)
        total += made
    place = m.to(tl.int64)[:, None] * N + n[None, :]
    if SPLIT:
        place += tl.program_id(1).to(tl.int64) * M * N
    tl.store(out + place, total, mask=there & wanted)


@triton.jit(do_not_specialize=["M"])
def add_parts_kernel(made, out, M, N, parts, ADDED: tl.constexpr):
    """Grid (N / ADDED, M). made: float32 [parts, M, N]; out: float32 [M, N]."""
    row, columns = tl.program_id(1).to(tl.int64), tl.program_id(0) * ADDED + tl.arange(0, ADDED)
    mask = columns < N
    total = tl.zeros([ADDED], tl.float32)
    for part in range(parts):
        total += tl.load(made + (part * M.to(tl.int64) + row) * N + columns, mask=mask, other=0.0)
    tl.store(out + row * N + columns, total, mask=mask)


@triton.jit
def norm_kernel(x, weight, out, width, eps, BLOCK: tl.constexpr):
    """Grid (rows). x, out: float32 [rows, width]; weight: float [width]; BLOCK: width or the next power of 2."""
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    mask = columns < width
    numbers = tl.load(x + row * width + columns, mask=mask, other=0.0)
    mean = tl.sum(numbers * numbers, axis=0) / width
    scaled = numbers * (1.0 / tl.sqrt(mean + eps))
    by = tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row * width + columns, by * scaled, mask=mask)


def matmul_dense_triton(x: torch.Tensor, weight: torch.Tensor, *, split: bool | None = None) -> torch.Tensor:
    """Multiply float32 x [rows >= 1, in_features], contiguous → float32 [rows, out_features].

    `split` is for tests: the bits are the same.
    """
    (count, _), (out_features, in_features) = x.shape, weight.shape
    blocks, parts = parted(out_features, in_features, weight.dtype)
    split = (parts > 1 and count <= SIDE_BY_SIDE) if split is None else split
    out = torch.empty(count, out_features, device=x.device)
    target = torch.empty(parts, count, out_features, device=x.device) if split else out
    tokens = TILES[count > TILES[0]]
    grid = (triton.cdiv(out_features, ROWS), parts if split else 1, triton.cdiv(count, tokens))
    dense_kernel[grid](
        x, weight, target, count, out_features, in_features, blocks, parts,
        **constants(weight.dtype, tokens, split), **options(weight.dtype),
    )  # fmt: skip
    if split:
        add_parts_kernel[(triton.cdiv(out_features, ADDED), count)](
            target, out, count, out_features, parts, ADDED=ADDED, num_warps=4
        )
    return out


def norm_triton(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """As `dense.norm_torch`, of contiguous tensors."""
    width = x.shape[-1]
    out = torch.empty_like(x)
    norm_kernel[(x.numel() // width,)](x, weight, out, width, eps, **norm_constants(width), **norm_options(width))
    return out


def block_of(dtype: torch.dtype) -> int:
    """in_features of a turn of the loop: as many as need no more registers than there are."""
    return 64 if dtype == torch.bfloat16 else 16


def parted(out_features: int, in_features: int, dtype: torch.dtype) -> tuple[int, int]:
    """Return (blocks of a part of K, parts): enough parts for two programs on every multiprocessor, of four blocks at
    least."""
    all_blocks = -(-in_features // block_of(dtype))
    parts = max(1, min(PROGRAMS // -(-out_features // ROWS), all_blocks // 4, MOST_PARTS))
    blocks = -(-all_blocks // parts)
    return blocks, -(-all_blocks // blocks)  # no empty part


def constants(dtype: torch.dtype, tokens: int, split: bool) -> dict[str, Any]:
    """Return what `dense_kernel` is compiled for: one program for each combination."""
    narrow = dtype == torch.bfloat16
    return {
        "TERMS": 3 if narrow else 1,
        "OPERAND": tl.bfloat16 if narrow and not interpreted() else tl.float32,  # which multiplies no bfloat16
        "ROWS": ROWS, "TOKENS": tokens, "BLOCK": block_of(dtype), "SPLIT": split,
    }  # fmt: skip


def options(dtype: torch.dtype) -> dict[str, Any]:
    """What the compiler is told: no contraction, so that both ways round alike."""
    narrow = dtype == torch.bfloat16
    return {
        "num_warps": 4 if narrow else 8, "num_stages": 3 if narrow else 2, "maxnreg": 255, "enable_fp_fusion": False,
    }  # fmt: skip


def norm_constants(width: int) -> dict[str, Any]:
    """What `norm_kernel` is compiled for."""
    return {"BLOCK": triton.next_power_of_2(width)}


def norm_options(width: int) -> dict[str, Any]:
    """By the width alone: how many threads add belongs to a row's bits."""
    return {"num_warps": 4 if width <= 4096 else 16, "enable_fp_fusion": False}
