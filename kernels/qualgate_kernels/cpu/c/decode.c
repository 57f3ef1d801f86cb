/* A pass through a plain decoder without anything between its layers but C. Every step takes a row for itself, or is a
 * product or an attention whose rows do not depend on each other: so are the rows of a pass. In the last layer only
 * rows that are wanted go on once keys and values are kept. */
#include "decode.h"
#include "floats.h"
#include "pool.h"
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define ROWS_AT_ONCE 4 /* that a thread takes between products */

int qualgate_paths(void);
int qualgate_matmul(const weight_t *, const void *, int, int64_t, void *, int, int);
int qualgate_matmul_int8(const int8_t *, int64_t, const int32_t *, const float *, int64_t, int64_t, int64_t,
                         const int8_t *, const float *, int64_t, float *, int, int);
int qualgate_attend(const attend_t *, int, int);
int qualgate_keep(const float *, const float *, int64_t, int64_t, int64_t, const kept_t *, int64_t, const int64_t *,
                  int);

typedef struct {
    const float *at, *bias;
    int64_t stride;
} columns_t; /* of a row of products */

typedef struct {
    const decoder_t *decoder;
    const decode_pass_t *pass;
    const decode_layer_t *layer;
    const layer_ops_t *ops;
    int64_t rows; /* that go on */
    int threads, path, int8_path, unturned, stored;
    float *x, *normed, *product, *query, *key, *value, *attended, *out, *inner, *scales;
    int8_t *codes;
    int32_t *sequence, *position; /* of the rows that go on */
    const float *added, *added_bias, *norm; /* of the next norm */
    const float *coded;                     /* [rows][coded_width], the input of int8 products */
    int64_t coded_width;
} state_t;

typedef void row_fn(state_t *state, int64_t row);
typedef struct {
    state_t *state;
    row_fn *run;
} rows_call_t;

static void run_rows(void *context, int64_t task, int worker) {
    const rows_call_t *call = context;
    const int64_t first = task * ROWS_AT_ONCE;
    const unsigned before = plain_floats();
    (void)worker;
    for (int64_t row = first; row < first + ROWS_AT_ONCE && row < call->state->rows; row++) call->run(call->state, row);
    restore_floats(before);
}

static void each_row(state_t *state, row_fn *run) {
    rows_call_t call = {state, run};
    share(state->rows < 32 ? 1 : state->threads, (state->rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, run_rows, &call);
}

static void norm_row(state_t *s, int64_t row) {
    const int64_t width = s->decoder->width;
    s->ops->norm(s->x + row * width, s->added ? s->added + row * width : NULL, s->added_bias, s->norm,
                 s->decoder->eps, width, s->normed + row * width, s->stored);
}

/* Where column `at` of what `linears` give lies, in `product`. */
static columns_t column(const state_t *s, const linears_t *linears, int64_t at) {
    const float *from = s->product;
    int64_t part = 0;
    for (; at >= linears->part[part].rows; part++) {
        at -= linears->part[part].rows;
        from += s->rows * linears->part[part].rows;
    }
    const linear_t *linear = &linears->part[part];
    return (columns_t){from + at, linear->bias ? linear->bias + at : NULL, linear->rows};
}

static void heads_row(state_t *s, int64_t row) {
    const decoder_t *d = s->decoder;
    const decode_layer_t *layer = s->layer;
    const int64_t dim = d->dim, all = d->heads + 2 * d->kv_heads, turn = s->position[row] * (d->rotary / 2);
    for (int64_t h = 0; h < all; h++) {
        const columns_t from = column(s, &layer->heads, h * dim);
        const int query = h < d->heads, value = h >= d->heads + d->kv_heads;
        const int64_t nth = query ? h : value ? h - d->heads - d->kv_heads : h - d->heads;
        float *to = query   ? s->query + (row * d->heads + nth) * dim
                    : value ? s->value + (row * d->kv_heads + nth) * dim
                            : s->key + (row * d->kv_heads + nth) * dim;
        s->ops->turn(from.at + row * from.stride, from.bias, query ? layer->query_norm : value ? NULL : layer->key_norm,
                     d->eps, dim, value || s->unturned ? 0 : d->rotary, d->cosines + turn, d->sines + turn, to,
                     s->stored);
    }
}

static void gated_row(state_t *s, int64_t row) {
    const int64_t inner = s->decoder->inner;
    const columns_t gate = column(s, &s->layer->gates, 0), up = column(s, &s->layer->gates, inner);
    s->ops->gated(gate.at + row * gate.stride, gate.bias, up.at + row * up.stride, up.bias, inner,
                  s->inner + row * inner, s->stored);
}

static void attended_row(state_t *s, int64_t row) {
    const int64_t width = s->decoder->heads * s->decoder->dim;
    s->ops->rounded(s->attended + row * width, width, s->stored);
}

static void codes_row(state_t *s, int64_t row) {
    const int64_t at = row * s->coded_width;
    s->scales[row] = s->ops->codes(s->coded + at, s->coded_width, s->codes + at);
}

/* `to` [parts][rows][their columns]; codes are made of an input once. */
static int multiply(state_t *s, const linears_t *linears, const float *x, float *to) {
    int coded = 0;
    for (int64_t p = 0; p < linears->count; p++) {
        const linear_t *linear = &linears->part[p];
        int failed;
        if (linear->weight)
            failed = qualgate_matmul(linear->weight, x, X_F32, s->rows, to, s->threads, s->path);
        else {
            if (!coded++) {
                s->coded = x;
                s->coded_width = linear->columns;
                each_row(s, codes_row);
            }
            failed = qualgate_matmul_int8(linear->codes, linear->codes_bytes, linear->sums, linear->scales,
                                          linear->scales_bytes, linear->rows, linear->columns, s->codes, s->scales,
                                          s->rows, to, s->threads, s->int8_path);
        }
        if (failed) return failed;
        to += s->rows * linear->rows;
    }
    return DONE;
}

static void look(const state_t *s, int place, columns_t from, int64_t width) {
    const float limit = s->pass->limit;
    int64_t found = 0;
    if (!(limit > 0)) return;
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t i = 0; i < width; i++) {
            const float value = from.at[r * from.stride + i] + (from.bias ? from.bias[i] : 0);
            found += (value > limit || value < -limit) && (s->stored || value - value == 0);
        }
    s->pass->beyond[(s->layer - s->decoder->layer) * PLACES + place] += found;
}

static columns_t whole(const float *at, int64_t width) { return (columns_t){at, NULL, width}; }

/* Queries and keys as their norms leave them: what is kept was turned by then. */
static void look_at_normed(state_t *s) {
    const decoder_t *d = s->decoder;
    if (!(s->pass->limit > 0) || (!s->layer->query_norm && !s->layer->key_norm)) return;
    s->unturned = 1;
    each_row(s, heads_row);
    s->unturned = 0;
    if (s->layer->query_norm) look(s, NORMED_QUERIES, whole(s->query, d->heads * d->dim), d->heads * d->dim);
    if (s->layer->key_norm) look(s, NORMED_KEYS, whole(s->key, d->kv_heads * d->dim), d->kv_heads * d->dim);
}

/* Rows that are wanted move to the front: of x, of the queries and of where they stand. */
static void keep_wanted(state_t *s) {
    const int64_t width = s->decoder->width, heads = s->decoder->heads * s->decoder->dim;
    for (int64_t i = 0; i < s->pass->wanted; i++) {
        const int64_t from = s->pass->want[i];
        memmove(s->x + i * width, s->x + from * width, sizeof(float) * (size_t)width);
        memmove(s->query + i * heads, s->query + from * heads, sizeof(float) * (size_t)heads);
        s->sequence[i] = s->sequence[from];
        s->position[i] = s->position[from];
    }
    s->rows = s->pass->wanted;
}

static int attention(state_t *s, int last) {
    const decoder_t *d = s->decoder;
    const decode_layer_t *layer = s->layer;
    const decode_pass_t *pass = s->pass;
    int failed = multiply(s, &layer->heads, s->normed, s->product);
    if (failed) return failed;
    look(s, QUERIES_OUT, column(s, &layer->heads, 0), d->heads * d->dim);
    look(s, KEYS_OUT, column(s, &layer->heads, d->heads * d->dim), d->kv_heads * d->dim);
    look(s, VALUES_OUT, column(s, &layer->heads, (d->heads + d->kv_heads) * d->dim), d->kv_heads * d->dim);
    look_at_normed(s);
    each_row(s, heads_row);
    look(s, KEYS_KEPT, whole(s->key, d->kv_heads * d->dim), d->kv_heads * d->dim);
    look(s, VALUES_KEPT, whole(s->value, d->kv_heads * d->dim), d->kv_heads * d->dim);
    failed = qualgate_keep(s->key, s->value, s->rows, d->kv_heads, d->dim, &layer->kept, pass->blocks, pass->slots,
                           s->threads);
    if (failed) return failed;
    if (last) keep_wanted(s);
    if (!s->rows) return DONE;
    const attend_t call = {.bytes = sizeof call, .rows = s->rows, .heads = d->heads, .kv_heads = d->kv_heads,
                           .dim = d->dim, .blocks = pass->blocks, .sequences = pass->sequences,
                           .table_width = pass->table_width, .query = s->query, .kept = layer->kept,
                           .table = pass->table, .sequence = s->sequence,
                           .position = s->position, .sinks = layer->sinks, .out = s->attended, .scale = layer->scale,
                           .soft_cap = layer->soft_cap, .window = layer->window};
    failed = qualgate_attend(&call, s->threads, s->path > PATH_AVX512 ? PATH_AVX512 : s->path);
    if (failed) return failed;
    if (s->stored) each_row(s, attended_row);
    look(s, INTO_OUT, whole(s->attended, d->heads * d->dim), d->heads * d->dim);
    failed = multiply(s, &layer->out, s->attended, s->out);
    s->added = s->out;
    s->added_bias = layer->out.part[0].bias;
    look(s, OUT, (columns_t){s->out, s->added_bias, d->width}, d->width);
    return failed;
}

static int feed_forward(state_t *s) {
    const decoder_t *d = s->decoder;
    const decode_layer_t *layer = s->layer;
    int failed = multiply(s, &layer->gates, s->normed, s->product);
    if (failed) return failed;
    look(s, GATE, column(s, &layer->gates, 0), d->inner);
    look(s, UP, column(s, &layer->gates, d->inner), d->inner);
    each_row(s, gated_row);
    look(s, INTO_DOWN, whole(s->inner, d->inner), d->inner);
    failed = multiply(s, &layer->down, s->inner, s->out);
    s->added = s->out;
    s->added_bias = layer->down.part[0].bias;
    look(s, DOWN, (columns_t){s->out, s->added_bias, d->width}, d->width);
    return failed;
}

static void normed(state_t *s, const float *weight, int into, int out) {
    s->norm = weight;
    each_row(s, norm_row);
    s->added = NULL;
    look(s, into, whole(s->x, s->decoder->width), s->decoder->width);
    look(s, out, whole(s->normed, s->decoder->width), s->decoder->width);
}

static int run(state_t *s) {
    const decoder_t *d = s->decoder;
    for (int64_t l = 0; l < d->layers && s->rows; l++) {
        s->layer = d->layer + l;
        normed(s, s->layer->attention_norm, INTO_ATTENTION, NORMED_ATTENTION);
        int failed = attention(s, l == d->layers - 1);
        if (failed || !s->rows) return failed;
        normed(s, s->layer->feed_norm, INTO_FEED, NORMED_FEED);
        failed = feed_forward(s);
        if (failed) return failed;
    }
    s->layer = d->layer + d->layers; /* its places 0 and 1: the last norm's */
    normed(s, d->norm, 0, 1);
    memcpy(s->pass->states, s->normed, sizeof(float) * (size_t)(s->rows * d->width));
    return DONE;
}

/* Columns of all, or -1: parts begin where one of two seams is, or at 0. */
static int64_t columns_of(const linears_t *linears, int64_t from, int64_t seam, int64_t other) {
    int64_t sum = 0;
    if (linears->count < 1 || linears->count > PARTS_MAX) return -1;
    for (int64_t p = 0; p < linears->count; p++) {
        const linear_t *one = &linears->part[p];
        if (p && sum != seam && sum != other) return -1;
        if (one->bytes != (int64_t)sizeof *one || one->columns != from || one->rows < 1) return -1;
        if (one->weight && (one->weight->rows != one->rows || one->weight->columns != from)) return -1;
        sum += one->rows;
    }
    return sum;
}

static int sound(const decoder_t *d, const decode_pass_t *p) {
    if (!d || !p || d->bytes != (int64_t)sizeof *d || p->bytes != (int64_t)sizeof *p) return 0;
    if (d->layers < 1 || d->width < 16 || d->width % 16 || d->heads < 1 || d->kv_heads < 1 || d->heads % d->kv_heads ||
        d->dim < 16 || d->dim % 16 || d->inner < 16 || d->inner % 16 || d->rotary < 0 || d->rotary > d->dim ||
        d->rotary % 2 || !d->layer || !d->norm || (d->rotary && (!d->cosines || !d->sines)))
        return 0;
    const int64_t heads = d->heads * d->dim, kept = d->kv_heads * d->dim;
    for (int64_t l = 0; l < d->layers; l++) {
        const decode_layer_t *layer = d->layer + l;
        if (columns_of(&layer->heads, d->width, heads, heads + kept) != heads + 2 * kept ||
            columns_of(&layer->gates, d->width, d->inner, d->inner) != 2 * d->inner ||
            columns_of(&layer->out, heads, 0, 0) != d->width || columns_of(&layer->down, d->inner, 0, 0) != d->width)
            return 0;
        if (!layer->attention_norm || !layer->feed_norm || !sound_kept(&layer->kept)) return 0;
    }
    if (p->rows < 1 || p->rows > INT32_MAX || p->wanted < 0 || p->wanted > p->rows || !p->x || !p->sequence ||
        !p->position || !p->slots || (p->wanted && (!p->want || !p->states)) || (p->limit > 0 && !p->beyond) ||
        p->stored < 0 || p->stored >= STORED)
        return 0;
    for (int64_t r = 0; r < p->rows; r++)
        if (p->position[r] < 0 || p->position[r] >= d->positions) return 0;
    for (int64_t i = 0; i < p->wanted; i++)
        if (p->want[i] < (i ? p->want[i - 1] + 1 : 0) || p->want[i] >= p->rows) return 0;
    return 1;
}

static const layer_ops_t *ops_of(int path) {
#if defined(__x86_64__)
    if (path >= PATH_AVX512) return &layer_avx512;
    if (path == PATH_AVX2) return &layer_avx2;
#endif
    (void)path;
    return &layer_scalar;
}

static void *piece(char **at, int64_t numbers, size_t each) {
    void *here = *at;
    *at += ((size_t)numbers * each + 63) & ~(size_t)63;
    return here;
}

/* One pass: keys and values of all rows are kept, `states` are of those wanted. path, int8_path: as the products'. */
EXPORT int qualgate_decode(const decoder_t *d, const decode_pass_t *p, int threads, int path, int int8_path) {
    if (threads < 1 || path < 1 || path >= PATHS || !sound(d, p)) return BAD_ARGUMENT;
    if (!(qualgate_paths() >> path & 1)) return NO_PATH;
    const int64_t heads = d->heads * d->dim, kept = d->kv_heads * d->dim, rows = p->rows;
    const int64_t product = heads + 2 * kept > 2 * d->inner ? heads + 2 * kept : 2 * d->inner;
    const int64_t widest = heads > d->inner ? heads : d->inner, deepest = widest > d->width ? widest : d->width;
    const int64_t numbers = 2 * d->width + product + 2 * heads + 2 * kept + d->inner + 3;
    char *memory, *at;
    if (posix_memalign((void **)&memory, 64, (size_t)(numbers * rows) * 4 + (size_t)(deepest * rows) + 64 * 16))
        return NO_MEMORY;
    at = memory;
    state_t s = {.decoder = d, .pass = p, .ops = ops_of(path), .rows = rows, .threads = threads, .path = path,
                 .int8_path = int8_path, .stored = (int)p->stored, .x = p->x};
    s.normed = piece(&at, rows * d->width, 4);
    s.out = piece(&at, rows * d->width, 4);
    s.product = piece(&at, rows * product, 4);
    s.query = piece(&at, rows * heads, 4);
    s.attended = piece(&at, rows * heads, 4);
    s.key = piece(&at, rows * kept, 4);
    s.value = piece(&at, rows * kept, 4);
    s.inner = piece(&at, rows * d->inner, 4);
    s.scales = piece(&at, rows, 4);
    s.sequence = piece(&at, rows, 4);
    s.position = piece(&at, rows, 4);
    s.codes = piece(&at, rows * deepest, 1);
    memcpy(s.sequence, p->sequence, sizeof(int32_t) * (size_t)rows);
    memcpy(s.position, p->position, sizeof(int32_t) * (size_t)rows);
    const unsigned before = plain_floats();
    const int failed = run(&s);
    restore_floats(before);
    free(memory);
    return failed;
}
