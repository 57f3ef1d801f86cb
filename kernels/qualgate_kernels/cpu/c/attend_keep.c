/* Rows of keys and values into their slots of the blocks, in the blocks' format: kept.py says what each is, and
 * kept_numbers.py, to the bit, what becomes of a number. */
#include "attend.h"
#include "floats.h"
#include "pool.h"

#define TO_WHOLE 12582912.0f /* 1.5 * 2**23: adding it rounds to whole numbers, ties to even */
#define PLAIN_BITS 0x7FFFFFFFu
#define INFINITE 0x7F800000u
#define NAN_HALF 0x7FC0

typedef struct {
    int64_t rows, kv_heads, dim;
    const float *key, *value; /* [rows][kv_heads][dim] */
    const kept_t *kept;
    const int64_t *slot; /* [rows]: block * SLOTS + place in it */
} keep_t;

/* One position's numbers of one head. */
typedef struct {
    union {
        uint8_t bytes[DIM_MAX];
        uint16_t halves[DIM_MAX];
    };
    uint16_t scale, least;
} codes_t;

static int32_t whole(float x) { return (int32_t)bits_of(x + TO_WHOLE) - (int32_t)bits_of(TO_WHOLE); }

static int is_finite(float x) { return (bits_of(x) & PLAIN_BITS) < INFINITE; }

static uint16_t half_of(float x) {
    const uint32_t bits = bits_of(x);
    return (bits & PLAIN_BITS) > INFINITE ? NAN_HALF : (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* The next bfloat16 away from 0, and downwards. */
static uint16_t outward(float x) { return (uint16_t)((bits_of(x) + 0xFFFF) >> 16); }
static uint16_t down(float x) { return x < 0 ? outward(x) : (uint16_t)(bits_of(x) >> 16); }

static uint8_t fp8_of(float x) {
    const uint32_t bits = bits_of(x), size = bits & PLAIN_BITS;
    const float all = float_of(size), a = all < 448.0f ? all : 448.0f;
    const uint32_t near = bits_of(a), normal = ((near + 0x7FFFF + (near >> 20 & 1)) >> 20) - (120u << 3);
    const uint32_t small = (uint32_t)whole(a * 512.0f), code = a < 0x1p-6f ? small : normal;
    return (uint8_t)(size > INFINITE ? 0x7F : code | (bits >> 24 & 0x80));
}

static void to_int8(const float *x, int64_t dim, codes_t *to) {
    uint32_t most = 0; /* of bits, which ascend with sizes, infinity and NaN behind all others */
    for (int64_t d = 0; d < dim; d++) {
        const uint32_t size = bits_of(x[d]) & PLAIN_BITS;
        most = size > most ? size : most;
    }
    to->scale = most > INFINITE ? NAN_HALF : outward(float_of(most) / 127.0f);
    const float scale = float_of((uint32_t)to->scale << 16);
    if (!is_finite(scale * 127.0f)) to->scale = NAN_HALF;
    if (!(scale > 0) || to->scale == NAN_HALF) {
        memset(to->bytes, 0, (size_t)dim);
        return;
    }
    for (int64_t d = 0; d < dim; d++) {
        float code = x[d] / scale;
        code = code < -127.0f ? -127.0f : code;
        to->bytes[d] = (uint8_t)whole(code > 127.0f ? 127.0f : code);
    }
}

static void to_int4(const float *x, int64_t dim, codes_t *to) {
    enum { CHAINS = 16 };
    float low[CHAINS], high[CHAINS];
    uint32_t most[CHAINS] = {0}, any = 0;
    for (int i = 0; i < CHAINS; i++) low[i] = high[i] = x[0];
    for (int64_t d = 0; d < dim; d += CHAINS)
        for (int i = 0; i < CHAINS; i++) {
            const float one = x[d + i];
            const uint32_t size = bits_of(one) & PLAIN_BITS;
            low[i] = one < low[i] ? one : low[i];
            high[i] = one > high[i] ? one : high[i];
            most[i] = size > most[i] ? size : most[i];
        }
    for (int i = 0; i < CHAINS; i++) {
        low[0] = low[i] < low[0] ? low[i] : low[0];
        high[0] = high[i] > high[0] ? high[i] : high[0];
        any = most[i] > any ? most[i] : any;
    }
    to->least = down(low[0] + 0.0f); /* of a zero and a negative one, whichever was found, the zero */
    const float least = float_of((uint32_t)to->least << 16);
    to->scale = outward((high[0] - least) / 15.0f);
    const float scale = float_of((uint32_t)to->scale << 16);
    if (any >= INFINITE || !is_finite(least + scale * 15.0f)) to->scale = NAN_HALF, to->least = 0;
    memset(to->bytes, 0, (size_t)dim / 2);
    if (!(scale > 0) || to->scale == NAN_HALF) return;
    uint8_t codes[DIM_MAX];
    for (int64_t d = 0; d < dim; d++) {
        const float code = (x[d] - least) / scale;
        codes[d] = (uint8_t)whole(code > 15.0f ? 15.0f : code);
    }
    for (int64_t d = 0; d < dim / 2; d++) to->bytes[d] = (uint8_t)(codes[d] | codes[dim / 2 + d] << 4);
}

static void encode(int64_t kind, const float *x, int64_t dim, float scale, codes_t *to) {
    if (kind == KEPT_BF16)
        for (int64_t d = 0; d < dim; d++) to->halves[d] = half_of(x[d]);
    else if (kind == KEPT_FP8)
        for (int64_t d = 0; d < dim; d++) to->bytes[d] = fp8_of(x[d] / scale);
    else if (kind == KEPT_INT8) to_int8(x, dim, to);
    else to_int4(x, dim, to);
}

static void keep_scales(int64_t kind, uint16_t *scales, int64_t at, const codes_t *codes) {
    if (scales_of(kind)) scales[at] = codes->scale;
    if (kind == KEPT_INT4) scales[at + SLOTS] = codes->least;
}

static void keep_head(const keep_t *call, int64_t from, int64_t head, int64_t place) {
    const kept_t *kept = call->kept;
    const int64_t kind = kept->kind, dim = call->dim, lines = elements_of(kind, dim) / SLOTS;
    const int64_t to = head * lines * SLOTS, scale = head * scales_of(kind) + place, size = kind == KEPT_BF16 ? 2 : 1;
    codes_t codes;
    encode(kind, call->key + from, dim, kept->key_scale, &codes);
    if (kind == KEPT_BF16)
        for (int64_t d = 0; d < lines; d++) ((uint16_t *)kept->keys)[to + d * SLOTS + place] = codes.halves[d];
    else
        for (int64_t d = 0; d < lines; d++) ((uint8_t *)kept->keys)[to + d * SLOTS + place] = codes.bytes[d];
    keep_scales(kind, kept->key_scales, scale, &codes);
    encode(kind, call->value + from, dim, kept->value_scale, &codes);
    memcpy((uint8_t *)kept->values + (to + place * lines) * size, codes.halves, (size_t)(lines * size));
    keep_scales(kind, kept->value_scales, scale, &codes);
}

static void keep_codes(void *context, int64_t row, int worker) {
    (void)worker;
    const keep_t *call = context;
    const int64_t heads = call->kv_heads, block = call->slot[row] / SLOTS, place = call->slot[row] % SLOTS;
    const unsigned before = plain_floats();
    for (int64_t h = 0; h < heads; h++) keep_head(call, (row * heads + h) * call->dim, block * heads + h, place);
    restore_floats(before);
}

static void keep_floats(void *context, int64_t row, int worker) {
    (void)worker;
    const keep_t *call = context;
    const int64_t dim = call->dim, place = call->slot[row] % SLOTS;
    float *keys = call->kept->keys, *values = call->kept->values;
    for (int64_t h = 0; h < call->kv_heads; h++) {
        const int64_t from = (row * call->kv_heads + h) * dim;
        const int64_t to = (call->slot[row] / SLOTS * call->kv_heads + h) * dim * SLOTS;
        for (int64_t d = 0; d < dim; d++) keys[to + d * SLOTS + place] = call->key[from + d];
        memcpy(values + to + place * dim, call->value + from, (size_t)dim * sizeof(float));
    }
}

/* Write rows of keys and values into their slots, which must be there and of one row each. */
__attribute__((visibility("default"))) int qualgate_keep(const float *key, const float *value, int64_t rows,
                                                         int64_t kv_heads, int64_t dim, const kept_t *kept,
                                                         int64_t blocks, const int64_t *slot, int threads) {
    if (!key || !value || !kept || !sound_kept(kept) || !slot || rows < 1 || kv_heads < 1 || threads < 1 || dim < 16 ||
        dim % 16 || dim > DIM_MAX)
        return 2;
    for (int64_t r = 0; r < rows; r++)
        if (slot[r] < 0 || slot[r] / SLOTS >= blocks) return 2;
    keep_t call = {rows, kv_heads, dim, key, value, kept, slot};
    share(rows * kv_heads * dim < 65536 ? 1 : threads, rows,
          kept->kind == KEPT_F32 ? keep_floats : keep_codes, &call);
    return 0;
}
