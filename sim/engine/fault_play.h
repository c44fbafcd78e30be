/* Plays a scenario's faults (world/scenario/fault.h) in a simulation. */
#ifndef TANDEM_SIM_ENGINE_FAULT_PLAY_H
#define TANDEM_SIM_ENGINE_FAULT_PLAY_H

#include "world/deployment.h"
#include "world/scenario/fault.h"
#include "sim/engine/sim.h"
#include "host/user_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What only the run can do. */
struct fault_world {
    void *self;
    void (*restart)(void *self, uint32_t node);        /* a dead node comes back empty */
    int64_t (*replaced_ns)(void *self, uint32_t node); /* how long after its death it does, where the fault does not
                                                          say; TIME_NEVER: never */
};

struct fault_play;

/* Listens to `sim` and becomes its faults; everything must outlive it. NULL with a sentence in `error` where a fault
 * names an instance or a rank that this deployment lacks. */
struct fault_play *fault_play_make(const struct fault_list *faults, struct sim *sim,
                                   const struct deployment *deployment, const struct fault_world *world,
                                   struct user_error *error);
void fault_play_free(struct fault_play *play);

/* When the last one began or was over, so far. */
int64_t fault_play_last_ns(const struct fault_play *play);

#endif
