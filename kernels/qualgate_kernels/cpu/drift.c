/* How far two models' next-token distributions are apart, from hidden states and heads, on one AVX-512 core.
 *
 * Hidden states are laid out HELD rows at a time, for them each tile of TILE tokens once. ROWS rows meet a tile: their
 * logits (float32) live in the L2 cache only, are reduced in float32 lanes, and added to double sums. A logit is one
 * chain of fused multiply-adds over the width, in order, and sums go by tiles from token 0 on: a row's bits depend on
 * nothing but the row.
 * The specification is `drift_torch` in drift.py. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#define INLINE static inline __attribute__((always_inline, target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#define BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))
enum { TILE = 256, PANEL = 32, ROWS = 64, BLOCK = 8, LANES = 16, HELD = 2048 };
enum { FLOAT32, BFLOAT16, FLOAT16 }; /* of hidden states and heads */
enum { DONE, BAD_ARGUMENT, NO_MEMORY, NO_PATH };
#define PAD (-1e30f) /* the logit of a token behind the last: its exp is 0 and its difference to any other finite */

typedef struct {
    const void *hidden, *head; /* [rows, width], [vocabulary, width] */
    const float *bias;         /* [vocabulary] or NULL */
    int64_t width;
    int32_t hidden_type, head_type;
} side_t;

typedef struct { /* float64 and int64, one a row; `side`: P then Q. The order is that of drift.py. */
    double kl[2], logprob[2], entropy[2], margin[2], best[2];
    int64_t top[2], sample[2];
} found_t;

typedef struct { /* what is known of a row after some tiles: sums over tokens of e = exp(logit - best) times ... */
    double sum, self, other; /* 1, (logit - best), (logit - best) - (the other's logit - the other's best) */
    float best, second, label, sampled;
    int64_t top, sample;
} running_t;

INLINE __m512 widen(const void *from, int type, int64_t place, __mmask16 mask) {
    if (type == FLOAT32) return _mm512_maskz_loadu_ps(mask, (const float *)from + place);
    __m256i half = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)from + place);
    if (type == FLOAT16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Words k to k + 15 of a row of `steps`: a word of 32 bits is one float32, or two bfloat16 neighbours when `pairs`. */
INLINE __m512i row_words(const side_t *s, const void *from, int type, int64_t row, int pairs, int64_t k,
                         __mmask16 mask) {
    int64_t start = row * s->width;
    if (!pairs) return _mm512_castps_si512(widen(from, type, start + k, mask));
    int64_t have = s->width - 2 * k;
    return _mm512_maskz_loadu_epi16(have >= 32 ? ~0u : (1u << have) - 1, (const uint16_t *)from + start + 2 * k);
}

INLINE __mmask16 of_row(int64_t steps, int64_t k) { return steps - k >= LANES ? 0xFFFF : (1u << (steps - k)) - 1; }

/* Hidden states of `count` rows from `row` on, and zeros up to a whole BLOCK: x [rows][stride] words. */
static AVX512 void lay_rows(uint32_t *x, int64_t stride, const side_t *s, int64_t row, int64_t count, int pairs,
                            int64_t steps) {
    for (int64_t r = 0; r < count; r++)
        for (int64_t k = 0; k < steps; k += LANES)
            _mm512_mask_storeu_epi32(x + r * stride + k, of_row(steps, k),
                                     row_words(s, s->hidden, s->hidden_type, row + r, pairs, k, of_row(steps, k)));
    for (int64_t r = count; r % BLOCK; r++) memset(x + r * stride, 0, (size_t)steps * 4);
}

/* Weights of `tokens` tokens from `first` on, and zeros up to TILE: tile [TILE / PANEL][steps][PANEL] words. */
static AVX512 void lay_tile(uint32_t *tile, const side_t *s, int64_t first, int64_t tokens, int pairs, int64_t steps) {
    for (int64_t panel = 0; panel < TILE; panel += PANEL)
        for (int64_t k = 0; k < steps; k += LANES) { /* 16 words of 32 tokens at a time: what is written stays in L1 */
            __mmask16 mask = of_row(steps, k);
            int64_t here = steps - k < LANES ? steps - k : LANES;
            uint32_t *to = tile + panel * steps + k * PANEL;
            for (int t = 0; t < PANEL; t++) {
                uint32_t each[LANES] = {0};
                if (panel + t < tokens)
                    _mm512_storeu_si512(each, row_words(s, s->head, s->head_type, first + panel + t, pairs, k, mask));
                for (int i = 0; i < here; i++) to[i * PANEL + t] = each[i];
            }
        }
}

/* logits[BLOCK][TILE], PANEL of them: x [BLOCK][stride] words, panel [steps][PANEL] words. */
#define PRODUCT(NAME, TARGET, VECTOR, CAST, MULTIPLY)                                                                  \
    static TARGET void NAME(const uint32_t *x, int64_t stride, const uint32_t *panel, int64_t steps, float *logits) { \
        __m512 sum[BLOCK][2];                                                                                          \
        _Pragma("GCC unroll 8") for (int r = 0; r < BLOCK; r++) sum[r][0] = sum[r][1] = _mm512_setzero_ps();           \
        for (int64_t k = 0; k < steps; k++, panel += PANEL) {                                                          \
            VECTOR left = CAST(_mm512_load_si512(panel)), right = CAST(_mm512_load_si512(panel + LANES));              \
            _Pragma("GCC unroll 8") for (int r = 0; r < BLOCK; r++) {                                                  \
                VECTOR each = CAST(_mm512_set1_epi32((int)x[r * stride + k]));                                         \
                sum[r][0] = MULTIPLY(sum[r][0], each, left);                                                           \
                sum[r][1] = MULTIPLY(sum[r][1], each, right);                                                          \
            }                                                                                                          \
        }                                                                                                              \
        _Pragma("GCC unroll 8") for (int r = 0; r < BLOCK; r++) {                                                      \
            _mm512_store_ps(logits + r * TILE, sum[r][0]);                                                             \
            _mm512_store_ps(logits + r * TILE + LANES, sum[r][1]);                                                     \
        }                                                                                                              \
    }
#define FMA(sum, a, b) _mm512_fmadd_ps(a, b, sum)
#define AS_PAIRS(words) (__m512bh)(words)
PRODUCT(product_float, AVX512, __m512, _mm512_castsi512_ps, FMA)
PRODUCT(product_pairs, BF16, __m512bh, AS_PAIRS, _mm512_dpbf16_ps)

INLINE __m512 exp_of(__m512 x) { /* x <= 0, about 1 ulp; 0 below -104; NaN stays */
    x = _mm512_max_ps(_mm512_set1_ps(-104.0f), x);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6f), r);
    const float c[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    __m512 p = _mm512_set1_ps(c[0]);
    for (int i = 1; i < 8; i++) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c[i]));
    return _mm512_scalef_ps(p, n);
}

INLINE __m512 log_of(__m512 x) { /* x > 0 */
    __m512 e = _mm512_getexp_ps(x), m = _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src);
    __mmask16 high = _mm512_cmp_ps_mask(m, _mm512_set1_ps(1.41421356f), _CMP_GT_OQ);
    m = _mm512_mask_mul_ps(m, high, m, _mm512_set1_ps(0.5f));
    e = _mm512_mask_add_ps(e, high, e, _mm512_set1_ps(1.0f));
    __m512 one = _mm512_set1_ps(1.0f), z = _mm512_div_ps(_mm512_sub_ps(m, one), _mm512_add_ps(m, one));
    __m512 q = _mm512_mul_ps(z, z), p = _mm512_set1_ps(2.0f / 9);
    const float c[] = {2.0f / 7, 2.0f / 5, 2.0f / 3, 2.0f};
    for (int i = 0; i < 4; i++) p = _mm512_fmadd_ps(p, q, _mm512_set1_ps(c[i]));
    return _mm512_fmadd_ps(e, _mm512_set1_ps(0.693147181f), _mm512_mul_ps(p, z));
}

INLINE __m512i high_product(__m512i a, uint32_t b) {
    __m512i by = _mm512_set1_epi32((int)b);
    __m512i even = _mm512_srli_epi64(_mm512_mul_epu32(a, by), 32);
    return _mm512_mask_blend_epi32(0xAAAA, even, _mm512_mul_epu32(_mm512_srli_epi64(a, 32), by));
}

/* Gumbel noise of 16 tokens: Philox4x32-10, see gumbel.py. */
INLINE __m512 gumbel(__m512i token, uint32_t position, uint64_t number, uint64_t seed) {
    __m512i c0 = token, c1 = _mm512_set1_epi32((int)position), c2 = _mm512_set1_epi32((int)number);
    __m512i c3 = _mm512_set1_epi32((int)(number >> 32));
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        __m512i h0 = high_product(c0, 0xD2511F53u), l0 = _mm512_mullo_epi32(c0, _mm512_set1_epi32((int)0xD2511F53u));
        __m512i h1 = high_product(c2, 0xCD9E8D57u), l1 = _mm512_mullo_epi32(c2, _mm512_set1_epi32((int)0xCD9E8D57u));
        c0 = _mm512_xor_si512(_mm512_xor_si512(h1, c1), _mm512_set1_epi32((int)k0));
        c2 = _mm512_xor_si512(_mm512_xor_si512(h0, c3), _mm512_set1_epi32((int)k1));
        c1 = l1, c3 = l0;
    }
    __m512 one = _mm512_set1_ps(1.0f);
    __m512 v = _mm512_mul_ps(_mm512_add_ps(_mm512_cvtepu32_ps(c0), _mm512_set1_ps(0.5f)), _mm512_set1_ps(0x1p-32f));
    v = _mm512_min_ps(v, _mm512_set1_ps(1.0f - 0x1p-24f));
    __m512 w = _mm512_sub_ps(one, v); /* -log(1 - v), right for small v too */
    __m512 e = _mm512_div_ps(_mm512_mul_ps(log_of(w), v), _mm512_sub_ps(w, one));
    e = _mm512_mask_mov_ps(e, _mm512_cmp_ps_mask(w, one, _CMP_EQ_OQ), v);
    return _mm512_sub_ps(_mm512_setzero_ps(), log_of(e));
}

INLINE double total(__m512 lanes) { /* in double, so that only the lanes' own sums round in float32 */
    __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(lanes));
    return _mm512_reduce_add_pd(_mm512_add_pd(low, _mm512_cvtps_pd(_mm512_extractf32x8_ps(lanes, 1))));
}

INLINE int64_t place_of(const float *values, float wanted) { /* of the first that is equal */
    for (int i = 0; i < TILE; i += LANES) {
        __mmask16 equal = _mm512_cmp_ps_mask(_mm512_load_ps(values + i), _mm512_set1_ps(wanted), _CMP_EQ_OQ);
        if (equal) return i + __builtin_ctz(equal);
    }
    return 0; /* NaN, and the row will say so */
}

/* The best two logits of this tile, and the sums brought to the new best. */
INLINE void meet_best(running_t *run, const float *logits, int64_t first) {
    __m512 best = _mm512_set1_ps(PAD), second = best;
    for (int i = 0; i < TILE; i += LANES) {
        __m512 x = _mm512_load_ps(logits + i);
        second = _mm512_max_ps(second, _mm512_min_ps(best, x));
        best = _mm512_max_ps(best, x);
    }
    float top = _mm512_reduce_max_ps(best);
    __mmask16 holders = _mm512_cmp_ps_mask(best, _mm512_set1_ps(top), _CMP_EQ_OQ);
    float next = _mm512_reduce_max_ps(second);
    if (holders & (holders - 1)) next = top;
    else next = fmaxf(next, _mm512_mask_reduce_max_ps(~holders & 0xFFFF, best));
    if (top > run->best) {
        run->second = fmaxf(run->best, next);
        run->top = first + place_of(logits, top);
    } else {
        run->second = fmaxf(run->second, top);
    }
}

INLINE void rescale(running_t *run, float best, double other_shift) {
    double shift = (double)run->best - best, factor = exp(shift);
    if (run->sum == 0) return;
    run->self = factor * (run->self + run->sum * shift);
    run->other = factor * (run->other + run->sum * (shift - other_shift));
    run->sum *= factor;
}

typedef struct {
    uint64_t seed, number;
    uint32_t position;
    float inverse_temperature;
} noise_t;

static AVX512 void reduce(running_t run[2], float *logits[2], int64_t first, int64_t label, const noise_t *noise) {
    float best[2];
    for (int side = 0; side < 2; side++) {
        float before = run[side].best;
        meet_best(&run[side], logits[side], first);
        best[side] = before;
    }
    float now[2];
    for (int side = 0; side < 2; side++)
        now[side] = run[side].top >= first ? logits[side][run[side].top - first] : best[side];
    double shift[2] = {(double)best[0] - now[0], (double)best[1] - now[1]};
    for (int side = 0; side < 2; side++)
        if (shift[0] != 0 || shift[1] != 0) rescale(&run[side], now[side], shift[1 - side]);
    for (int side = 0; side < 2; side++) run[side].best = now[side];
    __m512 zero = _mm512_setzero_ps(), sum[2] = {zero, zero}, self[2] = {zero, zero}, other[2] = {zero, zero};
    __m512 mp = _mm512_set1_ps(now[0]), mq = _mm512_set1_ps(now[1]);
    for (int i = 0; i < TILE; i += LANES) {
        __m512 lp = _mm512_load_ps(logits[0] + i), lq = _mm512_load_ps(logits[1] + i);
        __m512 p = _mm512_sub_ps(lp, mp), q = _mm512_sub_ps(lq, mq), d = _mm512_sub_ps(p, q);
        __m512 ep = exp_of(p), eq = exp_of(q);
        sum[0] = _mm512_add_ps(sum[0], _mm512_fmadd_ps(lp, zero, ep)); /* 0 * infinity: NaN, and all that follows */
        sum[1] = _mm512_add_ps(sum[1], _mm512_fmadd_ps(lq, zero, eq));
        self[0] = _mm512_fmadd_ps(ep, p, self[0]);
        self[1] = _mm512_fmadd_ps(eq, q, self[1]);
        other[0] = _mm512_fmadd_ps(ep, d, other[0]);
        other[1] = _mm512_fnmadd_ps(eq, d, other[1]);
    }
    for (int side = 0; side < 2; side++) {
        run[side].sum += total(sum[side]);
        run[side].self += total(self[side]);
        run[side].other += total(other[side]);
        if (label >= first && label < first + TILE) run[side].label = logits[side][label - first];
    }
    if (!noise) return;
    float noisy[2][TILE] __attribute__((aligned(64)));
    __m512 most[2] = {_mm512_set1_ps(PAD), _mm512_set1_ps(PAD)}, by = _mm512_set1_ps(noise->inverse_temperature);
    __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int i = 0; i < TILE; i += LANES) {
        __m512i token = _mm512_add_epi32(lanes, _mm512_set1_epi32((int)first + i));
        __m512 g = gumbel(token, noise->position, noise->number, noise->seed);
        for (int side = 0; side < 2; side++) {
            __m512 x = _mm512_fmadd_ps(_mm512_load_ps(logits[side] + i), by, g);
            _mm512_store_ps(noisy[side] + i, x);
            most[side] = _mm512_max_ps(most[side], x);
        }
    }
    for (int side = 0; side < 2; side++) {
        float top = _mm512_reduce_max_ps(most[side]);
        if (top <= run[side].sampled) continue;
        run[side].sampled = top;
        run[side].sample = first + place_of(noisy[side], top);
    }
}

static void finish(const running_t run[2], found_t *found, int64_t label) {
    double log_sum[2] = {log(run[0].sum), log(run[1].sum)};
    for (int side = 0; side < 2; side++) {
        const running_t *own = &run[side], *its = &run[1 - side];
        int broken = !(own->sum > 0) || !isfinite(own->self) || !(own->best > PAD / 10);
        int other = !(its->sum > 0) || !(its->best > PAD / 10) || !isfinite(own->other);
        found->kl[side] = broken || other ? NAN : fmax(0, own->other / own->sum - (log_sum[side] - log_sum[1 - side]));
        found->logprob[side] = broken || label < 0 ? NAN : fmin(0, (double)own->label - own->best - log_sum[side]);
        found->entropy[side] = broken ? NAN : fmax(0, log_sum[side] - own->self / own->sum);
        found->margin[side] = broken ? NAN : (double)own->best - own->second;
        found->best[side] = broken ? NAN : fmin(0, -log_sum[side]);
        found->top[side] = broken ? -1 : own->top;
        found->sample[side] = broken ? -1 : own->sample;
    }
}

/* What this processor can run: 0 nothing, 1 float32 products, 2 bfloat16 ones too. */
EXPORT int qualgate_drift_path(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("fma"))
        return 0;
    return __builtin_cpu_supports("avx512bf16") ? 2 : 1;
}

/* Of one row's results: a caller that expects other columns was made for another version. */
EXPORT int qualgate_drift_bytes(void) { return (int)sizeof(found_t); }

/* labels [rows] or NULL; numbers, positions [rows]: of the noise, or NULL; found [rows]. Everything is read where the
 * caller says it is: only extents can be checked here. */
EXPORT AVX512 int qualgate_drift(const side_t *sides, int64_t rows, int64_t vocabulary, const int64_t *labels,
                                 const int64_t *numbers, const int64_t *positions, uint64_t seed,
                                 float inverse_temperature, found_t *found) {
    int path = qualgate_drift_path();
    if (!path) return NO_PATH;
    if (rows < 1 || vocabulary < 2 || vocabulary > INT32_MAX - TILE || !numbers != !positions) return BAD_ARGUMENT;
    int pairs[2], shared = sides[0].head == sides[1].head && sides[0].bias == sides[1].bias;
    int64_t steps[2], stride[2];
    for (int s = 0; s < 2; s++) {
        if (sides[s].width < 1 || sides[s].width > 1 << 24) return BAD_ARGUMENT;
        pairs[s] = path > 1 && sides[s].hidden_type == BFLOAT16 && sides[s].head_type == BFLOAT16;
        steps[s] = pairs[s] ? (sides[s].width + 1) / 2 : sides[s].width;
        stride[s] = (steps[s] + 15) / 16 * 16 + 16; /* not a multiple of 4096 bytes: rows must not share cache sets */
    }
    shared = shared && pairs[0] == pairs[1] && steps[0] == steps[1] && sides[0].head_type == sides[1].head_type;
    unsigned before = _mm_getcsr();
    _mm_setcsr(0x1F80);
    running_t(*run)[2] = malloc((size_t)rows * sizeof *run);
    uint32_t *tile[2] = {NULL, NULL}, *x[2];
    float *logits[2];
    int failed = !run;
    for (int s = 0; s < 2; s++) {
        tile[s] = s && shared ? tile[0] : aligned_alloc(64, (size_t)TILE * steps[s] * 4);
        x[s] = aligned_alloc(64, (size_t)(rows < HELD ? (rows + BLOCK - 1) / BLOCK * BLOCK : HELD) * stride[s] * 4);
        logits[s] = aligned_alloc(64, (size_t)ROWS * TILE * 4);
        failed |= !tile[s] || !x[s] || !logits[s];
    }
    for (int64_t row = 0; !failed && row < rows; row++)
        for (int s = 0; s < 2; s++) run[row][s] = (running_t){0, 0, 0, PAD, PAD, 0, PAD, -1, -1};
    for (int64_t held = 0; !failed && held < rows; held += HELD) {
        int64_t end = rows - held < HELD ? rows : held + HELD;
        for (int s = 0; s < 2; s++) lay_rows(x[s], stride[s], &sides[s], held, end - held, pairs[s], steps[s]);
        for (int64_t first = 0; first < vocabulary; first += TILE) {
            int64_t tokens = vocabulary - first < TILE ? vocabulary - first : TILE;
            for (int s = 0; s < (shared ? 1 : 2); s++) lay_tile(tile[s], &sides[s], first, tokens, pairs[s], steps[s]);
            for (int64_t start = held; start < end; start += ROWS) {
                int64_t here = end - start < ROWS ? end - start : ROWS;
                for (int s = 0; s < 2; s++)
                    for (int64_t t = 0; t < TILE; t += PANEL)
                        for (int64_t b = 0; b < here; b += BLOCK)
                            (pairs[s] ? product_pairs : product_float)(
                                x[s] + (start - held + b) * stride[s], stride[s], tile[s] + t * steps[s], steps[s],
                                logits[s] + b * TILE + t);
                for (int64_t row = start; row < start + here; row++) {
                    float *both[2] = {logits[0] + (row - start) * TILE, logits[1] + (row - start) * TILE};
                    for (int s = 0; s < 2; s++) {
                        if (sides[s].bias)
                            for (int64_t t = 0; t < tokens; t++) both[s][t] += sides[s].bias[first + t];
                        for (int64_t t = tokens; t < TILE; t++) both[s][t] = PAD;
                    }
                    noise_t noise = {seed, numbers ? (uint64_t)numbers[row] : 0,
                                     positions ? (uint32_t)positions[row] : 0, inverse_temperature};
                    reduce(run[row], both, first, labels ? labels[row] : -1, numbers ? &noise : NULL);
                }
            }
        }
    }
    for (int64_t row = 0; !failed && row < rows; row++) finish(run[row], &found[row], labels ? labels[row] : -1);
    for (int s = 0; s < 2; s++) {
        if (!(s && shared)) free(tile[s]);
        free(x[s]);
        free(logits[s]);
    }
    free(run);
    _mm_setcsr(before);
    return failed ? NO_MEMORY : DONE;
}
#else
int qualgate_drift_path(void) { return 0; }
int qualgate_drift_bytes(void) { return 0; }
#endif
