/* How far two rows of logits are apart: kl_tile.h, for each path. */
#pragma once
#include <stdint.h>

typedef struct {
    double kl;      /* KL(P || Q) in nats, 0 or more; NaN if a logit of either, or a lead, is NaN or infinite */
    double logprob; /* of the given token under Q, nats, 0 or less; NaN if a logit of Q is NaN or infinite */
    int64_t token;  /* the first of P's highest; -1 if a logit of P is NaN or infinite */
} kl_t;

typedef kl_t kl_fn(const float *p, const float *q, int64_t vocabulary, int64_t given);
kl_fn kl_scalar, kl_avx2, kl_avx512;
