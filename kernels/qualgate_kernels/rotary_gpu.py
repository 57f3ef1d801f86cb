"""Queries and keys turned by their positions on GPUs (Triton), in one launch. torch twin: `rotary.turn_torch`.

The result lies row by row, as attention over blocks takes it. Compiled and interpreted; not run on a GPU yet.
"""

# pyrefly: ignore-errors[bad-argument-count, bad-argument-type]
# Triton's decorator keeps the signature, but a kernel is launched with other arguments than its own.
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

OPTIONS: dict[str, Any] = {"num_warps": 1, "enable_fp_fusion": False}  # each step is rounded by itself


@triton.jit
def _turn(here, there, cosine1, sine1, cosine2, sine2, mask, HALF: tl.constexpr):
    """One head. here, there: where the numbers of its first half are read and written."""
    first = tl.load(here, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(here + HALF, mask=mask, other=0.0).to(tl.float32)
    tl.store(there, first * cosine1 + -second * sine1, mask=mask)
    tl.store(there + HALF, second * cosine2 + first * sine2, mask=mask)


@triton.jit
def turn_kernel(
    query, key, cosines, sines, turned_query, turned_key, heads, kv_heads, query_head, query_row, key_head, key_row,
    HALF: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid (rows, heads + kv_heads). query, key: float, a head and a row so many numbers apart; cosines, sines: float32
    [rows, 2 * HALF]; turned_query, turned_key: float32 [rows, heads, 2 * HALF]; BLOCK: HALF or the next power of 2."""
    row, head, columns = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, BLOCK)
    mask, angle = columns < HALF, row * (2 * HALF) + columns
    cosine1, sine1 = tl.load(cosines + angle, mask=mask), tl.load(sines + angle, mask=mask)
    cosine2, sine2 = tl.load(cosines + angle + HALF, mask=mask), tl.load(sines + angle + HALF, mask=mask)
    if head < heads:
        here = query + row * query_row + head.to(tl.int64) * query_head + columns
        there = turned_query + (row * heads + head) * (2 * HALF) + columns
        _turn(here, there, cosine1, sine1, cosine2, sine2, mask, HALF)
    else:
        head -= heads
        here = key + row * key_row + head.to(tl.int64) * key_head + columns
        there = turned_key + (row * kv_heads + head) * (2 * HALF) + columns
        _turn(here, there, cosine1, sine1, cosine2, sine2, mask, HALF)


def turn_triton(
    query: torch.Tensor, key: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """As rotary.turn_torch, of what `rotary.misfit` has nothing to say of; in memory [rows, heads, head_dim]."""
    _, heads, rows, dim = query.shape
    kv_heads = key.shape[1]
    outputs = [torch.empty(1, rows, count, dim, device=query.device) for count in (heads, kv_heads)]
    turn_kernel[(rows, heads + kv_heads)](
        query, key, cosines, sines, *outputs, heads, kv_heads, query.stride(1), query.stride(2), key.stride(1),
        key.stride(2), **constants(dim), **OPTIONS,
    )  # fmt: skip
    return outputs[0].transpose(1, 2), outputs[1].transpose(1, 2)


def constants(dim: int) -> dict[str, Any]:
    """What `turn_kernel` is compiled for."""
    return {"HALF": dim // 2, "BLOCK": triton.next_power_of_2(dim // 2)}
