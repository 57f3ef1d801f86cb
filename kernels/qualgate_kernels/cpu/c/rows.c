/* Some rows of a dense weight as they were before it was laid out: what an embedding gives that is tied to a head. */
#include "pool.h"
#include "weight.h"

typedef struct {
    const weight_t *weight;
    const int64_t *rows;
    char *out;
} some_t;

static void copy_row(void *context, int64_t nth, int worker) {
    (void)worker;
    const some_t *call = context;
    const weight_t *w = call->weight;
    const int64_t row = call->rows[nth], places = w->segments * w->segment, columns = w->columns;
    const int64_t first = row / BLOCK * BLOCK * places; /* of the block */
    if (w->code == CODE_F32) {
        const float *from = (const float *)w->codes + first + row % BLOCK;
        float *to = (float *)call->out + nth * columns;
        for (int64_t k = 0; k < columns; k++) to[k] = from[k * BLOCK];
        return;
    }
    const int64_t pair = w->code == CODE_BF16 ? 2 : 1; /* numbers of a column that lie side by side */
    const uint16_t *from = (const uint16_t *)w->codes + first + row % BLOCK * pair;
    uint16_t *to = (uint16_t *)call->out + nth * columns;
    for (int64_t k = 0; k < columns; k++) to[k] = from[k / pair * pair * BLOCK + k % pair];
}

/* out [count][columns], in the type of the weight's values. */
__attribute__((visibility("default"))) int qualgate_rows(const weight_t *w, const int64_t *rows, int64_t count,
                                                         void *out, int threads) {
    if (!w || w->bytes != (int64_t)sizeof *w || !dense(w) || w->rows < 1 || w->columns < 1 || w->segments < 1 ||
        w->segment < 2 || w->segments * w->segment < w->columns || !w->codes ||
        w->codes_bytes != (w->rows + BLOCK - 1) / BLOCK * BLOCK * w->segments * w->segment * w->bits / 8)
        return BAD_WEIGHT;
    if (!rows || !out || count < 1 || threads < 1) return BAD_ARGUMENT;
    for (int64_t i = 0; i < count; i++)
        if (rows[i] < 0 || rows[i] >= w->rows) return BAD_ARGUMENT;
    some_t call = {w, rows, out};
    share(count * w->columns < ALONE ? 1 : threads, count, copy_row, &call);
    return DONE;
}
