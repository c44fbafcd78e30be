/* What steps and messages take in a whole run, where instances share the machine: with other arrivals than those of any
 * run that will be predicted.
 *
 * Steps are timed with one instance alone on the machine, in batches that follow each other (step_profiler.h). In a run
 * executors, fabric threads and loops of all instances share processors, and an instance that has been idle wakes up
 * for a launch. So the scenario is run for real, every node recorded (real/runtime/recording.h), and each launch is set
 * beside what the tables say of it: one line for each kind of step of each table,
 *
 *     took = launch + factor * table's
 *
 * by which the table is corrected. Launches are timed as nodes see them, from the call to the event. Messages are timed
 * from the event in which they are sent to the event that they are: those of the front; and those that wait until a
 * count is armed.
 */
#ifndef TANDEM_REAL_CALIBRATE_IN_RUN_H
#define TANDEM_REAL_CALIBRATE_IN_RUN_H

#include "world/scenario/scenario_lua.h"
#include "host/user_error.h"
#include "real/calibrate/line_fit.h"
#include "real/calibrate/step_plan.h"
#include "real/cluster/real_world.h"

#include <stdbool.h>
#include <stdint.h>

struct step_correction {
    uint32_t launches; /* that it comes from; too few: the table is left as it is */
    struct line line;
};

struct in_run {
    struct step_correction prefill[STEP_TABLES_MAX]; /* by table of the plan */
    struct step_correction decode[STEP_TABLES_MAX];
    uint32_t messages; /* of the front */
    int64_t message_ns;
    uint32_t armed; /* messages that waited for a count */
    int64_t arm_ns; /* longer than those of the front */
};

struct in_run_config {
    const char *const *scenarios;
    size_t scenario_count;
    const struct scenario_override *sets;
    size_t set_count;
    const struct real_options *options; /* its record_events is not looked at */
};

/* Runs every scenario once, under the seed after its own, and corrects the plan's tables. False with an error, or
 * without one when interrupted. The caller has one thread. */
bool in_run_measure(const struct in_run_config *config, struct step_plan *plan, struct in_run *found,
                    struct user_error *error);

/* The table as corrected: prefill's launch is in each of its steps, decode's is the table's own. */
void step_table_correct(struct step_table *table, const struct step_correction *prefill,
                        const struct step_correction *decode);

#endif
