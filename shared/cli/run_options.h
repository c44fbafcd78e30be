/* What the commands that run scenarios have in common, whichever runtime runs them: options, overrides, the choice of a
 * backend, the answer.
 */
#ifndef TANDEM_CLI_RUN_OPTIONS_H
#define TANDEM_CLI_RUN_OPTIONS_H

#include "cli/command.h"
#include "host/output.h"
#include "run/backend.h"
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

/* Shows a stored run, or adds it to `answers` for report_runs() where the format is JSON or it is one of a sweep, and
 * asks the scenario what it expected. Returns EXIT_OK, EXIT_WORSE, or EXIT_USER with an error. `overrides` are the
 * variant's, of a sweep. */
int run_tell(struct results *store, int64_t run, struct scenario *scenario, const struct scenario_override *overrides,
             size_t override_count, const struct command_context *command, const struct output *output, json_t *answers,
             struct user_error *error);

/* ---- Backends ---------------------------------------------------------------------------------------------------- */

/* Options of `tandem run` and `tandem replay`, of all backends together. */
extern const struct option run_options[];

/* One way to run a scenario. The program makes the table of them: neither runtime knows the other. */
struct backend {
    const char *name;
    const struct run_backend *run;
    const char *absent;       /* where run is NULL: a sentence why */
    const char *const *alone; /* names of options that only this backend takes; ends with NULL */
    /* Reads its own options, for struct run_config.options, and looks whether they can be met. False with an error, or
     * with an exit status where this process is done: one of several that serve a run that another process leads.
     * `sets` are NULL for a replay, which leads always. NULL: it has none. */
    bool (*prepare)(const struct command_context *command, const struct arguments *arguments,
                    const struct scenario_sets *sets, const void **options, int *exit, struct user_error *error);
    void (*release)(void);     /* after prepare(), whatever it returned */
    bool (*one_at_most)(void); /* that this process cannot run more than one; NULL: never */
};

extern const struct backend backend_live;
extern const struct backend *const backends[]; /* the first is the default; ends with NULL */

/* The backend that --backend names, else the one called `otherwise`, after refusing options of the others. NULL with an
 * error. */
const struct backend *backend_choose(const char *otherwise, const struct arguments *arguments,
                                     struct user_error *error);

/* A line for people: struct run_listener.notice, of a FILE. */
void run_tell_notice(void *file, const char *text);

#endif
