/* How far two rows of logits are apart, over short vectors: kl_scalar.c, kl_avx2.c and kl_avx512.c include this. With
 * e = exp(logit - best) and d = (p - best p) - (q - best q):
 *
 *     KL(P || Q) = sum(e_p d) / sum(e_p) - (log sum(e_p) - log sum(e_q))
 *
 * The best are found first; the second time a row is in a cache. Sums are of floats over SUMMED tokens, and of doubles
 * over those, in an order that follows from the count alone.
 *
 * Wanted: KL (the function's name), ENTRY (attributes), and what lanes.h wants. */
#include "lanes.h"

#define SUMMED 256

typedef struct {
    double p, q, difference; /* sums of e_p, e_q and e_p d */
} sums_t;

/* The highest of a row; NaN if one of them is NaN or infinite. */
INLINE float highest(const float *x, int64_t count) {
    lanes_t best = ALL(-INFINITY), odd = ALL(0);
    float top = -INFINITY, other = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const lanes_t v = at(x + i);
        const ints_t more = v > best;
        best = (lanes_t)(((ints_t)v & more) | ((ints_t)best & ~more));
        odd = FMA(v, ALL(0), odd);
    }
    for (; i < count; i++) {
        top = x[i] > top ? x[i] : top;
        other += x[i] * 0;
    }
    for (int l = 0; l < LANES; l++) {
        top = best[l] > top ? best[l] : top;
        other += odd[l];
    }
    return other == 0 ? top : NAN;
}

INLINE sums_t summed(const float *p, const float *q, int64_t count, float best_p, float best_q) {
    sums_t all = {0, 0, 0};
    for (int64_t first = 0; first < count; first += SUMMED) {
        const int64_t last = first + SUMMED < count ? first + SUMMED : count;
        lanes_t sum_p = ALL(0), sum_q = ALL(0), difference = ALL(0);
        int64_t i = first;
        for (; i + LANES <= last; i += LANES) {
            const lanes_t lead_p = at(p + i) - ALL(best_p), lead_q = at(q + i) - ALL(best_q);
            const ints_t far = lead_p < ALL(-87.0f); /* `exponential` gives 1e-38 there, which a long lead would lift */
            const lanes_t e = (lanes_t)((ints_t)exponential(lead_p) & ~far);
            sum_p += e;
            sum_q += exponential(lead_q);
            difference = FMA(e, lead_p - lead_q, difference);
        }
        for (int l = 0; l < LANES; l++) {
            all.p += sum_p[l];
            all.q += sum_q[l];
            all.difference += difference[l];
        }
        for (; i < last; i++) { /* the row's last few */
            const double lead_p = (double)p[i] - best_p, lead_q = (double)q[i] - best_q, e = exp(lead_p);
            all.p += e;
            all.q += exp(lead_q);
            all.difference += e * (lead_p - lead_q);
        }
    }
    return all;
}

ENTRY kl_t KL(const float *p, const float *q, int64_t count, int64_t given) {
    const float best_p = highest(p, count), best_q = highest(q, count);
    kl_t found = {NAN, NAN, -1};
    if (best_p == best_p)
        for (found.token = 0; p[found.token] != best_p;) found.token++;
    const sums_t sums = summed(p, q, count, best_p, best_q);
    const double kl = sums.difference / sums.p - (log(sums.p) - log(sums.q));
    const double logprob = (double)q[given] - best_q - log(sums.q);
    if (isfinite(kl)) found.kl = kl < 0 ? 0 : kl; /* not where a best is NaN, or a lead is beyond float */
    if (best_q == best_q) found.logprob = logprob > 0 ? 0 : logprob;
    return found;
}
