/* A row's way between products over short vectors: layer_scalar.c, layer_avx2.c and layer_avx512.c include this. Widths
 * are multiples of 16, those of a rotation's half and of int8 inputs anything.
 *
 * Wanted: LAYER (the table's name), ENTRY (attributes), and what lanes.h wants. */
#include "lanes.h"

#define SUMS (16 / LANES) /* vectors that are added up side by side */

INLINE lanes_t biased(const float *from, const float *bias) {
    if (!bias) return at(from);
    return at(from) + at(bias);
}

INLINE float squares(const float *x, int64_t width) {
    lanes_t sum[SUMS];
    for (int v = 0; v < SUMS; v++) sum[v] = ALL(0);
    for (int64_t i = 0; i < width; i += 16)
        for (int v = 0; v < SUMS; v++) {
            const lanes_t one = at(x + i + v * LANES);
            sum[v] = FMA(one, one, sum[v]);
        }
    float total = 0;
    for (int v = 0; v < SUMS; v++)
        for (int l = 0; l < LANES; l++) total += sum[v][l];
    return total;
}

INLINE void scaled(const float *x, const float *weight, float eps, int64_t width, float *to) {
    const lanes_t factor = ALL(1.0f / sqrtf(squares(x, width) / (float)width + eps));
    for (int64_t i = 0; i < width; i += LANES) put(to + i, at(x + i) * factor * at(weight + i));
}

ENTRY static void norm(float *x, const float *y, const float *bias, const float *weight, float eps, int64_t width,
                       float *normed) {
    if (y)
        for (int64_t i = 0; i < width; i += LANES) put(x + i, at(x + i) + biased(y + i, bias ? bias + i : NULL));
    scaled(x, weight, eps, width, normed);
}

ENTRY static void turn(const float *from, const float *bias, const float *weight, float eps, int64_t dim,
                       int64_t rotary, const float *cosine, const float *sine, float *to) {
    const int64_t half = rotary / 2;
    for (int64_t i = 0; i < dim; i += LANES) put(to + i, biased(from + i, bias ? bias + i : NULL));
    if (weight) scaled(to, weight, eps, dim, to);
    int64_t i = 0;
    for (; i + LANES <= half; i += LANES) {
        const lanes_t left = at(to + i), right = at(to + half + i), c = at(cosine + i), s = at(sine + i);
        put(to + i, left * c - right * s);
        put(to + half + i, right * c + left * s);
    }
    for (; i < half; i++) {
        const float left = to[i], right = to[half + i];
        to[i] = left * cosine[i] - right * sine[i];
        to[half + i] = right * cosine[i] + left * sine[i];
    }
}

ENTRY static void gated(const float *gate, const float *gate_bias, const float *up, const float *up_bias,
                        int64_t width, float *to) {
    for (int64_t i = 0; i < width; i += LANES) {
        const lanes_t g = biased(gate + i, gate_bias ? gate_bias + i : NULL);
        const lanes_t u = biased(up + i, up_bias ? up_bias + i : NULL);
        const lanes_t size = (lanes_t)((ints_t)g | INT32_MIN); /* -|gate| */
        const ints_t below = g < ALL(0), gone = size < ALL(-87.0f); /* times a gate of any size nothing is left */
        const lanes_t e = (lanes_t)((ints_t)exponential(size) & ~gone);
        const lanes_t top = (lanes_t)(((ints_t)e & below) | ((ints_t)ALL(1.0f) & ~below));
        put(to + i, g * (top / (ALL(1.0f) + e)) * u);
    }
}

ENTRY static float codes(const float *x, int64_t width, int8_t *codes) {
    float most = 0;
    for (int64_t i = 0; i < width; i++) {
        const float size = fabsf(x[i]);
        most = size > most || size != size ? size : most;
    }
    const float scale = most / 127.5f, by = scale == 0 ? 1.0f : scale;
    for (int64_t i = 0; i < width; i++) {
        const float step = x[i] / by, magic = 12582912.0f; /* 1.5 * 2**23: rounds to whole numbers, halves to even */
        const float whole = (step > 128.0f ? 128.0f : step < -129.0f ? -129.0f : step) + magic - magic;
        codes[i] = (int8_t)(whole > 127.0f ? 127.0f : whole < -128.0f ? -128.0f : whole == whole ? whole : 0.0f);
    }
    return scale;
}

const layer_ops_t LAYER = {norm, turn, gated, codes};
