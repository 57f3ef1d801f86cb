/* The tile instructions themselves, and whether this process may use them. Few processors have them: tests run all that
 * is around them by amx_emulated.c, and `amx_state` lets them serve only where their products are the emulation's to the
 * bit. */
#include "weight.h"
#include <string.h>

/* Reproducible draws: bfloat16 of near exponents, where the order of a sum shows, and of far ones, down to subnormals;
 * any int8. Shapes with a whole step, with a shorter one, with both. */
static uint32_t drawn(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static uint16_t drawn_bf16(uint64_t *state, int far) {
    const uint32_t exponent = far ? drawn(state) % 180 : 120 + drawn(state) % 14;
    return (uint16_t)((drawn(state) & 0x807F) | exponent << 7);
}

#define LONGEST (2 * STEP + 5)
typedef struct {
    uint16_t left[AMX_ROWS * LONGEST * 2], right[LONGEST * BLOCK * 2];
    int32_t sums[2][AMX_ROWS * BLOCK];
    float products[2][AMX_ROWS * BLOCK];
} check_t;

int tiles_agree(const tiles_t *one, const tiles_t *other) {
    static const int shapes[][2] = {{16, STEP}, {16, LONGEST}, {5, 2 * STEP}, {1, 7}};
    const tiles_t *both[] = {one, other};
    check_t check;
    uint64_t state = 2026;
    for (int draw = 0; draw < 32; draw++) {
        const int rows = shapes[draw % 4][0], words = shapes[draw % 4][1], far = draw / 4 % 2;
        for (int i = 0; i < rows * words * 2; i++) check.left[i] = drawn_bf16(&state, far);
        for (int i = 0; i < words * BLOCK * 2; i++) check.right[i] = drawn_bf16(&state, far);
        for (int i = 0; i < rows * BLOCK; i++) check.sums[0][i] = check.sums[1][i] = (int32_t)(drawn(&state) << 1);
        for (int which = 0; which < 2; which++) {
            both[which]->begin(rows, words);
            both[which]->floats(check.left, check.right, words, check.products[which]);
            both[which]->integers(check.left, check.right, words, check.sums[which]);
            both[which]->end();
        }
        if (memcmp(check.products[0], check.products[1], sizeof(float) * (size_t)(rows * BLOCK)) ||
            memcmp(check.sums[0], check.sums[1], sizeof(int32_t) * (size_t)(rows * BLOCK)))
            return 0;
    }
    return 1;
}

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#if (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#include <immintrin.h>
#define TILES tiles_amx
#define ENTRY __attribute__((target("amx-tile,amx-bf16,amx-int8")))
/* gcc's intrinsics do not say what memory the loads read. */
#define READS(from) __asm__ volatile("" ::"r"(from) : "memory")
#define CONFIGURE(shapes) READS(shapes); _tile_loadconfig(shapes)
#define RELEASE() _tile_release()
#define ZERO(t) _tile_zero(t)
#define LOAD(t, from, stride) READS(from); _tile_loadd(t, from, stride)
#define STORE(t, to, stride) _tile_stored(t, to, stride)
#define BF16(sum, left, right) _tile_dpbf16ps(sum, left, right)
#define INT8(sum, left, right) _tile_dpbssd(sum, left, right)
#include "tile_products.h"
const tiles_t *tiles_by(int emulated) { return emulated ? &tiles_emulated : &tiles_amx; }
#else
const tiles_t *tiles_by(int emulated) { return emulated ? &tiles_emulated : NULL; }
#endif

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XTILECFG 17
#define XTILEDATA 18

static int found_out(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return AMX_NONE;
    if (!(d >> 22 & 1 && d >> 24 & 1 && d >> 25 & 1)) return AMX_NONE; /* bfloat16, tiles, int8 */
    if (!__get_cpuid_count(0x1D, 1, &a, &b, &c, &d)) return AMX_NONE;
    if (b >> 16 < 8 || (b & 0xFFFF) < 64 || (c & 0xFFFF) < AMX_ROWS) return AMX_NONE; /* palette 1: names, bytes, rows */
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return AMX_NOT_ENABLED;
    __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    if (!(a >> XTILECFG & 1 && a >> XTILEDATA & 1)) return AMX_NOT_ENABLED;
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA)) return AMX_REFUSED;
    if (!tiles_by(0)) return AMX_NOT_COMPILED;
    return tiles_agree(tiles_by(0), tiles_by(1)) ? AMX_SERVES : AMX_DIFFERS;
}

static int state = AMX_NONE;
static void find_out(void) { state = found_out(); }

int amx_state(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_out);
    return state;
}
#else
int amx_state(void) { return AMX_NONE; }
const tiles_t *tiles_by(int emulated) { return (void)emulated, NULL; }
#endif
