/* Times the transfer engine between two processes of this machine: one write at a time and in a stream, over sizes, and
 * what the threads around it add when they are as idle as in a run between two transfers.
 *
 * Every figure is a median. Processes are made and ended here; the caller must have one thread.
 */
#ifndef TANDEM_REAL_CALIBRATE_FABRIC_PROFILER_H
#define TANDEM_REAL_CALIBRATE_FABRIC_PROFILER_H

#include "host/progress.h"
#include "real/calibrate/nic_fit.h"
#include "host/user_error.h"

#define FABRIC_SIZES 6

struct fabric_profiler_config {
    const char *provider; /* NULL: the best that works */
    const char *address;
    uint32_t window; /* writes in flight */
    uint32_t turns;  /* of each kind and size, at least 1 */
    bool crowded;    /* as the threads of a run would be (real_world_crowded) */
};

struct fabric_times {
    char provider[16];
    struct write_time single[FABRIC_SIZES]; /* from the post to the immediate's event at a target that keeps polling */
    struct write_time stream[FABRIC_SIZES]; /* of one of many, the window full */
    int64_t posting_ps;                     /* of the posting thread per write of the smallest size, many at once */
    int64_t watcher_ns;                     /* from a tick of the layer counter to the post of its write */
    int64_t
        poll_ns; /* what a write takes longer to be known to the target's loop than to a target that keeps polling */
};

/* Steps that `progress` is told of. */
uint32_t fabric_profiler_steps(const struct fabric_profiler_config *config);

/* False with a sentence when the provider is missing or a transfer fails; without one when interrupted. */
bool fabric_profiler(const struct fabric_profiler_config *config, struct progress *progress, struct fabric_times *times,
                     struct user_error *error);

#endif
