/* What lies between the products of a plain decoder's layer, a row at a time: layer_tile.h, for each path.
 *
 * stored: the dtype of what is written, and of what was read with its bias: numbers are rounded to it and stay float32;
 * a norm also before its weights, a gate before its product, as servers do. */
#pragma once
#include <stdint.h>

enum { STORED_F32, STORED_BF16, STORED_F16, STORED };

typedef struct {
    /* x += y (and bias), where y is not NULL; normed = x / sqrt(mean of squares + eps) * weight */
    void (*norm)(float *x, const float *y, const float *bias, const float *weight, float eps, int64_t width,
                 float *normed, int stored);
    /* to = from (and bias), normed where weight is not NULL, its first `rotary` numbers turned: number i and number
     * i + rotary / 2 by the angle whose cosine and sine are given [rotary / 2] */
    void (*turn)(const float *from, const float *bias, const float *weight, float eps, int64_t dim, int64_t rotary,
                 const float *cosine, const float *sine, float *to, int stored);
    /* to = gate / (1 + e**-gate) * up, each with its bias where there is one */
    void (*gated)(const float *gate, const float *gate_bias, const float *up, const float *up_bias, int64_t width,
                  float *to, int stored);
    /* x to the nearest number of a dtype, halves to even; what is larger is infinite, NaN stays */
    void (*rounded)(float *x, int64_t width, int stored);
    /* codes = round(x / scale), scale = absmax / 127.5: activations.py's round_tokens_torch; returns the scale */
    float (*codes)(const float *x, int64_t width, int8_t *codes);
} layer_ops_t;

extern const layer_ops_t layer_scalar, layer_avx2, layer_avx512;
