#include "pool.h"
#include <pthread.h>
#include <stdatomic.h>

static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER; /* one caller at a time */
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static struct {
    task_fn *run;
    void *context;
    int64_t tasks;
    atomic_int_fast64_t next;
    int helpers, wanted, running; /* there are; may join this round; have joined and not finished */
    uint64_t round;
} pool;

static void work(int worker) {
    for (int64_t task; (task = atomic_fetch_add(&pool.next, 1)) < pool.tasks;) pool.run(pool.context, task, worker);
}

static void *help(void *argument) {
    const int worker = (int)(intptr_t)argument;
    uint64_t seen = 0;
    pthread_mutex_lock(&guard);
    for (;;) {
        while (pool.round == seen || worker > pool.wanted) {
            seen = pool.round;
            pthread_cond_wait(&wake, &guard);
        }
        seen = pool.round;
        pool.running++;
        pthread_mutex_unlock(&guard);
        work(worker);
        pthread_mutex_lock(&guard);
        if (--pool.running == 0) pthread_cond_signal(&done);
    }
    return NULL;
}

static void forget(void) { /* in a forked child, where no helper lives and a lock may be held for ever */
    static const pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static const pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    owner = guard = mutex;
    wake = done = cond;
    pool.helpers = 0;
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
    pthread_mutex_lock(&guard);
    pool.run = run;
    pool.context = context;
    pool.tasks = tasks;
    atomic_store(&pool.next, 0);
    while (pool.helpers < threads - 1) { /* a new helper waits for `guard`, then finds this round */
        pthread_t thread;
        if (pthread_create(&thread, NULL, help, (void *)(intptr_t)(pool.helpers + 1)) != 0) break;
        pthread_detach(thread);
        pool.helpers++;
    }
    pool.wanted = threads - 1;
    pool.round++;
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&guard);
    work(0);
    pthread_mutex_lock(&guard);
    pool.wanted = 0; /* who did not wake in time is not waited for */
    while (pool.running > 0) pthread_cond_wait(&done, &guard);
    pthread_mutex_unlock(&guard);
    pthread_mutex_unlock(&owner);
}
