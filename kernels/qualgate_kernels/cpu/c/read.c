/* How fast memory can be read and numbers multiplied: what benchmarks hold the kernels against. */
#include "pool.h"
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define EXPORT __attribute__((visibility("default")))
#define STRETCH (1 << 20)
#define CHAINS 12 /* sums that do not wait for each other: more than multipliers take at once, less than registers */

typedef struct {
    const uint8_t *from;
    int64_t bytes;
    uint64_t found[THREADS_MAX][8]; /* a cache line each */
} read_t;

typedef uint64_t line_t __attribute__((vector_size(64)));

static void read_stretch(void *context, int64_t task, int worker) {
    read_t *call = context;
    const uint8_t *at = call->from + task * STRETCH;
    const int64_t bytes = call->bytes - task * STRETCH < STRETCH ? call->bytes - task * STRETCH : STRETCH;
    line_t sum[4] = {{0}}, line;
    for (int64_t i = 0; i + 256 <= bytes; i += 256)
        for (int j = 0; j < 4; j++) {
            __builtin_prefetch(at + i + 64 * j + 2048);
            memcpy(&line, at + i + 64 * j, 64);
            sum[j] ^= line;
        }
    line = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
    for (int j = 0; j < 8; j++) call->found[worker][j] ^= line[j];
}

/* The exclusive or of all 8-byte words of `bytes` (a multiple of 256), read once by `threads`. */
EXPORT uint64_t qualgate_read(const void *from, int64_t bytes, int threads) {
    read_t call = {from, bytes, {{0}}};
    share(threads, (bytes + STRETCH - 1) / STRETCH, read_stretch, &call);
    uint64_t all = 0;
    for (int t = 0; t < THREADS_MAX; t++)
        for (int j = 0; j < 8; j++) all ^= call.found[t][j];
    return all;
}

/* `steps` times CHAINS vectors of products, fused and summed; nothing is read. */
#define FUSED(NAME, TARGET, LANES, ALL, FMA)                                                                          \
    TARGET static float NAME(int64_t steps) {                                                                         \
        volatile float given = 0.5f; /* else the compiler could know the sums */                                      \
        LANES sum[CHAINS], one = ALL(given);                                                                          \
        _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) sum[i] = ALL((float)i);                             \
        for (int64_t step = 0; step < steps; step++)                                                                  \
            _Pragma("GCC unroll 12") for (int i = 0; i < CHAINS; i++) sum[i] = FMA(sum[i], one, one);                 \
        float all = 0;                                                                                                \
        for (int i = 0; i < CHAINS; i++) all += ((const float *)&sum[i])[0];                                          \
        return all;                                                                                                   \
    }
typedef float four_t __attribute__((vector_size(16)));
#define ALL_FOUR(a) ((four_t){a, a, a, a})
#define FMA_FOUR(a, b, c) ((a) * (b) + (c))
FUSED(fused_4, , four_t, ALL_FOUR, FMA_FOUR)
#if defined(__x86_64__)
FUSED(fused_8, __attribute__((target("avx2,fma"))), __m256, _mm256_set1_ps, _mm256_fmadd_ps)
FUSED(fused_16, __attribute__((target("avx512f"))), __m512, _mm512_set1_ps, _mm512_fmadd_ps)
#endif

typedef struct {
    float (*fused)(int64_t);
    int64_t steps;
    float found[THREADS_MAX][16]; /* a cache line each */
} fuse_t;

static void fuse_one(void *context, int64_t task, int worker) {
    fuse_t *call = context;
    (void)worker;
    call->found[task][0] = call->fused(call->steps);
}

/* How many float32 multiply-adds `threads` made with `steps` steps each, in the widest vectors there are. */
EXPORT int64_t qualgate_fuse(int64_t steps, int threads) {
    fuse_t call = {fused_4, steps, {{0}}};
    int lanes = 4;
    if (steps < 1 || threads < 1) return 0;
    if (threads > THREADS_MAX) threads = THREADS_MAX;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) call.fused = fused_16, lanes = 16;
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) call.fused = fused_8, lanes = 8;
#endif
    share(threads, threads, fuse_one, &call);
    return steps * threads * CHAINS * lanes;
}
