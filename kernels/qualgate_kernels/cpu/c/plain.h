/* The same product in plain C over short vectors: scalar.c and avx2.c include this with their vector type. x is
 * float32; a panel holds one segment of one block as float32 [k][64], or as a dense weight's pairs of bfloat16.
 *
 * Wanted: PATH (the function's name), INLINE, ENTRY (attributes), lanes_t (a vector of floats), FMA(a, b, c),
 * EACH(a): a in every lane. */
#include <string.h>

#define LANES ((int)(sizeof(lanes_t) / sizeof(float)))
typedef uint32_t words_t __attribute__((vector_size(sizeof(lanes_t))));

INLINE float from_half(uint16_t half) {
    /* float16 → float32, exact; subnormals are counted in steps of 2**-24. No branch, so that loops become vectors. */
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7FFF;
    const float steps = (float)(int)rest * 0x1p-24f;
    const uint32_t subnormal = -(uint32_t)(rest < 0x400), beyond = -(uint32_t)(rest >= 0x7C00);
    uint32_t small, word = (rest << 13) + 0x38000000u + (beyond & 0x38000000u);
    memcpy(&small, &steps, 4);
    word = sign | (small & subnormal) | (word & ~subnormal);
    float value;
    memcpy(&value, &word, 4);
    return value;
}

INLINE void scales_of(const weight_t *w, int64_t at, float *out) {
    const uint8_t *scales = w->scales;
    uint16_t half[BLOCK];
    uint32_t word[BLOCK];
    if (!scales) { /* y + 1 * partial, fused or not, is y + partial */
        for (int n = 0; n < BLOCK; n++) out[n] = 1;
        return;
    }
    if (w->scale_kind == SCALE_F32) {
        memcpy(out, scales + 4 * at, 4 * BLOCK);
        return;
    }
    if (w->scale_kind == SCALE_E8M0)
        for (int n = 0; n < BLOCK; n++) word[n] = (uint32_t)scales[at + n] << 23;
    else
        memcpy(half, scales + 2 * at, 2 * BLOCK);
    if (w->scale_kind == SCALE_BF16)
        for (int n = 0; n < BLOCK; n++) word[n] = (uint32_t)half[n] << 16;
    if (w->scale_kind == SCALE_F16)
        for (int n = 0; n < BLOCK; n++) out[n] = from_half(half[n]);
    else
        memcpy(out, word, 4 * BLOCK);
}

INLINE void unpack(const uint8_t *codes, const int bits, const int vector, const int shift, int *out) {
    /* out[16] |= the codes at bit `shift` of one 64-byte vector's lanes, `bits` wide, moved up by 0 */
    uint32_t lanes[STRIP];
    memcpy(lanes, codes + 64 * vector, 64);
    for (int l = 0; l < STRIP; l++) out[l] = (int)(lanes[l] >> shift & ((1u << bits) - 1));
}

INLINE void fill_ints(const weight_t *w, const uint8_t *codes, int64_t at, float *panel, const int bits) {
    const unit_t unit = unit_of(bits);
    const int low = bits == 3 ? 2 : bits > 4 && bits < 8 ? 4 : bits, high = bits - low, each = 16 / low;
    const int units = (int)(w->segment / (2 * unit.pairs));
    int zero[BLOCK];
    for (int n = 0; n < BLOCK; n++) zero[n] = w->zeros ? w->zeros[at + n] : w->zero;
    for (int u = 0; u < units; u++, panel += 2 * unit.pairs * BLOCK)
        for (int v = 0; v < 4; v++, codes += 64 * unit.vectors)
            for (int p = 0; p < unit.pairs; p++)
                for (int half = 0; half < 2; half++) {
                    float *out = panel + (2 * p + half) * BLOCK + v * STRIP;
                    int code[STRIP], upper[STRIP];
                    if (bits == 8) {
                        for (int l = 0; l < STRIP; l++) code[l] = codes[(2 * p + half) * STRIP + l];
                    } else
                        unpack(codes, low, p / each, 16 * half + low * (p % each), code);
                    if (high) {
                        unpack(codes, high, unit.vectors - 1, 16 * half + high * p, upper);
                        for (int l = 0; l < STRIP; l++) code[l] |= upper[l] << low;
                    }
                    if (w->code == CODE_E2M1) /* twice the magnitude: 0 1 2 3 4 6 8 12, a nibble each */
                        for (int l = 0; l < STRIP; l++) {
                            float value = (float)(0xC8643210u >> (4 * (code[l] & 7)) & 15) * 0.5f;
                            out[l] = code[l] & 8 ? -value : value;
                        }
                    else
                        for (int l = 0; l < STRIP; l++) out[l] = (float)(code[l] - zero[v * STRIP + l]);
                }
}

INLINE void fill_floats(const weight_t *w, const uint8_t *codes, float *panel) {
    /* An 8-bit float is the upper part of a float16: e5m2 as it stands, e4m3 one bit lower and 2**8 too small. */
    float table[256];
    for (int code = 0; code < 256; code++)
        table[code] = w->code == CODE_E5M2 ? from_half((uint16_t)(code << 8))
                                           : 256 * from_half((uint16_t)((code & 0x80) << 8 | (code & 0x7F) << 7));
    for (int64_t u = 0; u < w->segment / 4; u++, panel += 4 * BLOCK)
        for (int v = 0; v < 4; v++, codes += 64)
            for (int i = 0; i < 64; i++) panel[i / STRIP * BLOCK + v * STRIP + i % STRIP] = table[codes[i]];
}

INLINE void fill_halves(const weight_t *w, const uint8_t *codes, float *panel) {
    uint16_t half[BLOCK];
    for (int64_t k = 0; k < w->segment; k++, panel += BLOCK) {
        memcpy(half, codes + sizeof half * (size_t)k, sizeof half);
        for (int n = 0; n < BLOCK; n++) panel[n] = from_half(half[n]);
    }
}

INLINE lanes_t value_at(const uint8_t *panel, const int pairs, int64_t k, const int odd, int n) {
    /* Of input feature k + odd, columns n and up; k is even. */
    words_t word;
    memcpy(&word, panel + 4 * (pairs ? k / 2 * BLOCK + n : (k + odd) * BLOCK + n), sizeof word);
    if (pairs) word = odd ? word & 0xFFFF0000 : word << 16;
    return (lanes_t)word;
}

/* rows and pairs: constants when inlined. All of 16 registers but a few hold sums: few rows take more columns. */
INLINE void tile(const weight_t *w, const uint8_t *panel, const int pairs, const float *scales, const float *offsets,
                 const float *x, const float *sums, float *acc, const int rows) {
    const int wide = rows == 1 ? 8 : rows == 2 ? 4 : 2;
    for (int n = 0; n < BLOCK; n += wide * LANES) {
        lanes_t partial[TILE * 2], factor, y;
#pragma GCC unroll 12
        for (int i = 0; i < rows * wide; i++) partial[i] = (lanes_t){0};
        for (int64_t k = 0; k < w->segment; k += 2)
#pragma GCC unroll 2
            for (int odd = 0; odd < 2; odd++)
#pragma GCC unroll 6
                for (int r = 0; r < rows; r++) {
                    const lanes_t one = EACH(x[(k + odd) * rows + r]);
#pragma GCC unroll 8
                    for (int v = 0; v < wide; v++)
                        partial[r * wide + v] =
                            FMA(value_at(panel, pairs, k, odd, n + v * LANES), one, partial[r * wide + v]);
                }
#pragma GCC unroll 12
        for (int i = 0; i < rows * wide; i++) {
            const int r = i / wide, at = n + i % wide * LANES;
            float *out = acc + r * BLOCK + at;
            memcpy(&y, out, sizeof y);
            memcpy(&factor, scales + at, sizeof y);
            y = FMA(factor, partial[i], y);
            if (offsets) {
                memcpy(&factor, offsets + at, sizeof y);
                y = FMA(factor, EACH(sums[r]), y);
            }
            memcpy(out, &y, sizeof y);
        }
    }
}

INLINE void tiles(const weight_t *w, const uint8_t *panel, const int pairs, int64_t s, const float *scales,
                  const float *offsets, const rows_t *rows, int64_t first, int64_t last, float *acc) {
    for (int64_t t = first; t < last; t++, acc += TILE * BLOCK) {
        const int count = tile_rows(rows->count - t * TILE, TILE);
        const float *x = (const float *)rows->x + TILE * t * w->segments * w->segment + s * w->segment * count;
        const float *sums = offsets ? rows->sums + TILE * t * w->segments + s * count : NULL;
        if (count == 1) tile(w, panel, pairs, scales, offsets, x, sums, acc, 1);
        else if (count == 2) tile(w, panel, pairs, scales, offsets, x, sums, acc, 2);
        else if (count == 4) tile(w, panel, pairs, scales, offsets, x, sums, acc, 4);
        else tile(w, panel, pairs, scales, offsets, x, sums, acc, 6);
    }
}

ENTRY void PATH(const weight_t *w, int64_t block, const rows_t *rows, int64_t first, int64_t last, float *acc,
                void *panel) {
    const int64_t step = segment_bytes(w);
    for (int64_t s = 0; s < w->segments; s++) {
        const int64_t at = (block * (w->segments / w->per_group) + s / w->per_group) * BLOCK;
        const uint8_t *codes = w->codes + (block * w->segments + s) * step;
        const float *offsets = w->offsets ? w->offsets + at : NULL;
        float scales[BLOCK];
        scales_of(w, at, scales);
        if (w->code == CODE_F16) fill_halves(w, codes, panel);
        else if (w->code == CODE_E4M3 || w->code == CODE_E5M2) fill_floats(w, codes, panel);
        else if (w->bits == 2) fill_ints(w, codes, at, panel, 2);
        else if (w->bits == 3) fill_ints(w, codes, at, panel, 3);
        else if (w->bits == 4) fill_ints(w, codes, at, panel, 4);
        else if (w->bits == 5) fill_ints(w, codes, at, panel, 5);
        else if (w->bits == 6) fill_ints(w, codes, at, panel, 6);
        else if (w->bits == 8) fill_ints(w, codes, at, panel, 8);
        if (w->code == CODE_BF16) tiles(w, codes, 1, s, scales, offsets, rows, first, last, acc);
        else tiles(w, w->code == CODE_F32 ? codes : panel, 0, s, scales, offsets, rows, first, last, acc);
    }
}
