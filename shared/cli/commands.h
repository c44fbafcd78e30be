/* The commands of the simulator. The table of all commands is in the program's main.c. */
#ifndef TANDEM_CLI_COMMANDS_H
#define TANDEM_CLI_COMMANDS_H

#include "cli/run_options.h"

extern const struct command command_run;
extern const struct command command_replay;
extern const struct command command_load;
extern const struct command command_serve;
extern const struct command command_explain;
extern const struct command command_compare;
extern const struct command command_plan;
extern const struct command command_bench;
extern const struct command command_validate;
extern const struct command command_pack;
extern const struct command command_fuzz;
extern const struct command command_check;
extern const struct command command_timeline;
extern const struct command command_runs;
extern const struct command command_show;
extern const struct command command_rm;
extern const struct command command_gc;

#endif
