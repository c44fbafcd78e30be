/* The executors of one instance, seen from it: it makes their memory, starts them, and has a thread that takes them
 * through each launch step by step.
 */
#ifndef TANDEM_REAL_EXECUTOR_EXECUTORS_H
#define TANDEM_REAL_EXECUTOR_EXECUTORS_H

#include "real/executor/mailbox.h"
#include "real/fabric/topology.h"
#include "real/executor/stepper.h"
#include "host/user_error.h"

struct executors;

/* Starts one process a rank and waits until every device is there. NULL with a sentence. */
struct executors *executors_start(const struct executor_setup *setup, struct user_error *error);

/* Ends them, kindly first, and frees their memory. */
void executors_stop(struct executors *executors);

struct stepper executors_stepper(struct executors *executors);
/* NULL where the rank's device has memory of its own: then executors_reach() maps it, NULL with a sentence. */
void *executors_memory(struct executors *executors, uint32_t rank);
bool executors_have_memory(const struct executors *executors); /* the devices, of their own */
struct device_reach *executors_reach(struct executors *executors, uint32_t rank, struct user_error *error);

/* Where the ranks sit: the NUMA nodes that the executors are confined to, if they are (taskset, mpirun --bind-to). */
void executors_places(const struct executors *executors, struct place *places);
const _Atomic uint64_t *executors_counters(const struct executors *executors);

/* A descriptor that becomes readable when the rank's process has died. */
int executors_death_fd(const struct executors *executors, uint32_t rank);

/* A rank is gone: a launch in progress ends in trouble instead of waiting for it. */
void executors_abandon(struct executors *executors);

#endif
