#pragma once
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Subnormals and rounding as IEEE 754 has them, whatever the calling thread was set to: every thread rounds alike. */
static inline unsigned plain_floats(void) {
#if defined(__x86_64__)
    unsigned before = _mm_getcsr();
    _mm_setcsr(0x1F80);
    return before;
#else
    return 0;
#endif
}

static inline void restore_floats(unsigned before) {
#if defined(__x86_64__)
    _mm_setcsr(before);
#else
    (void)before;
#endif
}
