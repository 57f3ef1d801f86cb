/* Any processor: vectors of four floats, which compilers turn into what there is (SSE2, NEON). */
#include "weight.h"
typedef float lanes_t __attribute__((vector_size(16)));
#define FMA(a, b, c) ((a) * (b) + (c))
#define EACH(a) ((lanes_t){a, a, a, a})
#define INLINE static inline __attribute__((always_inline))
#define ENTRY
#define WORDS(bytes) __builtin_convertvector(bytes, words_t)
/* Twice the magnitude: 0 1 2 3 4 6 8 12, a nibble each. */
#define TWICE(codes) (((words_t){} + 0xC8643210u) >> 4 * ((codes) & 7) & 15)
#define E2M1(codes)                                                                                                    \
    ((lanes_t)((words_t)(__builtin_convertvector(TWICE(codes), lanes_t) * 0.5f) | (codes) >> 3 << 31))
#define PATH block_scalar
#include "plain.h"
