/* One tile of attention over short vectors: attend_scalar.c, attend_avx2.c and attend_avx512.c include this.
 *
 * A tile is up to QUERIES pairs (row, head) of one sequence that read the same head of keys. Every pair takes the same
 * steps whatever else is in its tile, so its bits do not depend on its neighbours.
 *
 * Wanted: ATTEND (the function's name), INLINE, ENTRY (attributes), lanes_t (a vector of floats), FMA(a, b, c), ALL(x). */
#include "lanes.h"

#include "attend_kept.h"

#define PARTS (SLOTS / LANES)

/* Blocks lie anywhere, so that a processor foresees none of them: each line is asked for while what comes before it is
 * multiplied. */
INLINE void soon(const float *line) { __builtin_prefetch(line); }
INLINE void later(const float *line, int64_t bytes) {
    __builtin_prefetch((const void *)((intptr_t)line + bytes), 0, 2);
}

/* logits, before scale: of `pairs` queries [dim] with each of `blocks` blocks of keys [dim][SLOTS]. A sum is a chain of
 * additions over the dimensions; eight chains side by side keep the processor busy. next: blocks from here to those
 * that are multiplied next; values: bytes from a block's keys to its values. */
INLINE void products(const float *const *q, const int pairs, const float *const *keys, const int blocks, const int next,
                     int64_t values, int64_t dim, float *const *out) {
    lanes_t sum[QUERIES][PARTS];
    for (int i = 0; i < pairs * blocks; i++)
        for (int v = 0; v < PARTS; v++) sum[i][v] = ALL(0);
    for (int64_t d = 0; d < dim; d++)
        for (int b = 0; b < blocks; b++) {
            soon(keys[b + next] + d * SLOTS);
            later(keys[b] + d * SLOTS, values);
            for (int v = 0; v < PARTS; v++) {
                const lanes_t k = at(keys[b] + d * SLOTS + v * LANES);
                for (int i = 0; i < pairs; i++)
                    sum[i * blocks + b][v] = FMA(ALL(q[i][d]), k, sum[i * blocks + b][v]);
            }
        }
    for (int i = 0; i < pairs; i++)
        for (int b = 0; b < blocks; b++)
            for (int v = 0; v < PARTS; v++) put(out[i] + b * SLOTS + v * LANES, sum[i * blocks + b][v]);
}

INLINE void all_products(const float *const *q, const int pairs, const float *const *keys, int64_t blocks,
                         int64_t values, int64_t dim, float *const *rows) {
    const int together = QUERIES / pairs;
    float *out[QUERIES];
    for (int64_t b = 0; b < blocks;) {
        for (int i = 0; i < pairs; i++) out[i] = rows[i] + b * SLOTS;
        const int next = b + 2 * together <= blocks ? together : 0;
        if (b + together <= blocks) products(q, pairs, keys + b, together, next, values, dim, out), b += together;
        else products(q, pairs, keys + b, 1, 0, values, dim, out), b++;
    }
}

/* out[pair] += weights times the slots begin to end of one block of values [SLOTS][dim], of `vectors` from dimension
 * `from` on. What lies in other slots is not multiplied, not by 0 either: it may be infinite. */
INLINE void gather(float *const *out, const float *const *weights, const int pairs, const float *values, int begin,
                   int end, int64_t dim, int64_t from, const int vectors) {
    lanes_t sum[QUERIES * STRIDE / LANES];
    for (int i = 0; i < pairs; i++)
        for (int v = 0; v < vectors; v++) sum[i * vectors + v] = at(out[i] + from + v * LANES);
    for (int s = begin; s < end; s++)
        for (int v = 0; v < vectors; v++) {
            const lanes_t value = at(values + s * dim + from + v * LANES);
            for (int i = 0; i < pairs; i++) sum[i * vectors + v] = FMA(ALL(weights[i][s]), value, sum[i * vectors + v]);
        }
    for (int i = 0; i < pairs; i++)
        for (int v = 0; v < vectors; v++) put(out[i] + from + v * LANES, sum[i * vectors + v]);
}

INLINE void gather_all(float *const *out, const float *const *weights, const int pairs, const float *values, int begin,
                       int end, int64_t dim) {
    const int most = (pairs < 4 ? 4 : QUERIES / pairs) * STRIDE / LANES; /* vectors whose sums stay in registers */
    int64_t d = 0;
    for (; d + most * LANES <= dim; d += most * LANES)
        gather(out, weights, pairs, values, begin, end, dim, d, most);
    for (; d + STRIDE <= dim; d += STRIDE) gather(out, weights, pairs, values, begin, end, dim, d, STRIDE / LANES);
    for (; d < dim; d += LANES) gather(out, weights, pairs, values, begin, end, dim, d, 1);
}

/* The pairs' weights, not yet divided by their sums, which are returned. logits: [blocks][SLOTS] of one pair. */
INLINE float weigh(const attend_t *call, const span_t *span, float *logits, float sink) {
    const int64_t blocks = span->last / SLOTS - span->first / SLOTS + 1;
    const int ahead = (int)(span->first % SLOTS), behind = SLOTS - 1 - (int)(span->last % SLOTS);
    for (int64_t i = 0; i < blocks * SLOTS; i += LANES) {
        lanes_t l = at(logits + i) * ALL(call->scale);
        if (call->soft_cap > 0) {
            const lanes_t x = l / ALL(call->soft_cap), size = (lanes_t)((ints_t)x & 0x7FFFFFFF);
            const lanes_t e = exponential(ALL(-2.0f) * size), y = (ALL(1.0f) - e) / (ALL(1.0f) + e);
            l = ALL(call->soft_cap) * (lanes_t)((ints_t)y | ((ints_t)x & INT32_MIN));
        }
        put(logits + i, l);
    }
    for (int i = 0; i < ahead; i++) logits[i] = -INFINITY;
    for (int i = 0; i < behind; i++) logits[blocks * SLOTS - 1 - i] = -INFINITY;
    lanes_t best = ALL(sink);
    for (int64_t i = 0; i < blocks * SLOTS; i += LANES) {
        const lanes_t l = at(logits + i);
        const ints_t more = l > best;
        best = (lanes_t)(((ints_t)l & more) | ((ints_t)best & ~more));
    }
    float highest = sink;
    for (int i = 0; i < LANES; i++) highest = best[i] > highest ? best[i] : highest;
    lanes_t sum = ALL(0);
    for (int64_t i = 0; i < blocks * SLOTS; i += LANES) {
        const lanes_t l = at(logits + i), w = exponential(l - ALL(highest));
        const ints_t hidden = l == ALL(-INFINITY);
        const lanes_t kept = (lanes_t)((ints_t)w & ~hidden);
        put(logits + i, kept);
        sum += kept;
    }
    float total = 0;
    for (int i = 0; i < LANES; i++) total += sum[i];
    return call->sinks ? total + exponential(ALL(sink - highest))[0] : total;
}

/* The place of a head in a block. Between rows far apart there may be blocks that no pair sees: what the table says of
 * them is not checked, and what is found there is not looked at. */
INLINE int64_t place_of(const attend_t *call, int32_t block, int64_t head) {
    return (block < 0 || block >= call->blocks ? 0 : block) * call->kv_heads + head;
}

/* A head's keys in a block, and its values: where they lie, or in `room`. */
INLINE const float *keys_of(const attend_t *call, int64_t place, float *room, const int plain) {
    if (plain) return (const float *)call->kept.keys + place * call->dim * SLOTS;
    expand_keys(&call->kept, place, call->dim, room);
    return room;
}
INLINE const float *values_of(const attend_t *call, int64_t place, float *room, const int plain) {
    if (plain) return (const float *)call->kept.values + place * call->dim * SLOTS;
    expand_values(&call->kept, place, call->dim, room);
    return room;
}

INLINE int same_slots(const span_t *one, const span_t *other, int64_t start) {
    const int64_t end = start + SLOTS - 1;
    return (one->first == other->first || (one->first <= start && other->first <= start)) &&
           (one->last == other->last || (one->last >= end && other->last >= end));
}

/* DO for i in steps of COUNT: of 8, of 4, of 2 and of 1, each a constant to the compiler. */
#define STEP_OF(n, total, DO) \
    for (; i + n <= (total); i += n) { \
        enum { COUNT = n }; \
        DO; \
    }
#define BY_EIGHTS(total, DO) \
    for (int i = 0; i < (total);) { \
        STEP_OF(8, total, DO) STEP_OF(4, total, DO) STEP_OF(2, total, DO) STEP_OF(1, total, DO) \
    }

/* plain: a constant, whether keys and values are kept as float32. */
INLINE void attend(const attend_t *call, const tile_t *tile, float *scratch, const int plain) {
    const int pairs = tile->pairs;
    const int64_t dim = call->dim, width = tile->blocks * SLOTS; /* of the tile, from its first block on */
    const int64_t low = tile->first / SLOTS, head = tile->head;
    const int32_t *table = call->table + tile->sequence * call->table_width;
    float *rows[QUERIES];
    for (int i = 0; i < pairs; i++) {
        rows[i] = scratch + i * width;
        memset(tile->out[i], 0, (size_t)dim * sizeof(float));
    }
    const float *keys[KEYS];
    float *const room = scratch + QUERIES * width;
    const int64_t most = plain ? KEYS : EXPANDED;
    const int64_t apart = plain ? (intptr_t)call->kept.values - (intptr_t)call->kept.keys : 0;
    for (int64_t b = 0; b < tile->blocks; b += most) {
        const int64_t here = tile->blocks - b < most ? tile->blocks - b : most;
        float *out[QUERIES];
        for (int i = 0; i < pairs; i++) out[i] = rows[i] + b * SLOTS;
        for (int64_t j = 0; j < here; j++)
            keys[j] = keys_of(call, place_of(call, table[low + b + j], head), room + j % EXPANDED * dim * SLOTS, plain);
        BY_EIGHTS(pairs, all_products(tile->query + i, COUNT, keys, here, apart, dim, out + i))
    }
    float total[QUERIES];
    for (int i = 0; i < pairs; i++) {
        const span_t *span = &tile->span[i];
        const float sink = call->sinks ? call->sinks[tile->query_head[i]] : -INFINITY;
        total[i] = weigh(call, span, rows[i] + (span->first / SLOTS - low) * SLOTS, sink);
    }
    for (int64_t b = 0; b < tile->blocks; b++) {
        const int64_t place = place_of(call, table[low + b], head);
        const float *values = plain ? values_of(call, place, NULL, 1) : NULL;
        const int64_t start = (low + b) * SLOTS;
        if (plain && b + 1 < tile->blocks) {
            const float *next = values_of(call, place_of(call, table[low + b + 1], head), NULL, 1);
            for (int64_t i = 0; i < dim * SLOTS; i += SLOTS) soon(next + i);
        }
        for (int from = 0, to; from < pairs; from = to) { /* pairs that see the same slots of this block */
            const span_t *span = &tile->span[from];
            for (to = from + 1; to < pairs && same_slots(span, &tile->span[to], start);) to++;
            if (span->first >= start + SLOTS || span->last < start) continue;
            if (!values) values = values_of(call, place, room, plain);
            const int begin = span->first > start ? (int)(span->first - start) : 0;
            const int end = span->last < start + SLOTS - 1 ? (int)(span->last - start) + 1 : SLOTS;
            float *out[QUERIES];
            const float *weights[QUERIES];
            for (int i = from; i < to; i++) {
                out[i - from] = tile->out[i];
                weights[i - from] = rows[i] + b * SLOTS;
            }
            BY_EIGHTS(to - from, gather_all(out + i, weights + i, COUNT, values, begin, end, dim))
        }
    }
    for (int i = 0; i < pairs; i++)
        for (int64_t d = 0; d < dim; d += LANES) put(tile->out[i] + d, at(tile->out[i] + d) / ALL(total[i]));
}

ENTRY void ATTEND(const attend_t *call, const tile_t *tile, float *scratch) {
    if (call->kept.kind == KEPT_F32) attend(call, tile, scratch, 1);
    else attend(call, tile, scratch, 0);
}
