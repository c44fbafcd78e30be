/* tandem replay-events: what each node of a real run was told, told to it again: it must make the same calls. */
#include "base/check.h"
#include "base/limits.h"
#include "world/scenario/policy_host.h"
#include "host/interrupt.h"
#include "host/memory.h"
#include "cli/run_options.h"
#include "cli/real/commands_real.h"
#include "real/cluster/real_world.h"
#include "run/rerun.h"
#include "real/runtime/recording.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct option replay_events_options[] = {
    {"db", "FILE", "the results database (tandem.db)", OPTION_TEXT},
    {"format", OUTPUT_FORMATS, "of the answer", OPTION_CHOICE},
    {NULL, NULL, NULL, OPTION_FLAG},
};

/* The run's scenario and deployment, as they were. */
static bool load_world(struct results *store, int64_t run, struct real_world *world, struct user_error *error)
{
    struct rerun rerun;
    bool good = rerun_read(&rerun, store, run, error);
    if (good && strcmp(rerun.report.backend, "real") != 0)
        user_error_set(error, NULL, 0, NULL, "run %" PRId64 " was simulated: only real runs are recorded", run);
    good = good && !error->set && rerun_load(&rerun, store, NULL, 0, error) &&
           real_world_load(world, rerun.origin.path, rerun.sets, rerun.set_count, (int64_t)rerun.report.seed, error);
    rerun_free(&rerun);
    return good;
}

/* Returns whether the node made the same calls, as far as it was recorded; where not, *divergence says which differs,
 * if the recording could be read. */
static bool replay_node(const struct real_world *world, uint32_t node, const char *path, struct table *table,
                        struct divergence *divergence)
{
    struct user_error why = {.set = false};
    const char *name = world->deployment->instances[node].name;
    struct runtime_limits limits = real_world_limits();
    struct policy *policy = policy_host_make(world->scenario, world->deployment->instances[node].pool);
    struct recording_listener listener = {.policy = policy, .divergence = divergence};
    memset(divergence, 0, sizeof *divergence);
    snprintf(divergence->node, sizeof divergence->node, "%s", name);
    int64_t events = recording_replay_heard(path, &world->deployment->configs[node], &limits, &listener, &why);
    policy_host_free(policy);
    table_row(table);
    table_text(table, name);
    if (events < 0)
        table_none(table);
    else
        table_integer(table, events);
    table_text(table, divergence->found ? "other calls" : why.set ? why.text : "the same calls");
    return events >= 0;
}

/* The divergences of all nodes, in the order of the table, are told after it. */
static void print_answer(const struct output *output, const struct table *table, const struct divergence *divergences,
                         uint32_t count)
{
    if (output->format == OUTPUT_JSON) {
        json_t *rows = table_json(table);
        for (uint32_t i = 0; i < count; i++)
            json_object_set_new(json_array_get(rows, i), "divergence", divergence_json(&divergences[i]));
        output_json(output, rows);
        json_decref(rows);
        return;
    }
    output_table(output, table);
    for (uint32_t i = 0; i < count && output->format != OUTPUT_CSV; i++) {
        if (!divergences[i].found)
            continue;
        fputc('\n', output->file);
        divergence_write(output->file, &divergences[i], "recorded", "replayed", "");
    }
}

static int replay_events(const struct real_world *world, const char *folder, const struct output *output,
                         struct user_error *error)
{
    uint32_t found = 0;
    bool same = true;
    struct table *table = table_new(NULL);
    struct divergence *divergences = memory_zeroed(world->deployment->node_count, sizeof *divergences);
    table_column(table, "node", "node");
    table_column(table, "events", "events");
    table_column(table, "outcome", "outcome");
    for (uint32_t i = 0; i < world->deployment->node_count && !interrupt_requested(); i++) {
        char path[1200];
        snprintf(path, sizeof path, "%s/node-%" PRIu32 ".events", folder, i);
        if (access(path, R_OK) != 0)
            continue;
        same = replay_node(world, i, path, table, &divergences[found]) && same;
        found++;
    }
    if (found == 0)
        user_error_set(error, folder, 0, NULL,
                       "holds no recording; `tandem run SCENARIO --backend real --record-events %s` makes one", folder);
    else
        print_answer(output, table, divergences, found);
    free(divergences);
    table_free(table);
    return found == 0 ? EXIT_USER : interrupt_requested() ? EXIT_INTERRUPTED : same ? EXIT_OK : EXIT_WORSE;
}

static int run(const struct command_context *context, const struct arguments *arguments, struct user_error *error)
{
    struct output output = output_to(context->out, argument_text(arguments, "format"));
    struct real_world world = {.scenario = NULL};
    int exit = EXIT_USER;
    interrupt_install();
    struct results *store = results_open(database_path(arguments), RESULTS_READ, error);
    if (store == NULL)
        return EXIT_USER;
    int64_t run = results_run_lookup(store, operand(arguments, 0), error);
    if (run != 0 && load_world(store, run, &world, error))
        exit = replay_events(&world, operand(arguments, 1), &output, error);
    real_world_free(&world);
    results_close(store, error);
    return exit;
}

const struct command command_replay_events = {
    .name = "replay-events",
    .operands = "RUN FOLDER",
    .operands_min = 2,
    .operands_max = 2,
    .summary = "what each node of a real run was told, told again: the same calls?",
    .description =
        "FOLDER is what `tandem run --backend real --record-events` wrote for this run. Each node is made anew,\n"
        "without any process or fabric, and given every recorded event at its recorded time. It must make the calls\n"
        "that it made, byte by byte; the first that differs is told as `tandem check` tells a decision. Exit status 1: "
        "one does.",
    .options = replay_events_options,
    .run = run,
};
