/* A few threads that help one caller at a time. */
#pragma once
#include <stdint.h>

typedef void task_fn(void *context, int64_t task, int worker);

/* Calls run(context, 0..tasks-1, worker) once each, in any order, on the calling thread (worker 0) and up to
 * threads - 1 helpers (workers 1 to threads - 1). Where helpers are busy with another caller, or cannot be had, the
 * calling thread does all of it. */
void share(int threads, int64_t tasks, task_fn *run, void *context);
#define THREADS_MAX 64
