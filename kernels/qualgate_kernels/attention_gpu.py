"""Attention over a quantized key-value cache on GPUs (Triton). Its specification is `attend_torch` in attention.py.

A program takes PACK rows of one key head (its query heads side by side) and goes through spans of the cache in
order. Few rows on a long cache would leave most of the GPU idle, so there each span is a program of its own and
`combine_kernel` puts the partial results together: the same steps in the same order, and so the same bits.
"""

# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# Triton's decorator keeps the signature, but a kernel is launched with other arguments than its own.
from __future__ import annotations

import torch
import triton
import triton.language as tl

from qualgate_kernels.attention import PACK, SPAN, TILE, QuantizedCache

PROGRAMS = 264  # two for each multiprocessor of an H200; with as many, spans need no programs of their own
OPTIONS = {"num_warps": 8, "num_stages": 2, "enable_fp_fusion": False}  # one rounding a step, in both ways alike


@triton.jit
def _halves(codes, scales, head, capacity, here, DIM: tl.constexpr, INT4: tl.constexpr, DTYPE: tl.constexpr):
    """Both halves of the head's dimensions of these positions, [TILE, DIM // 2] each; times scales unless None."""
    columns = tl.arange(0, DIM // 2)
    if INT4:
        byte = tl.load(codes + (head * capacity + here).to(tl.int64)[:, None] * (DIM // 2) + columns[None, :])
        low = (byte & 15).to(tl.float32) - 8.0
        high = (byte >> 4).to(tl.float32) - 8.0
    else:
        at = codes + (head * capacity + here).to(tl.int64)[:, None] * DIM + columns[None, :]
        low, high = tl.load(at).to(tl.float32), tl.load(at + DIM // 2).to(tl.float32)
    if scales is not None:
        scale = tl.load(scales + head * capacity + here)[:, None]
        low, high = low * scale, high * scale
    return low.to(DTYPE), high.to(DTYPE)


@triton.jit(do_not_specialize=["group", "rows", "packs", "spans"])  # one machine code, whatever the rows
def attend_kernel(
    query, keys, key_scales, channel_scales, values, value_scales, start, out, partial, totals,
    heads, group, rows, capacity, packs, spans, scale,
    DIM: tl.constexpr, INT4: tl.constexpr, CHANNELS: tl.constexpr, SPLIT: tl.constexpr,
    PACK: tl.constexpr, TILE: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """query, out: [batch * heads * group, rows, DIM]; SPLIT: this program takes the span of its third index alone and
    leaves partial float32 [batch * heads, packs, spans, PACK, DIM] and totals [.., 2, PACK]."""
    pack, head = tl.program_id(0), tl.program_id(1)
    DTYPE: tl.constexpr = query.dtype.element_ty
    packed = pack * PACK + tl.arange(0, PACK)
    row, member = packed // group, packed % group
    row_ok = row < rows
    columns = tl.arange(0, DIM // 2)
    at = ((head * group + member).to(tl.int64) * rows + row)[:, None] * DIM + columns[None, :]
    low = tl.load(query + at, mask=row_ok[:, None], other=0.0)
    high = tl.load(query + at + DIM // 2, mask=row_ok[:, None], other=0.0)
    if CHANNELS:
        channel = channel_scales + (head % heads) * DIM + columns
        low = (low.to(tl.float32) * tl.load(channel)[None, :]).to(DTYPE)
        high = (high.to(tl.float32) * tl.load(channel + DIM // 2)[None, :]).to(DTYPE)
    begin = tl.load(start + head // heads).to(tl.int32)
    limit = begin + tl.minimum(row, rows - 1)
    end = begin + tl.minimum((pack * PACK + PACK - 1) // group, rows - 1) + 1  # positions any of these rows sees
    first = 0
    if SPLIT:
        first = tl.program_id(2) * SPAN
        end = tl.minimum(end, first + SPAN)
    best = tl.full([PACK], -float("inf"), tl.float32)
    total = tl.zeros([PACK], tl.float32)
    sum_low = tl.zeros([PACK, DIM // 2], tl.float32)
    sum_high = tl.zeros([PACK, DIM // 2], tl.float32)
    for span in range(first, end, SPAN):
        new_best = tl.full([PACK], -float("inf"), tl.float32)
        new_total = tl.zeros([PACK], tl.float32)
        new_low = tl.zeros([PACK, DIM // 2], tl.float32)
        new_high = tl.zeros([PACK, DIM // 2], tl.float32)
        for tile in range(span, tl.minimum(span + SPAN, end), TILE):
            here = tile + tl.arange(0, TILE)
            key_low, key_high = _halves(keys, None, head, capacity, here, DIM, INT4, DTYPE)
            logits = tl.dot(low, tl.trans(key_low), input_precision="ieee")
            logits = tl.dot(high, tl.trans(key_high), logits, input_precision="ieee") * scale
            if not CHANNELS:
                logits = logits * tl.load(key_scales + head * capacity + here)[None, :]
            logits = tl.where(here[None, :] > limit[:, None], -float("inf"), logits)
            higher = tl.maximum(new_best, tl.max(logits, axis=1))
            anchor = tl.where(higher == -float("inf"), 0.0, higher)
            kept, weight = tl.exp(new_best - anchor), tl.exp(logits - anchor[:, None])
            value_low, value_high = _halves(values, value_scales, head, capacity, here, DIM, INT4, DTYPE)
            rounded = weight.to(DTYPE)
            new_total = new_total * kept + tl.sum(weight, axis=1)
            new_low = new_low * kept[:, None] + tl.dot(rounded, value_low, input_precision="ieee")
            new_high = new_high * kept[:, None] + tl.dot(rounded, value_high, input_precision="ieee")
            new_best = higher
        if SPLIT:
            best, total, sum_low, sum_high = new_best, new_total, new_low, new_high
        else:
            best, total, sum_low, sum_high = _combined(
                best, total, sum_low, sum_high, new_best, new_total, new_low, new_high
            )
    if SPLIT:
        place = (head * packs + pack) * spans + tl.program_id(2)
        lane = tl.arange(0, PACK)
        tl.store(totals + place * 2 * PACK + lane, best)
        tl.store(totals + place * 2 * PACK + PACK + lane, total)
        put = partial + (place.to(tl.int64) * PACK + lane)[:, None] * DIM + columns[None, :]
        tl.store(put, sum_low)
        tl.store(put + DIM // 2, sum_high)
    else:
        tl.store(out + at, (sum_low / total[:, None]).to(DTYPE), mask=row_ok[:, None])
        tl.store(out + at + DIM // 2, (sum_high / total[:, None]).to(DTYPE), mask=row_ok[:, None])


@triton.jit
def _combined(best, total, low, high, its_best, its_total, its_low, its_high):
    higher = tl.maximum(best, its_best)
    anchor = tl.where(higher == -float("inf"), 0.0, higher)
    first, second = tl.exp(best - anchor), tl.exp(its_best - anchor)
    return (
        higher,
        total * first + its_total * second,
        low * first[:, None] + its_low * second[:, None],
        high * first[:, None] + its_high * second[:, None],
    )


@triton.jit(do_not_specialize=["group", "rows", "packs", "spans"])
def combine_kernel(partial, totals, out, group, rows, packs, spans, DIM: tl.constexpr, PACK: tl.constexpr):
    """Spans in ascending order; one that no row of the pack sees has weight 0."""
    pack, head = tl.program_id(0), tl.program_id(1)
    lane, columns = tl.arange(0, PACK), tl.arange(0, DIM // 2)
    best = tl.full([PACK], -float("inf"), tl.float32)
    total = tl.zeros([PACK], tl.float32)
    low = tl.zeros([PACK, DIM // 2], tl.float32)
    high = tl.zeros([PACK, DIM // 2], tl.float32)
    for span in range(spans):
        place = (head * packs + pack) * spans + span
        its_best = tl.load(totals + place * 2 * PACK + lane)
        its_total = tl.load(totals + place * 2 * PACK + PACK + lane)
        at = partial + (place.to(tl.int64) * PACK + lane)[:, None] * DIM + columns[None, :]
        best, total, low, high = _combined(
            best, total, low, high, its_best, its_total, tl.load(at), tl.load(at + DIM // 2)
        )
    packed = pack * PACK + lane
    row, member = packed // group, packed % group
    put = out + ((head * group + member).to(tl.int64) * rows + row)[:, None] * DIM + columns[None, :]
    tl.store(put, (low / total[:, None]).to(out.dtype.element_ty), mask=(row < rows)[:, None])
    tl.store(put + DIM // 2, (high / total[:, None]).to(out.dtype.element_ty), mask=(row < rows)[:, None])


def attend_triton(
    query: torch.Tensor, cache: QuantizedCache, start: torch.Tensor, scale: float, *, split: bool | None = None
) -> torch.Tensor:
    """As attention.attend_torch, with arguments that attention.check has seen; head_dim a power of two.

    `split` is for tests: the bits are the same.
    """
    batch, query_heads, rows, dim = query.shape
    group = query_heads // cache.heads
    packs = -(-rows * group // PACK)
    spans = triton.cdiv(int(start.max()) + rows, SPAN)
    if split is None:
        split = bool(spans > 1 and packs * batch * cache.heads < PROGRAMS)
    out = torch.empty_like(query)
    kept = spans if split else 0
    partial = torch.empty(batch * cache.heads, packs, kept, PACK, dim, device=query.device)
    totals = torch.empty(batch * cache.heads, packs, kept, 2, PACK, device=query.device)
    nothing = totals  # a pointer that is not followed
    attend_kernel[(packs, batch * cache.heads, spans if split else 1)](
        query, cache.keys, nothing if cache.key_scales is None else cache.key_scales,
        nothing if cache.key_channel_scales is None else cache.key_channel_scales,
        cache.values, cache.value_scales, start, out, partial, totals,
        cache.heads, group, rows, cache.capacity, packs, spans, scale, **constants(cache, split), **OPTIONS,
    )  # fmt: skip
    if split:
        combine_kernel[(packs, batch * cache.heads)](
            partial, totals, out, group, rows, packs, spans, DIM=dim, PACK=PACK, **OPTIONS
        )
    return out


def constants(cache: QuantizedCache, split: bool) -> dict[str, int | bool]:
    """What `attend_kernel` is compiled for: one program for each combination."""
    return {
        "DIM": cache.head_dim, "INT4": cache.format == "int4", "CHANNELS": cache.key_scales is None, "SPLIT": split,
        "PACK": PACK, "TILE": TILE, "SPAN": SPAN,
    }  # fmt: skip
