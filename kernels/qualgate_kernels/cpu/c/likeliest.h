/* What a row of logits says: likeliest_tile.h, for each path. */
#pragma once
#include <stdint.h>

typedef struct {
    int64_t token; /* the first NaN, else the first of the highest */
    float logprob; /* nats */
    float lead;    /* over the second highest; one that is alone leads by infinity */
    int finite;    /* no logit is NaN or infinite */
} likeliest_t;

typedef likeliest_t likeliest_fn(const float *logits, int64_t vocabulary);
likeliest_fn likeliest_scalar, likeliest_avx2, likeliest_avx512;
