/* What lies between the products of a plain decoder's layer, a row at a time: layer_tile.h, for each path. */
#pragma once
#include <stdint.h>

typedef struct {
    /* x += y (and bias), where y is not NULL; normed = x / sqrt(mean of squares + eps) * weight */
    void (*norm)(float *x, const float *y, const float *bias, const float *weight, float eps, int64_t width,
                 float *normed);
    /* to = from (and bias), normed where weight is not NULL, its first `rotary` numbers turned: number i and number
     * i + rotary / 2 by the angle whose cosine and sine are given [rotary / 2] */
    void (*turn)(const float *from, const float *bias, const float *weight, float eps, int64_t dim, int64_t rotary,
                 const float *cosine, const float *sine, float *to);
    /* to = gate / (1 + e**-gate) * up, each with its bias where there is one */
    void (*gated)(const float *gate, const float *gate_bias, const float *up, const float *up_bias, int64_t width,
                  float *to);
    /* codes = round(x / scale), scale = absmax / 127.5: activations.py's round_tokens_torch; returns the scale */
    float (*codes)(const float *x, int64_t width, int8_t *codes);
} layer_ops_t;

extern const layer_ops_t layer_scalar, layer_avx2, layer_avx512;
