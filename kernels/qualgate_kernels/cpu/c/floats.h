#pragma once
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Rounding as IEEE 754 has it, whatever the calling thread was set to: every thread rounds alike. Subnormals too, or,
 * with `flush`, zeros in their place, coming in and going out. */
static inline unsigned set_floats(int flush) {
#if defined(__x86_64__)
    unsigned before = _mm_getcsr();
    _mm_setcsr(flush ? 0x9FC0 : 0x1F80);
    return before;
#else
    (void)flush;
    return 0;
#endif
}

static inline unsigned plain_floats(void) { return set_floats(0); }

static inline void restore_floats(unsigned before) {
#if defined(__x86_64__)
    _mm_setcsr(before);
#else
    (void)before;
#endif
}
