/* Random plain decoders and passes of texts through them, in buffers of exactly their size, for the sanitizers: one
 * thread and several have to give the same bits, and what does not fit has to be refused. Arguments: seed, draws, the
 * last of the paths. */
#include "decode.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int qualgate_paths(void);
int qualgate_int8_paths(void);
int qualgate_decode(const decoder_t *, const decode_pass_t *, int, int, int);

enum { LAYERS_MAX = 2, TEXTS = 3 };
static uint64_t state;
static void *made[512]; /* everything that is given back when a draw is over */
static int count;

static int64_t below(int64_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)limit);
}
static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}
static void *room(size_t size) {
    if (count == (int)(sizeof made / sizeof *made)) fail("too much is made");
    return made[count++] = malloc(size);
}
static float *floats(int64_t numbers) {
    float *some = room(sizeof(float) * (size_t)numbers);
    for (int64_t i = 0; i < numbers; i++) some[i] = (float)below(2001) / 1000 - 1;
    return some;
}

static void dense_of(linear_t *linear, int code) {
    weight_t *w = room(sizeof *w);
    *w = (weight_t){.bytes = sizeof *w, .rows = linear->rows, .columns = linear->columns, .per_group = 1, .code = code,
                    .bits = code == CODE_F32 ? 32 : 16};
    w->segments = (w->columns + SEGMENT_MAX - 1) / SEGMENT_MAX;
    w->segment = (w->columns + 2 * w->segments - 1) / (2 * w->segments) * 2;
    const int64_t numbers = (w->rows + BLOCK - 1) / BLOCK * BLOCK * w->segments * w->segment;
    w->codes_bytes = numbers * w->bits / 8;
    if (code == CODE_F32) w->codes = (const uint8_t *)floats(numbers);
    else {
        uint16_t *halves = room(2 * (size_t)numbers);
        for (int64_t i = 0; i < numbers; i++) halves[i] = (uint16_t)(0x3D00 + below(0x100) + (below(2) << 15)); /* 0.1 */
        w->codes = (const uint8_t *)halves;
    }
    linear->weight = w;
}

static void int8_of(linear_t *linear) {
    const int64_t blocks = (linear->rows + BLOCK - 1) / BLOCK, fours = (linear->columns + 3) / 4;
    linear->codes_bytes = blocks * BLOCK * fours * 4;
    linear->scales_bytes = blocks * BLOCK * 4;
    int8_t *codes = room((size_t)linear->codes_bytes);
    int32_t *sums = room(4 * (size_t)(blocks * BLOCK));
    memset(sums, 0, 4 * (size_t)(blocks * BLOCK));
    float *scales = floats(blocks * BLOCK);
    for (int64_t i = 0; i < linear->codes_bytes; i++) {
        codes[i] = (int8_t)(below(256) - 128);
        sums[i / (BLOCK * fours * 4) * BLOCK + i / 4 % BLOCK] += 128 * codes[i];
    }
    for (int64_t n = 0; n < blocks * BLOCK; n++) scales[n] /= 1024;
    linear->codes = codes, linear->sums = sums, linear->scales = scales;
}

static linears_t linears(int64_t columns, const int64_t *rows, int parts) {
    linears_t some = {.count = below(2) ? parts : 1};
    int64_t all = 0;
    for (int p = 0; p < parts; p++) all += rows[p];
    for (int p = 0; p < some.count; p++) {
        linear_t *one = &some.part[p];
        *one = (linear_t){.bytes = sizeof *one, .rows = some.count == 1 ? all : rows[p], .columns = columns};
        if (below(3) == 0) int8_of(one);
        else dense_of(one, below(2) ? CODE_F32 : CODE_BF16);
        if (below(2)) one->bias = floats(one->rows);
    }
    return some;
}

static int64_t blocks_of(const int64_t *lengths) {
    int64_t all = 0;
    for (int t = 0; t < TEXTS; t++) all += (lengths[t] + SLOTS - 1) / SLOTS;
    return all;
}

/* Blocks of one format, with codes and scales as keep may have left them. */
static kept_t kept_of(int64_t kind, int64_t heads, int64_t dim) {
    kept_t kept = {.kind = kind, .key_scale = 1, .value_scale = 0.5f};
    void **const both[] = {&kept.keys, &kept.values};
    uint16_t **const scales[] = {&kept.key_scales, &kept.value_scales};
    const int64_t numbers = heads * elements_of(kind, dim);
    for (int i = 0; i < 2; i++) {
        if (kind == KEPT_F32) *both[i] = floats(numbers);
        else *both[i] = memset(room((size_t)(numbers * (kind == KEPT_BF16 ? 2 : 1))), 0x3D, (size_t)numbers);
        if (kind == KEPT_BF16) memset(*both[i], 0x3D, (size_t)numbers * 2);
        if (!scales_of(kind)) continue;
        *scales[i] = room(sizeof(uint16_t) * (size_t)(heads * scales_of(kind)));
        for (int64_t n = 0; n < heads * scales_of(kind); n++) (*scales[i])[n] = (uint16_t)(0x3C00 + below(0x100));
    }
    return kept;
}

static decoder_t decoder(const int64_t *lengths, int64_t positions) {
    decoder_t d = {.bytes = sizeof d, .layers = 1 + below(LAYERS_MAX), .width = 16 * (1 + below(6)),
                   .kv_heads = 1 + below(3), .dim = 16 * (1 + below(3)), .inner = 16 * (1 + below(6)),
                   .positions = positions, .eps = 1e-5f};
    d.heads = d.kv_heads * (1 + below(3));
    d.rotary = 2 * below(d.dim / 2 + 1);
    d.norm = floats(d.width), d.cosines = floats(positions * d.rotary / 2), d.sines = floats(positions * d.rotary / 2);
    decode_layer_t *layers = room(sizeof *layers * (size_t)d.layers);
    const int64_t kept = d.kv_heads * d.dim, kind = below(KEPT_KINDS);
    for (int64_t l = 0; l < d.layers; l++) {
        decode_layer_t *one = &layers[l];
        memset(one, 0, sizeof *one);
        one->heads = linears(d.width, (const int64_t[]){d.heads * d.dim, kept, kept}, 3);
        one->out = linears(d.heads * d.dim, &d.width, 1);
        one->gates = linears(d.width, (const int64_t[]){d.inner, d.inner}, 2);
        one->down = linears(d.inner, &d.width, 1);
        one->attention_norm = floats(d.width), one->feed_norm = floats(d.width);
        if (below(2)) one->query_norm = floats(d.dim), one->key_norm = floats(d.dim);
        one->kept = kept_of(kind, blocks_of(lengths) * d.kv_heads, d.dim);
        if (below(2)) one->sinks = floats(d.heads);
        one->scale = 0.2f, one->soft_cap = (float)below(2) * 3, one->window = below(2) * (1 + below(20));
    }
    d.layer = layers;
    return d;
}

/* All rows of texts, or the last of each. */
static decode_pass_t pass(const decoder_t *d, const int64_t *lengths, int last) {
    decode_pass_t p = {.bytes = sizeof p, .blocks = blocks_of(lengths), .sequences = TEXTS};
    for (int t = 0; t < TEXTS; t++) {
        p.rows += last ? 1 : lengths[t];
        if ((lengths[t] + SLOTS - 1) / SLOTS > p.table_width) p.table_width = (lengths[t] + SLOTS - 1) / SLOTS;
    }
    int32_t *table = room(4 * (size_t)(TEXTS * p.table_width)), *sequence = room(4 * (size_t)p.rows);
    int32_t *position = room(4 * (size_t)p.rows);
    int64_t *slots = room(8 * (size_t)p.rows), *want = room(8 * (size_t)p.rows), first = p.blocks, row = 0;
    memset(table, 0xFF, 4 * (size_t)(TEXTS * p.table_width)); /* no block */
    for (int t = 0; t < TEXTS; t++) {
        for (int64_t b = 0; b < (lengths[t] + SLOTS - 1) / SLOTS; b++) table[t * p.table_width + b] = (int32_t)--first;
        for (int64_t at = last ? lengths[t] - 1 : 0; at < lengths[t]; at++, row++) {
            sequence[row] = t, position[row] = (int32_t)at;
            slots[row] = table[t * p.table_width + at / SLOTS] * (int64_t)SLOTS + at % SLOTS;
            if (below(3)) want[p.wanted++] = row;
        }
    }
    p.table = table, p.sequence = sequence, p.position = position, p.slots = slots, p.want = want;
    p.x = floats(p.rows * d->width);
    p.states = p.wanted ? room(sizeof(float) * (size_t)(p.wanted * d->width)) : NULL;
    if (below(2)) {
        const size_t size = 8 * (size_t)(d->layers * PLACES + 2);
        p.limit = 0.5f, p.beyond = memset(room(size), 0, size);
    }
    p.stored = below(STORED);
    return p;
}

static void refused(const decoder_t *d, const decode_pass_t *p, const char *what) {
    if (qualgate_decode(d, p, 2, PATH_SCALAR, INT8_PLAIN) == DONE) fail(what);
}

static void broken(decoder_t d, decode_pass_t p) {
    int32_t position[1] = {(int32_t)d.positions}, table[1] = {(int32_t)p.blocks}, sequence[1] = {TEXTS}, none[1] = {0};
    int64_t slots[1] = {p.blocks * SLOTS}, want[1] = {1}, none_long[1] = {0};
    float *x = p.x, *states = floats(d.width);
    decode_pass_t q = {.bytes = sizeof q, .rows = 1, .wanted = 1, .blocks = p.blocks, .sequences = 1, .table_width = 1,
                       .x = x, .table = none, .sequence = none, .position = none, .slots = none_long,
                       .want = none_long, .states = states};
    if (qualgate_decode(&d, &q, 1, PATH_SCALAR, INT8_PLAIN)) fail("one row: refused");
    decode_pass_t r = q;
    r.position = position, refused(&d, &r, "a position without angles: accepted"), r = q;
    r.table = table, refused(&d, &r, "a block that is not there: accepted"), r = q;
    r.sequence = sequence, refused(&d, &r, "a sequence that is not there: accepted"), r = q;
    r.slots = slots, refused(&d, &r, "a slot that is not there: accepted"), r = q;
    r.want = want, refused(&d, &r, "a row that is not there: accepted"), r = q;
    r.limit = 1, refused(&d, &r, "counting nowhere: accepted"), r = q;
    r.stored = STORED, refused(&d, &r, "a dtype that is none: accepted"), r = q;
    r.bytes--, refused(&d, &r, "another pass's size: accepted"), r = q;
    r.rows = 0, refused(&d, &r, "no rows: accepted");
    decode_layer_t layers[LAYERS_MAX];
    memcpy(layers, d.layer, sizeof *layers * (size_t)d.layers);
    linear_t *const parts[] = {&layers[0].heads.part[0], &layers[0].out.part[0], &layers[0].gates.part[0],
                               &layers[d.layers - 1].down.part[0]};
    d.layer = layers;
    for (int i = 0; i < 4; i++) {
        const linear_t kept = *parts[i];
        parts[i]->rows += 16, refused(&d, &q, "more columns than there are: accepted"), *parts[i] = kept;
        parts[i]->columns += 16, refused(&d, &q, "a wider input than there is: accepted"), *parts[i] = kept;
        parts[i]->bytes++, refused(&d, &q, "another linear's size: accepted"), *parts[i] = kept;
        parts[i]->weight = NULL, parts[i]->codes = NULL, refused(&d, &q, "no weight: accepted"), *parts[i] = kept;
    }
    const kept_t kept = layers[0].kept;
    layers[0].kept.keys = NULL, refused(&d, &q, "no keys: accepted"), layers[0].kept = kept;
    layers[0].kept.kind = KEPT_KINDS, refused(&d, &q, "no format: accepted"), layers[0].kept = kept;
    layers[0].kept.kind = KEPT_INT4, layers[0].kept.key_scales = NULL, refused(&d, &q, "no scales: accepted");
    layers[0].kept = kept;
    layers[0].heads.count = PARTS_MAX + 1, refused(&d, &q, "four parts: accepted");
}

static void one(int most) {
    int64_t lengths[TEXTS], positions = 0;
    for (int t = 0; t < TEXTS; t++) {
        lengths[t] = 1 + below(below(4) ? 20 : 60);
        if (lengths[t] > positions) positions = lengths[t];
    }
    decoder_t d = decoder(lengths, positions);
    const int int8_path = qualgate_int8_paths() >> INT8_VNNI & (int)below(2) ? INT8_VNNI : INT8_PLAIN;
    for (int path = PATH_SCALAR; path <= most; path++)
        for (int last = 0; last < 2 && qualgate_paths() >> path & 1; last++) {
            decode_pass_t p = pass(&d, lengths, last), q = p;
            const size_t size = sizeof(float) * (size_t)(p.wanted * d.width);
            q.x = memcpy(room(sizeof(float) * (size_t)(p.rows * d.width)), p.x, sizeof(float) * (size_t)(p.rows * d.width));
            q.states = p.wanted ? room(size) : NULL;
            if (qualgate_decode(&d, &p, 1, path, int8_path) || qualgate_decode(&d, &q, 2 + (int)below(2), path, int8_path))
                fail("a pass: refused");
            if (size && memcmp(p.states, q.states, size)) fail("threads give other bits");
            for (int64_t i = 0; i < p.wanted * d.width; i++)
                if (!isfinite(p.states[i])) fail("not a number");
        }
    broken(d, pass(&d, lengths, 1));
    while (count) free(made[--count]);
}

int main(int argc, char **argv) {
    if (argc != 4) fail("sanitize_decode SEED DRAWS MOST_PATH");
    state = strtoull(argv[1], NULL, 10);
    const int draws = atoi(argv[2]), most = atoi(argv[3]);
    for (int draw = 0; draw < draws; draw++) one(most);
    printf("%d draws\n", draws);
    return 0;
}
