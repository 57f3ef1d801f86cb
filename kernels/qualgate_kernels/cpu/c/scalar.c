/* Any processor: vectors of four floats, which compilers turn into what there is (SSE2, NEON). */
#include "weight.h"
typedef float lanes_t __attribute__((vector_size(16)));
#define FMA(a, b, c) ((a) * (b) + (c))
#define EACH(a) ((lanes_t){a, a, a, a})
#define INLINE static inline __attribute__((always_inline))
#define ENTRY
#define PATH block_scalar
#include "plain.h"
