/* What a call of attention is, and a tile of it; attend.c says how blocks lie. */
#pragma once
#include "kept.h"

/* STRIDE: dimensions of 8 pairs whose sums stay in registers; KEYS: blocks that every pair meets before the next, or
 * EXPANDED, of those that are not kept as float32. */
enum { QUERIES = 8, STRIDE = 32, KEYS = 64, EXPANDED = 8 };

typedef struct {
    int64_t bytes, rows, heads, kv_heads, dim, blocks, sequences, table_width;
    const float *query; /* [rows][heads][dim] */
    kept_t kept;
    const int32_t *table;              /* [sequences][table_width] */
    const int32_t *sequence, *position; /* [rows] */
    const float *sinks;                /* [heads]: a logit that takes weight and gives no value; or NULL */
    float *out;                        /* as query */
    float scale, soft_cap;             /* soft_cap 0: none */
    int64_t window;                    /* positions that a row sees, itself included; 0: all */
} attend_t;

typedef struct {
    int64_t first, last; /* positions seen */
} span_t;

typedef struct {
    int pairs;
    int64_t sequence, head, first, blocks; /* head: of keys; first: position of all pairs; blocks: from there on */
    const float *query[QUERIES];
    float *out[QUERIES];
    span_t span[QUERIES];
    int64_t query_head[QUERIES];
} tile_t;

/* scratch: floats, QUERIES for each position of the tile's blocks, and behind them room for EXPANDED blocks. */
typedef void tile_fn(const attend_t *call, const tile_t *tile, float *scratch);
tile_fn attend_scalar, attend_avx2, attend_avx512;
