/* Commands of the real runtime. */
#ifndef TANDEM_CLI_REAL_COMMANDS_REAL_H
#define TANDEM_CLI_REAL_COMMANDS_REAL_H

#include "cli/command.h"

extern const struct command command_bench_fabric;
extern const struct command command_calibrate;
extern const struct command command_replay_events;

#endif
