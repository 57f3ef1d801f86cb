/* Random weights of every format through every path, in buffers of exactly their size: AddressSanitizer and
 * UndefinedBehaviorSanitizer have to find nothing. Paths are compared with the scalar one. Arguments: seed, draws. */
#include "weight.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int qualgate_paths(void);
int qualgate_matmul(const weight_t *, const void *, int, int64_t, void *, int, int);
int qualgate_int8_paths(void);
int qualgate_matmul_int8(const int8_t *, int64_t, const int32_t *, const float *, int64_t, int64_t, int64_t,
                         const int8_t *, const float *, int64_t, float *, int, int);
uint64_t qualgate_read(const void *, int64_t, int);

static uint64_t state;
static int64_t below(int64_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)limit);
}
static float real(void) { return (float)below(2001) / 1000 - 1; }
static void *bytes(int64_t count, int limit) {
    uint8_t *made = malloc((size_t)count);
    for (int64_t i = 0; i < count; i++) made[i] = (uint8_t)below(limit);
    return made;
}
static void *floats(int64_t count) {
    float *made = malloc(sizeof(float) * (size_t)count);
    for (int64_t i = 0; i < count; i++) made[i] = real();
    return made;
}
static void *upper_halves(int64_t count, int half) {
    uint16_t *made = malloc(2 * (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        float value = real();
        uint32_t word;
        memcpy(&word, &value, 4);
        made[i] = half ? (uint16_t)(0x3000 + below(0x800)) : (uint16_t)(word >> 16);
    }
    return made;
}
static void *halves(int64_t count) { /* any finite float16 */
    uint16_t *made = malloc(2 * (size_t)count);
    for (int64_t i = 0; i < count; i++) made[i] = (uint16_t)(below(0x7C00) | below(2) << 15);
    return made;
}
static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void one_weight(int code) {
    static const int widths[] = {2, 3, 4, 5, 6, 8};
    weight_t w = {.bytes = sizeof w, .code = code};
    w.bits = w.code == CODE_INT ? widths[below(6)] : w.code == CODE_E2M1 ? 4 : w.code == CODE_F32 ? 32 : 8;
    if (w.code == CODE_BF16 || w.code == CODE_F16) w.bits = 16;
    const int64_t unit = 2 * unit_of(w.bits).pairs;
    w.segment = unit * (1 + below(SEGMENT_MAX / unit));
    w.per_group = 1 + below(3);
    w.segments = w.per_group * (1 + below(3));
    w.rows = 1 + below(200);
    const int64_t padded = w.segments * w.segment, blocks = (w.rows + BLOCK - 1) / BLOCK;
    const int64_t scales = blocks * (w.segments / w.per_group) * BLOCK;
    w.columns = padded;
    int32_t *gather = NULL;
    if (dense(&w)) w.columns = 1 + below(padded);
    else if (below(2)) {
        w.columns = 1 + below(padded);
        gather = malloc(4 * (size_t)padded);
        for (int64_t k = 0; k < padded; k++) gather[k] = (int32_t)below(w.columns + 1) - 1;
    }
    w.gather = gather;
    w.zero = w.code == CODE_INT ? 1 << (w.bits - 1) : 0;
    w.scale_kind = (int)below(4);
    w.codes_bytes = blocks * w.segments * segment_bytes(&w);
    uint8_t *codes = w.code == CODE_BF16  ? upper_halves(w.codes_bytes / 2, 0)
                     : w.code == CODE_F16 ? halves(w.codes_bytes / 2)
                     : w.code == CODE_F32 ? floats(w.codes_bytes / 4)
                                          : bytes(w.codes_bytes, 256);
    if (w.code == CODE_E4M3 || w.code == CODE_E5M2) /* finite ones */
        for (int64_t i = 0; i < w.codes_bytes; i++) codes[i] &= 0xBB;
    w.codes = codes;
    const int64_t each = w.scale_kind == SCALE_F32 ? 4 : w.scale_kind == SCALE_E8M0 ? 1 : 2;
    w.scales_bytes = scales * each;
    void *scale = w.scale_kind == SCALE_F32    ? floats(scales)
                  : w.scale_kind == SCALE_E8M0 ? bytes(scales, 8)
                                               : upper_halves(scales, w.scale_kind == SCALE_F16);
    if (w.scale_kind == SCALE_E8M0)
        for (int64_t i = 0; i < scales; i++) ((uint8_t *)scale)[i] += 120;
    w.scales = dense(&w) ? NULL : scale;
    uint8_t *zeros = w.code == CODE_INT && below(2) ? bytes(scales, w.bits == 8 ? 256 : (1 << w.bits) + 1) : NULL;
    float *offsets = w.code == CODE_INT && !zeros && below(2) ? floats(scales) : NULL;
    w.zeros = zeros;
    w.offsets = offsets;
    const int64_t count = below(4) ? 1 + below(20) : 1 + below(420);
    for (int type = X_F32; type <= X_BF16; type++) {
        void *x = type == X_F32 ? floats(count * w.columns) : upper_halves(count * w.columns, 0);
        const size_t size = (size_t)(count * w.rows) * (type == X_F32 ? 4 : 2);
        char *expected = malloc(size), *out = malloc(size);
        if (qualgate_matmul(&w, x, type, count, expected, 1, PATH_SCALAR)) fail("scalar path: refused");
        for (int path = PATH_BEST; path < PATHS; path++) {
            if (path && !(qualgate_paths() >> (path == PATH_AMX_EMULATED ? PATH_AVX512 : path) & 1)) continue;
            if (qualgate_matmul(&w, x, type, count, out, 1 + (int)below(3), path)) fail("a path: refused");
            double largest = 1e-30, apart = 0;
            for (int64_t i = 0; i < count * w.rows; i++) {
                const int each = type == X_F32 ? 4 : 2; /* a bfloat16 is the upper half of a float */
                float one = 0, other = 0;
                memcpy((char *)&one + 4 - each, expected + i * each, (size_t)each);
                memcpy((char *)&other + 4 - each, out + i * each, (size_t)each);
                largest = fmax(largest, fabs(one));
                apart = fmax(apart, fabs((double)one - other));
                if (isnan(one) || isnan(other)) fail("not a number");
            }
            if (apart > largest * 0.02) fail("a path gives another product than the scalar one");
        }
        weight_t broken = w;
        broken.codes_bytes--;
        if (qualgate_matmul(&broken, x, type, count, out, 1, PATH_BEST) != BAD_WEIGHT) fail("wrong size: accepted");
        broken = w, broken.scales = w.scales ? NULL : codes;
        if (qualgate_matmul(&broken, x, type, count, out, 1, PATH_BEST) != BAD_WEIGHT) fail("wrong scales: accepted");
        if (qualgate_matmul(&w, x, type, 0, out, 1, PATH_BEST) != BAD_ARGUMENT) fail("no rows: accepted");
        free(x), free(expected), free(out);
    }
    free(gather), free(codes), free(scale), free(zeros), free(offsets);
}

static void one_int8(void) {
    const int64_t rows = 1 + below(150), columns = 1 + below(700), count = 1 + below(30);
    const int64_t blocks = (rows + BLOCK - 1) / BLOCK, size = blocks * BLOCK * ((columns + 3) / 4) * 4;
    int8_t *codes = bytes(size, 256), *x = bytes(count * columns, 256);
    int32_t *sums = calloc((size_t)(blocks * BLOCK), 4);
    float *scales = floats(blocks * BLOCK), *x_scales = floats(count);
    float *plain = malloc(4 * (size_t)(count * rows)), *fast = malloc(4 * (size_t)(count * rows));
    for (int64_t n = 0; n < blocks * BLOCK; n++) /* 128 * a column's sum: [block][k / 4][64][4] */
        for (int64_t k = 0; k < (columns + 3) / 4 * 4; k++)
            sums[n] += 128 * codes[((n / BLOCK * ((columns + 3) / 4) + k / 4) * BLOCK + n % BLOCK) * 4 + k % 4];
    for (int path = INT8_PLAIN; path <= INT8_AMX_EMULATED; path++) {
        if (path == INT8_AMX_EMULATED ? !tiles_by(1) : !(qualgate_int8_paths() >> path & 1)) continue;
        if (qualgate_matmul_int8(codes, size, sums, scales, blocks * BLOCK * 4, rows, columns, x, x_scales, count,
                                 path ? fast : plain, 1 + (int)below(3), path))
            fail("int8: refused");
        if (path && memcmp(plain, fast, 4 * (size_t)(count * rows))) fail("int8: paths differ");
    }
    free(codes), free(x), free(sums), free(scales), free(x_scales), free(plain), free(fast);
}

static void other_floats(const void *a, const void *b, int64_t words, float *c) {
    tiles_by(1)->floats(a, b, words, c);
    c[BLOCK - 1] = nextafterf(c[BLOCK - 1], INFINITY);
}

static void the_check_at_load(void) {
    if (!tiles_by(1) || !(qualgate_paths() >> PATH_AVX512 & 1)) return; /* the emulation of bf16 needs it */
    tiles_t other = *tiles_by(1);
    if (!tiles_agree(tiles_by(1), &other)) fail("tiles: not equal to themselves");
    other.floats = other_floats;
    if (tiles_agree(tiles_by(1), &other)) fail("tiles: one bit of one number is overlooked");
}

int main(int argc, char **argv) {
    if (argc != 3) fail("sanitize SEED DRAWS");
    state = strtoull(argv[1], NULL, 10);
    const int draws = atoi(argv[2]);
    for (int draw = 0; draw < draws; draw++) {
        one_weight((int)below(4));
        one_weight(CODE_BF16 + draw % 3);
        one_int8();
    }
    the_check_at_load();
    void *memory = bytes(256 * 9000, 256);
    printf("%d draws, read %llx\n", draws, (unsigned long long)qualgate_read(memory, 256 * 9000, 2));
    free(memory);
    return 0;
}
