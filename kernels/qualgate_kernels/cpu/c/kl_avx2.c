#include "kl.h"
#if defined(__x86_64__)
#include <immintrin.h>
typedef __m256 lanes_t;
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define ALL(x) _mm256_set1_ps(x)
#define INLINE static inline __attribute__((always_inline, target("avx2,fma")))
#define ENTRY __attribute__((target("avx2,fma")))
#define KL kl_avx2
#include "kl_tile.h"
#endif
