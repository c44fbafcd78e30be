/* Commands of the real runtime. */
#ifndef TANDEM_REAL_COMMANDS_H
#define TANDEM_REAL_COMMANDS_H

#include "host/command/command.h"

extern const struct command command_bench_fabric;
extern const struct command command_calibrate;
extern const struct command command_replay_events;

#endif
