/* Random hidden states and heads of two models, in buffers of exactly their size, for the sanitizers: what comes of a
 * row has to be the same twice, and what does not fit has to be refused. Arguments: seed, draws. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const void *hidden, *head;
    const float *bias;
    int64_t width;
    int32_t hidden_type, head_type;
} side_t;
int qualgate_drift_path(void);
int qualgate_drift_bytes(void);
int qualgate_drift(const side_t *, int64_t, int64_t, const int64_t *, const int64_t *, const int64_t *, uint64_t, float,
                   void *);

static uint64_t state;
static int64_t below(int64_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)limit);
}
static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}
static void *numbers(int64_t count, int type) { /* 0: float32; else halves of either kind */
    static const uint16_t halves[] = {0, 0x3C00, 0xBC00, 0x3F80};
    char *made = malloc((size_t)count * (type ? 2 : 4));
    for (int64_t i = 0; i < count; i++) {
        const float one = (float)below(2001) / 1000 - 1;
        if (type) memcpy(made + 2 * i, &halves[below(4)], 2);
        else memcpy(made + 4 * i, &one, 4);
    }
    return made;
}

static void one_call(void) {
    static const int64_t some_rows[] = {1, 3, 8, 65}, sizes[] = {2, 31, 256, 300}, widths[] = {1, 15, 16, 33};
    const int64_t rows = some_rows[below(4)], vocabulary = sizes[below(4)];
    side_t sides[2];
    for (int s = 0; s < 2; s++) {
        sides[s] = (side_t){.width = widths[below(4)], .hidden_type = (int)below(3), .head_type = (int)below(3)};
        sides[s].hidden = numbers(rows * sides[s].width, sides[s].hidden_type);
        sides[s].head = numbers(vocabulary * sides[s].width, sides[s].head_type);
        sides[s].bias = numbers(vocabulary, 0);
    }
    int64_t *ids = malloc(sizeof *ids * (size_t)rows);
    for (int64_t row = 0; row < rows; row++) ids[row] = below(vocabulary);
    const size_t size = (size_t)(rows * qualgate_drift_bytes());
    void *found = malloc(size), *again = malloc(size);
    if (qualgate_drift(sides, rows, vocabulary, ids, ids, ids, 7, 1.0f, found)) fail("a right call is refused");
    if (qualgate_drift(sides, rows, vocabulary, ids, ids, ids, 7, 1.0f, again)) fail("it is refused the second time");
    if (memcmp(found, again, size)) fail("two calls differ");
    if (!qualgate_drift(sides, 0, vocabulary, ids, ids, ids, 7, 1.0f, found)) fail("no rows are taken");
    if (!qualgate_drift(sides, rows, 1, ids, ids, ids, 7, 1.0f, found)) fail("a vocabulary of one is taken");
    if (!qualgate_drift(sides, rows, vocabulary, ids, ids, NULL, 7, 1.0f, found)) fail("half a noise is taken");
    free(found), free(again), free(ids);
    for (int s = 0; s < 2; s++) free((void *)sides[s].hidden), free((void *)sides[s].head), free((void *)sides[s].bias);
}

int main(int argc, char **argv) {
    if (argc != 3) fail("sanitize_drift SEED DRAWS");
    state = strtoull(argv[1], NULL, 10);
    const int draws = atoi(argv[2]);
    for (int draw = 0; draw < draws && qualgate_drift_path(); draw++) one_call();
    printf("%d draws\n", draws);
    return 0;
}
