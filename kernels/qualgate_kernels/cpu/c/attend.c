/* Attention of new rows over keys and values that lie in blocks, causal, each row for itself; float32, in whichever
 * format they are kept.
 *
 * A block has SLOTS positions of every head: keys [kv_heads][dim][SLOTS], so that one query meets SLOTS positions at a
 * time without a sum across a vector; values [kv_heads][SLOTS][dim]. A sequence's blocks are those of its row of the
 * table. Sums run over positions in their order, whatever other rows there are and however many threads: the bits of a
 * row are those it has alone. */
#include "attend.h"
#include "floats.h"
#include "pool.h"
#include "weight.h"
#include <stdlib.h>

typedef struct {
    const attend_t *call;
    tile_fn *run;
    const int64_t *starts; /* of each run's first row; a run: rows of one sequence, one after the other */
    int64_t runs, *tasks;  /* tasks[run]: number of its first tile; tasks[runs]: of all */
    float *scratch;
    int64_t each; /* floats of scratch a worker */
} round_t;

static void attend_one(void *context, int64_t task, int worker) {
    const round_t *round = context;
    const attend_t *call = round->call;
    int64_t low = 0, high = round->runs; /* the run of this task */
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (round->tasks[middle] <= task) low = middle;
        else high = middle;
    }
    const int64_t group = call->heads / call->kv_heads, start = round->starts[low];
    const int64_t rows = round->starts[low + 1] - start, tiles = (rows * group + QUERIES - 1) / QUERIES;
    const int64_t number = task - round->tasks[low], head = number / tiles, from = number % tiles * QUERIES;
    tile_t tile = {.sequence = call->sequence[start], .head = head, .first = INT64_MAX};
    int64_t last = 0;
    for (int64_t pair = from; pair < rows * group && pair < from + QUERIES; pair++) {
        const int64_t row = start + pair / group, query = head * group + pair % group, p = call->position[row];
        const int64_t at = (row * call->heads + query) * call->dim;
        const int i = tile.pairs++;
        tile.query[i] = call->query + at;
        tile.out[i] = call->out + at;
        tile.query_head[i] = query;
        tile.span[i] = (span_t){call->window && p >= call->window ? p - call->window + 1 : 0, p};
        if (tile.span[i].first < tile.first) tile.first = tile.span[i].first;
        if (p > last) last = p;
    }
    tile.blocks = last / SLOTS - tile.first / SLOTS + 1;
    const unsigned before = plain_floats();
    round->run(call, &tile, round->scratch + worker * round->each);
    restore_floats(before);
}

static int sound_call(const attend_t *a) {
    if (a->bytes != (int64_t)sizeof(attend_t) || a->rows < 1 || a->heads < 1 || a->kv_heads < 1 ||
        a->heads % a->kv_heads || a->dim < 16 || a->dim % 16 || a->dim > DIM_MAX || a->blocks < 1 || a->sequences < 1 ||
        a->table_width < 1 || a->window < 0 || !(a->soft_cap >= 0) || a->rows > INT32_MAX || a->heads > 65536)
        return 0;
    if (!a->query || !sound_kept(&a->kept) || !a->table || !a->sequence || !a->position || !a->out) return 0;
    for (int64_t r = 0; r < a->rows; r++) {
        const int64_t s = a->sequence[r], p = a->position[r];
        if (s < 0 || s >= a->sequences || p < 0 || p / SLOTS >= a->table_width) return 0;
        const int64_t first = a->window && p >= a->window ? p - a->window + 1 : 0;
        if (r && a->sequence[r - 1] == s && p <= a->position[r - 1]) return 0;
        for (int64_t b = first / SLOTS; b <= p / SLOTS; b++) {
            const int32_t block = a->table[s * a->table_width + b];
            if (block < 0 || block >= a->blocks) return 0;
        }
    }
    return 1;
}

static tile_fn *best_tile(int path) {
#if defined(__x86_64__)
    if (path >= PATH_AVX512) return attend_avx512;
    if (path == PATH_AVX2) return attend_avx2;
#endif
    (void)path;
    return attend_scalar;
}

/* path: PATH_SCALAR, PATH_AVX2 or PATH_AVX512, which the processor must have. */
__attribute__((visibility("default"))) int qualgate_attend(const attend_t *call, int threads, int path) {
    if (!call || threads < 1 || path < 1 || path > PATH_AVX512 || !sound_call(call)) return 2;
    if (threads > THREADS_MAX) threads = THREADS_MAX;
    const int64_t group = call->heads / call->kv_heads;
    int64_t *starts = malloc(sizeof(int64_t) * 2 * (size_t)(call->rows + 1));
    if (!starts) return 3;
    round_t round = {.call = call, .run = best_tile(path), .starts = starts, .tasks = starts + call->rows + 1};
    int64_t longest = 0, tasks = 0;
    for (int64_t r = 0; r < call->rows; r++) {
        if (!r || call->sequence[r] != call->sequence[r - 1]) starts[round.runs++] = r;
        if (call->position[r] > longest) longest = call->position[r];
    }
    starts[round.runs] = call->rows;
    for (int64_t i = 0; i < round.runs; i++) {
        round.tasks[i] = tasks;
        tasks += ((starts[i + 1] - starts[i]) * group + QUERIES - 1) / QUERIES * call->kv_heads;
    }
    round.tasks[round.runs] = tasks;
    round.each = QUERIES * (longest / SLOTS + 1) * SLOTS;
    if (call->kept.kind != KEPT_F32) round.each += EXPANDED * call->dim * SLOTS;
    if (posix_memalign((void **)&round.scratch, 64, sizeof(float) * (size_t)(round.each * threads))) {
        free(starts);
        return 3;
    }
    /* At the most so many, were every row the last. */
    const double products = (double)call->rows * (double)(longest + 1) * (double)(call->heads * call->dim);
    share(products < ALONE ? 1 : threads, tasks, attend_one, &round);
    free(round.scratch);
    free(starts);
    return 0;
}
