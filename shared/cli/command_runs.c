/* tandem runs, show, rm, gc: what the results database holds, one run of it, and what it need not hold any more. */
#include "cli/commands.h"
#include "cli/plan_report.h"
#include "cli/report_run.h"
#include "host/build_info.h"
#include "host/output.h"
#include "run/results/results.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define DB_OPTION                                                                                                      \
    {                                                                                                                  \
        "db", "FILE", "the results database (tandem.db)", OPTION_TEXT                                                  \
    }
#define OPTIONS_END                                                                                                    \
    {                                                                                                                  \
        NULL, NULL, NULL, OPTION_FLAG                                                                                  \
    }
#define RUNS_SHOWN 20

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static const struct option runs_options[] = {
    {"scenario", "NAME", "of this scenario only", OPTION_TEXT},
    {"backend", "sim|real|live", "of this backend only", OPTION_CHOICE},
    {"kind", "run|probe|report|all", "run (the default): asked for; probe, report: made by tandem plan", OPTION_CHOICE},
    {"limit", "N", "the newest N (20); 0: all", OPTION_INTEGER},
    DB_OPTION,
    {"format", OUTPUT_FORMATS, "of the answer", OPTION_CHOICE},
    OPTIONS_END,
};

static void add_run(void *self, const struct results_listed *run)
{
    struct table *table = self;
    char params[512];
    size_t used = 0;
    for (const char *p = run->params; *p != '\0' && used + 1 < sizeof params; p++)
        params[used++] = *p == '\n' ? ' ' : *p;
    params[used] = '\0';
    table_row(table);
    table_integer(table, run->run);
    table_text(table, run->scenario);
    table_text(table, params);
    table_integer(table, run->seed);
    table_text(table, run->backend);
    table_text(table, run->kind);
    table_text(table, strcmp(run->build, build_identity) == 0 ? "this" : "another");
    table_text(table, run->stored);
    table_integer(table, run->requests);
    table_integer(table, run->completed);
}

static int runs_run(const struct command_context *context, const struct arguments *arguments, struct user_error *error)
{
    struct output output = output_to(context->out, argument_text(arguments, "format"));
    const char *kind = argument_text(arguments, "kind");
    struct results_filter filter = {
        .scenario = argument_text(arguments, "scenario"),
        .backend = argument_text(arguments, "backend"),
        .kind = kind == NULL               ? "run"
                : strcmp(kind, "all") == 0 ? NULL
                                           : kind,
        .limit = argument_integer(arguments, "limit", RUNS_SHOWN),
    };
    struct results *store = results_open(database_path(arguments), RESULTS_READ, error);
    if (store == NULL)
        return EXIT_USER;
    struct table *table = table_new(NULL);
    table_column(table, "run", "run");
    table_column(table, "scenario", "scenario");
    table_column(table, "params", "set");
    table_column(table, "seed", "seed");
    table_column(table, "backend", "backend");
    table_column(table, "kind", "kind");
    table_column(table, "build", "build");
    table_column(table, "stored", "stored");
    table_column(table, "requests", "requests");
    table_column(table, "completed", "completed");
    bool good = results_runs_each(store, &filter, add_run, table, error);
    if (good)
        output_table(&output, table);
    table_free(table);
    return results_close(store, error) && good ? EXIT_OK : EXIT_USER;
}

const struct command command_runs = {
    .name = "runs",
    .operands = "",
    .summary = "the runs that the results database holds, the newest first",
    .options = runs_options,
    .run = runs_run,
};

/* ---- show -------------------------------------------------------------------------------------------------------- */

static const struct option show_options[] = {
    DB_OPTION,
    {"format", OUTPUT_FORMATS, "of the answer", OPTION_CHOICE},
    OPTIONS_END,
};

/* The plan that is meant: by the name of its scenario, or as what a run stands behind. A number means the run
 * itself. */
static json_t *plan_of(struct results *store, const char *name, int64_t run, struct user_error *error)
{
    struct run_report report;
    if (name[strspn(name, "0123456789")] == '\0')
        return NULL;
    if (run == 0)
        return results_plan_json(store, 0, name, error);
    if (!results_run_read(store, run, &report, error))
        return NULL;
    json_t *plan = strcmp(report.kind, "report") == 0 ? results_plan_json(store, run, NULL, error) : NULL;
    run_report_free(&report);
    return plan;
}

static void show_plan(json_t *plan, const struct output *output)
{
    json_t *plans = json_pack("[o]", plan);
    if (output->format == OUTPUT_JSON)
        output_json(output, plan);
    else if (output->format == OUTPUT_CSV)
        plan_print_rows(plans, output);
    else
        plan_print(plan, output, PLAN_ROWS);
    json_decref(plans);
}

static void show_stored(struct results *store, const char *name, const struct output *output, struct user_error *error)
{
    struct user_error no_run = {.set = false};
    int64_t run = results_run_lookup(store, name, &no_run);
    json_t *plan = plan_of(store, name, run, error);
    struct run_report report;
    if (plan != NULL) {
        show_plan(plan, output);
    } else if (run == 0 && !error->set) {
        *error = no_run;
    } else if (!error->set && results_run_read(store, run, &report, error)) {
        report_run(&report, output);
        run_report_free(&report);
    }
}

static int show_run(const struct command_context *context, const struct arguments *arguments, struct user_error *error)
{
    struct output output = output_to(context->out, argument_text(arguments, "format"));
    struct results *store = results_open(database_path(arguments), RESULTS_READ, error);
    if (store == NULL)
        return EXIT_USER;
    show_stored(store, operand(arguments, 0), &output, error);
    return results_close(store, error) && !error->set ? EXIT_OK : EXIT_USER;
}

const struct command command_show = {
    .name = "show",
    .operands = "RUN",
    .operands_min = 1,
    .operands_max = 1,
    .summary = "a stored run, or plan, as `tandem run` and `tandem plan` showed it",
    .description =
        "RUN is a run's number, last, last~N, SCENARIO/SEED, or SCENARIO. Where that is the run behind a plan's\n"
        "verdict, or a scenario that was planned and not run, the plan is shown; a number means the run itself.",
    .options = show_options,
    .run = show_run,
};

/* ---- rm ---------------------------------------------------------------------------------------------------------- */

static const struct option rm_options[] = {DB_OPTION, OPTIONS_END};

static int rm_run(const struct command_context *context, const struct arguments *arguments, struct user_error *error)
{
    struct results *store = results_open(database_path(arguments), RESULTS_WRITE, error);
    if (store == NULL)
        return EXIT_USER;
    /* All names are looked up first: what `last` means must not move while runs go. */
    int64_t runs[64];
    size_t count = operand_count(arguments);
    bool good = true;
    for (size_t k = 0; good && k < count; k++) {
        runs[k] = results_run_lookup(store, operand(arguments, k), error);
        good = runs[k] != 0;
    }
    for (size_t k = 0; good && k < count; k++) {
        good = results_run_delete(store, runs[k], error);
        if (good)
            fprintf(context->out, "run %" PRId64 " deleted\n", runs[k]);
    }
    return results_close(store, error) && good ? EXIT_OK : EXIT_USER;
}

const struct command command_rm = {
    .name = "rm",
    .operands = "RUN...",
    .operands_min = 1,
    .operands_max = 64,
    .summary = "delete stored runs, with all that belongs to them",
    .description = "RUN is a run's number, last, last~N, or SCENARIO/SEED. Numbers are not used again.\n"
                   "The file keeps its size for what comes next; `tandem gc` makes it smaller.",
    .options = rm_options,
    .run = rm_run,
};

/* ---- gc ---------------------------------------------------------------------------------------------------------- */

static const struct option gc_options[] = {
    {"probes", NULL, "delete probes and report runs of plans", OPTION_FLAG},
    {"other-builds", NULL, "delete simulated runs of other builds: this one never uses them again", OPTION_FLAG},
    {"older-than", "DAYS", "delete runs, real ones too, that were stored before so many days", OPTION_INTEGER},
    DB_OPTION,
    OPTIONS_END,
};

static int gc_run(const struct command_context *context, const struct arguments *arguments, struct user_error *error)
{
    int64_t days = argument_integer(arguments, "older-than", -1);
    if (days > 100000) {
        user_error_set(error, NULL, 0, NULL, "--older-than: %" PRId64 " is not between 0 and 100000", days);
        return EXIT_USER;
    }
    struct results_garbage garbage = {
        .probes = argument_flag(arguments, "probes"),
        .before_unix_s = days < 0 ? 0 : (int64_t)time(NULL) + 1 - days * 24 * 3600,
        .other_builds_than = argument_flag(arguments, "other-builds") ? build_identity : NULL,
    };
    struct results *store = results_open(database_path(arguments), RESULTS_WRITE, error);
    if (store == NULL)
        return EXIT_USER;
    uint64_t runs;
    bool good = results_collect(store, &garbage, &runs, error);
    good = results_close(store, error) && good;
    if (good)
        fprintf(context->out, "%" PRIu64 " runs deleted\n", runs);
    return good ? EXIT_OK : EXIT_USER;
}

const struct command command_gc = {
    .name = "gc",
    .operands = "",
    .summary = "delete what is not needed any more, and make the results database smaller",
    .description = "Without options nothing but free space goes.",
    .options = gc_options,
    .run = gc_run,
};
