/* Seeds by the thousand, on all cores, until the first that fails or the end of a budget.
 *
 * Each worker is a process: a CHECK that fails in a seed ends its worker, and is found in what it left behind. The
 * outcome does not depend on the number of workers: seeds are handed out in order, and when one fails those below it
 * are finished, so that the failure reported is that of the lowest seed.
 */
#ifndef TANDEM_SIM_SWARM_SWARM_H
#define TANDEM_SIM_SWARM_SWARM_H

#include "sim/swarm/coverage.h"
#include "sim/swarm/seed.h"

#include <stdbool.h>
#include <stdint.h>

struct swarm_options {
    uint64_t first;
    uint64_t seeds;   /* 0: until `seconds` are over */
    uint32_t seconds; /* 0: no limit */
    uint32_t jobs;
    const struct seed_sabotage *sabotage; /* of tests; NULL: none */
    void (*progress)(void *self, uint64_t seeds);
    void *self;
};

struct swarm_result {
    uint64_t seeds; /* run to their end */
    uint64_t events;
    int64_t wall_ns;
    bool interrupted;
    bool failed;
    uint64_t seed; /* the lowest that failed */
    struct seed_result failure;
    struct coverage coverage;
};

void swarm_run(const struct swarm_options *options, struct swarm_result *result);

#endif
