/* Any processor: vectors of four floats, which compilers turn into what there is (SSE2, NEON). */
#include "kl.h"
typedef float lanes_t __attribute__((vector_size(16)));
#define FMA(a, b, c) ((a) * (b) + (c))
#define ALL(x) ((lanes_t){x, x, x, x})
#define INLINE static inline __attribute__((always_inline))
#define ENTRY
#define KL kl_scalar
#include "kl_tile.h"
