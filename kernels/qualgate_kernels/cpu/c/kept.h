/* The formats in which blocks keep keys and values, as qualgate_kernels/kept.py has them. */
#pragma once
#include <stdint.h>
#include <string.h>

enum { SLOTS = 16, DIM_MAX = 1024 };
enum { KEPT_F32, KEPT_BF16, KEPT_FP8, KEPT_INT8, KEPT_INT4, KEPT_KINDS };

typedef struct {
    int64_t kind;
    void *keys, *values; /* [blocks][kv_heads][dim][SLOTS], [..][SLOTS][dim]: float, uint16_t, uint8_t, int8_t; of int4
                            half of dim, a byte the numbers d (its low bits) and d + dim / 2 */
    uint16_t *key_scales, *value_scales; /* bfloat16, int8: [blocks][kv_heads][SLOTS]; int4: [..][2][SLOTS], scales and
                                            least numbers; else NULL */
    float key_scale, value_scale;        /* of fp8 */
} kept_t;

/* Elements, and bfloat16 numbers beside them, of one head in a block. */
static inline int64_t elements_of(int64_t kind, int64_t dim) { return dim * SLOTS / (kind == KEPT_INT4 ? 2 : 1); }
static inline int64_t scales_of(int64_t kind) {
    return kind == KEPT_INT4 ? 2 * SLOTS : kind == KEPT_INT8 ? SLOTS : 0;
}

static inline int sound_kept(const kept_t *kept) {
    if (kept->kind < 0 || kept->kind >= KEPT_KINDS || !kept->keys || !kept->values) return 0;
    if (scales_of(kept->kind) && (!kept->key_scales || !kept->value_scales)) return 0;
    return kept->kind != KEPT_FP8 || (kept->key_scale >= 0x1p-100f && kept->key_scale <= 0x1p100f &&
                                      kept->value_scale >= 0x1p-100f && kept->value_scale <= 0x1p100f);
}

static inline float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
