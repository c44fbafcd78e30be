/* See workers.h. */
#define _POSIX_C_SOURCE 200809L
#include "host/thread_pool.h"

#include "base/arith.h"
#include "host/interrupt.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define THREADS_MAX 256

struct work {
    worker_job *job;
    void *context;
    uint32_t count;
    atomic_uint next;
    atomic_bool left_out;
};

static void *worker(void *argument)
{
    struct work *work = argument;
    for (;;) {
        uint32_t job = atomic_fetch_add(&work->next, 1);
        if (job >= work->count)
            return NULL;
        if (interrupt_requested())
            atomic_store(&work->left_out, true);
        else
            work->job(work->context, job);
    }
}

bool workers_run(uint32_t threads, uint32_t count, worker_job *job, void *context)
{
    struct work work = {.job = job, .context = context, .count = count};
    pthread_t ids[THREADS_MAX];
    uint32_t wanted = min_u32(min_u32(threads, THREADS_MAX), count);
    uint32_t started = 0;
    /* The caller works too, so that a machine without room for threads still gets there. */
    while (started + 1 < wanted && pthread_create(&ids[started], NULL, worker, &work) == 0)
        started++;
    worker(&work);
    for (uint32_t i = 0; i < started; i++)
        CHECK(pthread_join(ids[i], NULL) == 0);
    return !atomic_load(&work.left_out);
}

uint32_t workers_default(void)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return processors < 1 ? 1 : (uint32_t)min_i64(processors, THREADS_MAX);
}
