/* int8 inputs times int8 weights, summed in int32 without rounding; then float32(sum) * x_scale[m] * w_scale[n], in
 * that order. Integers: every path and every order of summation gives the same bits.
 *
 * Weights lie in blocks of 64 columns: [block][k / 4][64][4] int8, zero where padded; sums: 128 * the sum of a
 * column's weights, int32 [blocks * 64], because dpbusd wants its left operand without a sign: it is given x + 128.
 * AMX takes both as they are. */
#include "floats.h"
#include "pool.h"
#include "weight.h"
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#define VNNI "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"
#endif

#define EXPORT __attribute__((visibility("default")))
#define FOURS_AT_ONCE 512 /* in_features / 4: 128 KiB of a block's weights stay in the L2 cache for all rows */
#define DEEPEST 131071    /* in_features whose products of -128 * -128 still fit an int32 */

typedef struct {
    const int8_t *codes;
    const int32_t *sums;
    const float *scales;     /* [blocks * 64] */
    int64_t rows, columns;   /* N, K */
    const float *x_scales;   /* [count] */
    int64_t count, fours;    /* fours: groups of 4 in_features, the last padded */
    const int8_t *given;
    uint8_t *packed;         /* x + 128, tiles of TILE rows: [k / 4][row][4]; for AMX x, as `in_tile` says */
    float *out;
    int32_t *acc; /* [padded rows][64] a thread */
    int path, tile;
    const tiles_t *tiles; /* with AMX: the instructions or their emulation */
} call_t;

static void plain_tile(const int8_t *codes, const uint8_t *x, int64_t fours, int rows, int32_t *acc) {
    for (int64_t f = 0; f < fours; f++, codes += 4 * BLOCK, x += 4 * rows)
        for (int r = 0; r < rows; r++)
            for (int n = 0; n < BLOCK; n++) {
                uint32_t sum = 0;
                for (int i = 0; i < 4; i++) sum += (uint32_t)(x[4 * r + i] * codes[4 * n + i]);
                acc[r * BLOCK + n] = (int32_t)((uint32_t)acc[r * BLOCK + n] + sum); /* may wrap; the end does not */
            }
}

#if defined(__x86_64__)
static inline __attribute__((always_inline, target(VNNI))) void vnni_rows(const int8_t *codes, const uint8_t *x,
                                                                        int64_t fours, int32_t *acc, const int rows) {
    __m512i sum[TILE * 4];
    _Pragma("GCC unroll 24") for (int i = 0; i < rows * 4; i++) sum[i] = _mm512_loadu_si512(acc + i * STRIP);
    for (int64_t f = 0; f < fours; f++, codes += 4 * BLOCK, x += 4 * rows) {
        __m512i weight[4];
        _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) weight[v] = _mm512_loadu_si512(codes + 64 * v);
        _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++) {
            int four;
            memcpy(&four, x + 4 * r, 4);
            const __m512i same = _mm512_set1_epi32(four);
            _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) sum[r * 4 + v] =
                _mm512_dpbusd_epi32(sum[r * 4 + v], same, weight[v]);
        }
    }
    _Pragma("GCC unroll 24") for (int i = 0; i < rows * 4; i++) _mm512_storeu_si512(acc + i * STRIP, sum[i]);
}

__attribute__((target(VNNI))) static void vnni_tile(const int8_t *codes, const uint8_t *x, int64_t fours, int rows,
                                                   int32_t *acc) {
    switch (rows) {
    case 1: vnni_rows(codes, x, fours, acc, 1); return;
    case 2: vnni_rows(codes, x, fours, acc, 2); return;
    case 4: vnni_rows(codes, x, fours, acc, 4); return;
    default: vnni_rows(codes, x, fours, acc, 6); return;
    }
}
#endif

static void pack_tile(void *context, int64_t tile, int worker) {
    const call_t *call = context;
    const int64_t first = tile * call->tile;
    const int rows = tile_rows(call->count - first, call->tile), zero = call->tiles ? 0 : 128;
    uint8_t *to = call->packed + first * 4 * call->fours;
    (void)worker;
    memset(to, zero, (size_t)(4 * call->fours * rows));
    for (int r = 0; r < rows && first + r < call->count; r++)
        for (int64_t k = 0; k < call->columns; k++) {
            const int64_t four = call->tiles ? in_tile(k / 4, call->fours, rows, r) : k / 4 * rows + r;
            to[four * 4 + k % 4] = (uint8_t)(call->given[(first + r) * call->columns + k] + zero);
        }
}

static void multiply(void *context, int64_t block, int worker) {
    const call_t *call = context;
    const int64_t padded = padded_rows(call->count, call->tile);
    int32_t *acc = call->acc + worker * padded * BLOCK;
    memset(acc, 0, sizeof(int32_t) * BLOCK * (size_t)padded);
    if (call->tiles) call->tiles->begin(call->tile, call->fours);
    for (int64_t from = 0; from < call->fours; from += FOURS_AT_ONCE) {
        const int64_t some = call->fours - from < FOURS_AT_ONCE ? call->fours - from : FOURS_AT_ONCE;
        const int8_t *codes = call->codes + (block * call->fours + from) * 4 * BLOCK;
        for (int64_t first = 0; first < call->count; first += call->tile) {
            const int rows = tile_rows(call->count - first, call->tile);
            const uint8_t *x = call->packed + first * 4 * call->fours + from * 4 * rows;
            int32_t *sums = acc + first * BLOCK;
            if (call->tiles) call->tiles->integers(x, codes, some, sums);
#if defined(__x86_64__)
            else if (call->path == INT8_VNNI) vnni_tile(codes, x, some, rows, sums);
#endif
            else plain_tile(codes, x, some, rows, sums);
        }
    }
    if (call->tiles) call->tiles->end();
    const unsigned before = plain_floats();
    const int64_t n = block * BLOCK, width = call->rows - n < BLOCK ? call->rows - n : BLOCK;
    for (int64_t m = 0; m < call->count; m++)
        for (int64_t i = 0; i < width; i++) {
            const uint32_t given = call->tiles ? 0 : (uint32_t)call->sums[n + i];
            const int32_t sum = (int32_t)((uint32_t)acc[m * BLOCK + i] - given);
            call->out[m * call->rows + n + i] = (float)sum * call->x_scales[m] * call->scales[n + i];
        }
    restore_floats(before);
}

/* One bit a way this process may choose. */
EXPORT int qualgate_int8_paths(void) {
    int found = 1 << INT8_PLAIN;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni"))
        found |= 1 << INT8_VNNI;
    if (amx_state() == AMX_SERVES) found |= 1 << INT8_AMX;
#endif
    return found;
}

/* out float32 [count, N] from x int8 [count, K]; codes, sums and scales as said above, with their sizes in bytes. */
EXPORT int qualgate_matmul_int8(const int8_t *codes, int64_t codes_bytes, const int32_t *sums, const float *scales,
                                int64_t scales_bytes, int64_t rows, int64_t columns, const int8_t *x,
                                const float *x_scales, int64_t count, float *out, int threads, int path) {
    if (!codes || !sums || !scales || rows < 1 || rows > INT32_MAX || columns < 1 || columns > DEEPEST)
        return BAD_WEIGHT;
    const int64_t blocks = (rows + BLOCK - 1) / BLOCK, fours = (columns + 3) / 4;
    if (codes_bytes != blocks * fours * 4 * BLOCK || scales_bytes != blocks * BLOCK * 4) return BAD_WEIGHT;
    if (!x || !x_scales || !out || count < 1 || count > INT32_MAX || threads < 1) return BAD_ARGUMENT;
    int paths = qualgate_int8_paths();
    if (tiles_by(1)) paths |= 1 << INT8_AMX_EMULATED;
    if (path < INT8_PLAIN || path > INT8_AMX_EMULATED || !(paths >> path & 1)) return NO_PATH;
    if (threads > THREADS_MAX) threads = THREADS_MAX;
    if (count * rows <= ALONE / columns) threads = 1;
    const tiles_t *tiles = path >= INT8_AMX ? tiles_by(path == INT8_AMX_EMULATED) : NULL;
    const int tile = !tiles ? TILE : count < AMX_ROWS ? (int)count : AMX_ROWS;
    const size_t packed = ((size_t)(padded_rows(count, tile) * 4 * fours) + 63) & ~(size_t)63;
    const size_t acc = sizeof(int32_t) * BLOCK * (size_t)padded_rows(count, tile);
    char *memory;
    if (posix_memalign((void **)&memory, 64, packed + acc * (size_t)threads)) return NO_MEMORY;
    call_t call = {.codes = codes, .sums = sums, .scales = scales, .rows = rows, .columns = columns,
                        .x_scales = x_scales, .count = count, .fours = fours, .given = x,
                        .packed = (uint8_t *)memory, .out = out, .acc = (int32_t *)(memory + packed), .path = path,
                        .tile = tile, .tiles = tiles};
    share(count < 64 ? 1 : threads, tiles_of(count, tile), pack_tile, &call);
    share(threads, blocks, multiply, &call);
    free(memory);
    return DONE;
}
