/* What the commands that run scenarios have in common, whichever runtime runs them: options, overrides, the answer; and
 * `tandem run`'s choice of a backend.
 */
#ifndef TANDEM_CLI_RUN_OPTIONS_H
#define TANDEM_CLI_RUN_OPTIONS_H

#include "cli/command.h"
#include "host/output.h"
#include "run/results/results.h"
#include "world/scenario/scenario_lua.h"
#include "world/load/workload.h"

#define SETS_MAX 64

/* For the option tables of commands that load scenarios. */
#define HARDWARE_OPTION                                                                                                \
    {                                                                                                                  \
        "hardware", "NAME=FILE", "read this file where hardware.NAME is required", OPTION_LIST                         \
    }

/* What `--set` gave, and `--hardware` where the command has it, as the loader takes it; the texts are owned. */
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

/* --record as bits of enum results_record. False with an error. */
bool run_record_read(const struct arguments *arguments, uint32_t *record, struct user_error *error);

/* Room for what a run can have been set to. */
#define RUN_PARAMS_MAX (RESULTS_ORIGIN_PARAMS_MAX + SETS_MAX + SCENARIO_VARY_MAX + 1)

/* What was set is stored with the run: it is how the run can be had again. Of a path set twice the last one counts.
 * `params` has room for `count`; returns how many there are. */
uint32_t run_params(const struct scenario_override *sets, size_t count, struct results_param *params);

/* The parameter that marks a replay of that run, in *param and `text`; returns how many there are: 0 where it is
 * none. */
uint32_t run_replay_param(int64_t replay_of, char text[24], struct results_param *param);

/* Shows a stored run, or adds it to `answers` for report_runs() where the format is JSON or it is one of a sweep, and
 * asks the scenario what it expected. Returns EXIT_OK, EXIT_WORSE, or EXIT_USER with an error. `overrides` are the
 * variant's, of a sweep. */
int run_tell(struct results *store, int64_t run, struct scenario *scenario, const struct scenario_override *overrides,
             size_t override_count, const struct command_context *command, const struct output *output, json_t *answers,
             struct user_error *error);

/* ---- Backends ---------------------------------------------------------------------------------------------------- */

/* Options of `tandem run`, of all backends together. */
extern const struct option run_options[];

/* A stored run that is played again: its scenario, with all that was set, and the arrivals that it had. */
struct replay {
    struct results *store; /* open for writing */
    int64_t run;
    const char *path;
    const struct scenario_override *sets;
    size_t set_count;
    uint64_t seed;
    uint32_t record;
    struct workload_arrivals arrivals;
};

/* One way to run a scenario. The program makes the table of them: neither runtime knows the other. */
struct backend {
    const char *name;
    int (*run)(const struct command_context *command, const struct arguments *arguments, struct user_error *error);
    /* Stores the new run and says which it is; returns an exit status. */
    int (*replay)(const struct replay *replay, const struct command_context *command, const struct arguments *arguments,
                  int64_t *run, struct user_error *error);
    const char *absent;       /* where run is NULL: a sentence why */
    const char *const *alone; /* names of options that only this backend takes; ends with NULL */
};

/* Runs what --backend names, the first of the table by default, after refusing options of the others. */
int run_by_backend(const struct backend *backends, size_t count, const struct command_context *command,
                   const struct arguments *arguments, struct user_error *error);

/* The backend that --backend names, else the one called `otherwise`, after refusing options of the others. NULL with an
 * error. */
const struct backend *backend_choose(const struct backend *backends, size_t count, const char *otherwise,
                                     const struct arguments *arguments, struct user_error *error);

#endif
