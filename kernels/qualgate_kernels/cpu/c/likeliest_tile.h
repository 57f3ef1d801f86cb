/* The likeliest token of a row, over short vectors: likeliest_scalar.c, likeliest_avx2.c and likeliest_avx512.c include
 * this. A row is gone through twice, and the second time it is in a cache.
 *
 * Wanted: LIKELIEST (the function's name), ENTRY (attributes), and what lanes.h wants. */
#include "lanes.h"

#define SUMMED 1024 /* numbers whose sum is of floats; their sums are added up in double */

typedef struct {
    lanes_t best, second, odd; /* of each lane; odd: 0, or NaN behind a number that is not finite */
    ints_t token;              /* where the lane's best is */
} top_t;

INLINE lanes_t either(ints_t which, lanes_t one, lanes_t other) {
    return (lanes_t)(((ints_t)one & which) | ((ints_t)other & ~which));
}

/* v: of the tokens in `token`; a NaN is higher than nothing. */
INLINE void meet(top_t *top, lanes_t v, ints_t token) {
    const ints_t more = v > top->best;
    top->second = either(more, top->best, either(v > top->second, v, top->second));
    top->best = either(more, v, top->best);
    top->token = (token & more) | (top->token & ~more);
}

/* The numbers behind the last whole vector, and lanes that are lower than any. */
INLINE lanes_t rest_of(const float *from, int64_t count) {
    lanes_t v = ALL(-INFINITY);
    memcpy(&v, from, (size_t)count * sizeof(float));
    return v;
}

INLINE top_t top_of(const float *x, int64_t count) {
    ints_t token;
    for (int l = 0; l < LANES; l++) token[l] = l;
    top_t top = {ALL(-INFINITY), ALL(-INFINITY), ALL(0), token};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES, token += LANES) {
        const lanes_t v = at(x + i);
        meet(&top, v, token);
        top.odd = FMA(v, ALL(0), top.odd);
    }
    if (i < count) meet(&top, rest_of(x + i, count - i), token);
    for (; i < count; i++) top.odd += ALL(x[i]) * ALL(0);
    return top;
}

/* The sum of exp(x - best), in an order that follows from the count alone. */
INLINE double total_of(const float *x, int64_t count, float best) {
    double total = 0;
    for (int64_t first = 0; first < count; first += SUMMED) {
        const int64_t last = first + SUMMED < count ? first + SUMMED : count;
        lanes_t sum = ALL(0);
        int64_t i = first;
        for (; i + LANES <= last; i += LANES) sum += exponential(at(x + i) - ALL(best));
        if (i < last) sum += exponential(rest_of(x + i, last - i) - ALL(best));
        for (int l = 0; l < LANES; l++) total += sum[l];
    }
    return total;
}

ENTRY likeliest_t LIKELIEST(const float *x, int64_t count) {
    const top_t top = top_of(x, count);
    float best = top.best[0], second = top.second[0];
    likeliest_t found = {.token = top.token[0], .finite = top.odd[0] == 0};
    for (int l = 1; l < LANES; l++) {
        const float high = top.best[l], low = high > best ? best : high; /* the lower of the two */
        if (high > best || (high == best && top.token[l] < found.token)) found.token = top.token[l];
        best = high > best ? high : best;
        second = low > second ? low : second;
        second = top.second[l] > second ? top.second[l] : second;
        found.finite &= top.odd[l] == 0;
    }
    if (!found.finite)
        for (int64_t i = 0; i < count; i++)
            if (x[i] != x[i]) return (likeliest_t){.token = i, .logprob = NAN, .lead = NAN};
    found.lead = best - second;
    found.logprob = (float)(0 - log(total_of(x, count, best)));
    return found;
}
