/* A scenario as the file that makes it: what a program drew or changed, for people to read and to run again. */
#ifndef TANDEM_WORLD_SCENARIO_SCENARIO_WRITE_H
#define TANDEM_WORLD_SCENARIO_SCENARIO_WRITE_H

#include "world/scenario/scenario.h"

#include <stdbool.h>
#include <stdio.h>

/* Writes Lua that scenario_load() resolves to the same identity, keys at their defaults left out. False when `out` did
 * not take it all. Loads that are drawn, listed or a closed loop; not traces, whose files are elsewhere. */
bool scenario_write(const struct scenario *scenario, FILE *out);

#endif
