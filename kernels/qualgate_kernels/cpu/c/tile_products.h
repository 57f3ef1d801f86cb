/* The tiles_t of one layer: amx.c and amx_emulated.c include this with theirs.
 *
 * Tiles 0 to 3 hold sums of 16 columns each, 4 and 5 the left and right operand of a whole step, 6 and 7 those of a
 * shorter last one. Two loads a product are fewer cycles than the product takes.
 *
 * Wanted: TILES (the table's name), ENTRY (attributes), and of the instructions CONFIGURE(shapes), RELEASE(), ZERO(t),
 * LOAD(t, from, stride), STORE(t, to, stride), BF16(sum, left, right), INT8(sum, left, right); t is a constant. */
#include "tiles.h"

static _Thread_local int rows_now;

ENTRY static void begin(int rows, int64_t words) {
    const int rest = (int)(words % STEP);
    tile_shapes_t shapes = {.palette = 1};
    for (int t = 0; t < 4; t++) shapes.rows[t] = (uint8_t)rows, shapes.row_bytes[t] = 64;
    if (words >= STEP) {
        shapes.rows[4] = (uint8_t)rows, shapes.row_bytes[4] = 64;
        shapes.rows[5] = STEP, shapes.row_bytes[5] = 64;
    }
    if (rest) {
        shapes.rows[6] = (uint8_t)rows, shapes.row_bytes[6] = (uint16_t)(4 * rest);
        shapes.rows[7] = (uint8_t)rest, shapes.row_bytes[7] = 64;
    }
    CONFIGURE(&shapes);
    rows_now = rows;
}

#define ONE_STEP(DOT, LEFT, RIGHT, WORDS)                                                                             \
    LOAD(LEFT, a, 4 * (WORDS));                                                                                       \
    LOAD(RIGHT, b, 256); DOT(0, LEFT, RIGHT);                                                                         \
    LOAD(RIGHT, b + 64, 256); DOT(1, LEFT, RIGHT);                                                                    \
    LOAD(RIGHT, b + 128, 256); DOT(2, LEFT, RIGHT);                                                                   \
    LOAD(RIGHT, b + 192, 256); DOT(3, LEFT, RIGHT);
#define ALL_STEPS(DOT)                                                                                                \
    const uint8_t *a = left, *b = right;                                                                              \
    for (; words >= STEP; words -= STEP, a += 4 * STEP * rows_now, b += 256 * STEP) { ONE_STEP(DOT, 4, 5, STEP) }     \
    if (words) { ONE_STEP(DOT, 6, 7, words) }                                                                         \
    STORE(0, c, 256); STORE(1, c + 16, 256); STORE(2, c + 32, 256); STORE(3, c + 48, 256);

ENTRY static void floats(const void *left, const void *right, int64_t words, float *c) {
    ZERO(0); ZERO(1); ZERO(2); ZERO(3);
    ALL_STEPS(BF16)
}

ENTRY static void integers(const void *left, const void *right, int64_t words, int32_t *c) {
    LOAD(0, c, 256); LOAD(1, c + 16, 256); LOAD(2, c + 32, 256); LOAD(3, c + 48, 256);
    ALL_STEPS(INT8)
}

ENTRY static void end(void) { RELEASE(); }

const tiles_t TILES = {begin, floats, integers, end};
