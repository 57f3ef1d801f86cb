/* The tile instructions in plain C, to the letter of Intel's manual, with its faults (#UD, #GP) as aborts. */
#include "tiles.h"
#if defined(__x86_64__)
#include "floats.h"
#include <stdlib.h>
#include <string.h>

#define FAULT_UNLESS(condition) \
    if (!(condition)) abort()

static _Thread_local struct {
    tile_shapes_t shapes;
    uint8_t at[8][16][64];
} tiles;

static void configure(const tile_shapes_t *shapes) {
    FAULT_UNLESS(shapes->palette == 1 && shapes->start_row == 0);
    for (int t = 0; t < 16; t++) {
        const int rows = shapes->rows[t], wide = shapes->row_bytes[t];
        FAULT_UNLESS(rows <= 16 && wide <= 64 && !rows == !wide && (t < 8 || !rows));
    }
    memset(&tiles, 0, sizeof tiles);
    tiles.shapes = *shapes;
}

static void release(void) { memset(&tiles, 0, sizeof tiles); }

static void zero(int t) {
    FAULT_UNLESS(tiles.shapes.rows[t]);
    memset(tiles.at[t], 0, sizeof tiles.at[t]);
}

static void load(int t, const void *from, int64_t stride) {
    zero(t);
    for (int r = 0; r < tiles.shapes.rows[t]; r++)
        memcpy(tiles.at[t][r], (const uint8_t *)from + r * stride, tiles.shapes.row_bytes[t]);
}

static void store(int t, void *to, int64_t stride) {
    FAULT_UNLESS(tiles.shapes.rows[t]);
    for (int r = 0; r < tiles.shapes.rows[t]; r++)
        memcpy((uint8_t *)to + r * stride, tiles.at[t][r], tiles.shapes.row_bytes[t]);
}

static void fit(int sum, int left, int right) {
    const tile_shapes_t *is = &tiles.shapes;
    FAULT_UNLESS(is->rows[sum] && is->rows[left] && is->rows[right]);
    FAULT_UNLESS(sum != left && sum != right && left != right);
    FAULT_UNLESS(is->rows[sum] == is->rows[left] && is->row_bytes[sum] == is->row_bytes[right]);
    FAULT_UNLESS(is->row_bytes[left] == 4 * is->rows[right] && is->row_bytes[right] % 4 == 0);
}

/* Element 2 * n + half of a row of bfloat16, for all n. */
static inline void wide(const uint8_t *row, int half, float *out) {
    uint32_t words[16];
    memcpy(words, row, 64);
    for (int n = 0; n < 16; n++) words[n] = half ? words[n] & 0xFFFF0000 : words[n] << 16;
    memcpy(out, words, 64);
}

/* A fused multiply-add that rounds once needs the instruction; every processor with a path that comes here has it. */
__attribute__((target("avx512f,fma"))) static void bf16(int sum, int left, int right) {
    fit(sum, left, right);
    const unsigned before = set_floats(1);
    for (int m = 0; m < tiles.shapes.rows[sum]; m++) {
        float x[2][16], w[16], total[2][16] = {{0}}, y[16];
        for (int half = 0; half < 2; half++) {
            wide(tiles.at[left][m], half, x[half]);
            for (int k = 0; k < tiles.shapes.rows[right]; k++) {
                wide(tiles.at[right][k], half, w);
                for (int n = 0; n < 16; n++) total[half][n] = __builtin_fmaf(x[half][k], w[n], total[half][n]);
            }
        }
        memcpy(y, tiles.at[sum][m], 64);
        for (int n = 0; n < 16; n++) {
            const float both = total[0][n] + total[1][n];
            y[n] = y[n] + both;
        }
        memcpy(tiles.at[sum][m], y, tiles.shapes.row_bytes[sum]);
    }
    restore_floats(before);
}

static void int8(int sum, int left, int right) {
    fit(sum, left, right);
    for (int m = 0; m < tiles.shapes.rows[sum]; m++) {
        const int8_t *x = (const int8_t *)tiles.at[left][m];
        uint32_t y[16]; /* wraps */
        memcpy(y, tiles.at[sum][m], 64);
        for (int k = 0; k < tiles.shapes.rows[right]; k++) {
            const int8_t *w = (const int8_t *)tiles.at[right][k];
            for (int n = 0; n < 16; n++)
                for (int i = 0; i < 4; i++) y[n] += (uint32_t)(x[4 * k + i] * w[4 * n + i]);
        }
        memcpy(tiles.at[sum][m], y, tiles.shapes.row_bytes[sum]);
    }
}

#define TILES tiles_emulated
#define ENTRY
#define CONFIGURE(shapes) configure(shapes)
#define RELEASE() release()
#define ZERO(t) zero(t)
#define LOAD(t, from, stride) load(t, from, stride)
#define STORE(t, to, stride) store(t, to, stride)
#define BF16(sum, left, right) bf16(sum, left, right)
#define INT8(sum, left, right) int8(sum, left, right)
#include "tile_products.h"
#endif
