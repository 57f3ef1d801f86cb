/* What a prepared weight looks like to C, and what an instruction-set path must offer. layout.py and dense_layout.py
 * write these bytes.
 *
 * Columns (output features) lie in blocks of 64 = 4 strips of 16 lanes. A row of the weight is cut into segments of
 * at most 128 input features that share a scale; a segment is padded to whole units, and x is zero where it is padded.
 * codes:  [block][segment][unit][strip][vector] of 64 bytes: 32 words of 16 bit. Word 2*lane + half holds, for column
 *         `lane` of the strip, the codes of input features 2*pair + half of the unit, lowest bits first:
 *           2 bits: 8 pairs; 4 bits: 4 pairs; 3 = two vectors of 2 bits, then one of 1 bit: 16 pairs;
 *           5 = four of 4 bits, one of 1: 16 pairs; 6 = two of 4 bits, one of 2: 8 pairs;
 *           8 bits: plain bytes [4 input features][16 lanes] instead.
 *         A dense weight's codes are its values: bfloat16 [pair][64 columns][2], as AVX-512 has them in a panel,
 *         float16 and float32 [input feature][64 columns]; its last segment is padded with zeros.
 * scales: [block][group][64], kind as `scale_kind`; zeros uint8 and offsets float32 alike. A dense weight has none.
 *
 * The product of row x and column n, in this order of operations and no other, whatever the number of rows:
 *   for each segment: partial = sum of x * value(code) over its input features, ascending;
 *                     y += scale * partial, fused; with offsets y += offset * (sum of x over the segment), fused.
 * Without scales y += partial. A NaN comes out as 0x7FC00000 (bfloat16: 0x7FC0), whichever it was.
 * With bfloat16 x a path adds up `partial` as its instructions do: avx512_bf16 two products at a time, amx 32, as
 * tiles.h says. */
#pragma once
#include "tiles.h"
#include <stddef.h>
#include <stdint.h>

#define BLOCK 64
#define STRIP 16
#define SEGMENT_MAX 128
#define ALONE (1 << 18) /* multiply-adds below which waking a thread costs more than it brings */
#define TILE 6 /* rows that share a pass over a panel; 6 x 4 accumulators fill the AVX-512 registers */
#define SHORT_TILE 4 /* the same of AVX-512 over packed codes: decoding them takes registers, too */

enum { CODE_INT, CODE_E2M1, CODE_E4M3, CODE_E5M2, CODE_BF16, CODE_F16, CODE_F32 }; /* the last three: dense */
enum { SCALE_F32, SCALE_BF16, SCALE_F16, SCALE_E8M0 };
enum { DONE, BAD_WEIGHT, BAD_ARGUMENT, NO_MEMORY, NO_PATH }; /* what entry points return */
enum { X_F32, X_BF16 };
enum { PATH_BEST, PATH_SCALAR, PATH_AVX2, PATH_AVX512, PATH_AVX512_BF16, PATH_AMX, PATH_AMX_EMULATED, PATHS };
enum { INT8_PLAIN, INT8_VNNI, INT8_AMX, INT8_AMX_EMULATED };
enum { AMX_SERVES, AMX_NONE, AMX_NOT_ENABLED, AMX_REFUSED, AMX_DIFFERS, AMX_NOT_COMPILED };

typedef struct {
    int64_t bytes; /* sizeof this struct as the caller knows it */
    int64_t rows, columns;                 /* of the weight: out_features N, in_features K */
    int64_t segments, segment, per_group;  /* segments a row, input features a segment, segments a group */
    int32_t code, bits, scale_kind, zero;  /* zero: int codes' zero point where `zeros` is NULL */
    const uint8_t *codes;
    int64_t codes_bytes;
    const void *scales;
    int64_t scales_bytes;
    const uint8_t *zeros;
    const float *offsets;
    const int32_t *gather; /* [segments * segment]: the column of x, -1 where padded; NULL: as they lie */
} weight_t;

/* Rows of x as the kernels read them: tiles of `tile` rows, filled up with rows of zeros. Of TILE rows the last has 1,
 * 2, 4 or 6, of SHORT_TILE 1, 2 or 4; tiles for AMX are all alike. A tile starts at element
 * tile * number * segments * segment.
 * x: FLOATS float [k][row]; PAIRS bfloat16 [k / 2][row][2]; AMX bfloat16 [segment], then as `in_tile` says.
 * sums: float [segment][row] a tile, only where the weight has offsets. */
enum { FLOATS, PAIRS, AMX };
typedef struct {
    const void *x;
    const float *sums;
    int64_t count;
    int tile, layout;
    const tiles_t *tiles; /* with AMX: the instructions or their emulation */
} rows_t;

/* acc[rows][64] += columns of `block` for tiles first..last-1 of x; acc starts at zero. panel: 64-byte aligned. */
typedef void block_fn(const weight_t *, int64_t block, const rows_t *, int64_t first, int64_t last, float *acc,
                      void *panel);
block_fn block_scalar, block_avx2, block_avx512, block_avx512_bf16, block_amx;

int amx_state(void);                               /* AMX_SERVES, or why it does not; asks the system once */
const tiles_t *tiles_by(int emulated);             /* NULL where not compiled */
int tiles_agree(const tiles_t *, const tiles_t *); /* to the bit, on products drawn at random */
#define PANEL_BYTES (SEGMENT_MAX * BLOCK * sizeof(float))

typedef struct {
    int pairs, vectors; /* in a unit of one strip */
} unit_t;

static inline unit_t unit_of(int bits) {
    switch (bits) {
    case 2: return (unit_t){8, 1};
    case 3: return (unit_t){16, 3};
    case 4: return (unit_t){4, 1};
    case 5: return (unit_t){16, 5};
    case 6: return (unit_t){8, 3};
    case 8: return (unit_t){2, 1};
    case 16: return (unit_t){1, 1};
    case 32: return (unit_t){1, 2};
    default: return (unit_t){0, 0};
    }
}

static inline int tile_rows(int64_t rows_left, int tile) {
    return tile > TILE || rows_left > 4 || rows_left >= tile ? tile : rows_left >= 3 ? 4 : (int)rows_left;
}

static inline int dense(const weight_t *w) { return w->code >= CODE_BF16; }

/* Rows of a tile where AVX-512 multiplies `count`, as measured. Up to some number of rows each tile does best to decode
 * for itself, without a panel; 7 and 8 dense rows are two tiles alike, which ask as much of memory, not 6 and 2. */
static inline int tile_512(const weight_t *w, int64_t count) {
    if (dense(w)) return count > TILE && count <= 2 * SHORT_TILE ? SHORT_TILE : TILE;
    const int slow = w->zeros || w->code > CODE_E2M1;
    return count <= (slow ? 4 : w->bits == 2 || w->bits == 4 ? 32 : w->bits == 8 ? 12 : 4) ? SHORT_TILE : TILE;
}

static inline int64_t segment_bytes(const weight_t *w) { /* of one block */
    unit_t unit = unit_of(w->bits);
    return w->segment / (2 * unit.pairs) * unit.vectors * 4 * 64;
}

static inline int64_t tiles_of(int64_t rows, int tile) { return (rows + tile - 1) / tile; }

static inline int64_t padded_rows(int64_t rows, int tile) {
    int64_t whole = (tiles_of(rows, tile) - 1) * tile;
    return whole + tile_rows(rows - whole, tile);
}
