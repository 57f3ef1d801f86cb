"""The drift kernel for GPUs (Triton). Its specification is `drift_torch` in drift.py.

As many programs as the GPU has multiprocessors, each taking (block of rows, part of the vocabulary) in turn. For each
tile of tokens both models' logits are multiplied out with all registers for one of them, put down in a scratch of the
program's own (float32, in the L2 cache), and reduced from there in slices. Parts are fixed by the vocabulary alone and
merged in order, in float64: a row's bits do not depend on the other rows or on the number of programs.
"""

# pyrefly: ignore-errors[bad-argument-count, bad-argument-type]
# Triton's decorator keeps the signature, but a kernel is launched with other arguments than its own.
from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
import triton
import triton.language as tl

from qualgate_kernels.drift import FLOOR, Drift, Head, Sums, gathered
from qualgate_kernels.gumbel import Noise

PARTS = 16  # of the vocabulary
ROWS_AT_ONCE = 8192  # rows of one launch: bounds the running sums to 18 MB
NUMBERS = ("best", "second", "total", "own", "other", "top", "label_logit", "most", "sample")  # of a row, side by side


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """How one program of `drift_kernel` cuts the product of hidden states and head."""

    rows: int
    tokens: int
    width: int
    slice: int  # tokens reduced at a time
    group: int  # blocks of rows that meet the same tokens at the same time, to share them in the L2 cache
    warps: int
    stages: int


TILES = {
    2: Tile(rows=128, tokens=128, width=32, slice=32, group=16, warps=8, stages=4),  # bytes of an operand
    4: Tile(rows=64, tokens=64, width=16, slice=32, group=16, warps=8, stages=2),
}


@triton.jit
def _logits(
    hidden, weight, bias, rows, row_ok, tokens, token_ok, D, BIAS: tl.constexpr, EVEN: tl.constexpr, WIDTH: tl.constexpr
):
    """float32 [rows, tokens]: one sum over the width, in order."""
    columns = tl.arange(0, WIDTH)
    x_at = hidden + rows.to(tl.int64)[:, None] * D + columns[None, :]
    w_at = weight + tokens.to(tl.int64)[None, :] * D + columns[:, None]
    total = tl.zeros([rows.shape[0], tokens.shape[0]], tl.float32)
    for k in range(0, D, WIDTH):
        x_ok, w_ok = row_ok[:, None], token_ok[None, :]
        if not EVEN:
            inside = columns < D - k
            x_ok, w_ok = x_ok & inside[None, :], w_ok & inside[:, None]
        x = tl.load(x_at + k, mask=x_ok, other=0.0)
        w = tl.load(w_at + k, mask=w_ok, other=0.0)
        total = tl.dot(x, w, total, input_precision="ieee")
    if BIAS:
        total += tl.load(bias + tokens, mask=token_ok, other=0.0)[None, :]
    return total


@triton.jit
def _gumbel(tokens, positions, cases, seed):
    """Noise float32 [rows, tokens], see gumbel.py."""
    zero = (tokens[None, :] + positions[:, None].to(tl.int32)) * 0
    low = (cases & 0xFFFFFFFF).to(tl.uint32)[:, None] + zero.to(tl.uint32)
    high = ((cases >> 32) & 0xFFFFFFFF).to(tl.uint32)[:, None] + zero.to(tl.uint32)
    token = tokens.to(tl.uint32)[None, :] + zero.to(tl.uint32)
    position = positions.to(tl.uint32)[:, None] + zero.to(tl.uint32)
    word, _, _, _ = tl.philox(seed, token, position, low, high)
    uniform = tl.minimum((word.to(tl.uint32, bitcast=True).to(tl.float32) + 0.5) * 2.3283064365386963e-10, 0.99999994)
    rest = 1.0 - uniform
    waited = tl.where(rest == 1.0, uniform, tl.log(rest) * uniform / tl.where(rest == 1.0, 1.0, rest - 1.0))
    return -tl.log(waited)


@triton.jit
def _best_two(x, tokens):
    """(highest, its first token, runner-up) of each row."""
    highest, place = tl.max(x, axis=1, return_indices=True, return_indices_tie_break_left=True)
    here = tl.arange(0, x.shape[1])[None, :] == place[:, None]
    return highest, tl.min(tokens, axis=0) + place, tl.max(tl.where(here, -1e30, x), axis=1)


@triton.jit(do_not_specialize=["N", "row_blocks"])  # one machine code, whatever the rows
def drift_kernel(
    p_hidden, p_weight, p_bias, q_hidden, q_weight, q_bias, labels, cases, positions, seed, inverse_temperature,
    scratch, numbers, N, V, PD, QD, row_blocks, parts, per_part,
    P_BIAS: tl.constexpr, Q_BIAS: tl.constexpr, LABELS: tl.constexpr, NOISE: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr, SLICE: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """numbers float64 [parts, 2, N, 9]: the running sums of each part, side by side for one address a row;
    scratch float32 [programs, 2, 2, ROWS, TOKENS]; per_part: tiles in a part."""
    program = tl.program_id(0)
    in_tile = tl.arange(0, ROWS)[:, None] * TOKENS + tl.arange(0, TOKENS)[None, :]
    in_slice = tl.arange(0, ROWS)[:, None] * TOKENS + tl.arange(0, SLICE)[None, :]
    for item in range(program, row_blocks * parts, tl.num_programs(0)):
        group = item // (GROUP * parts)
        height = tl.minimum(row_blocks - group * GROUP, GROUP)
        inside = item - group * GROUP * parts
        rows = (group * GROUP + inside % height) * ROWS + tl.arange(0, ROWS)
        part = inside // height
        row_ok = rows < N
        p_at = numbers + (part.to(tl.int64) * 2 * N + rows) * 9
        q_at = p_at + N * 9
        for tile in range(part * per_part, tl.minimum((part + 1) * per_part, tl.cdiv(V, TOKENS))):
            p_scratch = scratch + (program.to(tl.int64) * 2 + tile % 2) * (2 * ROWS * TOKENS)  # two in turn
            q_scratch = p_scratch + ROWS * TOKENS
            tokens = tile * TOKENS + tl.arange(0, TOKENS)
            token_ok = tokens < V
            made = _logits(p_hidden, p_weight, p_bias, rows, row_ok, tokens, token_ok, PD, P_BIAS, EVEN, WIDTH)
            tl.store(p_scratch + in_tile, made)
            made = _logits(q_hidden, q_weight, q_bias, rows, row_ok, tokens, token_ok, QD, Q_BIAS, EVEN, WIDTH)
            tl.store(q_scratch + in_tile, made)
            tl.debug_barrier()
            known = row_ok & (tile > part * per_part)
            p_best = tl.load(p_at, mask=known, other=-1e30).to(tl.float32)
            q_best = tl.load(q_at, mask=known, other=-1e30).to(tl.float32)
            p_second = tl.load(p_at + 1, mask=known, other=-1e30).to(tl.float32)
            q_second = tl.load(q_at + 1, mask=known, other=-1e30).to(tl.float32)
            p_total = tl.load(p_at + 2, mask=known, other=0.0)
            q_total = tl.load(q_at + 2, mask=known, other=0.0)
            p_own = tl.load(p_at + 3, mask=known, other=0.0)
            q_own = tl.load(q_at + 3, mask=known, other=0.0)
            p_other = tl.load(p_at + 4, mask=known, other=0.0)
            q_other = tl.load(q_at + 4, mask=known, other=0.0)
            p_top = tl.load(p_at + 5, mask=known, other=-1.0).to(tl.int32)
            q_top = tl.load(q_at + 5, mask=known, other=-1.0).to(tl.int32)
            for start in range(0, TOKENS, SLICE):
                here = tile * TOKENS + start + tl.arange(0, SLICE)
                lp = tl.where(here[None, :] < V, tl.load(p_scratch + in_slice + start), -1e30)
                lq = tl.where(here[None, :] < V, tl.load(q_scratch + in_slice + start), -1e30)
                p_high, p_first, p_next = _best_two(lp, here)
                q_high, q_first, q_next = _best_two(lq, here)
                p_second = tl.where(p_high > p_best, tl.maximum(p_best, p_next), tl.maximum(p_second, p_high))
                q_second = tl.where(q_high > q_best, tl.maximum(q_best, q_next), tl.maximum(q_second, q_high))
                p_top = tl.where(p_high > p_best, p_first, p_top)
                q_top = tl.where(q_high > q_best, q_first, q_top)
                p_new, q_new = tl.maximum(p_best, p_high), tl.maximum(q_best, q_high)
                p_shift = p_best.to(tl.float64) - p_new
                q_shift = q_best.to(tl.float64) - q_new
                p_factor = tl.exp(p_best - p_new).to(tl.float64)
                q_factor = tl.exp(q_best - q_new).to(tl.float64)
                p_other = p_factor * (p_other + p_total * (p_shift - q_shift))
                q_other = q_factor * (q_other + q_total * (q_shift - p_shift))
                p_own = p_factor * (p_own + p_total * p_shift)
                q_own = q_factor * (q_own + q_total * q_shift)
                a, b = lp - p_new[:, None], lq - q_new[:, None]
                ea, eb, d = tl.exp(a), tl.exp(b), a - b
                # 0 * infinity: NaN, and all that follows
                p_total = p_factor * p_total + tl.sum(ea + 0.0 * lp, axis=1).to(tl.float64)
                q_total = q_factor * q_total + tl.sum(eb + 0.0 * lq, axis=1).to(tl.float64)
                p_own += tl.sum(ea * a, axis=1).to(tl.float64)
                q_own += tl.sum(eb * b, axis=1).to(tl.float64)
                p_other += tl.sum(ea * d, axis=1).to(tl.float64)
                q_other -= tl.sum(eb * d, axis=1).to(tl.float64)
                p_best, q_best = p_new, q_new
            tl.store(p_at, p_best.to(tl.float64), mask=row_ok)
            tl.store(q_at, q_best.to(tl.float64), mask=row_ok)
            tl.store(p_at + 1, p_second.to(tl.float64), mask=row_ok)
            tl.store(q_at + 1, q_second.to(tl.float64), mask=row_ok)
            tl.store(p_at + 2, p_total, mask=row_ok)
            tl.store(q_at + 2, q_total, mask=row_ok)
            tl.store(p_at + 3, p_own, mask=row_ok)
            tl.store(q_at + 3, q_own, mask=row_ok)
            tl.store(p_at + 4, p_other, mask=row_ok)
            tl.store(q_at + 4, q_other, mask=row_ok)
            tl.store(p_at + 5, p_top.to(tl.float64), mask=row_ok)
            tl.store(q_at + 5, q_top.to(tl.float64), mask=row_ok)
            if LABELS:
                place = tl.load(labels + rows, mask=row_ok, other=-1).to(tl.int32) - tile * TOKENS
                labelled = row_ok & (place >= 0) & (place < TOKENS)
                at = tl.arange(0, ROWS) * TOKENS + place
                tl.store(p_at + 6, tl.load(p_scratch + at, mask=labelled).to(tl.float64), mask=labelled)
                tl.store(q_at + 6, tl.load(q_scratch + at, mask=labelled).to(tl.float64), mask=labelled)
            if NOISE:
                p_most = tl.load(p_at + 7, mask=known, other=-1e30).to(tl.float32)
                q_most = tl.load(q_at + 7, mask=known, other=-1e30).to(tl.float32)
                p_sample = tl.load(p_at + 8, mask=known, other=-1.0).to(tl.int32)
                q_sample = tl.load(q_at + 8, mask=known, other=-1.0).to(tl.int32)
                position = tl.load(positions + rows, mask=row_ok, other=0)
                case = tl.load(cases + rows, mask=row_ok, other=0)
                for start in range(0, TOKENS, SLICE):
                    here = tile * TOKENS + start + tl.arange(0, SLICE)
                    noise = tl.where(here[None, :] < V, _gumbel(here, position, case, seed), -1e30)
                    lp = tl.load(p_scratch + in_slice + start) * inverse_temperature + noise
                    lq = tl.load(q_scratch + in_slice + start) * inverse_temperature + noise
                    p_high, p_first, _ = _best_two(lp, here)
                    q_high, q_first, _ = _best_two(lq, here)
                    p_sample = tl.where(p_high > p_most, p_first, p_sample)
                    q_sample = tl.where(q_high > q_most, q_first, q_sample)
                    p_most, q_most = tl.maximum(p_most, p_high), tl.maximum(q_most, q_high)
                tl.store(p_at + 7, p_most.to(tl.float64), mask=row_ok)
                tl.store(q_at + 7, q_most.to(tl.float64), mask=row_ok)
                tl.store(p_at + 8, p_sample.to(tl.float64), mask=row_ok)
                tl.store(q_at + 8, q_sample.to(tl.float64), mask=row_ok)
        tl.debug_barrier()  # the next part may begin with the scratch this one ended with


def drift_triton(
    p: Head, q: Head, labels: torch.Tensor | None, noise: Noise | None, *, tile: Tile | None = None, programs: int = 0
) -> Drift:
    """`tile` and `programs` (default: multiprocessors) are for tests; the bits depend on the tile alone."""
    p, q = _one_dtype(p), _one_dtype(q)
    if p.hidden.dtype != q.hidden.dtype:  # one kernel holds both
        p, q = _widened(p), _widened(q)
    tile = tile or TILES[p.hidden.element_size()]
    device, vocabulary = p.hidden.device, p.weight.shape[0]
    programs = programs or torch.cuda.get_device_properties(device).multi_processor_count
    tiles = -(-vocabulary // tile.tokens)
    per_part = -(-tiles // PARTS)
    parts = -(-tiles // per_part)
    scratch = torch.empty(programs, 2, 2, tile.rows, tile.tokens, device=device)
    blocks = []
    for start in range(0, p.hidden.shape[0], ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        count = len(p.hidden[rows])
        numbers = torch.full((parts, 2, count, len(NUMBERS)), torch.nan, dtype=torch.float64, device=device)
        row_blocks = -(-count // tile.rows)
        nothing = numbers  # a pointer that is not followed
        drift_kernel[(min(programs, row_blocks * parts),)](
            *(
                tensor
                for side in (p, q)
                for tensor in (side.hidden[rows], side.weight, nothing if side.bias is None else side.bias)
            ),
            nothing if labels is None else labels[rows],
            *((nothing, nothing, 0, 1.0) if noise is None else
              (noise.cases[rows], noise.positions[rows], noise.seed, 1 / noise.temperature)),
            scratch, numbers, count, vocabulary, p.hidden.shape[1], q.hidden.shape[1],
            row_blocks, parts, per_part, **constants(p, q, labels, noise, tile),
            **options(tile),
        )  # fmt: skip
        sums = (
            Sums(**{
                name: numbers[part, ..., place].nan_to_num(-1).long() if name in ("top", "sample")
                else numbers[part, ..., place]
                for place, name in enumerate(NUMBERS)
            })
            for part in range(parts)
        )  # fmt: skip
        blocks.append(reduce(Sums.then, sums).results())
    return gathered(blocks, labels, noise)


def constants(p: Head, q: Head, labels: torch.Tensor | None, noise: Noise | None, tile: Tile) -> dict[str, int | bool]:
    """Return what `drift_kernel` is compiled for: one program for each combination."""
    return {
        "P_BIAS": p.bias is not None, "Q_BIAS": q.bias is not None,
        "LABELS": labels is not None, "NOISE": noise is not None,
        "EVEN": p.hidden.shape[1] % tile.width == 0 and q.hidden.shape[1] % tile.width == 0,
        "ROWS": tile.rows, "TOKENS": tile.tokens, "WIDTH": tile.width, "SLICE": tile.slice, "GROUP": tile.group,
    }  # fmt: skip


def options(tile: Tile) -> dict[str, int]:
    """What the compiler is told of warps and stages."""
    return {"num_warps": tile.warps, "num_stages": tile.stages}


def _one_dtype(head: Head) -> Head:
    """A product has operands of one dtype; a head is widened as a whole only where the two do not agree."""
    return head if head.hidden.dtype == head.weight.dtype else _widened(head)


def _widened(head: Head) -> Head:
    return Head(hidden=head.hidden.float(), weight=head.weight.float(), bias=head.bias)


assert FLOOR == -1e30  # written out in the kernel
