/* A pool of threads for work that is a list of independent jobs. The result must not depend on the number of threads:
 * jobs write to places of their own and are looked at when all are done.
 */
#ifndef TANDEM_HOST_THREAD_POOL_H
#define TANDEM_HOST_THREAD_POOL_H

#include <stdbool.h>
#include <stdint.h>

typedef void worker_job(void *context, uint32_t job);

/* Runs job 0 ... count - 1, each once, started in this order, on up to `threads` threads; returns when all are done.
 * Jobs not yet started when an interrupt is requested are left out: false then. */
bool workers_run(uint32_t threads, uint32_t count, worker_job *job, void *context);

/* Processors this process may use. */
uint32_t workers_default(void);

#endif
