/* How fast memory can be read: what benchmarks hold the kernels against. */
#include "pool.h"
#include <stdint.h>
#include <string.h>

#define STRETCH (1 << 20)

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
__attribute__((visibility("default"))) uint64_t qualgate_read(const void *from, int64_t bytes, int threads) {
    read_t call = {from, bytes, {{0}}};
    share(threads, (bytes + STRETCH - 1) / STRETCH, read_stretch, &call);
    uint64_t all = 0;
    for (int t = 0; t < THREADS_MAX; t++)
        for (int j = 0; j < 8; j++) all ^= call.found[t][j];
    return all;
}
