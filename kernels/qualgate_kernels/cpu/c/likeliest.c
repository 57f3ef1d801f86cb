/* The likeliest token of each row of logits, with its log-prob and its lead. Rows are shared among threads, never parts
 * of one: its bits are those it has alone. */
#include "likeliest.h"
#include "floats.h"
#include "pool.h"
#include "weight.h"

#define FEW (1 << 18) /* logits below which waking a thread costs more than it brings */

int qualgate_paths(void);

typedef struct {
    likeliest_fn *run;
    const float *logits;
    int64_t vocabulary, *tokens;
    float *logprobs, *leads;
    uint8_t *finite;
} said_t;

static void say(void *context, int64_t row, int worker) {
    (void)worker;
    const said_t *all = context;
    const unsigned before = plain_floats();
    const likeliest_t found = all->run(all->logits + row * all->vocabulary, all->vocabulary);
    restore_floats(before);
    all->tokens[row] = found.token;
    all->logprobs[row] = found.logprob;
    all->leads[row] = found.lead;
    all->finite[row] = (uint8_t)found.finite;
}

static likeliest_fn *best_of(int path) {
#if defined(__x86_64__)
    if (path >= PATH_AVX512) return likeliest_avx512;
    if (path == PATH_AVX2) return likeliest_avx2;
#endif
    (void)path;
    return likeliest_scalar;
}

/* logits [rows][vocabulary]; the others [rows]. path: as the products'. */
__attribute__((visibility("default"))) int qualgate_likeliest(const float *logits, int64_t rows, int64_t vocabulary,
                                                              int64_t *tokens, float *logprobs, float *leads,
                                                              uint8_t *finite, int threads, int path) {
    if (!logits || rows < 1 || vocabulary < 1 || vocabulary > INT32_MAX - 64 || !tokens || !logprobs || !leads ||
        !finite || threads < 1 || path < 1 || path >= PATHS)
        return BAD_ARGUMENT;
    if (!(qualgate_paths() >> path & 1)) return NO_PATH;
    said_t said = {best_of(path), logits, vocabulary, tokens, logprobs, leads, finite};
    share(rows < 2 || rows * vocabulary < FEW ? 1 : threads, rows, say, &said);
    return DONE;
}
