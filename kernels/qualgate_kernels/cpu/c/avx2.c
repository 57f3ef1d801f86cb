#include "weight.h"
#if defined(__x86_64__)
#include <immintrin.h>
typedef __m256 lanes_t;
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define EACH(a) _mm256_set1_ps(a)
#define INLINE static inline __attribute__((always_inline, target("avx2,fma")))
#define ENTRY __attribute__((target("avx2,fma")))
#define WORDS(bytes) ((words_t)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)(bytes))))
/* Eight magnitudes by the lower three bits, which is what the look-up looks at; the fourth is the sign. */
#define E2M1(codes)                                                                                                    \
    _mm256_or_ps(_mm256_permutevar8x32_ps(_mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6), (__m256i)(codes)),            \
                 (__m256)((codes) >> 3 << 31))
#define PATH block_avx2
#include "plain.h"
#endif
