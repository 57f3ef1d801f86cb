#include "kl.h"
#if defined(__x86_64__)
#include <immintrin.h>
typedef __m512 lanes_t;
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define ALL(x) _mm512_set1_ps(x)
#define INLINE static inline __attribute__((always_inline, target("avx512f,avx512dq,avx2,fma")))
#define ENTRY __attribute__((target("avx512f,avx512dq,avx2,fma")))
#define KL kl_avx512
#include "kl_tile.h"
#endif
