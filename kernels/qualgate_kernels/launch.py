"""From a prepared weight and its activations to the kernels' arguments; the static gate compiles with the same ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton.language as tl

from qualgate_kernels import availability, configs, gemm
from qualgate_kernels.activations import GROUP, HALF
from qualgate_kernels.availability import interpreted
from qualgate_kernels.planes import WORDS_AND_PLANES, Prepared

LAUNCHES: list[Callable[[str], None]] = []
"""Called with a kernel's name when it is launched: how a test or a report counts them."""

_OPERANDS = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}
REDUCE_ROWS = 512
ROUND_BLOCK = 1024


def product(x: torch.Tensor, prepared: Prepared, bias: torch.Tensor | None) -> torch.Tensor:
    """x [M, K], already in the layout's order → [M, N] in x's dtype."""
    tokens, out_features = x.shape[0], prepared.like.shape[0]
    if interpreted() and x.dtype == torch.bfloat16:  # the interpreter takes bfloat16 for integers
        return product(x.float(), prepared, bias).bfloat16()
    out = torch.empty(tokens, out_features, dtype=x.dtype, device=x.device)
    token_scales = None
    if prepared.activations:
        x, token_scales = rounded(x, prepared)
        parts = 1
    elif x.dtype == torch.float32 and not interpreted():
        x, parts = terms(x), 3
    else:
        parts = 1
    tile = configs.tile(tokens, prepared.block_k, prepared.like.bits, parts, _capability(x.device))
    partial = prepared.splits > 1 and tokens <= configs.SIDE_BY_SIDE
    assert prepared.words is not None
    padded_n = prepared.words.shape[0] * prepared.words.shape[3]
    target = out
    if partial:
        exact = prepared.activations == "int8" and not prepared.grouped
        target = torch.empty(
            prepared.splits, tokens, padded_n, dtype=torch.int32 if exact else torch.float32, device=x.device
        )
    nothing = prepared.words  # a pointer that is not followed
    scales = nothing if prepared.scales is None else prepared.scales
    row_scales = nothing if prepared.row_scales is None else prepared.row_scales
    added = nothing if bias is None else bias
    grid = (padded_n // tile.rows, prepared.splits if partial else 1, -(-tokens // tile.tokens))
    per_split = -(-prepared.blocks // prepared.splits)
    if prepared.activations:
        assert token_scales is not None
        words = prepared.words if prepared.activations == "int8" else prepared.words.view(torch.float8_e4m3fn)
        _launch(
            gemm.eight_bit_kernel, grid, tile,
            x, words, scales, token_scales, row_scales, added, target,
            tokens, out_features, x.shape[1], token_scales.shape[1], padded_n, prepared.blocks, per_split,
            **eight_bit_constants(prepared, tile, partial=partial, bias=bias is not None),
        )  # fmt: skip
    else:
        _launch(
            gemm.weight_only_kernel, grid, tile,
            x, prepared.words, scales, nothing if prepared.zeros is None else prepared.zeros, row_scales, added, target,
            tokens, out_features, prepared.like.shape[1], x.stride(-2), x.stride(0), padded_n, prepared.blocks,
            per_split,
            **weight_only_constants(prepared, x.dtype, parts, tile, partial=partial, bias=bias is not None),
        )  # fmt: skip
    if partial:
        _launch(
            gemm.reduce_kernel, (-(-out_features // REDUCE_ROWS), tokens), None,
            target, row_scales, nothing if token_scales is None else token_scales, added, out,
            tokens, out_features, padded_n,
            **reduce_constants(prepared, bias=bias is not None),
        )  # fmt: skip
    return out


def rounded(x: torch.Tensor, prepared: Prepared) -> tuple[torch.Tensor, torch.Tensor]:
    """x [M, K] → codes [M, K padded to whole blocks] and scales float32 [M, groups]: `round_tokens_torch`, fused."""
    tokens, columns = x.shape
    padded_k = prepared.blocks * prepared.block_k
    dtype = torch.int8 if prepared.activations == "int8" else torch.float8_e4m3fn
    codes = torch.empty(tokens, padded_k, dtype=dtype, device=x.device)
    grouped = prepared.activations.endswith("g128")
    scales = torch.empty(tokens, padded_k // GROUP if grouped else 1, dtype=torch.float32, device=x.device)
    _launch(
        gemm.round_tokens_kernel, (tokens, scales.shape[1]), None,
        x, codes, scales, columns, padded_k, x.stride(0), scales.shape[1],
        **round_constants(prepared),
    )  # fmt: skip
    return codes, scales


def terms(x: torch.Tensor) -> torch.Tensor:
    """float32 [M, K] → bfloat16 [3, M, K] that add up to it."""
    three_terms = torch.empty(3, *x.shape, dtype=torch.bfloat16, device=x.device)
    grid = (x.shape[0], -(-x.shape[1] // ROUND_BLOCK))
    _launch(gemm.terms_kernel, grid, None, x, three_terms, *x.shape, x.stride(0), BLOCK=ROUND_BLOCK)
    return three_terms


def weight_only_constants(
    prepared: Prepared, dtype: torch.dtype, parts: int, tile: configs.Tile, *, partial: bool, bias: bool
) -> dict[str, Any]:
    """Return what the weight-only kernel is compiled for, inputs of `dtype` in `parts` bfloat16 terms; see `gemm`."""
    weight, block_k = prepared.like, prepared.block_k
    return {
        "CODE": weight.code,
        "BITS": weight.bits,
        "OPERAND": _OPERANDS[dtype],
        "PARTS": parts,
        "ASM": not interpreted() and dtype != torch.float32,
        "PLANE_K": prepared.plane,
        "PLANES": prepared.planes,
        "WORDS": WORDS_AND_PLANES[weight.bits][0],
        "GROUPS": max(1, block_k // prepared.group_size) if prepared.grouped else 0,
        "SPAN": max(1, prepared.group_size // block_k),
        "SCALE_BITS": prepared.scale_bits,
        "SCALE_KIND": prepared.scale_kind if prepared.grouped else "",
        "ZEROS": prepared.zeros is not None,
        "ZERO_BITS": prepared.zero_bits,
        "EVEN_K": weight.shape[1] % block_k == 0,
        "ROW_SCALES": prepared.row_scales is not None,
        "BIAS": bias,
        "SPLITS": prepared.splits,
        "PARTIAL": partial,
        "ROWS": tile.rows,
        "TOKENS": tile.tokens,
    }


def eight_bit_constants(prepared: Prepared, tile: configs.Tile, *, partial: bool, bias: bool) -> dict[str, Any]:
    """Return what the kernel of 8-bit inputs is compiled for; see `gemm`."""
    return {
        "INTEGER": prepared.activations == "int8",
        "GROUPS": int(prepared.grouped),
        "SPAN": max(1, prepared.group_size // prepared.block_k),
        "SCALE_BITS": prepared.scale_bits,
        "SCALE_KIND": prepared.scale_kind if prepared.grouped else "",
        "TOKEN_GROUPED": prepared.activations.endswith("g128"),
        "ROW_SCALES": prepared.row_scales is not None,
        "BIAS": bias,
        "SPLITS": prepared.splits,
        "PARTIAL": partial,
        "ROWS": tile.rows,
        "TOKENS": tile.tokens,
    }


def reduce_constants(prepared: Prepared, *, bias: bool) -> dict[str, Any]:
    """Return what the kernel that adds up the splits of K is compiled for."""
    return {
        "SPLITS": prepared.splits,
        "ROW_SCALES": prepared.row_scales is not None,
        "TOKEN_SCALES": prepared.activations in ("int8", "fp8"),
        "BIAS": bias,
        "ROWS": REDUCE_ROWS,
    }


def round_constants(prepared: Prepared) -> dict[str, Any]:
    """Return what the kernel that rounds inputs to 8 bits is compiled for."""
    grouped = prepared.activations.endswith("g128")
    return {
        "HALF": HALF[prepared.activations.split()[0]],
        "FLOAT8": prepared.activations != "int8",
        "GROUPED": grouped,
        "BLOCK": GROUP if grouped else ROUND_BLOCK,
    }


def options(tile: configs.Tile | None, capability: int) -> dict[str, Any]:
    """Return the compiler options for compute capability `capability` (90 = 9.0).

    No contraction: a fused multiply-add rounds once where two steps round twice, and the ways to one result must round
    alike. On sm_100 the assembler would rather spill than take the registers there are, so it is told their number.
    """
    chosen: dict[str, Any] = {"num_warps": tile.warps, "num_stages": tile.stages} if tile else {"num_warps": 4}
    if tile and capability >= 100:
        chosen["maxnreg"] = 255
    return {**chosen, "enable_fp_fusion": False}


def _launch(kernel: Any, grid: tuple[int, ...], tile: configs.Tile | None, *arguments: Any, **constants: Any) -> None:
    for observe in LAUNCHES:
        observe(kernel.fn.__name__)
    kernel[grid](*arguments, **constants, **options(tile, _capability(arguments[0].device)))


def _capability(device: torch.device) -> int:
    return availability.capability(device.index or 0) if device.type == "cuda" else 0
