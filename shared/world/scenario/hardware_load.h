/* A machine's profile by itself, without a scenario around it: a Lua file that returns machine { ... }. */
#ifndef TANDEM_WORLD_SCENARIO_HARDWARE_LOAD_H
#define TANDEM_WORLD_SCENARIO_HARDWARE_LOAD_H

#include "world/scenario/hardware.h"
#include "host/user_error.h"

#include <stdbool.h>

/* `name` is a module of the shipped scenarios, "hardware.h200", or the path of a file, which ends with ".lua". Steps
 * that were measured on the machine are not read. False with an error. */
bool hardware_load(const char *name, struct hardware *hardware, struct user_error *error);

#endif
