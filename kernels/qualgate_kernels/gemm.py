"""The Triton kernels of a quantized linear layer: out[m, n] = sum over k of x[m, k] * weight[n, k].

Computed as weight @ x.T, tile of [rows, tokens] by tile: the weight is the tensor core's left operand and goes from
packed words to registers without touching shared memory. What decides a row's bits is the order of its own sums: the
planes of a block, the blocks of a split, the splits. All three follow from the weight's shape and format; tiles of
other sizes, and other rows beside it, change nothing. Multiplications and additions are fused only where `tl.fma` says
so (the launches turn contraction off), so that every variant of a kernel rounds alike.

Integer code q becomes a number without a conversion: 0x6400 | q is the float16 1024 + q, 0x4300 | q the bfloat16
128 + q, and the exact difference with 1024 + zero_point is what is multiplied. Floating codes are moved to where the
operand has its exponent and mantissa; one exact multiplication by a power of two mends the bias.
"""

# Inside a kernel the checker takes Triton's language for Python's.
# pyrefly: ignore-errors[bad-argument-type, bad-assignment, unbound-name, unsupported-operation]

from __future__ import annotations

import triton
import triton.language as tl

# The lowest bit of the magnitude in float16 and bfloat16, and the power of two (as bits) that mends the exponent bias.
_FLOAT_CODES = {
    "e2m1": (4, (9, 0x7400), (6, 0x7E80)),  # 2**14, 2**126
    "e4m3": (8, (7, 0x5C00), (4, 0x7B80)),  # 2**8, 2**120
    "e5m2": (8, (8, 0x3C00), (5, 0x7780)),  # 1, 2**112
}


@triton.constexpr_function
def _is_float(code):
    return code in _FLOAT_CODES


@triton.constexpr_function
def _moves(code, plane, half):
    """Return (left shift of the sign, left shift of the magnitude, its mask, multiplier) to the operand's own bits."""
    width, half_layout, bf16_layout = _FLOAT_CODES[code]
    lowest, multiplier = half_layout if half else bf16_layout
    top = width * plane + width - 1
    return 15 - top, lowest - width * plane, (1 << width - 1) - 1 << lowest, multiplier


@triton.constexpr_function
def _left(name, source, places):
    if places == 0:
        return f"mov.b32 {name}, {source};"
    return f"{'shl' if places > 0 else 'shr'}.b32 {name}, {source}, {abs(places)};"


@triton.constexpr_function
def _float_asm(code, plane, half):
    """Return PTX that makes two float operands of a word of float codes. half: float16 operands, else bfloat16."""
    sign, magnitude, mask, multiplier = _moves(code, plane, half)
    product = "mul.rn.f16x2 $0, m, f;" if half else "mov.b32 s, 0x80008000; fma.rn.bf16x2 $0, m, f, s;"
    return (
        "{ .reg .b32 s, m, f; "
        + _left("s", "$1", sign)
        + _left("m", "$1", magnitude)
        + f"and.b32 s, s, 0x80008000; lop3.b32 m, m, {mask * 0x10001:#x}, s, 0xEA;"
        + f"mov.b32 f, {multiplier * 0x10001:#x};"
        + product
        + " }"
    )


@triton.constexpr_function
def _int_asm(bits, plane, half, zeros):
    """$1, $2, $3: the words (one register three times but for 3 bits), $4: what is subtracted (float16) or added."""
    mask, magic = ((1 << bits) - 1) * 0x10001, 0x64006400 if half else 0x43004300
    if bits == 3 and plane == 15:
        code = (
            "shr.b32 t, $1, 15; and.b32 t, t, 0x00010001; shr.b32 u, $2, 14; lop3.b32 t, u, 0x00020002, t, 0xEA; "
            f"shr.b32 u, $3, 13; lop3.b32 t, u, 0x00040004, t, 0xEA; or.b32 t, t, {magic:#x};"
        )
    else:
        source, shift = (plane // 5 + 1, 3 * (plane % 5)) if bits == 3 else (1, bits * plane)
        code = _left("t", f"${source}", -shift)
        if bits < 8:
            code += f"lop3.b32 t, t, {mask:#x}, {magic:#x}, 0xEA;"  # (t & mask) | magic
        elif half:
            code += "lop3.b32 t, t, 0x00FF00FF, 0x64806480, 0x6A;"  # (t & mask) ^ magic: the code's top bit is flipped
        else:  # seven bits of mantissa hold seven of the code; its top bit chooses between -128 and -256
            code += (
                "and.b32 u, t, 0x00800080; or.b32 u, u, 0x43004300; lop3.b32 t, t, 0x007F007F, 0x43004300, 0xEA;"
                "mov.b32 m, 0xBF80BF80; fma.rn.bf16x2 t, u, m, t;"
            )
    if half:
        last = "sub.rn.f16x2 $0, t, $4;"
    elif bits == 8 and not zeros:
        last = "mov.b32 $0, t;"
    else:
        last = "mov.b32 m, 0x3F803F80; fma.rn.bf16x2 $0, t, m, $4;"
    return "{ .reg .b32 t, u, m; " + code + last + " }"


@triton.jit
def _plane(
    w0, w1, w2, zero,
    CODE: tl.constexpr, BITS: tl.constexpr, PLANE: tl.constexpr, OPERAND: tl.constexpr, ZEROS: tl.constexpr,
    ASM: tl.constexpr,
):  # fmt: skip
    """int16 words [rows, plane] → the weights of plane PLANE before their scale, exactly: OPERAND [rows, plane].

    zero: as `_zero_operand` spells it. ASM does on two weights a register what stands below it, one by one, in Triton.
    """
    half: tl.constexpr = tl.bfloat16 != OPERAND
    if ASM and _is_float(CODE):
        return tl.inline_asm_elementwise(
            _float_asm(CODE, PLANE, half), "=r,r", [w0],
            dtype=tl.float16 if half else tl.bfloat16, is_pure=True, pack=2,
        )  # fmt: skip
    elif ASM:
        return tl.inline_asm_elementwise(
            _int_asm(BITS, PLANE, half, ZEROS), "=r,r,r,r,r", [w0, w1, w2, zero],
            dtype=tl.float16 if half else tl.bfloat16, is_pure=True, pack=2,
        )  # fmt: skip
    elif _is_float(CODE):
        moves: tl.constexpr = _moves(CODE, PLANE, half)
        word = w0.to(tl.int32) & 0xFFFF
        magnitude = word << moves[1] if moves[1] >= 0 else word >> (-moves[1])
        bits = (((word << moves[0]) & 0x8000) | (magnitude & moves[2])).to(tl.int16)
        factor = tl.full([1, 1], moves[3], tl.int16)
        if half:
            return (bits.to(tl.float16, bitcast=True) * factor.to(tl.float16, bitcast=True)).to(OPERAND)
        else:
            return bits.to(tl.bfloat16, bitcast=True) * factor.to(tl.bfloat16, bitcast=True)
    else:
        if BITS == 3 and PLANE == 15:
            code = (w0 >> 15 & 1) | (w1 >> 14 & 2) | (w2 >> 13 & 4)
        elif BITS == 3:
            code = (w0 if PLANE < 5 else (w1 if PLANE < 10 else w2)) >> (3 * (PLANE % 5)) & 7
        else:
            code = w0 >> (BITS * PLANE) & ((1 << BITS) - 1)
        if half:
            magic: tl.constexpr = 0x6480 if BITS == 8 else 0x6400
            return ((code ^ magic).to(tl.float16, bitcast=True) - zero).to(OPERAND)
        elif BITS == 8:
            value = ((code & 0x7F) | 0x4300).to(tl.bfloat16, bitcast=True)
            value -= ((code & 0x80) | 0x4300).to(tl.bfloat16, bitcast=True)
            return value + zero if ZEROS else value
        else:
            return (code | 0x4300).to(tl.bfloat16, bitcast=True) + zero


@triton.jit
def _zero_operand(zero, BITS: tl.constexpr, OPERAND: tl.constexpr):
    """int32 zero points → what `_int_plane` subtracts (float16: 1024 + zero) or adds (bfloat16)."""
    if tl.bfloat16 == OPERAND:
        return (128 - zero if BITS == 8 else -128 - zero).to(tl.float32).to(tl.bfloat16)
    else:
        return (1024 + zero).to(tl.float32).to(tl.float16)


@triton.jit
def _scale(field, KIND: tl.constexpr):
    """Return the float32 that a scale's bits, the lowest of an int32, stand for."""
    if KIND == "fp32":
        return field.to(tl.float32, bitcast=True)
    elif KIND == "bf16":
        return (field << 16).to(tl.float32, bitcast=True)
    elif KIND == "fp16":
        return field.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    elif KIND == "e8m0":
        field = field & 0xFF
        return tl.where(field == 0, 0x00400000, field << 23).to(tl.float32, bitcast=True)  # 2**-127 is subnormal
    else:  # e4m3
        bits = ((field & 0x80) << 8) | ((field & 0x7F) << 7)
        return bits.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32) * 256


@triton.jit
def _sum_of_blocks(
    x_rows, x_part, words_tile, fields, zero_fields, token_mask, K, padded_n, first, last,
    CODE: tl.constexpr, BITS: tl.constexpr, OPERAND: tl.constexpr, PARTS: tl.constexpr, ASM: tl.constexpr,
    PLANE_K: tl.constexpr, PLANES: tl.constexpr, WORDS: tl.constexpr, GROUPS: tl.constexpr, SPAN: tl.constexpr,
    SCALE_BITS: tl.constexpr, SCALE_KIND: tl.constexpr, ZEROS: tl.constexpr, ZERO_BITS: tl.constexpr,
    EVEN_K: tl.constexpr, ROWS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """The sum over K-blocks first to last - 1, float32 [ROWS, TOKENS], scaled group by group (GROUPS 0: not at all)."""
    k_in_plane = tl.arange(0, PLANE_K)
    acc = tl.zeros([ROWS, TOKENS], tl.float32)
    middle: tl.constexpr = 2 ** (BITS - 1)
    if tl.bfloat16 == OPERAND:
        zero = tl.full([ROWS, PLANE_K], 0 if BITS == 8 else -128 - middle, tl.bfloat16)
    else:
        zero = tl.full([ROWS, PLANE_K], 1024 + middle, tl.float16)
    groups: tl.constexpr = GROUPS if GROUPS > 0 else 1
    per_group: tl.constexpr = PLANES // groups
    part, scale_word, zero_word = acc, tl.zeros([ROWS], tl.int32), tl.zeros([ROWS], tl.int32)
    scale_words: tl.constexpr = groups * SCALE_BITS // 32
    zero_words: tl.constexpr = groups * ZERO_BITS // 32
    before_dot: tl.constexpr = SCALE_KIND == "e4m3"  # exact: e2m1 times e4m3 has six significant bits
    for block in range(first, last):
        tile = words_tile + block * (WORDS * 64 * PLANE_K)
        w0 = tl.load(tile)
        w1, w2 = w0, w0
        if WORDS == 3:
            w1 = tl.load(tile + 64 * PLANE_K)
            w2 = tl.load(tile + 2 * 64 * PLANE_K)
        for plane in tl.static_range(PLANES):
            if GROUPS > 0 and plane % per_group == 0:  # a group begins
                if plane // per_group * SCALE_BITS % 32 == 0:
                    word = block // SPAN * scale_words + plane // per_group * SCALE_BITS // 32
                    scale_word = tl.load(fields + word * padded_n)
                scale = _scale(scale_word >> (plane // per_group * SCALE_BITS % 32), SCALE_KIND)
                if ZEROS:
                    if plane // per_group * ZERO_BITS % 32 == 0:
                        word = block // SPAN * zero_words + plane // per_group * ZERO_BITS // 32
                        zero_word = tl.load(zero_fields + word * padded_n)
                    point = zero_word >> (plane // per_group * ZERO_BITS % 32) & 0xFFFF
                    zero = tl.broadcast_to(_zero_operand(point, BITS, OPERAND)[:, None], [ROWS, PLANE_K])
                if not before_dot:
                    part = tl.zeros([ROWS, TOKENS], tl.float32)
            weights = _plane(w0, w1, w2, zero, CODE, BITS, plane, OPERAND, ZEROS, ASM)
            if before_dot:
                weights = weights * scale.to(OPERAND)[:, None]
            k = block * (PLANE_K * PLANES) + plane * PLANE_K + k_in_plane
            mask = token_mask[None, :] if EVEN_K else token_mask[None, :] & (k < K)[:, None]
            for term in tl.static_range(PARTS):
                x = tl.load(x_rows + term * x_part + k[:, None], mask=mask, other=0.0)
                if GROUPS == 0 or before_dot:
                    acc = tl.dot(weights, x, acc, input_precision="ieee")
                else:
                    part = tl.dot(weights, x, part, input_precision="ieee")
            if GROUPS > 0 and not before_dot and plane % per_group == per_group - 1:
                acc = tl.fma(part, tl.broadcast_to(scale[:, None], [ROWS, TOKENS]), acc)
    return acc


@triton.jit
def _finish(
    total, row_scale, token_scale, bias, ROW_SCALES: tl.constexpr, TOKEN_SCALES: tl.constexpr, BIAS: tl.constexpr
):
    """Apply the scales and the bias, the last step with split sums and without; shapes broadcast."""
    if ROW_SCALES:
        total = total * row_scale
    if TOKEN_SCALES:
        total = total * token_scale
    if BIAS:
        total = total + bias
    return total


@triton.jit
def weight_only_kernel(
    x, words, scales, zeros, row_scales, bias, out,
    M, N, K, x_stride, x_part, padded_n, blocks, per_split,
    CODE: tl.constexpr, BITS: tl.constexpr, OPERAND: tl.constexpr, PARTS: tl.constexpr, ASM: tl.constexpr,
    PLANE_K: tl.constexpr, PLANES: tl.constexpr, WORDS: tl.constexpr, GROUPS: tl.constexpr, SPAN: tl.constexpr,
    SCALE_BITS: tl.constexpr, SCALE_KIND: tl.constexpr, ZEROS: tl.constexpr, ZERO_BITS: tl.constexpr,
    EVEN_K: tl.constexpr, ROW_SCALES: tl.constexpr, BIAS: tl.constexpr, SPLITS: tl.constexpr, PARTIAL: tl.constexpr,
    ROWS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Grid (row tiles, splits or 1, token tiles). PARTIAL: one split's sum to out float32 [splits, M, padded_n];
    else all SPLITS, summed in order, finished, to out [M, N].

    x: OPERAND [M, K], rows x_stride apart; PARTS 3: bfloat16 [3, M, K], x_part apart, terms of a float32, largest last
    SPAN: blocks of a group that is longer than a block, else 1; GROUPS: groups of a block, 0 = one scale a row
    """
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tokens = tl.program_id(2) * TOKENS + tl.arange(0, TOKENS)
    token_mask = tokens < M
    tile = (n // 64).to(tl.int64)[:, None] * (blocks * (WORDS * 64 * PLANE_K)) + (n % 64)[:, None] * PLANE_K
    words_tile = words + tile + tl.arange(0, PLANE_K)[None, :]
    x_rows = x + tokens.to(tl.int64)[None, :] * x_stride
    total = tl.zeros([ROWS, TOKENS], tl.float32)
    split = tl.program_id(1)
    for step in range(split, split + (1 if PARTIAL else SPLITS)):
        total += _sum_of_blocks(
            x_rows, x_part, words_tile, scales + n, zeros + n, token_mask, K, padded_n,
            step * per_split, tl.minimum(step * per_split + per_split, blocks),
            CODE, BITS, OPERAND, PARTS, ASM, PLANE_K, PLANES, WORDS, GROUPS, SPAN, SCALE_BITS, SCALE_KIND, ZEROS,
            ZERO_BITS, EVEN_K, ROWS, TOKENS,
        )  # fmt: skip
    if PARTIAL:
        slot = out + (split * M + tokens).to(tl.int64)[None, :] * padded_n + n[:, None]
        tl.store(slot, total, mask=token_mask[None, :])
    else:
        row_mask = n < N
        row_scale = tl.load(row_scales + n)[:, None] if ROW_SCALES else 1.0
        added = tl.load(bias + n, mask=row_mask, other=0.0).to(tl.float32)[:, None] if BIAS else 0.0
        total = _finish(total, row_scale, 1.0, added, ROW_SCALES, False, BIAS)
        place = out + tokens.to(tl.int64)[None, :] * N + n[:, None]
        tl.store(place, total.to(out.dtype.element_ty), mask=token_mask[None, :] & row_mask[:, None])


@triton.jit
def reduce_kernel(
    partials, row_scales, token_scales, bias, out, M, N, padded_n,
    SPLITS: tl.constexpr, ROW_SCALES: tl.constexpr, TOKEN_SCALES: tl.constexpr, BIAS: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """The splits' sums [SPLITS, M, padded_n], float32 or int32, added in order: one token, ROWS out_features each."""
    token = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mask = n < N
    total = tl.zeros([ROWS], partials.dtype.element_ty)
    for split in tl.static_range(SPLITS):
        total += tl.load(partials + (split * M + token) * padded_n + n, mask=mask, other=0)
    row_scale = tl.load(row_scales + n, mask=mask, other=0.0) if ROW_SCALES else 1.0
    token_scale = tl.load(token_scales + token) if TOKEN_SCALES else 1.0
    added = tl.load(bias + n, mask=mask, other=0.0).to(tl.float32) if BIAS else 0.0
    total = _finish(total.to(tl.float32), row_scale, token_scale, added, ROW_SCALES, TOKEN_SCALES, BIAS)
    tl.store(out + token * N + n, total.to(out.dtype.element_ty), mask=mask)


@triton.jit
def eight_bit_kernel(
    x, words, scales, token_scales, row_scales, bias, out,
    M, N, padded_k, token_groups, padded_n, blocks, per_split,
    INTEGER: tl.constexpr, GROUPS: tl.constexpr, SPAN: tl.constexpr, SCALE_BITS: tl.constexpr,
    SCALE_KIND: tl.constexpr, TOKEN_GROUPED: tl.constexpr, ROW_SCALES: tl.constexpr, BIAS: tl.constexpr,
    SPLITS: tl.constexpr, PARTIAL: tl.constexpr, ROWS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """8-bit codes times 8-bit codes: int8 summed in int32, float8 in float32. Grid and out as `weight_only_kernel`'s.

    x: int8 or float8e4nv [M, padded_k], zeros past K; token_scales float32 [M, token_groups]
    float8 products leave the tensor core after each 128 in_features: its own sums keep some 14 to 22 bits (Hopper).
    """
    BLOCK: tl.constexpr = 128
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tokens = tl.program_id(2) * TOKENS + tl.arange(0, TOKENS)
    k = tl.arange(0, BLOCK)
    token_mask = tokens < M
    tile = (n // 64).to(tl.int64)[:, None] * (blocks * (64 * BLOCK)) + (n % 64)[:, None] * BLOCK
    words_tile = words + tile + k[None, :]
    x_tile = x + tokens.to(tl.int64)[None, :] * padded_k + k[:, None]
    exact: tl.constexpr = INTEGER and GROUPS == 0
    total = tl.zeros([ROWS, TOKENS], tl.int32 if exact else tl.float32)
    split = tl.program_id(1)
    for step in range(split, split + (1 if PARTIAL else SPLITS)):
        acc = tl.zeros([ROWS, TOKENS], tl.int32 if exact else tl.float32)
        for block in range(step * per_split, tl.minimum(step * per_split + per_split, blocks)):
            weights = tl.load(words_tile + block * (64 * BLOCK))
            codes = tl.load(x_tile + block * BLOCK, mask=token_mask[None, :], other=0.0)
            if exact:
                acc = tl.dot(weights, codes, acc, out_dtype=tl.int32)
            else:
                part = tl.dot(weights, codes, out_dtype=tl.int32 if INTEGER else tl.float32).to(tl.float32)
                if GROUPS > 0:
                    row = _scale(tl.load(scales + block // SPAN * padded_n + n), SCALE_KIND)
                    scale = tl.broadcast_to(row[:, None], [ROWS, TOKENS])
                    if TOKEN_GROUPED:
                        scale = scale * tl.load(token_scales + tokens * token_groups + block, mask=token_mask)[None, :]
                    acc = tl.fma(part, scale, acc)
                elif TOKEN_GROUPED:
                    scale = tl.load(token_scales + tokens * token_groups + block, mask=token_mask)[None, :]
                    acc = tl.fma(part, tl.broadcast_to(scale, [ROWS, TOKENS]), acc)
                else:
                    acc = acc + part
        total += acc
    if PARTIAL:
        slot = out + (split * M + tokens).to(tl.int64)[None, :] * padded_n + n[:, None]
        tl.store(slot, total, mask=token_mask[None, :])
    else:
        row_mask = n < N
        row_scale = tl.load(row_scales + n)[:, None] if ROW_SCALES else 1.0
        token_scale = 1.0 if TOKEN_GROUPED else tl.load(token_scales + tokens, mask=token_mask)[None, :]
        added = tl.load(bias + n, mask=row_mask, other=0.0).to(tl.float32)[:, None] if BIAS else 0.0
        done = _finish(total.to(tl.float32), row_scale, token_scale, added, ROW_SCALES, not TOKEN_GROUPED, BIAS)
        place = out + tokens.to(tl.int64)[None, :] * N + n[:, None]
        tl.store(place, done.to(out.dtype.element_ty), mask=token_mask[None, :] & row_mask[:, None])


@triton.jit
def _rounded(value, FLOAT8: tl.constexpr):
    """float32 → the nearest code's number, ties to even: adding and taking away 1.5 * 2**23 steps rounds to a step."""
    if FLOAT8:
        value = tl.minimum(tl.maximum(value, -448.0), 448.0)
        binade = (value.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
        magic = tl.maximum(binade, 0.015625) * 1572864.0  # 2**-6 and below share a step; 1.5 * 2**20, an eighth of it
        return (value + magic) - magic
    value = tl.minimum(tl.maximum(value, -128.0), 127.0)
    return (value + 12582912.0) - 12582912.0


@triton.jit
def round_tokens_kernel(
    x, codes, scales, K, padded_k, x_stride, groups, HALF: tl.constexpr, FLOAT8: tl.constexpr, GROUPED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """`round_tokens_torch`, codes [M, padded_k] with zeros past K. Grid (M, groups); GROUPED: BLOCK is the group."""
    token, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row = x + token * x_stride
    first = group * BLOCK if GROUPED else 0
    last = first + BLOCK if GROUPED else padded_k
    largest = tl.zeros([BLOCK], tl.float32)
    for start in range(first, last, BLOCK):
        k = start + tl.arange(0, BLOCK)
        largest = tl.maximum(largest, tl.abs(tl.load(row + k, mask=k < K, other=0.0).to(tl.float32)))
    scale = tl.math.div_rn(tl.max(largest, 0), HALF)
    tl.store(scales + token * groups + group, scale)
    divisor = tl.where(scale == 0, 1.0, scale)
    for start in range(first, last, BLOCK):
        k = start + tl.arange(0, BLOCK)
        value = tl.load(row + k, mask=k < K, other=0.0).to(tl.float32)
        code = _rounded(tl.math.div_rn(value, tl.broadcast_to(divisor, [BLOCK])), FLOAT8)
        tl.store(codes + token * padded_k + k, code.to(codes.dtype.element_ty), mask=k < padded_k)


@triton.jit
def terms_kernel(x, out, M, K, x_stride, BLOCK: tl.constexpr):
    """float32 [M, K] → bfloat16 [3, M, K], three terms that add up to it, the smallest first. Grid (M, K blocks)."""
    token = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    rest = tl.load(x + token * x_stride + k, mask=k < K, other=0.0)
    for term in tl.static_range(3):
        part = rest.to(tl.bfloat16)
        tl.store(out + ((2 - term) * M + token) * K + k, part, mask=k < K)
        rest -= part.to(tl.float32)
