/* Products of tiles, as AMX computes them: by its instructions (amx.c), or by an emulation of what Intel documents
 * (amx_emulated.c), which tests run through everything around it, and which the instructions are held against at load.
 *
 * The left operand has up to 16 rows; K is counted in words of 4 bytes, two bfloat16 or four int8. The right operand is
 * [word][64 columns], 256 bytes a word: a panel, or a block of int8 weights. K goes by in steps of 16 words, the last
 * one shorter. What a step adds to a float32 sum (TDPBF16PS, Intel's manual, volume 2), in this order:
 *     even = odd = 0; for each word, ascending: even += x[0] * w[0], fused; odd += x[1] * w[1], fused
 *     sum += even + odd
 * each rounded to nearest even, with zeros in place of subnormals. Rows do not touch: a row's bits are its own. */
#pragma once
#include <stdint.h>

#define AMX_ROWS 16
#define STEP 16 /* words */

typedef struct {
    void (*begin)(int rows, int64_t words); /* this thread's tiles, for left operands of this shape */
    void (*floats)(const void *a, const void *b, int64_t words, float *c);     /* c [rows][64]  = a * b, bfloat16 */
    void (*integers)(const void *a, const void *b, int64_t words, int32_t *c); /* c [rows][64] += a * b, int8 */
    void (*end)(void);
} tiles_t;
extern const tiles_t tiles_amx, tiles_emulated;

/* Where word `word` of row r lies in a left operand: [step][row][16], the last step narrower. */
static inline int64_t in_tile(int64_t word, int64_t words, int rows, int r) {
    const int64_t first = word / STEP * STEP, wide = words - first < STEP ? words - first : STEP;
    return first * rows + r * wide + word - first;
}

/* LDTILECFG's operand. */
typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shapes_t;
