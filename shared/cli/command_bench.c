/* tandem bench: how fast the simulator is, and how much memory it takes.
 *
 * Every run is a child process of its own, so that its peak memory is its own: what the kernel accounts to the child
 * when it ends. The first figure is a scenario as it stands, several times, of which the median counts; the others
 * are the same scenario with a million requests whose rows stream to a database, the whole `tandem run` of as many, and
 * a tenth of them on a cluster of 1,000 instances.
 */
#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L
#include "base/arith.h"
#include "host/output.h"
#include "cli/commands.h"
#include "cli/run_options.h"
#include "run/stored_run.h"
#include "sim/sim_run.h"
#include "host/clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MILLION 1000000
#define INSTANCES 1000
#define REPEATS_MAX 99

static const struct option bench_options[] = {
    {"set", "PATH=VALUE", "change a value of the scenario", OPTION_LIST},
    {"repeat", "N", "runs of the scenario as it stands; the median counts (5)", OPTION_INTEGER},
    {"requests", "N", "of the long runs (1000000; a tenth on many instances); 0 leaves them out", OPTION_INTEGER},
    {"format", OUTPUT_FORMATS, "of the answer", OPTION_CHOICE},
    {NULL, NULL, NULL, OPTION_FLAG},
};

/* What a child tells its parent. */
struct measured {
    bool complete;
    uint64_t requests;
    uint64_t events;
    uint64_t steps;
    int64_t wall_ns;
    int64_t peak_kib; /* filled in by the parent */
};

/* Without a database: the simulation alone. */
static struct measured simulate(const struct scenario *scenario, const struct trace_file *recorded)
{
    struct deployment_choice choice = deployment_default(scenario);
    struct run_models models;
    struct run_config config = {.scenario = scenario,
                                .choice = &choice,
                                .seed = scenario->seed,
                                .recorded = recorded,
                                .options = &(struct sim_options){.models = &models}};
    struct run_result result;
    struct user_error why = {.set = false};
    /* Reading kernel tables is not simulating: a plan does it once for thousands of runs. */
    if (!run_models_make(scenario, &choice, &models, &why))
        return (struct measured){.complete = false};
    int64_t start_ns = clock_now_ns();
    run_play(&sim_backend, &config, &result);
    struct measured measured = {
        .complete = result.status == RUN_COMPLETE,
        .requests = result.summary.arrived,
        .events = result.summary.event_count,
        .steps = result.steps,
        .wall_ns = clock_now_ns() - start_ns,
    };
    run_result_free(&result);
    run_models_free(&models);
    return measured;
}

static struct measured simulate_as_is(struct scenario *scenario, const struct trace_file *recorded, uint32_t requests)
{
    (void)requests;
    return simulate(scenario, recorded);
}

static struct measured simulate_stored(struct scenario *scenario, const struct trace_file *recorded, uint32_t requests)
{
    char path[] = "/tmp/tandem-bench-XXXXXX";
    struct measured measured = {.complete = false};
    struct user_error error = {.set = false};
    int file = mkstemp(path);
    if (file < 0)
        return measured;
    close(file);
    scenario->load.requests = requests;
    struct results *store = results_open(path, RESULTS_WRITE, &error);
    if (store != NULL) {
        struct deployment_choice choice = deployment_default(scenario);
        struct run_config config = {
            .scenario = scenario, .choice = &choice, .seed = scenario->seed, .recorded = recorded};
        struct stored_run what = {.store = store, .backend = &sim_backend, .config = &config, .kind = RESULTS_RUN};
        int64_t run;
        int64_t start_ns = clock_now_ns();
        struct run_summary summary;
        measured.complete = stored_run(&what, &run, &summary, &error) == RUN_COMPLETE;
        measured.wall_ns = clock_now_ns() - start_ns;
        measured.requests = summary.arrived;
        measured.events = summary.event_count;
        results_close(store, &error);
    }
    unlink(path);
    return measured;
}

/* The same load an instance on so many instances more: pools in their proportion. */
static struct measured simulate_many(struct scenario *scenario, const struct trace_file *recorded, uint32_t requests)
{
    uint32_t instances = 0;
    for (uint32_t p = 0; p < scenario->pool_count; p++)
        instances += scenario->pools[p].count;
    uint32_t times = max_u32(1, INSTANCES / max_u32(1, instances));
    for (uint32_t p = 0; p < scenario->pool_count; p++)
        scenario->pools[p].count *= times;
    scenario->load.rate_micro_per_s *= times;
    scenario->load.requests = requests;
    return simulate(scenario, recorded);
}

/* Runs one measurement in a child; `requests` 0: as it stands. */
typedef struct measured measurement(struct scenario *scenario, const struct trace_file *recorded, uint32_t requests);

static struct measured in_child(measurement *measure, struct scenario *scenario, const struct trace_file *recorded,
                                uint32_t requests)
{
    struct measured measured = {.complete = false};
    int ends[2];
    if (pipe(ends) != 0)
        return measured;
    pid_t child = fork();
    if (child == 0) {
        struct measured mine = measure(scenario, recorded, requests);
        ssize_t written = write(ends[1], &mine, sizeof mine);
        _exit(written == (ssize_t)sizeof mine ? 0 : 1);
    }
    close(ends[1]);
    if (child > 0) {
        int status;
        struct rusage usage;
        if (read(ends[0], &measured, sizeof measured) != (ssize_t)sizeof measured)
            measured.complete = false;
        if (wait4(child, &status, 0, &usage) == child)
            measured.peak_kib = usage.ru_maxrss;
    }
    close(ends[0]);
    return measured;
}

/* The whole command, from its start to its end: this program, run as a user runs it, with the sets that this one
 * has. */
static struct measured whole_command(const struct arguments *arguments, uint32_t requests)
{
    struct measured measured = {.requests = requests};
    char folder[] = "/tmp/tandem-bench-XXXXXX";
    char database[sizeof folder + 16];
    char load[64];
    const char *words[16 + 2 * SETS_MAX] = {"tandem", "run", operand(arguments, 0), "--db", database, "--set", load};
    size_t count = 7;
    size_t cursor = 0;
    const char *set;
    struct rusage usage;
    int status;
    if (mkdtemp(folder) == NULL)
        return measured;
    snprintf(database, sizeof database, "%s/runs.db", folder);
    snprintf(load, sizeof load, "load.requests=%" PRIu32, requests);
    while ((set = argument_next(arguments, "set", &cursor)) != NULL && count + 3 < sizeof words / sizeof *words) {
        words[count++] = "--set";
        words[count++] = set;
    }
    int64_t start_ns = clock_now_ns();
    pid_t child = fork();
    if (child == 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        if (nowhere < 0 || dup2(nowhere, STDOUT_FILENO) < 0 || dup2(nowhere, STDERR_FILENO) < 0)
            _exit(126);
        execv("/proc/self/exe", (char *const *)(uintptr_t)words);
        _exit(126);
    }
    if (child > 0 && wait4(child, &status, 0, &usage) == child) {
        /* What a scenario expects of its own load need not hold of another's. */
        measured.complete = WIFEXITED(status) && WEXITSTATUS(status) <= EXIT_WORSE;
        measured.wall_ns = clock_now_ns() - start_ns;
        measured.peak_kib = usage.ru_maxrss;
    }
    unlink(database);
    rmdir(folder);
    return measured;
}

static int by_wall(const void *left, const void *right)
{
    const struct measured *a = left;
    const struct measured *b = right;
    return a->wall_ns < b->wall_ns ? -1 : a->wall_ns > b->wall_ns;
}

static int64_t per_second(uint64_t count, int64_t wall_ns)
{
    return wall_ns <= 0 ? 0 : (int64_t)mul_div_floor_u64(count, (uint64_t)NS_PER_S, (uint64_t)wall_ns);
}

static void add_figure(struct table *table, json_t *json, const char *name, const struct measured *m)
{
    table_row(table);
    table_text(table, name);
    table_integer(table, (int64_t)m->requests);
    table_fixed(table, fixed_round(m->wall_ns, 9, 3), 3);
    table_integer(table, per_second(m->requests, m->wall_ns));
    if (m->events > 0)
        table_integer(table, per_second(m->events, m->wall_ns));
    else
        table_none(table);
    if (m->steps > 0)
        table_integer(table, per_second(m->steps, m->wall_ns));
    else
        table_none(table);
    table_fixed(table, fixed_round(m->peak_kib * 1000 / 1024, 3, 1), 1);
    json_t *figure = json_object();
    json_object_set_new(figure, "requests", json_integer((json_int_t)m->requests));
    json_object_set_new(figure, "wall_s", json_fixed(fixed_round(m->wall_ns, 9, 3), 3));
    json_object_set_new(figure, "requests_per_wall_second", json_integer(per_second(m->requests, m->wall_ns)));
    if (m->events > 0)
        json_object_set_new(figure, "events_per_second", json_integer(per_second(m->events, m->wall_ns)));
    if (m->steps > 0)
        json_object_set_new(figure, "steps_per_second", json_integer(per_second(m->steps, m->wall_ns)));
    json_object_set_new(figure, "peak_mib", json_fixed(fixed_round(m->peak_kib * 1000 / 1024, 3, 1), 1));
    json_object_set_new(json, name, figure);
}

static int measure(struct scenario *scenario, const struct trace_file *recorded, const struct arguments *arguments,
                   const struct output *output, struct user_error *error)
{
    static struct measured runs[REPEATS_MAX];
    int64_t repeats = argument_integer(arguments, "repeat", 5);
    int64_t requests = argument_integer(arguments, "requests", MILLION);
    if (repeats < 1 || repeats > REPEATS_MAX || requests > UINT32_MAX / 2) {
        user_error_set(error, NULL, 0, NULL, "--repeat is 1 to %d, --requests at most %u", REPEATS_MAX, UINT32_MAX / 2);
        return EXIT_USER;
    }
    for (int64_t i = 0; i < repeats; i++) {
        runs[i] = in_child(simulate_as_is, scenario, recorded, 0);
        if (!runs[i].complete) {
            user_error_set(error, scenario->path, 0, NULL, "the run did not complete");
            return EXIT_USER;
        }
    }
    qsort(runs, (size_t)repeats, sizeof *runs, by_wall);
    struct table *table = table_new(NULL);
    table_column(table, "figure", "figure");
    table_column(table, "requests", "requests");
    table_column(table, "wall_s", "wall s");
    table_column(table, "requests_per_wall_second", "requests/s");
    table_column(table, "events_per_second", "events/s");
    table_column(table, "steps_per_second", "steps/s");
    table_column(table, "peak_mib", "peak MiB");
    json_t *json = json_object();
    add_figure(table, json, "w1", &runs[repeats / 2]);
    if (requests > 0) {
        const struct {
            const char *name;
            struct measured run;
        } long_runs[] = {
            {"million", in_child(simulate_stored, scenario, recorded, (uint32_t)requests)},
            {"run", whole_command(arguments, (uint32_t)requests)},
            {"instances", in_child(simulate_many, scenario, recorded, (uint32_t)max_i64(1, requests / 10))},
        };
        for (size_t k = 0; k < sizeof long_runs / sizeof *long_runs; k++) {
            if (long_runs[k].run.complete)
                add_figure(table, json, long_runs[k].name, &long_runs[k].run);
            else
                user_error_set(error, scenario->path, 0, NULL, "the long run (%s) did not complete", long_runs[k].name);
        }
    }
    if (output->format == OUTPUT_JSON)
        output_json(output, json);
    else
        output_table(output, table);
    json_decref(json);
    table_free(table);
    return error->set ? EXIT_USER : EXIT_OK;
}

static int bench_run(const struct command_context *command, const struct arguments *arguments, struct user_error *error)
{
    struct output output = output_to(command->out, argument_text(arguments, "format"));
    struct scenario_sets sets;
    struct scenario *scenario = NULL;
    int exit = EXIT_USER;
    if (scenario_sets_read(arguments, &sets, error))
        scenario = scenario_load(operand(arguments, 0), sets.sets, sets.count, error);
    if (scenario != NULL) {
        struct trace_file *recorded = scenario_trace(scenario, error);
        if (!error->set)
            exit = measure(scenario, recorded, arguments, &output, error);
        trace_file_free(recorded);
        scenario_free(scenario);
    }
    scenario_sets_free(&sets);
    return exit;
}

const struct command command_bench = {
    .name = "bench",
    .operands = "SCENARIO",
    .operands_min = 1,
    .operands_max = 1,
    .summary = "measure the simulator's own speed and memory",
    .description =
        "Runs the scenario on one core, several times; once with a million requests whose rows are streamed to a\n"
        "database; once as `tandem run` does, from its start to the report; and on 1,000 instances with the same\n"
        "load each. Each run is a process of its own.",
    .options = bench_options,
    .run = bench_run,
};
