/* Random logits, pairs of them, and rows of random weights, in buffers of exactly their size: the sanitizers have to
 * find nothing. What is found is held against double and against other threads; what does not fit together has to be
 * refused, with nothing written. Arguments: seed, draws. */
#include "weight.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int qualgate_likeliest(const float *, int64_t, int64_t, int64_t *, float *, float *, uint8_t *, int, int);
int qualgate_kl(const float *, const float *, int64_t, int64_t, const int64_t *, double *, double *, int64_t *, int,
                int);
int qualgate_rows(const weight_t *, const int64_t *, int64_t, void *, int);

static uint64_t state;
static int64_t below(int64_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)limit);
}
static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}
static int has(int path) {
#if defined(__x86_64__)
    if (path == PATH_AVX512) return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
    if (path == PATH_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return 1;
}
int qualgate_paths(void) { return 1 << PATH_SCALAR | has(PATH_AVX2) << PATH_AVX2 | has(PATH_AVX512) << PATH_AVX512; }

static void hold(const float *row, int64_t size, int64_t token, float logprob, float lead, int finite) {
    int64_t best = 0;
    for (int64_t i = 1; i < size; i++)
        if (row[i] > row[best]) best = i;
    double second = -INFINITY, sum = 0;
    for (int64_t i = 0; i < size; i++) {
        if (i != best && row[i] > second) second = row[i];
        sum += exp((double)row[i] - row[best]);
    }
    if (token != best || !finite || lead != (float)(row[best] - second)) fail("likeliest: another token or lead");
    if (!(fabs(logprob + log(sum)) <= 2e-5)) fail("likeliest: another log-prob than double's");
}

static void one_call(void) {
    const int64_t rows = 1 + below(5), size = 1 + below(below(3) ? 70 : 5000), all = rows * size;
    float *logits = malloc(sizeof(float) * (size_t)all);
    for (int64_t i = 0; i < all; i++) logits[i] = (float)below(2001) / 100 - 10;
    for (int path = PATH_SCALAR; path <= PATH_AVX512; path++) {
        if (!has(path)) continue;
        int64_t *tokens = malloc(sizeof(int64_t) * (size_t)rows);
        float *numbers = malloc(2 * sizeof(float) * (size_t)rows), *leads = numbers + rows;
        uint8_t *finite = malloc((size_t)rows);
        memset(finite, 7, (size_t)rows);
        for (int wrong = 0; wrong < 10; wrong++)
            if (qualgate_likeliest(wrong == 0 ? NULL : logits, wrong == 1 ? 0 : rows,
                                   wrong == 2   ? 0
                                   : wrong == 3 ? INT32_MAX
                                                : size,
                                   wrong == 4 ? NULL : tokens, wrong == 5 ? NULL : numbers, wrong == 6 ? NULL : leads,
                                   wrong == 7 ? NULL : finite, wrong == 8 ? 0 : 1, wrong == 9 ? PATHS : path) !=
                BAD_ARGUMENT)
                fail("likeliest: accepted what does not fit");
        if (qualgate_likeliest(logits, rows, size, tokens, numbers, leads, finite, 1, PATH_AMX) != NO_PATH)
            fail("likeliest: accepted a path that is not there");
        for (int64_t r = 0; r < rows; r++)
            if (finite[r] != 7) fail("likeliest: refused, and yet written");
        if (qualgate_likeliest(logits, rows, size, tokens, numbers, leads, finite, 1 + (int)below(4), path))
            fail("likeliest: refused");
        for (int64_t r = 0; r < rows; r++) hold(logits + r * size, size, tokens[r], numbers[r], leads[r], finite[r]);
        free(tokens), free(numbers), free(finite);
    }
    free(logits);
}

/* Enough for threads to share: the same bits as on one. */
static void many(void) {
    enum { ROWS = 9, SIZE = 40000 };
    float *logits = malloc(sizeof(float) * ROWS * SIZE), numbers[2][2 * ROWS];
    int64_t tokens[2][ROWS];
    uint8_t finite[2][ROWS];
    for (int64_t i = 0; i < ROWS * SIZE; i++) logits[i] = (float)below(2001) / 100 - 10;
    for (int i = 0; i < 2; i++)
        if (qualgate_likeliest(logits, ROWS, SIZE, tokens[i], numbers[i], numbers[i] + ROWS, finite[i], 1 + 3 * i, 1))
            fail("likeliest: refused");
    if (memcmp(tokens[0], tokens[1], sizeof *tokens) || memcmp(numbers[0], numbers[1], sizeof *numbers))
        fail("likeliest: other bits on several threads");
    free(logits);
}

/* Two rows of logits each: held against double. */
static void compared(void) {
    const int64_t rows = 1 + below(5), size = 1 + below(below(3) ? 70 : 5000), all = rows * size;
    float *p = malloc(sizeof(float) * (size_t)all), *q = malloc(sizeof(float) * (size_t)all);
    for (int64_t i = 0; i < all; i++) p[i] = (float)below(2001) / 100 - 10, q[i] = p[i] + (float)below(201) / 100 - 1;
    int64_t *given = malloc(sizeof(int64_t) * (size_t)rows), *tokens = malloc(sizeof(int64_t) * (size_t)rows);
    double *kl = malloc(sizeof(double) * (size_t)rows), *logprobs = malloc(sizeof(double) * (size_t)rows);
    for (int64_t r = 0; r < rows; r++) given[r] = below(size), tokens[r] = -7;
    for (int path = PATH_SCALAR; path <= PATH_AVX512; path++) {
        if (!has(path)) continue;
        const int64_t right = given[rows - 1];
        for (int wrong = 0; wrong < 13; wrong++) {
            if (wrong == 11) given[rows - 1] = -1;
            if (wrong == 12) given[rows - 1] = size;
            if (qualgate_kl(wrong == 0 ? NULL : p, wrong == 1 ? NULL : q, wrong == 2 ? 0 : rows,
                            wrong == 3   ? 0
                            : wrong == 4 ? INT32_MAX
                                         : size,
                            wrong == 5 ? NULL : given, wrong == 6 ? NULL : kl, wrong == 7 ? NULL : logprobs,
                            wrong == 8 ? NULL : tokens, wrong == 9 ? 0 : 1, wrong == 10 ? PATHS : path) != BAD_ARGUMENT)
                fail("kl: accepted what does not fit");
            given[rows - 1] = right;
        }
        if (qualgate_kl(p, q, rows, size, given, kl, logprobs, tokens, 1, PATH_AMX) != NO_PATH)
            fail("kl: accepted a path that is not there");
        for (int64_t r = 0; r < rows; r++)
            if (tokens[r] != -7) fail("kl: refused, and yet written");
        if (qualgate_kl(p, q, rows, size, given, kl, logprobs, tokens, 1 + (int)below(4), path)) fail("kl: refused");
        for (int64_t r = 0; r < rows; r++) {
            const float *x = p + r * size, *y = q + r * size;
            double sum_p = 0, sum_q = 0, exact = 0;
            for (int64_t i = 0; i < size; i++) sum_p += exp(x[i]), sum_q += exp(y[i]);
            for (int64_t i = 0; i < size; i++)
                exact += exp(x[i]) / sum_p * ((double)x[i] - log(sum_p) - (y[i] - log(sum_q)));
            if (!(fabs(kl[r] - exact) <= 5e-6)) fail("kl: another KL than double's");
            if (!(fabs(logprobs[r] - (y[given[r]] - log(sum_q))) <= 2e-5)) fail("kl: another log-prob than double's");
            for (int64_t i = 0; i < size; i++)
                if (x[i] > x[tokens[r]] || (x[i] == x[tokens[r]] && i < tokens[r])) fail("kl: another token");
            tokens[r] = -7;
        }
    }
    free(p), free(q), free(given), free(tokens), free(kl), free(logprobs);
}

static void some_rows(void) {
    static const int codes[] = {CODE_BF16, CODE_F16, CODE_F32};
    weight_t w = {.bytes = sizeof w, .rows = 1 + below(150), .columns = 1 + below(300), .per_group = 1,
                  .code = codes[below(3)]};
    const int64_t size = w.code == CODE_F32 ? 4 : 2, pair = w.code == CODE_BF16 ? 2 : 1;
    const int64_t count = 1 + below(below(2) ? 9 : 2000);
    w.bits = (int32_t)(8 * size);
    w.segments = (w.columns + SEGMENT_MAX - 1) / SEGMENT_MAX;
    w.segment = (w.columns + 2 * w.segments - 1) / (2 * w.segments) * 2;
    const int64_t places = w.segments * w.segment;
    w.codes_bytes = (w.rows + BLOCK - 1) / BLOCK * BLOCK * places * size;
    uint8_t *codes_of = malloc((size_t)w.codes_bytes), *out = malloc((size_t)(count * w.columns * size));
    int64_t *rows = malloc(sizeof(int64_t) * (size_t)count);
    for (int64_t i = 0; i < w.codes_bytes; i++) codes_of[i] = (uint8_t)below(256);
    for (int64_t i = 0; i < count; i++) rows[i] = below(w.rows);
    w.codes = codes_of;
    const int64_t right = rows[count - 1];
    for (int wrong = 0; wrong < 10; wrong++) {
        weight_t broken = w;
        if (wrong == 0) broken.bytes--;
        if (wrong == 1) broken.codes_bytes--;
        if (wrong == 2) broken.code = CODE_INT;
        if (wrong == 3) broken.columns = places + 1;
        if (wrong == 4) rows[count - 1] = -1;
        if (wrong == 5) rows[count - 1] = w.rows;
        if (!qualgate_rows(&broken, wrong == 6 ? NULL : rows, wrong == 7 ? 0 : count, wrong == 8 ? NULL : out,
                           wrong == 9 ? 0 : 1))
            fail("rows: accepted what does not fit");
        rows[count - 1] = right;
    }
    if (qualgate_rows(&w, rows, count, out, 1 + (int)below(4))) fail("rows: refused");
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < w.columns; k++) {
            const int64_t block = rows[i] / BLOCK * BLOCK * places, place = rows[i] % BLOCK * pair;
            const int64_t at = block + k / pair * pair * BLOCK + place + k % pair;
            if (memcmp(out + (i * w.columns + k) * size, codes_of + at * size, (size_t)size)) fail("rows: others");
        }
    free(codes_of), free(out), free(rows);
}

int main(int argc, char **argv) {
    if (argc != 3) fail("sanitize_likeliest SEED DRAWS");
    state = strtoull(argv[1], NULL, 10);
    const int draws = atoi(argv[2]);
    for (int draw = 0; draw < draws; draw++) one_call(), compared(), some_rows();
    many();
    printf("%d draws\n", draws);
    return 0;
}
