/* Makes a scenario that fails smaller while it fails in the same way: fewer faults, requests and instances, then
 * shorter prompts, simpler shardings and policies at their defaults. Greedy, pass after pass, until a pass changes
 * nothing.
 */
#ifndef TANDEM_SIM_SWARM_SHRINK_H
#define TANDEM_SIM_SWARM_SHRINK_H

#include "sim/swarm/fuzz_draw.h"
#include "sim/swarm/seed.h"

#include <stdint.h>

/* *drawn becomes the smaller one, *failure what it ends with. `sabotage` as it was when it failed. Returns how many
 * scenarios were tried. */
uint32_t shrink(struct drawn *drawn, const struct seed_sabotage *sabotage, struct seed_result *failure);

#endif
