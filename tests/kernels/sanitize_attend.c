/* Random attention over random blocks, float32 and in another format, through every path, in buffers of exactly their
 * size: the sanitizers have to find nothing. Results are held against double, a row's bits against those it has alone
 * and on other threads; what does not fit together has to be refused, with nothing written. Arguments: seed, draws. */
#include "attend.h"
#include "weight.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int qualgate_attend(const attend_t *, int, int);
int qualgate_keep(const float *, const float *, int64_t, int64_t, int64_t, const kept_t *, int64_t, const int64_t *,
                  int);

enum { MOST_ROWS = 48, REFUSED = 2 };
static const float UNTOUCHED = 12345.0f;
static uint64_t state;
static int64_t below(int64_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)limit);
}
static float real(void) { return (float)below(2001) / 1000 - 1; }
static float *floats(int64_t count) {
    float *made = malloc(sizeof(float) * (size_t)count);
    for (int64_t i = 0; i < count; i++) made[i] = real();
    return made;
}
static float *copies(float value, int64_t count) {
    float *made = malloc(sizeof(float) * (size_t)count);
    for (int64_t i = 0; i < count; i++) made[i] = value;
    return made;
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

/* Where element d of a position's key, or of its value, has to lie. */
static int64_t key_at(const attend_t *a, int64_t slot, int64_t head, int64_t d) {
    return ((slot / SLOTS * a->kv_heads + head) * a->dim + d) * SLOTS + slot % SLOTS;
}
static int64_t value_at(const attend_t *a, int64_t slot, int64_t head, int64_t d) {
    return ((slot / SLOTS * a->kv_heads + head) * SLOTS + slot % SLOTS) * a->dim + d;
}
static int64_t slot_of(const attend_t *a, int64_t sequence, int64_t position) {
    return (int64_t)a->table[sequence * a->table_width + position / SLOTS] * SLOTS + position % SLOTS;
}

/* What keep has to write to is of its size, and full of what no row says. */
static kept_t empty(const attend_t *a, int64_t kind) {
    static const int64_t sizes[] = {4, 2, 1, 1, 1};
    kept_t kept = {.kind = kind, .key_scale = 1, .value_scale = 1};
    const int64_t heads = a->blocks * a->kv_heads, size = heads * elements_of(kind, a->dim) * sizes[kind];
    kept.keys = malloc((size_t)size), kept.values = malloc((size_t)size);
    memset(kept.keys, 0x7F, (size_t)size), memset(kept.values, 0x7F, (size_t)size);
    if (kind == KEPT_FP8) kept.key_scale = 0.5f + real() / 4, kept.value_scale = 0.5f + real() / 4;
    if (!scales_of(kind)) return kept;
    const size_t scales = sizeof(uint16_t) * (size_t)(heads * scales_of(kind));
    kept.key_scales = memset(malloc(scales), 0xFF, scales), kept.value_scales = memset(malloc(scales), 0xFF, scales);
    return kept;
}

static void release(kept_t *kept) {
    free(kept->keys), free(kept->values), free(kept->key_scales), free(kept->value_scales);
}

static float number_of(const kept_t *kept, int value, int64_t dim, int64_t head, int64_t slot, int64_t d) {
    const int packed = kept->kind == KEPT_INT4;
    const int64_t lines = packed ? dim / 2 : dim, line = packed && d >= lines ? d - lines : d;
    const int64_t at = head * lines * SLOTS + (value ? slot * lines + line : line * SLOTS + slot);
    const void *from = value ? kept->values : kept->keys;
    if (kept->kind == KEPT_BF16) return float_of((uint32_t)((const uint16_t *)from)[at] << 16);
    const int code = ((const uint8_t *)from)[at];
    if (kept->kind == KEPT_FP8) {
        const int exponent = code >> 3 & 15, mantissa = code & 7;
        const float size = exponent ? ldexpf(8 + (float)mantissa, exponent - 10) : ldexpf((float)mantissa, -9);
        return (code & 0x80 ? -size : size) * (value ? kept->value_scale : kept->key_scale);
    }
    const uint16_t *scales = (value ? kept->value_scales : kept->key_scales) + head * scales_of(kept->kind) + slot;
    const float scale = float_of((uint32_t)scales[0] << 16);
    if (!packed) return (float)((const int8_t *)from)[at] * scale;
    return float_of((uint32_t)scales[SLOTS] << 16) + (float)(d < lines ? code & 15 : code >> 4) * scale;
}

/* The same rows in another format, on several threads: no further from them than half a step, and what attention makes
 * of them in double is what it makes of the numbers kept, which are left in keys and values for that. */
static kept_t keep_narrow(const attend_t *a, int64_t kind, float *keys, float *values) {
    const int64_t each = a->kv_heads * a->dim, rows = a->sequences * a->table_width * SLOTS;
    kept_t kept = empty(a, kind);
    float *key = malloc(sizeof(float) * (size_t)(rows * each)), *value = malloc(sizeof(float) * (size_t)(rows * each));
    int64_t *slot = malloc(sizeof(int64_t) * (size_t)rows);
    for (int64_t r = 0; r < rows; r++) {
        slot[r] = slot_of(a, r / (a->table_width * SLOTS), r % (a->table_width * SLOTS));
        for (int64_t i = 0; i < each; i++) {
            key[r * each + i] = keys[key_at(a, slot[r], i / a->dim, i % a->dim)];
            value[r * each + i] = values[value_at(a, slot[r], i / a->dim, i % a->dim)];
        }
    }
    if (qualgate_keep(key, value, rows, a->kv_heads, a->dim, &kept, a->blocks, slot, 1 + (int)below(3)))
        fail("keep: another format refused");
    const float step = kind == KEPT_INT4 ? 0.076f : kind == KEPT_INT8 ? 0.0045f : kind == KEPT_FP8 ? 0.063f : 0.002f;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < each; i++) {
            const int64_t h = i / a->dim, d = i % a->dim, head = slot[r] / SLOTS * a->kv_heads + h, s = slot[r] % SLOTS;
            float *k = &keys[key_at(a, slot[r], h, d)], *v = &values[value_at(a, slot[r], h, d)];
            const float its_key = number_of(&kept, 0, a->dim, head, s, d);
            const float its_value = number_of(&kept, 1, a->dim, head, s, d);
            if (!(fabsf(its_key - *k) <= step) || !(fabsf(its_value - *v) <= step)) fail("keep: not what was given");
            *k = its_key, *v = its_value;
        }
    free(key), free(value), free(slot);
    return kept;
}

/* What is said of blocks that no call can have. */
static void refuse_kept(const attend_t *right, int (*refused)(const attend_t *)) {
    for (int i = 0; i < 12; i++) {
        attend_t broken = *right;
        kept_t *kept = &broken.kept;
        if (i == 0) kept->kind = -1;
        if (i == 1) kept->kind = KEPT_KINDS;
        if (i == 2) kept->kind = INT64_MAX;
        if (i == 3) kept->keys = NULL;
        if (i == 4) kept->values = NULL;
        if (i == 5 || i == 6) kept->kind = i == 5 ? KEPT_INT8 : KEPT_INT4, kept->key_scales = NULL;
        if (i == 7) kept->kind = KEPT_INT4, kept->value_scales = NULL;
        if (i > 7) kept->kind = KEPT_FP8, kept->key_scale = kept->value_scale = 1;
        if (i == 8) kept->key_scale = 0;
        if (i == 9) kept->value_scale = -1;
        if (i == 10) kept->key_scale = NAN;
        if (i == 11) kept->value_scale = INFINITY;
        if (!refused(&broken)) fail("blocks that cannot be: accepted");
    }
}
static int attend_refuses(const attend_t *a) { return qualgate_attend(a, 1, PATH_SCALAR) == REFUSED; }
static int keep_refuses(const attend_t *a) {
    const int64_t slot = 0;
    return qualgate_keep(a->query, a->query, 1, 1, 16, &a->kept, a->blocks, &slot, 1) == REFUSED;
}

/* Every position of every sequence, in passes of a few rows. */
static void keep_all(const attend_t *a, float *keys, float *values) {
    const kept_t kept = {.kind = KEPT_F32, .keys = keys, .values = values}, none = {.kind = KEPT_F32};
    const int64_t each = a->kv_heads * a->dim, size = a->blocks * each * SLOTS, all = a->table_width * SLOTS;
    float *wanted_keys = malloc(sizeof(float) * (size_t)size), *wanted_values = malloc(sizeof(float) * (size_t)size);
    memcpy(wanted_keys, keys, sizeof(float) * (size_t)size);
    memcpy(wanted_values, values, sizeof(float) * (size_t)size);
    for (int64_t s = 0; s < a->sequences; s++)
        for (int64_t p = 0, rows; p < all; p += rows) {
            rows = 1 + below(all - p);
            float *key = floats(rows * each), *value = floats(rows * each);
            int64_t *slot = malloc(sizeof(int64_t) * (size_t)rows);
            for (int64_t r = 0; r < rows; r++) {
                slot[r] = slot_of(a, s, p + r);
                for (int64_t i = 0; i < each; i++) {
                    wanted_keys[key_at(a, slot[r], i / a->dim, i % a->dim)] = key[r * each + i];
                    wanted_values[value_at(a, slot[r], i / a->dim, i % a->dim)] = value[r * each + i];
                }
            }
            const int threads = 1 + (int)below(3);
            if (qualgate_keep(key, value, rows, a->kv_heads, a->dim, &kept, a->blocks, slot, threads))
                fail("keep: refused");
            const int64_t right = slot[rows - 1];
            slot[rows - 1] = below(2) ? -1 - below(SLOTS) : a->blocks * SLOTS + below(SLOTS);
            const int64_t dims[] = {0, 8, 24, DIM_MAX + 16};
            for (int i = 0; i < 12; i++) {
                if (i) slot[rows - 1] = right;
                if (qualgate_keep(i == 1 ? NULL : key, i == 2 ? NULL : value, i == 3 ? 0 : rows,
                                  i == 4 ? 0 : a->kv_heads, i > 4 && i < 9 ? dims[i - 5] : a->dim,
                                  i == 9 ? &none : i == 10 ? NULL : &kept, a->blocks, i == 11 ? NULL : slot,
                                  threads) != REFUSED)
                    fail("keep: accepted what does not fit");
            }
            if (qualgate_keep(key, value, rows, a->kv_heads, a->dim, &kept, a->blocks, slot, 0) != REFUSED ||
                qualgate_keep(key, value, rows, a->kv_heads, a->dim, &kept, right / SLOTS, slot, 1) != REFUSED)
                fail("keep: accepted no threads, or too few blocks");
            free(key), free(value), free(slot);
        }
    if (memcmp(keys, wanted_keys, sizeof(float) * (size_t)size) ||
        memcmp(values, wanted_values, sizeof(float) * (size_t)size))
        fail("keep: not where it has to lie, or elsewhere too");
    free(wanted_keys), free(wanted_values);
}

/* One row's heads, from the definition. */
static void expected(const attend_t *a, const float *keys, const float *values, int64_t row, double *out) {
    const int64_t p = a->position[row], first = a->window && p >= a->window ? p - a->window + 1 : 0;
    double weight[MOST_ROWS * SLOTS];
    for (int64_t h = 0; h < a->heads; h++) {
        const int64_t head = h / (a->heads / a->kv_heads);
        double total = a->sinks ? exp(a->sinks[h]) : 0;
        for (int64_t at = first; at <= p; at++) {
            const int64_t slot = slot_of(a, a->sequence[row], at);
            double logit = 0;
            for (int64_t d = 0; d < a->dim; d++)
                logit += (double)a->query[(row * a->heads + h) * a->dim + d] * keys[key_at(a, slot, head, d)];
            logit *= a->scale;
            if (a->soft_cap > 0) logit = a->soft_cap * tanh(logit / a->soft_cap);
            total += weight[at - first] = exp(logit);
        }
        for (int64_t d = 0; d < a->dim; d++) {
            double sum = 0;
            for (int64_t at = first; at <= p; at++)
                sum += weight[at - first] * values[value_at(a, slot_of(a, a->sequence[row], at), head, d)];
            out[h * a->dim + d] = sum / total;
        }
    }
}

static void refuse(const attend_t *broken, int threads, int path, const char *what) {
    if (qualgate_attend(broken, threads, path) != REFUSED) fail(what);
}

/* Each thing that may be wrong, alone, in a call that is right otherwise. */
static void refuse_all(const attend_t *right) {
    static const struct {
        size_t member;
        int64_t number;
    } numbers[] = {{offsetof(attend_t, bytes), sizeof(attend_t) - 8}, {offsetof(attend_t, rows), 0},
                   {offsetof(attend_t, rows), -1},       {offsetof(attend_t, rows), 1LL << 31},
                   {offsetof(attend_t, heads), 0},       {offsetof(attend_t, heads), 3 * (1LL << 20)},
                   {offsetof(attend_t, kv_heads), 0},    {offsetof(attend_t, kv_heads), -1},
                   {offsetof(attend_t, dim), 0},         {offsetof(attend_t, dim), 8},
                   {offsetof(attend_t, dim), 24},        {offsetof(attend_t, dim), 1040},
                   {offsetof(attend_t, blocks), 0},      {offsetof(attend_t, sequences), 0},
                   {offsetof(attend_t, table_width), 0}, {offsetof(attend_t, window), -1}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        attend_t broken = *right;
        memcpy((char *)&broken + numbers[i].member, &numbers[i].number, sizeof(int64_t));
        refuse(&broken, 1, PATH_SCALAR, "a number out of range: accepted");
    }
    static const size_t pointers[] = {offsetof(attend_t, query), offsetof(attend_t, kept.keys),
                                      offsetof(attend_t, kept.values), offsetof(attend_t, table),
                                      offsetof(attend_t, sequence),
                                      offsetof(attend_t, position), offsetof(attend_t, out)};
    for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++) {
        attend_t broken = *right;
        memset((char *)&broken + pointers[i], 0, sizeof(void *));
        refuse(&broken, 1, PATH_SCALAR, "no pointer: accepted");
    }
    for (int i = 0; i < 3; i++) {
        attend_t broken = *right;
        if (i == 0) broken.soft_cap = -1;
        if (i == 1) broken.soft_cap = NAN;
        if (i == 2) broken.heads = right->heads + (right->kv_heads > 1 ? 1 : 65536);
        refuse(&broken, 1, PATH_SCALAR, "a cap or a number of heads out of range: accepted");
    }
    refuse(right, 0, PATH_SCALAR, "no threads: accepted");
    refuse(right, 1, 0, "no path: accepted");
    refuse(right, 1, PATH_AVX512 + 1, "a path that attention has not: accepted");
    refuse(NULL, 1, PATH_SCALAR, "nothing: accepted");
}

/* A row somewhere, a position behind the table, rows out of order, a block that is not there. The call's own buffers
 * are changed and mended again. */
static void refuse_places(const attend_t *right, int32_t *table, int32_t *sequence, int32_t *position) {
    const int64_t r = below(right->rows), s = sequence[r], p = position[r];
    const int32_t wrong[] = {-1, INT32_MIN, (int32_t)right->sequences, INT32_MAX};
    for (int i = 0; i < 4; i++) {
        sequence[r] = wrong[i];
        refuse(right, 1, PATH_SCALAR, "a sequence that is not there: accepted");
    }
    sequence[r] = (int32_t)s;
    const int32_t nowhere[] = {-1, INT32_MIN, (int32_t)(right->table_width * SLOTS), INT32_MAX};
    for (int i = 0; i < 4; i++) {
        position[r] = nowhere[i];
        refuse(right, 1, PATH_SCALAR, "a position that is not there: accepted");
    }
    position[r] = (int32_t)p;
    if (r && sequence[r - 1] == s) {
        position[r] = position[r - 1] - (int32_t)below(2);
        refuse(right, 1, PATH_SCALAR, "rows out of order: accepted");
        position[r] = (int32_t)p;
    }
    const int64_t first = right->window && p >= right->window ? p - right->window + 1 : 0;
    int32_t *seen = table + s * right->table_width + first / SLOTS + below(p / SLOTS - first / SLOTS + 1);
    const int32_t block = *seen, blocks[] = {-1, INT32_MIN, (int32_t)right->blocks, INT32_MAX};
    for (int i = 0; i < 4; i++) {
        *seen = blocks[i];
        refuse(right, 1, PATH_SCALAR, "a block that is not there: accepted");
    }
    *seen = block;
}

/* Runs of rows of random sequences, ascending in each: how many rows. */
static int64_t draw_rows(const attend_t *a, int32_t *sequence, int32_t *position) {
    int64_t rows = 0;
    for (int64_t run = 1 + below(6); run--;) {
        const int32_t s = (int32_t)below(a->sequences);
        int64_t p = below(a->table_width * SLOTS), step = 1 + below(3) * below(9);
        if (rows && sequence[rows - 1] == s && p <= position[rows - 1]) continue;
        for (int64_t count = 1 + below(20); count-- && rows < MOST_ROWS && p < a->table_width * SLOTS; p += step) {
            sequence[rows] = s;
            position[rows++] = (int32_t)p;
        }
    }
    return rows;
}

/* Entries of the table that no row looks at become numbers that are no blocks. */
static void spoil(const attend_t *a, int32_t *table) {
    for (int64_t s = 0; s < a->sequences; s++)
        for (int64_t b = 0; b < a->table_width; b++) {
            int looked_at = 0;
            for (int64_t r = 0; r < a->rows; r++) {
                const int64_t p = a->position[r], first = a->window && p >= a->window ? p - a->window + 1 : 0;
                looked_at |= a->sequence[r] == s && b >= first / SLOTS && b <= p / SLOTS;
            }
            if (!looked_at) table[s * a->table_width + b] = below(2) ? -1 : INT32_MAX;
        }
}

static void hold(const attend_t *right, int path, float *out, const double *wanted, const float *alone, int64_t row) {
    const int64_t each = right->heads * right->dim, all = right->rows * each;
    attend_t call = *right;
    call.out = out;
    if (qualgate_attend(&call, 1 + (int)below(4), path)) fail("attend: refused");
    for (int64_t i = 0; i < all; i++)
        if (!(fabs(out[i] - wanted[i]) <= 1e-5)) fail("attend: another result than double's");
    if (memcmp(out + row * each, alone, sizeof(float) * (size_t)each)) fail("attend: a row has other bits alone");
}

static void every_path(const attend_t *a, const float *keys, const float *values) {
    const int64_t each = a->heads * a->dim;
    double *wanted = malloc(sizeof(double) * (size_t)(a->rows * each));
    float *alone = malloc(sizeof(float) * (size_t)each);
    for (int64_t r = 0; r < a->rows; r++) expected(a, keys, values, r, wanted + r * each);
    for (int path = PATH_SCALAR; path <= PATH_AVX512; path++) {
        if (!has(path)) continue;
        const int64_t row = below(a->rows);
        attend_t single = *a;
        single.rows = 1, single.query += row * each, single.sequence += row, single.position += row, single.out = alone;
        if (qualgate_attend(&single, 1, path)) fail("attend: a row alone is refused");
        hold(a, path, a->out, wanted, alone, row);
        hold(a, path, a->out, wanted, alone, row);
    }
    free(wanted), free(alone);
}

static void one_call(void) {
    attend_t a = {.bytes = sizeof a, .kv_heads = 1 + below(3), .dim = 16 * (1 + below(below(8) ? 9 : 64))};
    a.heads = a.kv_heads * (1 + below(9));
    a.sequences = 1 + below(4);
    a.table_width = 1 + below(7);
    a.blocks = a.sequences * a.table_width + below(3);
    a.window = below(2) ? 0 : 1 + below(below(2) ? 30 : 1 << 20);
    a.soft_cap = below(2) ? 0 : 1 + real() / 2;
    a.scale = 1 / sqrtf((float)a.dim);
    const int64_t entries = a.sequences * a.table_width, size = a.blocks * a.kv_heads * a.dim * SLOTS;
    int32_t *order = malloc(sizeof(int32_t) * (size_t)a.blocks), *table = malloc(sizeof(int32_t) * (size_t)entries);
    for (int64_t i = 0; i < a.blocks; i++) { /* blocks in any order */
        const int64_t j = below(i + 1);
        order[i] = order[j];
        order[j] = (int32_t)i;
    }
    memcpy(table, order, sizeof(int32_t) * (size_t)entries);
    int32_t drawn[2][MOST_ROWS];
    a.table = table;
    a.rows = draw_rows(&a, drawn[0], drawn[1]);
    int32_t *places[2];
    for (int i = 0; i < 2; i++)
        memcpy(places[i] = malloc(sizeof(int32_t) * (size_t)a.rows), drawn[i], sizeof(int32_t) * (size_t)a.rows);
    float *keys = copies(UNTOUCHED, size), *values = copies(UNTOUCHED, size);
    keep_all(&a, keys, values);
    const int64_t each = a.heads * a.dim;
    float *query = floats(a.rows * each), *sinks = below(2) ? floats(a.heads) : NULL;
    float *out = copies(UNTOUCHED, a.rows * each);
    a.query = query, a.kept = (kept_t){.keys = keys, .values = values}, a.sinks = sinks, a.out = out;
    a.sequence = places[0], a.position = places[1];
    attend_t whole = a;
    whole.table = memcpy(malloc(sizeof(int32_t) * (size_t)entries), table, sizeof(int32_t) * (size_t)entries);
    if (below(2)) spoil(&a, table);
    refuse_all(&a);
    refuse_places(&a, table, places[0], places[1]);
    for (int64_t i = 0; i < a.rows * each; i++)
        if (out[i] != UNTOUCHED) fail("attend: refused, and yet written");
    every_path(&a, keys, values);
    attend_t narrow = a;
    narrow.kept = keep_narrow(&whole, 1 + below(KEPT_KINDS - 1), keys, values);
    every_path(&narrow, keys, values);
    refuse_kept(&narrow, attend_refuses);
    refuse_kept(&narrow, keep_refuses);
    release(&narrow.kept);
    free(order), free(table), free((void *)whole.table), free(places[0]), free(places[1]);
    free(keys), free(values), free(query), free(sinks);
    free(out);
}

int main(int argc, char **argv) {
    if (argc != 3) fail("sanitize_attend SEED DRAWS");
    state = strtoull(argv[1], NULL, 10);
    const int draws = atoi(argv[2]);
    for (int draw = 0; draw < draws; draw++) one_call();
    printf("%d draws\n", draws);
    return 0;
}
