/* Which machine each instance of a deployment stands on, and with that over what its KV is handed over.
 *
 * Instances are placed pool by pool in the scenario's order, those of pools that list their machines first. Each takes
 * the first machine of its hardware that has room for all its ranks side by side and that its pool's `placement` and
 * those of the instances already there allow, or a new one. An instance larger than a machine takes whole new ones, and
 * what it leaves of the last stays empty.
 *
 * Two instances reach each other by NVLink where all their ranks lie in one NVLink domain: a machine, or as many
 * machines as the hardware's `nvlink_gpus` come to, machines of one hardware counted from the first. Otherwise, and
 * where the hardware says that instances use their NICs all the same (`between_instances`), they use their NICs.
 */
#ifndef TANDEM_WORLD_PLACEMENT_H
#define TANDEM_WORLD_PLACEMENT_H

#include "world/scenario/scenario.h"
#include "host/user_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct instance_place {
    uint32_t machine; /* the first it stands on, from 0 */
    uint32_t gpu;     /* of that machine, its first */
    uint32_t machines;
    uint32_t nvlink_domain; /* instances with equal ones reach each other by NVLink */
};

struct placement_demand {
    uint32_t count; /* instances of each pool */
    uint32_t ranks; /* of one */
};

struct placement_totals {
    uint32_t machines;
    uint32_t gpus;                /* that instances use */
    uint64_t usd_micros_per_hour; /* of whole machines, as they are rented */
};

/* Fills a place for every instance, pool by pool. False with a sentence: a list of machines does not go with the
 * counts, the hardware or the room. */
bool placement_make(const struct scenario *scenario, const struct placement_demand *demand,
                    struct instance_place *places, struct placement_totals *totals, struct user_error *error);

#endif
