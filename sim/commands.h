/* The commands of the simulator. The table of all commands is in the program's main.c. */
#ifndef TANDEM_SIM_COMMANDS_H
#define TANDEM_SIM_COMMANDS_H

#include "host/command.h"
#include "host/scenario_lua.h"

#define SETS_MAX 64

/* What `--set` gave, as the loader takes it; the texts are owned. */
struct scenario_sets {
    struct scenario_override sets[SETS_MAX];
    char *texts[SETS_MAX];
    size_t count;
};

/* False with an error; free in either case. */
bool scenario_sets_read(const struct arguments *arguments, struct scenario_sets *sets, struct user_error *error);
void scenario_sets_free(struct scenario_sets *sets);

/* The value of --db, or tandem.db. */
const char *database_path(const struct arguments *arguments);

extern const struct command command_explain;
extern const struct command command_compare;
extern const struct command command_plan;
extern const struct command command_run;
extern const struct command command_bench;

#endif
