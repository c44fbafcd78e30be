/* Times the steps of one model and sharding on this machine, as the loop of an instance sees them: from the launch to
 * the event that says the steps are done. The executors, their collectives, the thread that hands launches over and the
 * loop that waits are those of a real run.
 *
 * Every cell of the tables is launched once a round, after a round that nobody counts, and takes the median of its
 * rounds: what else the machine does for a moment strikes one round of many cells and not one cell.
 */
#ifndef TANDEM_REAL_CALIBRATE_STEP_PROFILER_H
#define TANDEM_REAL_CALIBRATE_STEP_PROFILER_H

#include "host/progress.h"
#include "real/calibrate/step_plan.h"
#include "host/user_error.h"

#define STEP_ROUNDS_MAX 101u

struct step_quality {
    uint32_t cells_measured;
    uint32_t cells_filled;   /* that no batch reaches (breakpoints.h) */
    int64_t spread_permille; /* half the distance of a cell's quartiles, of its median: the median over cells */
};

/* Fills the job's table. False with a sentence when the device is absent or fails, or with none when interrupted. */
bool step_profiler(struct step_job *job, uint32_t rounds, struct progress *progress, struct step_quality *quality,
                   struct user_error *error);

#endif
