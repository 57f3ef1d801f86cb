/* How far two models' logits are apart at each position. Rows are shared among threads, never parts of one: its bits are
 * those it has alone. */
#include "kl.h"
#include "floats.h"
#include "pool.h"
#include "weight.h"

#define FEW (1 << 17) /* logits below which waking a thread costs more than it brings */

int qualgate_paths(void);

typedef struct {
    kl_fn *run;
    const float *p, *q;
    int64_t vocabulary;
    const int64_t *given;
    double *kl, *logprobs;
    int64_t *tokens;
} compared_t;

static void compare(void *context, int64_t row, int worker) {
    (void)worker;
    const compared_t *all = context;
    const unsigned before = plain_floats();
    const int64_t start = row * all->vocabulary;
    const kl_t found = all->run(all->p + start, all->q + start, all->vocabulary, all->given[row]);
    restore_floats(before);
    all->kl[row] = found.kl;
    all->logprobs[row] = found.logprob;
    all->tokens[row] = found.token;
}

static kl_fn *best_of(int path) {
#if defined(__x86_64__)
    if (path >= PATH_AVX512) return kl_avx512;
    if (path == PATH_AVX2) return kl_avx2;
#endif
    (void)path;
    return kl_scalar;
}

/* p, q [rows][vocabulary]; the others [rows]. path: as the products'. */
__attribute__((visibility("default"))) int qualgate_kl(const float *p, const float *q, int64_t rows, int64_t vocabulary,
                                                       const int64_t *given, double *kl, double *logprobs,
                                                       int64_t *tokens, int threads, int path) {
    if (!p || !q || rows < 1 || vocabulary < 1 || vocabulary > INT32_MAX - 64 || !given || !kl || !logprobs ||
        !tokens || threads < 1 || path < 1 || path >= PATHS)
        return BAD_ARGUMENT;
    for (int64_t row = 0; row < rows; row++)
        if (given[row] < 0 || given[row] >= vocabulary) return BAD_ARGUMENT;
    if (!(qualgate_paths() >> path & 1)) return NO_PATH;
    compared_t compared = {best_of(path), p, q, vocabulary, given, kl, logprobs, tokens};
    share(rows < 2 || rows * vocabulary < FEW ? 1 : threads, rows, compare, &compared);
    return DONE;
}
