/* The same product in plain C over short vectors: scalar.c and avx2.c include this with their vector type. x is
 * float32; a panel holds one segment of one block as float32 [k][64], or as pairs of bfloat16 for a single tile of rows.
 *
 * Wanted: PATH (the function's name), INLINE, ENTRY (attributes), lanes_t (a vector of floats), FMA(a, b, c),
 * EACH(a): a in every lane, WORDS(bytes): each a word, E2M1(codes): the values of 4-bit floats. */
#include <string.h>

#define LANES ((int)(sizeof(lanes_t) / sizeof(float)))
typedef uint32_t words_t __attribute__((vector_size(sizeof(lanes_t))));
typedef int32_t ints_t __attribute__((vector_size(sizeof(lanes_t))));
typedef uint16_t halves_t __attribute__((vector_size(sizeof(lanes_t) / 2)));
typedef uint8_t bytes_t __attribute__((vector_size(sizeof(lanes_t) / 4)));

INLINE lanes_t from_halves(words_t half) {
    /* float16 → float32, exact; subnormals are counted in steps of 2**-24. */
    const words_t sign = (half & 0x8000) << 16, rest = half & 0x7FFF;
    const lanes_t steps = __builtin_convertvector((ints_t)rest, lanes_t) * 0x1p-24f;
    const words_t subnormal = (words_t)((ints_t)rest < 0x400), beyond = (words_t)((ints_t)rest >= 0x7C00);
    const words_t word = (rest << 13) + 0x38000000u + (beyond & 0x38000000u);
    return (lanes_t)(sign | ((words_t)steps & subnormal) | (word & ~subnormal));
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
        for (int n = 0; n < BLOCK; n += LANES) {
            halves_t some;
            memcpy(&some, half + n, sizeof some);
            const lanes_t value = from_halves(__builtin_convertvector(some, words_t));
            memcpy(out + n, &value, sizeof value);
        }
    else
        memcpy(out, word, 4 * BLOCK);
}

INLINE words_t code_at(const uint8_t *unit, const int bits, const int p, const int half, const int lane) {
    /* Codes of input feature 2 * p + half of a unit, of the strip's columns from `lane` up. */
    const int low = bits == 3 ? 2 : bits > 4 && bits < 8 ? 4 : bits, high = bits - low, each = 16 / low;
    words_t code, upper;
    bytes_t bytes;
    if (bits == 8) {
        memcpy(&bytes, unit + (2 * p + half) * STRIP + lane, sizeof bytes);
        return WORDS(bytes);
    }
    memcpy(&code, unit + 64 * (p / each) + 4 * lane, sizeof code);
    code = code >> (16 * half + low * (p % each)) & ((1u << low) - 1);
    if (!high) return code;
    memcpy(&upper, unit + 64 * (unit_of(bits).vectors - 1) + 4 * lane, sizeof upper);
    return code | (upper >> (16 * half + high * p) & ((1u << high) - 1)) << low;
}

INLINE lanes_t value_of(words_t code, words_t zero, const int kind) {
    /* An 8-bit float is the upper part of a float16: e5m2 as it stands, e4m3 one bit lower and 2**8 too small. */
    if (kind == CODE_E2M1) return E2M1(code);
    if (kind == CODE_E4M3) return 256 * from_halves((code & 0x80) << 8 | (code & 0x7F) << 7);
    if (kind == CODE_E5M2) return from_halves(code << 8);
    return __builtin_convertvector((ints_t)(code - zero), lanes_t);
}

INLINE void fill_codes(const weight_t *w, const uint8_t *codes, int64_t at, float *panel, const int bits,
                       const int kind) {
    const unit_t unit = unit_of(bits);
    const int units = (int)(w->segment / (2 * unit.pairs));
    uint32_t zeros[BLOCK];
    for (int n = 0; n < BLOCK; n++) zeros[n] = w->zeros ? w->zeros[at + n] : (uint32_t)w->zero;
    for (int u = 0; u < units; u++, panel += 2 * unit.pairs * BLOCK)
        for (int n = 0; n < BLOCK; n += LANES) {
            const uint8_t *strip = codes + 64 * unit.vectors * (4 * u + n / STRIP);
            words_t zero;
            memcpy(&zero, zeros + n, sizeof zero);
#pragma GCC unroll 16
            for (int p = 0; p < unit.pairs; p++)
#pragma GCC unroll 2
                for (int half = 0; half < 2; half++) {
                    const words_t code = code_at(strip, bits, p, half, n % STRIP);
                    const lanes_t value = value_of(code, zero, kind);
                    memcpy(panel + (2 * p + half) * BLOCK + n, &value, sizeof value);
                }
        }
}

INLINE void fill_halves(const weight_t *w, const uint8_t *codes, float *panel) {
    for (int64_t i = 0; i < w->segment * BLOCK; i += LANES) {
        halves_t half;
        memcpy(&half, codes + sizeof(uint16_t) * (size_t)i, sizeof half);
        const lanes_t value = from_halves(__builtin_convertvector(half, words_t));
        memcpy(panel + i, &value, sizeof value);
    }
}

INLINE void fill_pairs(const weight_t *w, const uint8_t *codes, float *panel) {
    for (int64_t k = 0; k < w->segment; k += 2, panel += 2 * BLOCK, codes += 4 * BLOCK)
        for (int n = 0; n < BLOCK; n += LANES) {
            words_t word;
            memcpy(&word, codes + 4 * n, sizeof word);
            const words_t even = word << 16, odd = word & 0xFFFF0000;
            memcpy(panel + n, &even, sizeof even);
            memcpy(panel + BLOCK + n, &odd, sizeof odd);
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
        const int pairs = w->code == CODE_BF16 && last - first == 1; /* more tiles of rows: widened once for all */
        if (w->code == CODE_BF16 && !pairs) fill_pairs(w, codes, panel);
        else if (w->code == CODE_F16) fill_halves(w, codes, panel);
        else if (w->code == CODE_E2M1) fill_codes(w, codes, at, panel, 4, CODE_E2M1);
        else if (w->code == CODE_E4M3) fill_codes(w, codes, at, panel, 8, CODE_E4M3);
        else if (w->code == CODE_E5M2) fill_codes(w, codes, at, panel, 8, CODE_E5M2);
        else if (w->bits == 2) fill_codes(w, codes, at, panel, 2, CODE_INT);
        else if (w->bits == 3) fill_codes(w, codes, at, panel, 3, CODE_INT);
        else if (w->bits == 4) fill_codes(w, codes, at, panel, 4, CODE_INT);
        else if (w->bits == 5) fill_codes(w, codes, at, panel, 5, CODE_INT);
        else if (w->bits == 6) fill_codes(w, codes, at, panel, 6, CODE_INT);
        else if (w->bits == 8) fill_codes(w, codes, at, panel, 8, CODE_INT);
        if (pairs) tiles(w, codes, 1, s, scales, offsets, rows, first, last, acc);
        else tiles(w, w->code == CODE_F32 ? codes : panel, 0, s, scales, offsets, rows, first, last, acc);
    }
}
