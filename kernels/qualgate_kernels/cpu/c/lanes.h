/* What tiles of attention and a decoder's layers do with short vectors.
 *
 * Wanted: INLINE, lanes_t (a vector of floats), FMA(a, b, c), ALL(x). */
#include <math.h>
#include <string.h>

#define LANES ((int)(sizeof(lanes_t) / sizeof(float)))
typedef int32_t ints_t __attribute__((vector_size(sizeof(lanes_t))));

INLINE lanes_t at(const float *from) {
    lanes_t v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE void put(float *to, lanes_t v) { memcpy(to, &v, sizeof v); }

/* e**x for x <= 0, within 2 ulp; x below -87 gives a number that is as good as 0; NaN stays. Cephes' expf. */
INLINE lanes_t exponential(lanes_t x) {
    const lanes_t lowest = ALL(-87.0f), magic = ALL(12582912.0f); /* 1.5 * 2**23: adding it rounds to whole numbers */
    const ints_t low = x < lowest, odd = x != x;
    const lanes_t y = (lanes_t)(((ints_t)lowest & low) | ((ints_t)x & ~low));
    const lanes_t t = FMA(y, ALL(1.44269504088896341f), magic), n = t - magic;
    const lanes_t f = FMA(n, ALL(2.12194440e-4f), FMA(n, ALL(-0.693359375f), y));
    lanes_t p = ALL(1.9875691500e-4f);
    p = FMA(p, f, ALL(1.3981999507e-3f));
    p = FMA(p, f, ALL(8.3334519073e-3f));
    p = FMA(p, f, ALL(4.1665795894e-2f));
    p = FMA(p, f, ALL(1.6666665459e-1f));
    p = FMA(p, f, ALL(5.0000001201e-1f));
    p = FMA(p, f * f, f + ALL(1.0f));
    const lanes_t scaled = (lanes_t)((ints_t)p + ((ints_t)t << 23));
    return (lanes_t)(((ints_t)x & odd) | ((ints_t)scaled & ~odd));
}
