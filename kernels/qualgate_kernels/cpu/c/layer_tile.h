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

/* To the nearest number of `stored`, halves to even. */
INLINE lanes_t nearest(lanes_t x, const int stored) {
    if (stored == STORED_F32) return x;
    const ints_t word = (ints_t)x, sign = word & INT32_MIN, size = word & INT32_MAX, odd = x != x;
    const int bits = stored == STORED_BF16 ? 16 : 13;
    const ints_t half = (size >> bits & 1) + ((1 << (bits - 1)) - 1);
    ints_t near = (size + half) & -(1 << bits);
    if (stored == STORED_F16) {
        const lanes_t steps = (lanes_t)size + ALL(0.5f) - ALL(0.5f); /* of 2**-24, where float16 is subnormal */
        const ints_t small = (lanes_t)size < ALL(0x1p-14f), beyond = (lanes_t)near > ALL(65504.0f);
        near = ((ints_t)steps & small) | (near & ~small);
        near = ((ints_t)ALL(INFINITY) & beyond) | (near & ~beyond);
    }
    return (lanes_t)((word & odd) | ((near | sign) & ~odd));
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

INLINE void scaled(const float *x, const float *weight, float eps, int64_t width, float *to, const int stored) {
    const lanes_t factor = ALL(1.0f / sqrtf(squares(x, width) / (float)width + eps));
    for (int64_t i = 0; i < width; i += LANES) 
        put(to + i, nearest(nearest(at(x + i) * factor, stored) * at(weight + i), stored));
}

ENTRY static void norm(float *x, const float *y, const float *bias, const float *weight, float eps, int64_t width,
                       float *normed, int stored) {
    if (y)
        for (int64_t i = 0; i < width; i += LANES) {
            const lanes_t added = nearest(biased(y + i, bias ? bias + i : NULL), stored);
            put(x + i, nearest(at(x + i) + added, stored));
        }
    scaled(x, weight, eps, width, normed, stored);
}

ENTRY static void turn(const float *from, const float *bias, const float *weight, float eps, int64_t dim,
                       int64_t rotary, const float *cosine, const float *sine, float *to, int stored) {
    const int64_t half = rotary / 2;
    for (int64_t i = 0; i < dim; i += LANES)
        put(to + i, nearest(biased(from + i, bias ? bias + i : NULL), stored));
    if (weight) scaled(to, weight, eps, dim, to, stored);
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
    if (rotary && stored)
        for (i = 0; i < dim; i += LANES) put(to + i, nearest(at(to + i), stored));
}

ENTRY static void gated(const float *gate, const float *gate_bias, const float *up, const float *up_bias,
                        int64_t width, float *to, int stored) {
    for (int64_t i = 0; i < width; i += LANES) {
        const lanes_t g = nearest(biased(gate + i, gate_bias ? gate_bias + i : NULL), stored);
        const lanes_t u = nearest(biased(up + i, up_bias ? up_bias + i : NULL), stored);
        const lanes_t size = (lanes_t)((ints_t)g | INT32_MIN); /* -|gate| */
        const ints_t below = g < ALL(0), gone = size < ALL(-87.0f); /* times a gate of any size nothing is left */
        const lanes_t e = (lanes_t)((ints_t)exponential(size) & ~gone);
        const lanes_t top = (lanes_t)(((ints_t)e & below) | ((ints_t)ALL(1.0f) & ~below));
        put(to + i, nearest(nearest(g * (top / (ALL(1.0f) + e)), stored) * u, stored));
    }
}

ENTRY static void rounded(float *x, int64_t width, int stored) {
    for (int64_t i = 0; i < width; i += LANES) put(x + i, nearest(at(x + i), stored));
}

INLINE lanes_t chosen(ints_t which, lanes_t yes, lanes_t no) {
    return (lanes_t)(((ints_t)yes & which) | ((ints_t)no & ~which));
}

/* Whole numbers of -128 to 127, halves to even; of what is no number 0. */
INLINE lanes_t whole(lanes_t step) {
    const lanes_t magic = ALL(12582912.0f); /* 1.5 * 2**23: rounds to whole numbers */
    step = chosen(step > ALL(128.0f), ALL(128.0f), chosen(step < ALL(-129.0f), ALL(-129.0f), step));
    const lanes_t near = step + magic - magic;
    const lanes_t held = chosen(near > ALL(127.0f), ALL(127.0f), chosen(near < ALL(-128.0f), ALL(-128.0f), near));
    return chosen(held == held, held, ALL(0));
}

typedef int8_t bytes_t __attribute__((vector_size(sizeof(lanes_t) / sizeof(float))));

ENTRY static float codes(const float *x, int64_t width, int8_t *codes) {
    lanes_t all = ALL(0), some = ALL(0); /* some: of what is left behind the last whole vector */
    ints_t odd = (ints_t)all;
    const int64_t left = width % LANES, end = width - left;
    for (int64_t i = 0; i < end; i += LANES) {
        const lanes_t size = (lanes_t)((ints_t)at(x + i) & INT32_MAX);
        all = chosen(size > all, size, all);
        odd |= size != size;
    }
    memcpy(&some, x + end, (size_t)left * sizeof(float));
    const lanes_t size = (lanes_t)((ints_t)some & INT32_MAX);
    all = chosen(size > all, size, all);
    odd |= size != size;
    float most = 0;
    for (int l = 0; l < LANES; l++) most = odd[l] ? NAN : all[l] > most ? all[l] : most;
    const float scale = most / 127.5f;
    const lanes_t by = ALL(scale == 0 ? 1.0f : scale);
    for (int64_t i = 0; i < end; i += LANES) {
        const bytes_t row = __builtin_convertvector(__builtin_convertvector(whole(at(x + i) / by), ints_t), bytes_t);
        memcpy(codes + i, &row, sizeof row);
    }
    const bytes_t row = __builtin_convertvector(__builtin_convertvector(whole(some / by), ints_t), bytes_t);
    memcpy(codes + end, &row, (size_t)left);
    return scale;
}

const layer_ops_t LAYER = {norm, turn, gated, rounded, codes};
