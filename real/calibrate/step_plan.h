/* Which steps are measured: one table for each model and sharding that the pools of some scenarios use, however many of
 * them do.
 */
#ifndef TANDEM_REAL_CALIBRATE_STEP_PLAN_H
#define TANDEM_REAL_CALIBRATE_STEP_PLAN_H

#include "world/scenario/scenario_lua.h"
#include "host/user_error.h"
#include "real/calibrate/breakpoints.h"
#include "real/executor/mailbox.h"

struct step_job {
    struct executor_setup setup; /* of an instance of the pool, with room for every cell */
    struct step_limits limits;
    char name[96];           /* "tiny-gqa TP2" */
    struct step_table table; /* model, sharding and axes; filled in by the measurement */
};

struct step_plan {
    uint32_t count;
    bool crowded; /* one of the scenarios has more to run than this machine has processors (real_world_crowded) */
    struct step_job item[STEP_TABLES_MAX];
};

/* Adds what the scenario's pools need, by every sharding that they offer. Pools with the same model and sharding share
 * a table whose axes reach as far as any of them does. False with an error. */
bool step_plan_add(struct step_plan *plan, const char *scenario, const struct scenario_override *sets, size_t set_count,
                   const char *device, struct user_error *error);

/* Launches that one round over all cells makes. */
uint32_t step_job_launches(const struct step_job *job);

#endif
