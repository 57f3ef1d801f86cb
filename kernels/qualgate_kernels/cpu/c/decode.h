/* A plain decoder (norm, attention with rotated heads, norm, gated feed-forward) and a pass over it, as cpu/decode.py
 * lays them out. Widths and head_dim are multiples of 16. */
#pragma once
#include "attend.h"
#include "layer.h"
#include "weight.h"

typedef struct {
    int64_t bytes, rows, columns; /* out_features, in_features */
    const weight_t *weight;       /* packed or dense; NULL: int8 inputs times int8 weights, as int8.c has them */
    const int8_t *codes;
    const int32_t *sums;
    const float *scales;
    int64_t codes_bytes, scales_bytes;
    const float *bias; /* [rows] or NULL */
} linear_t;

/* Layers that read one input; `count` products beside each other give the columns of all. */
enum { PARTS_MAX = 3 };
typedef struct {
    int64_t count;
    linear_t part[PARTS_MAX];
} linears_t;

typedef struct {
    linears_t heads, out, gates, down; /* heads: queries, keys, values; gates: gate, up */
    const float *attention_norm, *feed_norm, *query_norm, *key_norm; /* the latter two [dim] or NULL */
    kept_t kept;
    const float *sinks;
    float scale, soft_cap;
    int64_t window;
} decode_layer_t;

typedef struct {
    int64_t bytes, layers, width, heads, kv_heads, dim, rotary, inner, positions;
    const decode_layer_t *layer;
    const float *norm, *cosines, *sines; /* of the last layer's output; [positions][rotary / 2] */
    float eps;
} decoder_t;

/* What a server's dtype would not hold, counted by layer and place in the order of the forward pass. */
enum { INTO_ATTENTION, NORMED_ATTENTION, QUERIES_OUT, NORMED_QUERIES, KEYS_OUT, NORMED_KEYS, VALUES_OUT, KEYS_KEPT,
       VALUES_KEPT, INTO_OUT, OUT, INTO_FEED, NORMED_FEED, GATE, UP, INTO_DOWN, DOWN, PLACES };

typedef struct {
    int64_t bytes, rows, wanted, blocks, sequences, table_width;
    float *x;             /* [rows][width]: embeddings, written over */
    const int32_t *table, *sequence, *position;
    const int64_t *slots; /* [rows]: block * SLOTS + place */
    const int64_t *want;  /* [wanted]: rows, ascending */
    float *states;        /* [wanted][width]: what enters the head */
    float limit;          /* of a server's dtype; 0: nothing is counted */
    int64_t *beyond;      /* [layers * PLACES + 2] */
    int64_t stored;       /* layer.h: the dtype to which a server rounds what it stores */
} decode_pass_t;
