/* Blocks that are not float32, made float32 for a tile: attend_tile.h includes this.
 *
 * What attention computes of them are the steps that it takes over float32, so that no format has bits of its own.
 * Plain loops, for the compiler to make vectors of. Subnormals are kept out of them where float32 has no need for any:
 * some processors take a hundred times as long for such. */
#define EXPAND static ENTRY __attribute__((noinline))
#define TO_FLOAT static inline __attribute__((always_inline))

TO_FLOAT float of_half(uint16_t half) { return float_of((uint32_t)half << 16); }

/* Without branches, which would keep the compiler from vectors. Below 8 a code has no exponent. */
TO_FLOAT float of_fp8(uint8_t code) {
    const uint32_t size = code & 0x7F, is_small = -(uint32_t)(size < 8), is_nan = -(uint32_t)(size == 0x7F);
    const uint32_t small = bits_of((float)(int32_t)size * 0x1p-9f), normal = (size << 20) + (120u << 23);
    const uint32_t sign = (uint32_t)(code & 0x80) << 24;
    return float_of((small & is_small) | (normal & ~is_small) | (0x7FC00000 & is_nan) | sign);
}

/* to [dim][SLOTS] */
EXPAND void expand_keys(const kept_t *kept, int64_t head, int64_t dim, float *restrict to) {
    const int64_t at = head * elements_of(kept->kind, dim), half = dim / 2;
    float scale[SLOTS] = {0}, least[SLOTS] = {0};
    if (scales_of(kept->kind)) {
        const uint16_t *scales = kept->key_scales + head * scales_of(kept->kind);
        for (int s = 0; s < SLOTS; s++) scale[s] = of_half(scales[s]);
        if (kept->kind == KEPT_INT4)
            for (int s = 0; s < SLOTS; s++) least[s] = of_half(scales[SLOTS + s]);
    }
    if (kept->kind == KEPT_BF16) {
        const uint16_t *from = (const uint16_t *)kept->keys + at;
        for (int64_t i = 0; i < dim * SLOTS; i++) to[i] = of_half(from[i]);
    } else if (kept->kind == KEPT_FP8) {
        const uint8_t *from = (const uint8_t *)kept->keys + at;
        for (int64_t i = 0; i < dim * SLOTS; i++) to[i] = of_fp8(from[i]) * kept->key_scale;
    } else if (kept->kind == KEPT_INT8) {
        const int8_t *from = (const int8_t *)kept->keys + at;
        for (int64_t d = 0; d < dim; d++)
            for (int s = 0; s < SLOTS; s++) to[d * SLOTS + s] = (float)from[d * SLOTS + s] * scale[s];
    } else {
        const uint8_t *from = (const uint8_t *)kept->keys + at;
        for (int64_t d = 0; d < half; d++) {
            const uint8_t *line = from + d * SLOTS;
            float *low = to + d * SLOTS, *high = low + half * SLOTS;
            for (int s = 0; s < SLOTS; s++) low[s] = least[s] + (float)(line[s] & 15) * scale[s];
            for (int s = 0; s < SLOTS; s++) high[s] = least[s] + (float)(line[s] >> 4) * scale[s];
        }
    }
}

/* to [SLOTS][dim] */
EXPAND void expand_values(const kept_t *kept, int64_t head, int64_t dim, float *restrict to) {
    const int64_t at = head * elements_of(kept->kind, dim), half = dim / 2;
    const uint16_t *scales = kept->value_scales ? kept->value_scales + head * scales_of(kept->kind) : NULL;
    if (kept->kind == KEPT_BF16) {
        const uint16_t *from = (const uint16_t *)kept->values + at;
        for (int64_t i = 0; i < dim * SLOTS; i++) to[i] = of_half(from[i]);
    } else if (kept->kind == KEPT_FP8) {
        const uint8_t *from = (const uint8_t *)kept->values + at;
        for (int64_t i = 0; i < dim * SLOTS; i++) to[i] = of_fp8(from[i]) * kept->value_scale;
    } else
        for (int s = 0; s < SLOTS; s++, to += dim) {
            const float scale = of_half(scales[s]);
            if (kept->kind == KEPT_INT8) {
                const int8_t *line = (const int8_t *)kept->values + at + s * dim;
                for (int64_t d = 0; d < dim; d++) to[d] = (float)line[d] * scale;
                continue;
            }
            const uint8_t *line = (const uint8_t *)kept->values + at + s * half;
            const float least = of_half(scales[SLOTS + s]);
            for (int64_t d = 0; d < half; d++) to[d] = least + (float)(line[d] & 15) * scale;
            for (int64_t d = 0; d < half; d++) to[half + d] = least + (float)(line[d] >> 4) * scale;
        }
}
