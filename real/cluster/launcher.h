/* The launcher as a backend of runs (run/backend.h): it is the front, node 0, starts the processes of the others or
 * waits for those that somebody else has started, and hears what all of them report.
 */
#ifndef TANDEM_REAL_CLUSTER_LAUNCHER_H
#define TANDEM_REAL_CLUSTER_LAUNCHER_H

#include "real/cluster/pmix_wire.h"
#include "real/cluster/real_world.h"
#include "run/backend.h"

/* Of a run on it: struct run_config.options. */
struct launcher_options {
    const struct real_options *options;
    struct pmix_wire *wire; /* of the job whose first process this is; NULL: of none */
};

extern const struct run_backend real_backend;

#endif
