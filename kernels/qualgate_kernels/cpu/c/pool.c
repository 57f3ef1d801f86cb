#include "pool.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

/* Nanoseconds for which a helper looks out for the next round before it sleeps. To wake it takes as long as many a
 * product does; the products of a pass follow each other sooner than this, passes mostly do not. */
#define LOOKING_OUT 100000
#define OPEN (1 << 30)
#define SHARES 3 /* a thread's of what is left */

static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER; /* one caller at a time */
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER; /* of sleeping and waking alone */
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static struct {
    task_fn *run;
    void *context;
    int64_t tasks;
    int helpers, wanted; /* there are; may join this round */
    _Alignas(64) atomic_int_fast64_t next; /* in cache lines of their own: all write here, all read above */
    _Alignas(64) atomic_uint_fast64_t round;
    atomic_int door; /* helpers that have joined and not finished; with OPEN, others may join */
    atomic_int asleep;
} pool;

/* A share of what is left at a time: large ones first, which lie side by side in memory, small ones for the end. */
static void work(int worker) {
    int64_t first = atomic_load(&pool.next);
    while (first < pool.tasks) {
        const int64_t left = pool.tasks - first, fair = left / (SHARES * (pool.wanted + 1)), many = fair > 1 ? fair : 1;
        if (!atomic_compare_exchange_weak(&pool.next, &first, first + many)) continue;
        for (int64_t task = first; task < first + many; task++) pool.run(pool.context, task, worker);
        first = atomic_load(&pool.next);
    }
}

static int64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void breathe(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* The round that follows `seen`. Who counts himself asleep and then looks once more misses no caller, who counts the
 * round and then looks for sleepers. */
static uint64_t next_round(uint64_t seen, int64_t looking_out) {
    uint64_t now;
    for (const int64_t until = nanoseconds() + looking_out; (now = atomic_load(&pool.round)) == seen; breathe())
        if (nanoseconds() >= until) break;
    if (now != seen) return now;
    pthread_mutex_lock(&guard);
    atomic_fetch_add(&pool.asleep, 1);
    while ((now = atomic_load(&pool.round)) == seen) pthread_cond_wait(&wake, &guard);
    atomic_fetch_sub(&pool.asleep, 1);
    pthread_mutex_unlock(&guard);
    return now;
}

static int join(void) {
    int now = atomic_load(&pool.door);
    while (now & OPEN)
        if (atomic_compare_exchange_weak(&pool.door, &now, now + 1)) return 1;
    return 0;
}

static void *help(void *argument) {
    const int worker = (int)(intptr_t)argument;
    int wanted = 1; /* when it last joined: who is not sleeps at once */
    for (uint64_t seen = 0;;) {
        seen = next_round(seen, wanted ? LOOKING_OUT : 0);
        if (!join()) continue; /* too late */
        wanted = worker <= pool.wanted;
        if (wanted) work(worker);
        atomic_fetch_sub(&pool.door, 1);
    }
    return NULL;
}

static void forget(void) { /* in a forked child, where no helper lives and a lock may be held for ever */
    static const pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static const pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    owner = guard = mutex;
    wake = cond;
    pool.helpers = 0;
    atomic_store(&pool.door, 0);
    atomic_store(&pool.asleep, 0);
}

static void at_fork(void) { pthread_atfork(NULL, NULL, forget); }

void share(int threads, int64_t tasks, task_fn *run, void *context) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, at_fork);
    if (threads > THREADS_MAX) threads = THREADS_MAX;
    if (threads > tasks) threads = (int)tasks;
    if (threads < 2 || pthread_mutex_trylock(&owner) != 0) {
        for (int64_t task = 0; task < tasks; task++) run(context, task, 0);
        return;
    }
    pool.run = run;
    pool.context = context;
    pool.tasks = tasks;
    pool.wanted = threads - 1;
    atomic_store(&pool.next, 0);
    atomic_store(&pool.door, OPEN);
    atomic_fetch_add(&pool.round, 1);
    for (; pool.helpers < threads - 1; pool.helpers++) { /* a new helper finds this round */
        pthread_t thread;
        if (pthread_create(&thread, NULL, help, (void *)(intptr_t)(pool.helpers + 1)) != 0) break;
        pthread_detach(thread);
    }
    if (atomic_load(&pool.asleep)) {
        pthread_mutex_lock(&guard);
        pthread_cond_broadcast(&wake);
        pthread_mutex_unlock(&guard);
    }
    work(0);
    atomic_fetch_and(&pool.door, ~OPEN); /* who did not wake in time is not waited for */
    for (int looked = 0; atomic_load(&pool.door); looked++) looked < 1000 ? breathe() : (void)sched_yield();
    pthread_mutex_unlock(&owner);
}
