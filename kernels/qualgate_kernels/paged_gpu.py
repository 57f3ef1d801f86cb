"""Attention over blocks of keys and values on GPUs (Triton). Its specification is paged.py with its torch twins.

A program takes a pack of PACK pairs (row, query head) that read one head of keys, all of one run: rows of one sequence
that follow each other. It meets positions in tiles, in order; SPAN positions make a partial result (highest logit, sum
of weights, weighted values), and partial results are combined in ascending order. Tiles and spans begin at fixed
positions and are of one size whatever the rows, so a row of a prefill has the bits it has alone. Few rows on long
sequences would leave most of the GPU idle, so there each span is a program of its own and `merge_spans_kernel` puts
the partial results together: the same steps in the same order, and so the same bits.

Queries, weights and sums are float32. Where keys and values are bfloat16 a product is three of tensor cores: a float32
is the sum of three bfloat16, exactly. Where they are float32 no tensor core has their product, and none is used. Codes
(fp8, int8, int4) are multiplied as bfloat16, which holds each; a position's scale is a factor of its logits and of its
weights, and int4's least number adds its share to either, so nothing is expanded in memory.

Rows of a pack share a product, in which 0 times infinity would reach rows that do not see the infinity. So `keep` lets
no value into a block that is not finite: it keeps 0 there and NaN as the position's key (of codes as its key's scale),
which whoever sees the position gets, in the whole head, and nobody else. Blocks are to be filled by it alone.
"""

# pyrefly: ignore-errors[bad-argument-count, bad-argument-type, unexpected-keyword]
# Triton's decorator keeps the signature, but a kernel is launched with other arguments than its own.
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from qualgate_kernels.availability import interpreted
from qualgate_kernels.kept import form_of
from qualgate_kernels.kept_numbers import kept
from qualgate_kernels.packs import PACK, SPAN, PreparedPlaces, prepare
from qualgate_kernels.paged import Blocks, Places, Seen, lay
from qualgate_kernels.slots import SLOTS
from qualgate_kernels.terms import product, terms

TILE_BYTES = 16_384  # of keys, as many of values
PROGRAMS = 264  # two for each multiprocessor of an H200; with as many, spans need no programs of their own
PARTIALS = 16_384  # partial results that may be kept, of up to 16 KiB


@triton.jit
def _read(at, mask, shift, FORM: tl.constexpr, OPERAND: tl.constexpr):
    """Load what is kept at `at`, as OPERAND: numbers, or codes without their scale. shift: of int4, to a code's
    bits."""
    stored = tl.load(at, mask=mask, other=0)
    if FORM == 2:  # e4m3, without its instructions, which GPUs before 8.9 have not
        code = stored.to(tl.int32) & 127
        large = ((code << 20) + (120 << 23)).to(tl.float32, bitcast=True)
        number = tl.where(code < 8, code.to(tl.float32) * 0.001953125, large)
        number = tl.where(code == 127, float("nan"), number)
        return tl.where(stored.to(tl.int32) > 127, -number, number).to(OPERAND)
    elif FORM == 4:
        return ((stored.to(tl.int32) >> shift) & 15).to(tl.float32).to(OPERAND)
    elif FORM == 3:
        return stored.to(tl.float32).to(OPERAND)
    else:
        return stored.to(OPERAND)


@triton.jit
def _scales(scales, whole, block, place, FORM: tl.constexpr, SLOTS: tl.constexpr):
    """Return, for positions, float32: (what a code is multiplied by, what is added then). block: times heads, of this
    head."""
    if FORM == 2:
        return whole, 0.0
    elif FORM == 3:
        return tl.load(scales + block * SLOTS + place).to(tl.float32), 0.0
    elif FORM == 4:
        at = scales + block * (2 * SLOTS) + place
        return tl.load(at).to(tl.float32), tl.load(at + SLOTS).to(tl.float32)
    else:
        return 1.0, 0.0


@triton.jit
def _through(
    q1, q2, q3, q_sum, keys, values, key_scales, value_scales, key_scale, value_scale, count, blocks, head, kv_heads,
    begin, stop, first, last, low, high, scale, soft_cap,
    DIM: tl.constexpr, WIDTH: tl.constexpr, FORM: tl.constexpr, OPERAND: tl.constexpr, TERMS: tl.constexpr,
    CAP: tl.constexpr, PACK: tl.constexpr, TILE: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """The state after the tiles from `begin` up to `stop`. Rows see `first` to `last`, together `low` to `high`; one
    that sees nothing of a tile keeps its state, to the bit."""
    columns = tl.arange(0, WIDTH)
    HELD: tl.constexpr = DIM // 2 if FORM == 4 else DIM  # elements of a head: int4 has two numbers in each
    element, shift = columns % HELD, columns // HELD * 4
    best = tl.full([PACK], -float("inf"), tl.float32)
    total = tl.zeros([PACK], tl.float32)
    summed = tl.zeros([PACK, WIDTH], tl.float32)
    for tile in range(begin, stop, TILE):
        here = tl.multiple_of(tile, TILE) + tl.arange(0, TILE)
        there = (here // SLOTS >= low // SLOTS) & (here // SLOTS <= high // SLOTS)
        block = tl.load(blocks + here // SLOTS, mask=there, other=0)
        block = tl.where((block >= 0) & (block < count), block, 0)  # rows far apart may not see one between them
        block = block.to(tl.int64) * kv_heads + head
        at = block * (HELD * SLOTS)
        key_at = keys + (at + here % SLOTS)[None, :] + (element * SLOTS)[:, None]
        key = _read(key_at, (columns < DIM)[:, None], shift[:, None], FORM, OPERAND)
        logits = product(q1, q2, q3, key, TERMS)
        step, least = _scales(key_scales, key_scale, block, here % SLOTS, FORM, SLOTS)
        if FORM == 2:
            logits = logits * step
        elif FORM > 2:
            logits = logits * step[None, :]
        if FORM == 4:
            logits += q_sum[:, None] * least[None, :]
        logits = logits * scale
        if CAP:
            logits = soft_cap * _tanh(logits / soft_cap)
        seen = (here[None, :] >= first[:, None]) & (here[None, :] <= last[:, None])
        logits = tl.where(seen, logits, -float("inf"))
        higher = tl.maximum(best, tl.max(logits, axis=1))
        anchor = tl.where(higher == -float("inf"), 0.0, higher)  # nothing seen yet: every weight is exp(-inf) = 0
        decay, weight = tl.exp(best - anchor), tl.exp(logits - anchor[:, None])
        value_at = values + (at + here % SLOTS * HELD)[:, None] + element[None, :]
        value = _read(value_at, (columns < DIM)[None, :], shift[None, :], FORM, OPERAND)
        total = total * decay + tl.sum(weight, axis=1)
        summed = summed * decay[:, None]
        step, least = _scales(value_scales, value_scale, block, here % SLOTS, FORM, SLOTS)
        if FORM == 4:
            summed += tl.sum(weight * least[None, :], axis=1)[:, None]
        if FORM == 2:
            weight = weight * step
        elif FORM > 2:
            weight = weight * step[None, :]
        w1, w2, w3 = terms(weight, TERMS, OPERAND)
        summed += product(w1, w2, w3, value, TERMS)
        best = higher
    return best, total, summed


@triton.jit
def _tanh(x):
    e = tl.exp(-2.0 * tl.abs(x))
    y = (1.0 - e) / (1.0 + e)
    return tl.where(x < 0.0, -y, y)


@triton.jit
def _combined(best, total, summed, its_best, its_total, its_summed):
    higher = tl.maximum(best, its_best)
    anchor = tl.where(higher == -float("inf"), 0.0, higher)
    factor, its_factor = tl.exp(best - anchor), tl.exp(its_best - anchor)
    return higher, total * factor + its_total * its_factor, summed * factor[:, None] + its_summed * its_factor[:, None]


@triton.jit
def _finish(out, mask, best, total, summed, sinks, SINKS: tl.constexpr):
    """Store the result of the last state, after the sinks took their share of the weights."""
    if SINKS:
        sink = tl.load(sinks)
        higher = tl.maximum(best, sink)
        decay = tl.exp(best - higher)
        total = total * decay + tl.exp(sink - higher)
        summed = summed * decay[:, None]
    tl.store(out, summed / total[:, None], mask=mask)


@triton.jit
def _pairs(packs, heads, group, DIM: tl.constexpr, WIDTH: tl.constexpr, PACK: tl.constexpr):
    """Return, of this program's pairs: (the run's first row, rows, query heads, which of them there are, their offsets
    in
    query and out, and where these hold numbers)."""
    pack = packs + tl.program_id(0) * 4
    start, rows, number = tl.load(pack), tl.load(pack + 1), tl.load(pack + 2)
    pair, columns = number * PACK + tl.arange(0, PACK), tl.arange(0, WIDTH)
    row, query_head = start + pair // group, tl.program_id(1) * group + pair % group
    ok = pair // group < rows
    at = (row.to(tl.int64) * heads + query_head)[:, None] * DIM + columns[None, :]
    return start, row, query_head, ok, at, ok[:, None] & (columns < DIM)[None, :]


@triton.jit(  # one machine code, whatever a pass brings, and wherever that begins in memory
    do_not_specialize=["count", "table_width", "spans", "window"],
    do_not_specialize_on_alignment=["query", "table", "sequence", "position"],
)
def attend_paged_kernel(
    query, keys, values, key_scales, value_scales, table, sequence, position, packs, sinks, out, partial, totals,
    count, heads, kv_heads, table_width, spans, scale, soft_cap, window, key_scale, value_scale,
    DIM: tl.constexpr, WIDTH: tl.constexpr, FORM: tl.constexpr, OPERAND: tl.constexpr, TERMS: tl.constexpr,
    CAP: tl.constexpr, SINKS: tl.constexpr, SPLIT: tl.constexpr,
    PACK: tl.constexpr, TILE: tl.constexpr, SPAN: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """Grid (packs, kv_heads, spans or 1). query, out: float32 [rows, heads, DIM]; count: blocks that there are; WIDTH:
    DIM or the next power of two; FORM: a `Form.kind`.

    SPLIT: this program takes the span of its third index alone and leaves partial float32 [packs, kv_heads, spans,
    PACK, DIM] and totals [.., 2, PACK].
    """
    head = tl.program_id(1)
    start, row, query_head, ok, at, mask = _pairs(packs, heads, heads // kv_heads, DIM, WIDTH, PACK)
    asks = tl.load(query + at, mask=mask, other=0.0)
    q1, q2, q3 = terms(asks, TERMS, OPERAND)
    q_sum = tl.sum(asks, axis=1)
    last = tl.load(position + row, mask=ok, other=-1)  # a pair that is not there sees nothing
    first = tl.maximum(last - window + 1, 0)
    high = tl.max(last)
    low = tl.minimum(tl.min(tl.where(ok, first, 2147483647)), high + 1)  # 0 for a pack without pairs
    blocks = table + tl.load(sequence + start).to(tl.int64) * table_width
    begin, stop = low // SPAN * SPAN, high + 1
    if SPLIT:
        begin += tl.program_id(2) * SPAN
        stop = tl.minimum(stop, begin + SPAN)
    best = tl.full([PACK], -float("inf"), tl.float32)
    total = tl.zeros([PACK], tl.float32)
    summed = tl.zeros([PACK, WIDTH], tl.float32)
    for span in range(begin, stop, SPAN):
        its_best, its_total, its_summed = _through(
            q1, q2, q3, q_sum, keys, values, key_scales, value_scales, key_scale, value_scale, count, blocks, head,
            kv_heads, tl.maximum(span, low // TILE * TILE), tl.minimum(span + SPAN, stop), first, last, low, high,
            scale, soft_cap, DIM, WIDTH, FORM, OPERAND, TERMS, CAP, PACK, TILE, SLOTS,
        )  # fmt: skip
        if SPLIT:
            best, total, summed = its_best, its_total, its_summed
        else:
            best, total, summed = _combined(best, total, summed, its_best, its_total, its_summed)
    if SPLIT:
        lane, columns = tl.arange(0, PACK), tl.arange(0, WIDTH)
        place = (tl.program_id(0) * kv_heads + head).to(tl.int64) * spans + tl.program_id(2)
        tl.store(totals + place * (2 * PACK) + lane, best)
        tl.store(totals + place * (2 * PACK) + PACK + lane, total)
        tl.store(partial + (place * PACK + lane)[:, None] * DIM + columns[None, :], summed, mask=mask)
    else:
        _finish(out + at, mask, best, total, summed, sinks + query_head, SINKS)


@triton.jit(do_not_specialize=["spans"])
def merge_spans_kernel(
    partial, totals, packs, sinks, out, heads, kv_heads, spans,
    DIM: tl.constexpr, WIDTH: tl.constexpr, SINKS: tl.constexpr, PACK: tl.constexpr,
):  # fmt: skip
    """Grid (packs, kv_heads): a pack's own spans in ascending order."""
    _, _, query_head, _, at, mask = _pairs(packs, heads, heads // kv_heads, DIM, WIDTH, PACK)
    lane, columns = tl.arange(0, PACK), tl.arange(0, WIDTH)
    best = tl.full([PACK], -float("inf"), tl.float32)
    total = tl.zeros([PACK], tl.float32)
    summed = tl.zeros([PACK, WIDTH], tl.float32)
    for span in range(tl.load(packs + tl.program_id(0) * 4 + 3)):
        place = (tl.program_id(0) * kv_heads + tl.program_id(1)).to(tl.int64) * spans + span
        its_best = tl.load(totals + place * (2 * PACK) + lane)
        its_total = tl.load(totals + place * (2 * PACK) + PACK + lane)
        place_of_sum = partial + (place * PACK + lane)[:, None] * DIM + columns[None, :]
        its_summed = tl.load(place_of_sum, mask=mask, other=0.0)
        best, total, summed = _combined(best, total, summed, its_best, its_total, its_summed)
    _finish(out + at, mask, best, total, summed, sinks + query_head, SINKS)


@triton.jit
def _rounded(x, DTYPE: tl.constexpr):
    """float32 → the nearest number of DTYPE, ties to even; NaN stays. Still a float32."""
    if tl.bfloat16 == DTYPE:
        bits = x.to(tl.int32, bitcast=True)
        nearest = ((bits + 32767 + ((bits >> 16) & 1)) & -65536).to(tl.float32, bitcast=True)
        return tl.where(x == x, nearest, x)
    else:
        return x


@triton.jit
def keep_paged_kernel(
    key, value, slots, keys, values, kv_heads, DIM: tl.constexpr, WIDTH: tl.constexpr, SLOTS: tl.constexpr
):
    """Grid (rows, kv_heads). key, value: float32 [rows, kv_heads, DIM]; slots: int64 [rows]."""
    row, head, columns = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, WIDTH)
    mask = columns < DIM
    slot = tl.load(slots + row)
    k = tl.load(key + (row * kv_heads + head) * DIM + columns, mask=mask, other=0.0)
    v = tl.load(value + (row * kv_heads + head) * DIM + columns, mask=mask, other=0.0)
    k, v = _rounded(k, keys.dtype.element_ty), _rounded(v, values.dtype.element_ty)
    finite = v - v == 0.0
    k = tl.where(tl.min(finite.to(tl.int32)) == 1, k, float("nan"))
    block = (slot // SLOTS * kv_heads + head) * (DIM * SLOTS)
    tl.store(keys + block + columns * SLOTS + slot % SLOTS, k.to(keys.dtype.element_ty), mask=mask)
    v = tl.where(finite, v, 0.0).to(values.dtype.element_ty)
    tl.store(values + block + slot % SLOTS * DIM + columns, v, mask=mask)


def attend_paged_triton(
    query: torch.Tensor, blocks: Blocks, places: Places, seen: Seen, *, split: bool | None = None
) -> torch.Tensor:
    """As paged.attend_torch, with arguments that paged.check has seen; head_dim at most GPU_DIMS.

    `split` is for tests: the bits are the same.
    """
    heads, kv_heads, device = query.shape[1], blocks.kv_heads, query.device
    if not isinstance(places, PreparedPlaces):
        places = prepare(places, blocks.count, device)
    packs = places.packs_of(heads // kv_heads, seen.window)
    count, spans = len(packs.numbers), packs.spans
    if split is None:
        split = spans > 1 and count * kv_heads < PROGRAMS and count * kv_heads * spans <= PARTIALS
    out = torch.empty_like(query)
    partial = torch.empty(count, kv_heads, spans if split else 0, PACK, blocks.head_dim, device=device)
    totals = torch.empty(count, kv_heads, spans if split else 0, 2, PACK, device=device)
    sinks = out if seen.sinks is None else seen.sinks  # a pointer that is not followed
    attend_paged_kernel[(count, kv_heads, spans if split else 1)](
        query, blocks.keys, blocks.values, *_or(blocks.key_scales, blocks.value_scales, out),
        places.table, places.sequence, places.position, packs.numbers, sinks, out, partial, totals,
        blocks.count, heads, kv_heads, places.table.shape[1], spans, float(seen.scale), float(seen.soft_cap),
        min(seen.window or 2**31 - 1, 2**31 - 1), blocks.key_scale, blocks.value_scale,
        **constants(blocks, seen, split), **options(blocks),
    )  # fmt: skip
    if split:
        merge_spans_kernel[(count, kv_heads)](
            partial, totals, packs.numbers, sinks, out, heads, kv_heads, spans, **merge_constants(blocks, seen),
            **options(blocks),
        )  # fmt: skip
    return out


def _or(key_scales: torch.Tensor | None, value_scales: torch.Tensor | None, other: torch.Tensor) -> list[torch.Tensor]:
    """`other` in the place of what is not there: a pointer that is not followed."""
    return [other if scales is None else scales for scales in (key_scales, value_scales)]


def keep_paged_triton(blocks: Blocks, places: Places, key: torch.Tensor, value: torch.Tensor) -> None:
    """As paged.keep_torch, with arguments that paged.check_kept has seen; what is not finite as said above."""
    slots = places.slots.to(key.device)
    if form_of(blocks.form).kind > 1:
        return lay(blocks, slots, *_without_infinities(blocks, key, value))
    rows, kv_heads, _ = key.shape
    keep_paged_kernel[(rows, kv_heads)](
        key.contiguous(), value.contiguous(), slots, blocks.keys, blocks.values, kv_heads, **keep_constants(blocks),
        num_warps=1,
    )  # fmt: skip


def _without_infinities(blocks: Blocks, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Where a row's value would not be read as finite numbers, 0, and NaN as its key: of rows one by one."""
    codes, scales = kept(form_of(blocks.form), value, blocks.value_scale)
    lost = (codes & 127 == 127 if scales is None else scales.isnan()).any(-1, keepdim=True)
    return key.masked_fill(lost, torch.nan), value.masked_fill(lost, 0.0)


def constants(blocks: Blocks, seen: Seen, split: bool) -> dict[str, Any]:
    """Return what `attend_paged_kernel` is compiled for: one program for each combination."""
    narrow, form = blocks.form != "float32", form_of(blocks.form)
    width = triton.next_power_of_2(blocks.head_dim)
    tile = 16 if form.kind > 1 and width > 128 else min(64, TILE_BYTES // (width * (2 if narrow else 4)))
    return {
        "DIM": blocks.head_dim, "WIDTH": width, "FORM": form.kind, "TERMS": 3 if narrow else 1,
        "OPERAND": tl.bfloat16 if narrow and not interpreted() else tl.float32,  # which multiplies no bfloat16
        "CAP": seen.soft_cap > 0, "SINKS": seen.sinks is not None, "SPLIT": split,
        "PACK": PACK, "TILE": tile, "SPAN": SPAN, "SLOTS": SLOTS,
    }  # fmt: skip


def merge_constants(blocks: Blocks, seen: Seen) -> dict[str, Any]:
    """What `merge_spans_kernel` is compiled for."""
    dim = blocks.head_dim
    return {"DIM": dim, "WIDTH": triton.next_power_of_2(dim), "SINKS": seen.sinks is not None, "PACK": PACK}


def keep_constants(blocks: Blocks) -> dict[str, Any]:
    """What `keep_paged_kernel` is compiled for."""
    return {"DIM": blocks.head_dim, "WIDTH": triton.next_power_of_2(blocks.head_dim), "SLOTS": SLOTS}


def options(blocks: Blocks) -> dict[str, Any]:
    """What the compiler is told for attention over such blocks: no contraction, so that both ways round alike, and the
    registers there are, rather than whose use the assembler would spill."""
    coded = blocks.form not in ("float32", "bfloat16")  # a code takes more steps, and so more registers
    warps = 8 if blocks.form in ("float32", "fp8") or (coded and blocks.head_dim > 64) else 4
    return {"num_warps": warps, "num_stages": 2, "maxnreg": 255, "enable_fp_fusion": False}
