/* Entry points: check what came, lay x out in tiles, share blocks of columns among threads, write what they give. */
#include "floats.h"
#include "pool.h"
#include "weight.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define CHUNK 192

static block_fn *block_of(int path) {
    switch (path) {
#if defined(__x86_64__)
    case PATH_AVX2: return block_avx2;
    case PATH_AVX512: return block_avx512;
    case PATH_AVX512_BF16: return block_avx512_bf16;
    case PATH_AMX:
    case PATH_AMX_EMULATED: return block_amx;
#endif
    default: return block_scalar;
    }
}

/* One bit a path this process may choose; the emulation of AMX is for tests, who ask for it by number. */
EXPORT int qualgate_paths(void) {
    int found = 1 << PATH_SCALAR;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        found |= 1 << PATH_AVX2;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
            found |= 1 << PATH_AVX512;
            if (__builtin_cpu_supports("avx512bf16")) found |= 1 << PATH_AVX512_BF16;
            if (amx_state() == AMX_SERVES) found |= 1 << PATH_AMX;
        }
    }
#endif
    return found;
}

EXPORT int qualgate_amx(void) { return amx_state(); }

static int bits_fit(int code, int bits) {
    switch (code) {
    case CODE_INT: return bits > 1 && bits < 9 && bits != 7;
    case CODE_E2M1: return bits == 4;
    case CODE_E4M3:
    case CODE_E5M2: return bits == 8;
    case CODE_BF16:
    case CODE_F16: return bits == 16;
    case CODE_F32: return bits == 32;
    default: return 0;
    }
}

static int sound(const weight_t *w) {
    if (w->bytes != (int64_t)sizeof *w || !w->codes) return 0;
    if (w->rows < 1 || w->columns < 1 || w->rows > INT32_MAX || w->columns > INT32_MAX) return 0;
    if (w->segment < 1 || w->segment > SEGMENT_MAX || w->segments < 1 || w->segments > INT32_MAX) return 0;
    if (w->per_group < 1 || w->segments % w->per_group) return 0;
    if (!bits_fit(w->code, w->bits) || w->zero < 0 || w->zero > 256) return 0;
    if (w->zeros && w->code != CODE_INT) return 0;
    const unit_t unit = unit_of(w->bits);
    if (w->segment % (2 * unit.pairs)) return 0;
    const int64_t blocks = (w->rows + BLOCK - 1) / BLOCK, groups = w->segments / w->per_group;
    if (w->codes_bytes != blocks * w->segments * segment_bytes(w)) return 0;
    if (dense(w)) {
        if (w->scales || w->offsets || w->gather) return 0;
        return w->segments * w->segment >= w->columns;
    }
    const int64_t each = w->scale_kind == SCALE_F32 ? 4 : w->scale_kind == SCALE_E8M0 ? 1 : 2;
    if (!w->scales || w->scale_kind < SCALE_F32 || w->scale_kind > SCALE_E8M0) return 0;
    if (w->scales_bytes != blocks * groups * BLOCK * each) return 0;
    if (!w->gather) return w->segments * w->segment == w->columns;
    for (int64_t k = 0; k < w->segments * w->segment; k++)
        if (w->gather[k] < -1 || w->gather[k] >= w->columns) return 0;
    return 1;
}

typedef struct {
    const weight_t *w;
    const void *x;
    void *out, *packed;
    float *sums;
    int64_t count, chunks;
    int type, path;
    char *scratch; /* a stretch of scratch_bytes for each thread: sums of products, then a panel */
    size_t scratch_bytes, acc_bytes;
    rows_t rows;
} call_t;

static float float_of(uint16_t half) {
    uint32_t word = (uint32_t)half << 16;
    float value;
    memcpy(&value, &word, 4);
    return value;
}

static uint16_t bf16_of(float value) { /* to nearest, ties to even */
    uint32_t word;
    memcpy(&word, &value, 4);
    if ((word & 0x7FFFFFFF) > 0x7F800000) return 0x7FC0; /* NaN, which instructions sign differently */
    return (uint16_t)((word + 0x7FFF + (word >> 16 & 1)) >> 16);
}

/* One number of row r into its tile's segment: x's column `from`, or zero for -1. */
static inline __attribute__((always_inline)) void place(const call_t *call, void *segment, int64_t k, int count, int r,
                                                        const void *x, int64_t from, const int layout, const int type) {
    const uint16_t half = from < 0 || type == X_F32 ? 0 : ((const uint16_t *)x)[from];
    uint16_t *narrow = segment;
    if (layout == PAIRS) narrow[(k / 2 * count + r) * 2 + k % 2] = half;
    else if (layout == AMX) narrow[in_tile(k / 2, call->w->segment / 2, count, r) * 2 + k % 2] = half;
    else ((float *)segment)[k * count + r] = type == X_BF16 ? float_of(half) : from < 0 ? 0 : ((const float *)x)[from];
}

/* layout and type: constants when inlined, so that each pair of them has loops without questions. */
static inline __attribute__((always_inline)) void pack_as(const call_t *call, int64_t tile, const int layout,
                                                          const int type) {
    const weight_t *w = call->w;
    const int64_t first = tile * call->rows.tile;
    const int count = tile_rows(call->count - first, call->rows.tile), each = layout == FLOATS ? 4 : 2;
    for (int r = 0; r < count; r++) {
        const int there = first + r < call->count;
        const void *x = (const char *)call->x + (first + r) * w->columns * (type == X_F32 ? 4 : 2);
        for (int64_t s = 0; s < w->segments; s++) {
            char *to = (char *)call->packed + (first * w->segments + s * count) * w->segment * each;
            const int32_t *gather = w->gather ? w->gather + s * w->segment : NULL;
            const int64_t from = s * w->segment, left = w->columns - from; /* of a dense weight: less at its end */
            const int64_t known = !there ? 0 : gather || left > w->segment ? w->segment : left;
            float sum = 0;
            if (gather)
                for (int64_t k = 0; k < known; k++) place(call, to, k, count, r, x, gather[k], layout, type);
            else if (layout == AMX) /* a step of a row lies in one piece */
                for (int64_t k = 0; k < known; k += 2 * STEP)
                    memcpy(to + 4 * in_tile(k / 2, w->segment / 2, count, r), (const uint16_t *)x + from + k,
                           2 * (size_t)(known - k < 2 * STEP ? known - k : 2 * STEP));
            else
                for (int64_t k = 0; k < known; k++) place(call, to, k, count, r, x, from + k, layout, type);
            for (int64_t k = known > 0 ? known : 0; k < w->segment; k++)
                place(call, to, k, count, r, x, -1, layout, type);
            if (!w->offsets) continue;
            for (int64_t k = 0; k < known; k++) {
                const int64_t at = gather ? gather[k] : from + k;
                if (at >= 0) sum += type == X_BF16 ? float_of(((const uint16_t *)x)[at]) : ((const float *)x)[at];
            }
            call->sums[first * w->segments + s * count + r] = sum;
        }
    }
}

static void pack_tile(void *context, int64_t tile, int worker) {
    const call_t *call = context;
    const unsigned before = plain_floats();
    (void)worker;
    if (call->rows.layout == PAIRS) pack_as(call, tile, PAIRS, X_BF16);
    else if (call->rows.layout == AMX) pack_as(call, tile, AMX, X_BF16);
    else if (call->type == X_BF16) pack_as(call, tile, FLOATS, X_BF16);
    else pack_as(call, tile, FLOATS, X_F32);
    restore_floats(before);
}

static void multiply(void *context, int64_t task, int worker) {
    const call_t *call = context;
    const weight_t *w = call->w;
    const int64_t block = task / call->chunks, chunk = task % call->chunks;
    const int64_t first = chunk * CHUNK, last = first + CHUNK < call->count ? first + CHUNK : call->count;
    float *acc = (float *)(call->scratch + worker * call->scratch_bytes);
    const int tile = call->rows.tile;
    const tiles_t *tiles = call->rows.tiles;
    const unsigned before = plain_floats();
    memset(acc, 0, sizeof(float) * BLOCK * (size_t)padded_rows(last - first, tile));
    if (tiles) tiles->begin(tile, w->segment / 2);
    block_of(call->path)(w, block, &call->rows, first / tile, first / tile + tiles_of(last - first, tile), acc,
                         call->scratch + worker * call->scratch_bytes + call->acc_bytes);
    if (tiles) tiles->end();
    const int64_t n = block * BLOCK, width = w->rows - n < BLOCK ? w->rows - n : BLOCK;
    for (int64_t m = first; m < last; m++) {
        const float *y = acc + (m - first) * BLOCK;
        float *wide = (float *)call->out + m * w->rows + n;
        uint16_t *narrow = (uint16_t *)call->out + m * w->rows + n;
        if (call->type == X_F32) /* which NaN follows from an instruction's order of operands: one stands for all */
            for (int64_t i = 0; i < width; i++) wide[i] = y[i] == y[i] ? y[i] : NAN;
        else
            for (int64_t i = 0; i < width; i++) narrow[i] = bf16_of(y[i]);
    }
    restore_floats(before);
}

/* out [count, N] = x [count, K] times the weight; x and out are contiguous, type X_F32 or X_BF16. */
EXPORT int qualgate_matmul(const weight_t *w, const void *x, int type, int64_t count, void *out, int threads,
                           int path) {
    if (!w || !sound(w)) return BAD_WEIGHT;
    if (!x || !out || count < 1 || count > INT32_MAX || (type != X_F32 && type != X_BF16) || threads < 1)
        return BAD_ARGUMENT;
    int paths = qualgate_paths();
    if (path == PATH_BEST)
        for (path = PATHS - 1; !(paths >> path & 1);) path--;
    if (paths >> PATH_AVX512 & 1) paths |= 1 << PATH_AMX_EMULATED;
    if (path < 1 || path >= PATHS || !(paths >> path & 1)) return NO_PATH;
    if (threads > THREADS_MAX) threads = THREADS_MAX;
    if (count * w->rows <= ALONE / w->columns) threads = 1;

    if (path > PATH_AVX512 && (type == X_F32 || w->code > CODE_BF16)) path = PATH_AVX512; /* not bfloat16 both */
    const int layout = path < PATH_AVX512_BF16 ? FLOATS : path == PATH_AVX512_BF16 ? PAIRS : AMX;
    const int tile = layout == AMX          ? count < AMX_ROWS ? (int)count : AMX_ROWS
                     : path >= PATH_AVX512 ? tile_512(w, count)
                                            : TILE;
    const int64_t chunks = (count + CHUNK - 1) / CHUNK, rows = padded_rows(count, tile);
    const size_t each = layout == FLOATS ? 4 : 2;
    const size_t packed = ((size_t)rows * (size_t)(w->segments * w->segment) * each + 63) & ~(size_t)63;
    const size_t sums = w->offsets ? ((size_t)(rows * w->segments) * sizeof(float) + 63) & ~(size_t)63 : 0;
    const size_t acc = (size_t)(rows < CHUNK ? rows : CHUNK) * BLOCK * sizeof(float), scratch = acc + PANEL_BYTES;
    const tiles_t *tiles = layout == AMX ? tiles_by(path == PATH_AMX_EMULATED) : NULL;
    char *memory;
    if (posix_memalign((void **)&memory, 64, packed + sums + scratch * (size_t)threads)) return NO_MEMORY;
    call_t call = {.w = w, .x = x, .out = out, .packed = memory, .sums = (float *)(memory + packed), .count = count,
                   .chunks = chunks, .type = type, .path = path, .scratch = memory + packed + sums,
                   .scratch_bytes = scratch, .acc_bytes = acc,
                   .rows = {memory, (float *)(memory + packed), count, tile, layout, tiles}};
    share(count < 64 ? 1 : threads, tiles_of(count, tile), pack_tile, &call);
    share(threads, (w->rows + BLOCK - 1) / BLOCK * chunks, multiply, &call);
    free(memory);
    return DONE;
}
