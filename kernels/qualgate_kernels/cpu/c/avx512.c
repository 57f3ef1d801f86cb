/* AVX-512: codes become bfloat16 values by a look-up of 32 words (vpermw), two input features a lane. One body serves
 * packed weights (few rows, no panel) and values (panels, dense weights): the products and their order are the same. */
#include "weight.h"
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define ISA "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c"
#define INLINE static inline __attribute__((always_inline, target(ISA)))
#define INLINE_BF16 static inline __attribute__((always_inline, target(ISA ",avx512bf16")))

/* How a strip's codes become values. LOOKED_UP: codes of up to 5 bits; LESS_ZERO: up to 4 bits, minus a zero point a
 * column, looked up as a signed number of 5 bits; COUNTED: integer arithmetic. The others are values already: PANEL in
 * a cache, DENSE_* in memory. */
enum { PANEL, DENSE_BF16, DENSE_F16, DENSE_F32, LOOKED_UP, LESS_ZERO, COUNTED, E4M3, E5M2 };

INLINE __m512i words(const uint8_t *unit, const int bits, const int pair) {
    /* The codes of a pair in the low bits of 32 words; the bits above are anything. */
    const __m512i *v = (const __m512i *)unit;
    const int low = bits == 3 ? 2 : bits > 4 ? 4 : bits, each = 16 / low;
    __m512i code = _mm512_srli_epi16(_mm512_loadu_si512(v + pair / each), low * (pair % each));
    if (bits == low) return code;
    const int high = bits - low, from = high * pair; /* the upper bits: a plane of their own behind the lower */
    __m512i plane = _mm512_loadu_si512(v + unit_of(bits).vectors - 1);
    plane = from >= low ? _mm512_srli_epi16(plane, from - low) : _mm512_slli_epi16(plane, low - from);
    return _mm512_ternarylogic_epi32(_mm512_set1_epi16((short)((1 << low) - 1)), code, plane, 0xCA); /* mask ? : */
}

typedef struct {
    __m512i pair;      /* bfloat16 values of both input features */
    __m512 even, odd;  /* or float32 */
} values_t;

INLINE values_t split(__m512i pair) {
    return (values_t){pair, _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)),
                      _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32((int)0xFFFF0000)))};
}

INLINE values_t join(__m512 even, __m512 odd) { /* exact: the values have at most 8 significant bits */
    __m512i low = _mm512_srli_epi32(_mm512_castps_si512(even), 16);
    __m512i high = _mm512_and_si512(_mm512_castps_si512(odd), _mm512_set1_epi32((int)0xFFFF0000));
    return (values_t){_mm512_or_si512(low, high), even, odd};
}

INLINE int vectors_of(const int how, const int bits) { /* 64 bytes each, in a unit of one strip */
    return how == DENSE_F32 ? 2 : how < DENSE_F32 ? 1 : unit_of(bits).vectors;
}

INLINE int pairs_of(const int how, const int bits) {
    return how <= DENSE_F32 ? 1 : unit_of(bits).pairs;
}

INLINE int strip_bytes(const int how, const int bits) { /* from a unit's strip to the next */
    return how == DENSE_F16 ? 32 : how == DENSE_F32 ? 64 : 64 * vectors_of(how, bits);
}

INLINE values_t values(const uint8_t *unit, const int how, const int bits, const int pair, __m512i table,
                       __m512i zero) {
    /* zero: LESS_ZERO words, COUNTED 32-bit lanes */
    if (how == PANEL || how == DENSE_BF16) return split(_mm512_loadu_si512(unit));
    if (how == DENSE_F32)
        return (values_t){_mm512_setzero_si512(), _mm512_loadu_ps(unit), _mm512_loadu_ps(unit + 4 * BLOCK)};
    if (how == DENSE_F16)
        return (values_t){_mm512_setzero_si512(), _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)unit)),
                          _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(unit + 2 * BLOCK)))};
    const __m512i mask = _mm512_set1_epi16((short)((1 << bits) - 1));
    if (how == LOOKED_UP) return split(_mm512_permutexvar_epi16(words(unit, bits, pair), table));
    if (how == LESS_ZERO) {
        __m512i code = _mm512_and_si512(words(unit, bits, pair), mask);
        return split(_mm512_permutexvar_epi16(_mm512_sub_epi16(code, zero), table));
    }
    if (how == COUNTED && bits == 8) {
        const __m128i *bytes = (const __m128i *)unit + 2 * pair;
        __m512i even = _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes));
        __m512i odd = _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes + 1));
        return join(_mm512_cvtepi32_ps(_mm512_sub_epi32(even, zero)), _mm512_cvtepi32_ps(_mm512_sub_epi32(odd, zero)));
    }
    if (how == COUNTED) {
        __m512i code = _mm512_and_si512(words(unit, bits, pair), mask);
        __m512i even = _mm512_and_si512(code, _mm512_set1_epi32(0xFFFF)), odd = _mm512_srli_epi32(code, 16);
        return join(_mm512_cvtepi32_ps(_mm512_sub_epi32(even, zero)), _mm512_cvtepi32_ps(_mm512_sub_epi32(odd, zero)));
    }
    /* An 8-bit float is the upper part of a float16: e5m2 as it stands, e4m3 one bit lower and 2**8 too small. */
    __m512i byte = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)unit + pair));
    __m512i half = _mm512_slli_epi16(byte, 8);
    if (how == E4M3) {
        __m512i rest = _mm512_slli_epi16(_mm512_and_si512(byte, _mm512_set1_epi16(0x7F)), 7);
        half = _mm512_or_si512(_mm512_and_si512(half, _mm512_set1_epi16((short)0x8000)), rest);
    }
    __m512 even = _mm512_cvtph_ps(_mm512_castsi512_si256(half));
    __m512 odd = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1));
    if (how == E4M3) {
        even = _mm512_mul_ps(even, _mm512_set1_ps(256));
        odd = _mm512_mul_ps(odd, _mm512_set1_ps(256));
    }
    return join(even, odd);
}

INLINE __m512i zero_lanes(const weight_t *w, const int how, int64_t at) {
    /* The zero points of 16 columns, from `at` in zeros: twice a lane as words (LESS_ZERO), else as 32-bit numbers. */
    __m512i zero = w->zeros ? _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(w->zeros + at)))
                            : _mm512_set1_epi32(w->zero);
    return how == LESS_ZERO ? _mm512_or_si512(zero, _mm512_slli_epi32(zero, 16)) : zero;
}

INLINE __m512 scale_lanes(const weight_t *w, int64_t at) {
    const uint8_t *scales = w->scales;
    switch (w->scale_kind) {
    case SCALE_BF16:
        return _mm512_castsi512_ps(_mm512_slli_epi32(
            _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(scales + 2 * at))), 16));
    case SCALE_F16: return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(scales + 2 * at)));
    case SCALE_E8M0: /* exponents 1 to 254: layout.py keeps 0 and NaN as float32 */
        return _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(scales + at))), 23));
    default: return _mm512_loadu_ps(scales + 4 * at);
    }
}

INLINE void end_segment(const weight_t *w, int64_t at, int strip, const int rows, const __m512 *partial,
                        const float *sums, float *acc) {
    /* acc[row][64] += scale * partial (+ offset * sum) for one strip; at: its columns in scales */
    __m512 scale = w->scales ? scale_lanes(w, at) : _mm512_set1_ps(1); /* y + 1 * partial, fused, is y + partial */
    for (int r = 0; r < rows; r++) {
        float *y = acc + r * BLOCK + strip * STRIP;
        _mm512_store_ps(y, _mm512_fmadd_ps(scale, partial[r * 4], _mm512_load_ps(y)));
    }
    if (!w->offsets) return;
    __m512 offset = _mm512_loadu_ps(w->offsets + at);
    for (int r = 0; r < rows; r++) {
        float *y = acc + r * BLOCK + strip * STRIP;
        _mm512_store_ps(y, _mm512_fmadd_ps(offset, _mm512_set1_ps(sums[r]), _mm512_load_ps(y)));
    }
}

#define AHEAD 6144 /* bytes of codes: what a core goes through while memory answers */

/* One tile of rows through segments first..last-1, `abreast` of them at a time: one row alone has too few sums under way
 * to keep the multipliers busy. codes: the first segment's, packed or (PANEL) values. fetch: what is to be in a cache
 * when its turn comes, `stride` bytes further a unit. ACCUMULATE is the step that differs: x float32, or pairs of
 * bfloat16. Everything but the pointers and the stride is a constant when inlined. */
#define BODY(NAME, INLINED, X_BYTES, ACCUMULATE)                                                                      \
    INLINED void NAME(const weight_t *w, int64_t block, int64_t first, int64_t last, const uint8_t *codes,            \
                      const uint8_t *x, const float *sums, float *acc, const int how, const int bits,                 \
                      const int rows, const int abreast, __m512i table, const uint8_t *fetch, int64_t stride) {       \
        const int pairs = pairs_of(how, bits), vectors = vectors_of(how, bits), strip = strip_bytes(how, bits);       \
        const int units = (int)(w->segment / (2 * pairs)), step = units * 4 * 64 * vectors;                           \
        const int x_step = (int)w->segment * rows * X_BYTES;                                                          \
        for (int64_t s = first; s < last; s += abreast) {                                                             \
            int64_t at[2];                                                                                            \
            __m512 partial[TILE * 4];                                                                                 \
            __m512i zero[2][4];                                                                                       \
            _Pragma("GCC unroll 24") for (int i = 0; i < abreast * rows * 4; i++) partial[i] = _mm512_setzero_ps();   \
            _Pragma("GCC unroll 2") for (int a = 0; a < abreast; a++) {                                               \
                at[a] = (block * (w->segments / w->per_group) + (s + a) / w->per_group) * BLOCK;                      \
                _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) zero[a][v] =                                      \
                    how == LESS_ZERO || how == COUNTED ? zero_lanes(w, how, at[a] + v * STRIP)                        \
                                                       : _mm512_setzero_si512();                                      \
            }                                                                                                         \
            for (int u = 0; u < units; u++, codes += 4 * 64 * vectors, fetch += abreast * stride) {                   \
                if (how != PANEL) _Pragma("GCC unroll 40") for (int i = 0; i < abreast * 4 * vectors; i++)            \
                    _mm_prefetch((const char *)fetch + 64 * i, _MM_HINT_T0);                                          \
                _Pragma("GCC unroll 16") for (int p = 0; p < pairs; p++, x += 2 * X_BYTES * rows)                     \
                    _Pragma("GCC unroll 2") for (int a = 0; a < abreast; a++) {                                       \
                        const uint8_t *here = codes + a * step, *row = x + a * x_step;                                \
                        __m512 *sum = partial + a * rows * 4;                                                         \
                        values_t value[4];                                                                            \
                        _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) value[v] =                                \
                            values(here + strip * v, how, bits, p, table, zero[a][v]);                                \
                        ACCUMULATE                                                                                    \
                    }                                                                                                 \
            }                                                                                                         \
            _Pragma("GCC unroll 2") for (int a = 0; a < abreast; a++) {                                               \
                _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++)                                                   \
                    end_segment(w, at[a] + v * STRIP, v, rows, partial + a * rows * 4 + v, sums, acc);                \
                sums += w->offsets ? rows : 0;                                                                        \
            }                                                                                                         \
            codes += (abreast - 1) * step, x += (abreast - 1) * x_step;                                               \
        }                                                                                                             \
    }

BODY(tile_f32, INLINE, 4,
     _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++) {
         __m512 one = _mm512_set1_ps(*(const float *)(row + 4 * r));
         _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) sum[r * 4 + v] =
             _mm512_fmadd_ps(value[v].even, one, sum[r * 4 + v]);
     } if (how <= DENSE_F32) { /* read it again: 24 sums leave no registers to keep the odd half in */
         __asm__ volatile("" ::: "memory");
         _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) value[v] =
             values(here + strip * v, how, bits, p, table, zero[a][v]);
     } _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++) {
         __m512 one = _mm512_set1_ps(*(const float *)(row + 4 * (rows + r)));
         _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) sum[r * 4 + v] =
             _mm512_fmadd_ps(value[v].odd, one, sum[r * 4 + v]);
     })
BODY(tile_bf16, INLINE_BF16, 2,
     _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++) {
         __m512i both = _mm512_set1_epi32(*(const int *)(row + 4 * r));
         _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) sum[r * 4 + v] =
             _mm512_dpbf16_ps(sum[r * 4 + v], (__m512bh)value[v].pair, (__m512bh)both);
     })

INLINE void fill_panel(const weight_t *w, const uint8_t *codes, int64_t at, __m512i *panel, const int how,
                       const int bits, __m512i table, int64_t part, int64_t parts) {
    /* One segment of one block, or one part of it, as pairs of bfloat16: [pair][strip] of 64 bytes. */
    const int pairs = unit_of(bits).pairs, vectors = unit_of(bits).vectors;
    const int64_t units = w->segment / (2 * pairs), begin = units * part / parts, end = units * (part + 1) / parts;
    __m512i zero[4];
    for (int v = 0; v < 4; v++)
        zero[v] = how == LESS_ZERO || how == COUNTED ? zero_lanes(w, how, at + v * STRIP) : _mm512_setzero_si512();
    codes += begin * 4 * 64 * vectors, panel += begin * pairs * 4;
    for (int64_t u = begin; u < end; u++, codes += 4 * 64 * vectors) {
        for (int i = 0; i < 4 * vectors; i++) _mm_prefetch((const char *)codes + AHEAD + 64 * i, _MM_HINT_T0);
        _Pragma("GCC unroll 16") for (int p = 0; p < pairs; p++) for (int v = 0; v < 4; v++)
            _mm512_store_si512(panel++, values(codes + 64 * vectors * v, how, bits, p, table, zero[v]).pair);
    }
}

INLINE __m512i table_of(const weight_t *w, const int how) {
    /* bfloat16 values of 32 indices. A code of fewer bits repeats, so that the bits above it do not matter. */
    static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    uint16_t table[32];
    if (how <= DENSE_F32) return _mm512_setzero_si512();
    for (int i = 0; i < 32; i++) {
        int code = i & ((1 << w->bits) - 1);
        float value = how == LESS_ZERO        ? (float)(i < 16 ? i : i - 32)
                      : w->code == CODE_E2M1 ? (code & 8 ? -e2m1[code & 7] : e2m1[code & 7])
                                             : (float)(code - w->zero);
        uint32_t word;
        memcpy(&word, &value, 4);
        table[i] = (uint16_t)(word >> 16);
    }
    return _mm512_loadu_si512(table);
}

#define STRETCH 8192 /* bytes of codes, which stay in the nearest cache for all tiles */

/* A format's whole way: few rows straight from the packed codes, more through a panel a segment. Where several tiles
 * read a stretch, or a segment, each fetches its share of the next, so that memory is neither waited for nor idle. */
#define BLOCK_OF(NAME, TARGET, TILE_OF, X_BYTES, STRAIGHT)                                                            \
    static inline __attribute__((always_inline, target(TARGET))) void NAME##_how(                                     \
        const weight_t *w, int64_t block, const rows_t *rows, int64_t first, int64_t last, float *acc, void *panel,   \
        const int how, const int bits) {                                                                              \
        const __m512i table = table_of(w, how);                                                                       \
        const int64_t padded = w->segments * w->segment, step = segment_bytes(w), tiles = last - first;               \
        const int64_t unit = 4 * 64 * vectors_of(how, bits);                                                          \
        const uint8_t *codes = w->codes + block * w->segments * step;                                                 \
        const uint8_t *x = rows->x;                                                                                   \
        /* others: more code than the panel costs them */                                                             \
        const int able = STRAIGHT && how > DENSE_F32 && bits % 2 == 0 && bits != 6;                                   \
        const int straight = able && rows->tile == SHORT_TILE;                                                        \
        const int64_t most = !straight ? 1 : tiles == 1 ? w->segments : 1 + STRETCH / step;                           \
        for (int64_t s = 0, end; s < w->segments; codes += (end - s) * step, s = end) {                               \
            end = s + most < w->segments ? s + most : w->segments;                                                    \
            const int64_t group = block * (w->segments / w->per_group) + s / w->per_group;                            \
            const void *weights = how <= DENSE_F32 ? (const void *)codes : panel;                                     \
            if (how > DENSE_F32 && !straight) fill_panel(w, codes, group * BLOCK, panel, how, bits, table, 0, 1);     \
            for (int64_t tile = first; tile < last; tile++) {                                                         \
                const int64_t row = tile * rows->tile, share = (end - s) * step / tiles;                              \
                const int count = tile_rows(rows->count - row, rows->tile);                                           \
                const uint8_t *here = x + (row * padded + s * w->segment * count) * X_BYTES;                          \
                const uint8_t *next = codes + (tiles == 1 ? AHEAD : (end - s) * step + (tile - first) * share);       \
                const float *sums = w->offsets ? rows->sums + row * w->segments + s * count : NULL;                   \
                float *y = acc + (row - first * rows->tile) * BLOCK;                                                  \
                if (able && straight) switch (count) {                                                                \
                    case 1:                                                                                           \
                        if (tiles == 1 && w->segments % 2 == 0)                                                       \
                            TILE_OF(w, block, s, end, codes, here, sums, y, how, bits, 1, 2, table, next, unit);      \
                        else                                                                                          \
                            TILE_OF(w, block, s, end, codes, here, sums, y, how, bits, 1, 1, table, next,             \
                                    unit / tiles);                                                                    \
                        break;                                                                                        \
                    case 2:                                                                                           \
                        TILE_OF(w, block, s, end, codes, here, sums, y, how, bits, 2, 1, table, next, unit / tiles);  \
                        break;                                                                                        \
                    default:                                                                                          \
                        TILE_OF(w, block, s, end, codes, here, sums, y, how, bits, 4, 1, table, next, unit / tiles);  \
                    }                                                                                                 \
                else                                                                                                  \
                    (how == DENSE_BF16  ? NAME##_dense_bf16                                                           \
                     : how == DENSE_F16 ? block_avx512_dense_f16                                                      \
                     : how == DENSE_F32 ? block_avx512_dense_f32                                                      \
                                        : NAME##_panel)(                                                              \
                        w, block, s, weights, here, sums, y, count, rows->tiles, next, unit / tiles);                 \
            }                                                                                                         \
        }                                                                                                             \
    }

/* The function of a path: which way a weight's codes go. */
#define FORMATS_OF(NAME, TARGET, X_BYTES)                                                                             \
    __attribute__((target(TARGET))) void NAME(const weight_t *w, int64_t block, const rows_t *rows, int64_t first,    \
                                              int64_t last, float *acc, void *panel) {                                \
        if (w->code == CODE_BF16) NAME##_how(w, block, rows, first, last, acc, panel, DENSE_BF16, 16);                \
        else if (X_BYTES == 4 && w->code == CODE_F16)                                                                 \
            NAME##_how(w, block, rows, first, last, acc, panel, DENSE_F16, 16);                                       \
        else if (X_BYTES == 4 && w->code == CODE_F32)                                                                 \
            NAME##_how(w, block, rows, first, last, acc, panel, DENSE_F32, 32);                                       \
        else if (w->code == CODE_E4M3) NAME##_how(w, block, rows, first, last, acc, panel, E4M3, 8);                  \
        else if (w->code == CODE_E5M2) NAME##_how(w, block, rows, first, last, acc, panel, E5M2, 8);                  \
        else if (w->bits == 8) NAME##_how(w, block, rows, first, last, acc, panel, COUNTED, 8);                       \
        else if (w->bits == 6) NAME##_how(w, block, rows, first, last, acc, panel, COUNTED, 6);                       \
        else if (w->bits == 5 && w->zeros) NAME##_how(w, block, rows, first, last, acc, panel, COUNTED, 5);           \
        else if (w->bits == 5) NAME##_how(w, block, rows, first, last, acc, panel, LOOKED_UP, 5);                     \
        else if (w->bits == 4 && w->zeros) NAME##_how(w, block, rows, first, last, acc, panel, LESS_ZERO, 4);         \
        else if (w->bits == 4) NAME##_how(w, block, rows, first, last, acc, panel, LOOKED_UP, 4);                     \
        else if (w->bits == 3 && w->zeros) NAME##_how(w, block, rows, first, last, acc, panel, LESS_ZERO, 3);         \
        else if (w->bits == 3) NAME##_how(w, block, rows, first, last, acc, panel, LOOKED_UP, 3);                     \
        else if (w->zeros) NAME##_how(w, block, rows, first, last, acc, panel, LESS_ZERO, 2);                         \
        else NAME##_how(w, block, rows, first, last, acc, panel, LOOKED_UP, 2);                                       \
    }

/* The many-row kernel is the same for every format: not inlined, so that it exists once. */
#define PANEL_OF(NAME, TARGET, TILE_OF, HOW)                                                                          \
    __attribute__((noinline, target(TARGET))) static void NAME(                                                       \
        const weight_t *w, int64_t block, int64_t s, const uint8_t *panel, const uint8_t *x, const float *sums,       \
        float *acc, int count, const tiles_t *tiles, const uint8_t *fetch, int64_t stride) {                          \
        const __m512i none = _mm512_setzero_si512();                                                                  \
        (void)tiles;                                                                                                  \
        switch (count) {                                                                                              \
        case 1: TILE_OF(w, block, s, s + 1, panel, x, sums, acc, HOW, 32, 1, 1, none, fetch, stride); return;         \
        case 2: TILE_OF(w, block, s, s + 1, panel, x, sums, acc, HOW, 32, 2, 1, none, fetch, stride); return;         \
        case 4: TILE_OF(w, block, s, s + 1, panel, x, sums, acc, HOW, 32, 4, 1, none, fetch, stride); return;         \
        default: TILE_OF(w, block, s, s + 1, panel, x, sums, acc, HOW, 32, 6, 1, none, fetch, stride); return;        \
        }                                                                                                             \
    }

PANEL_OF(block_avx512_panel, ISA, tile_f32, PANEL)
PANEL_OF(block_avx512_dense_bf16, ISA, tile_f32, DENSE_BF16)
PANEL_OF(block_avx512_dense_f16, ISA, tile_f32, DENSE_F16)
PANEL_OF(block_avx512_dense_f32, ISA, tile_f32, DENSE_F32)
PANEL_OF(block_avx512_bf16_panel, ISA ",avx512bf16", tile_bf16, PANEL)
PANEL_OF(block_avx512_bf16_dense_bf16, ISA ",avx512bf16", tile_bf16, DENSE_BF16)

BLOCK_OF(block_avx512, ISA, tile_f32, 4, 1)
BLOCK_OF(block_avx512_bf16, ISA ",avx512bf16", tile_bf16, 2, 1)

/* What tiles gave of one segment, to be added to their rows. */
typedef struct {
    int64_t at;
    const float *sums;
    float *acc;
    __m512 partial[AMX_ROWS * 4];
} given_t;

/* AMX, a row as 512: while tiles multiply, the vector unit adds up what they gave before and, where there are some of
 * them to hide it behind, unpacks what they take next, so that neither waits for the other. Few rows do better with one
 * panel, which stays in the nearest cache. */
#define HIDING 8 /* tiles */
INLINE void block_amx_how(const weight_t *w, int64_t block, const rows_t *rows, int64_t first, int64_t last, float *acc,
                          void *panel, const int how, const int bits) {
    const __m512i table = table_of(w, how);
    const int64_t padded = w->segments * w->segment, step = segment_bytes(w), tiles = last - first;
    const uint8_t *codes = w->codes + block * w->segments * step;
    const int unpacked = how <= DENSE_F32, ahead = !unpacked && tiles >= HIDING, count = rows->tile;
    __m512i *panels[2] = {panel, (__m512i *)panel + SEGMENT_MAX / 2 * 4};
    given_t given[2], *before = NULL;
    for (int64_t s = 0, turn = 0; s < w->segments; s++, codes += step) {
        const int64_t group = block * (w->segments / w->per_group), next = group + (s + 1) / w->per_group;
        __m512i *mine = panels[ahead ? s % 2 : 0];
        if (!unpacked && (s == 0 || !ahead))
            fill_panel(w, codes, (group + s / w->per_group) * BLOCK, mine, how, bits, table, 0, 1);
        for (int64_t tile = first; tile < last; tile++, turn++) {
            const int64_t row = tile * count;
            given_t *now = given + turn % 2;
            now->at = (group + s / w->per_group) * BLOCK;
            now->sums = w->offsets ? rows->sums + row * w->segments + s * count : NULL;
            now->acc = acc + (row - first * count) * BLOCK;
            rows->tiles->floats((const uint8_t *)rows->x + (row * padded + s * w->segment * count) * 2,
                                unpacked ? (const void *)codes : mine, w->segment / 2, (float *)now->partial);
            if (ahead && s + 1 < w->segments)
                fill_panel(w, codes + step, next * BLOCK, panels[(s + 1) % 2], how, bits, table, tile - first, tiles);
            if (before)
                for (int v = 0; v < 4; v++)
                    end_segment(w, before->at + v * STRIP, v, count, before->partial + v, before->sums, before->acc);
            before = now;
        }
    }
    for (int v = 0; v < 4; v++)
        end_segment(w, before->at + v * STRIP, v, count, before->partial + v, before->sums, before->acc);
}

FORMATS_OF(block_avx512, ISA, 4)
FORMATS_OF(block_avx512_bf16, ISA ",avx512bf16", 2)
FORMATS_OF(block_amx, ISA, 2)
#endif
