/* `tandem calibrate`: this machine as a hardware profile. */
#include "cli/real/commands_real.h"

#include "base/arith.h"
#include "host/interrupt.h"
#include "host/memory.h"
#include "host/output.h"
#include "cli/run_options.h"
#include "real/calibrate/calibrate.h"
#include "real/fabric/fabric.h"
#include "real/executor/executor.h"

#include <stdio.h>
#include <stdlib.h>

#define OUT_DEFAULT "host-calibrated.lua"
#define BASE_DEFAULT "hardware.host"
#define BIND_DEFAULT "127.0.0.1"
#define REPEAT_DEFAULT 15
#define WINDOW_DEFAULT 64
#define WINDOW_MOST 4096
#define MISFIT_DEFAULT 25
#define MISFIT_MOST 100000

static const struct option calibrate_options[] = {
    {"out", "FILE", "the profile (default " OUT_DEFAULT ")", OPTION_TEXT},
    {"force", NULL, "overwrite FILE even if it is no profile of this command", OPTION_FLAG},
    {"base", "NAME", "profile with what is not measured: a module or a file (default " BASE_DEFAULT ")", OPTION_TEXT},
    {"name", "NAME", "of the machine (default: the base's, calibrated)", OPTION_TEXT},
    {"repeat", "N", "rounds over the steps, the median counts (default 15)", OPTION_INTEGER},
    {"device", "host|cuda", "what computes the steps (default host)", OPTION_CHOICE},
    {"set", "PATH=VALUE", "a value of the scenarios", OPTION_LIST},
    {"misfit", "PERCENT", "that fits may miss what was measured by, on average (default 25)", OPTION_INTEGER},
    {"in-run", NULL, "run each scenario for real, other arrivals, and correct steps and messages by that", OPTION_FLAG},
    {"provider", "NAME", "of the fabric (default: the best that works)", OPTION_TEXT},
    {"bind", "ADDRESS", "of control and fabric (default " BIND_DEFAULT ")", OPTION_TEXT},
    {"window", "N", "writes in flight (default 64)", OPTION_INTEGER},
    {"format", OUTPUT_FORMATS, "how to write the summary", OPTION_CHOICE},
    {NULL, NULL, NULL, OPTION_FLAG},
};

static const char *text_or(const struct arguments *arguments, const char *name, const char *otherwise)
{
    const char *text = argument_text(arguments, name);
    return text == NULL ? otherwise : text;
}

/* False with an error: before anything is measured. */
static bool read_arguments(const struct arguments *arguments, struct calibration *what, const char *scenarios[],
                           struct user_error *error)
{
    int64_t repeat = argument_integer(arguments, "repeat", REPEAT_DEFAULT);
    int64_t window = argument_integer(arguments, "window", WINDOW_DEFAULT);
    int64_t misfit = argument_integer(arguments, "misfit", MISFIT_DEFAULT);
    struct user_error why = {.set = false};
    *what = (struct calibration){
        .base = text_or(arguments, "base", BASE_DEFAULT),
        .name = argument_text(arguments, "name"),
        .device = text_or(arguments, "device", "host"),
        .bind = text_or(arguments, "bind", BIND_DEFAULT),
        .provider = argument_text(arguments, "provider"),
        .rounds = (uint32_t)min_i64(repeat, STEP_ROUNDS_MAX),
        .window = (uint32_t)min_i64(window, WINDOW_MOST),
        .misfit_permille = (uint32_t)min_i64(max_i64(misfit, 0), MISFIT_MOST) * 10,
        .in_run = argument_flag(arguments, "in-run"),
        .scenarios = scenarios,
        .scenario_count = operand_count(arguments),
    };
    for (size_t i = 0; i < what->scenario_count; i++)
        scenarios[i] = operand(arguments, i);
    if (repeat < 1 || repeat > STEP_ROUNDS_MAX)
        user_error_set(error, NULL, 0, NULL, "--repeat: %lld is not between 1 and %u", (long long)repeat,
                       STEP_ROUNDS_MAX);
    if (window < 1 || window > WINDOW_MOST)
        user_error_set(error, NULL, 0, NULL, "--window: %lld is not between 1 and %d", (long long)window, WINDOW_MOST);
    if (misfit < 0 || misfit > MISFIT_MOST)
        user_error_set(error, NULL, 0, NULL, "--misfit: %lld is not between 0 and %d percent", (long long)misfit,
                       MISFIT_MOST);
    if (what->in_run && what->scenario_count == 0)
        user_error_set(error, NULL, 0, NULL, "--in-run: names no scenario to run");
    if (executor_device(what->device, &why) == NULL)
        user_error_set(error, NULL, 0, NULL, "--device: %s", why.text);
    return !error->set;
}

/* ---- The summary ------------------------------------------------------------------------------------------------- */

static struct table *machine_table(const struct hardware *hardware)
{
    struct table *table = table_new("machine");
    table_column(table, "provider", "provider");
    table_column(table, "base_us", "base us");
    table_column(table, "bandwidth_gb_per_s", "GB/s");
    table_column(table, "gap_us", "gap us");
    table_column(table, "knee", "knee");
    table_column(table, "posting_us", "posting us");
    table_column(table, "watcher_us", "watcher us");
    table_column(table, "poll_us", "poll us");
    table_column(table, "message_us", "message us");
    table_column(table, "arm_us", "arm us");
    table_row(table);
    table_text(table, hardware->nic.name);
    table_fixed(table, fixed_round(hardware->nic.base_ns, 3, 1), 1);
    table_fixed(table, fixed_round((int64_t)hardware->nic.bytes_per_s, 9, 3), 3);
    table_fixed(table, fixed_round(hardware->nic.gap_ps, 6, 3), 3);
    table_fixed(table, hardware->nic.knee_permille, 3);
    table_fixed(table, fixed_round(hardware->nic.posting_ps, 6, 3), 3);
    table_fixed(table, fixed_round(hardware->watcher_ns, 3, 1), 1);
    table_fixed(table, fixed_round(hardware->poll_ns, 3, 1), 1);
    table_fixed(table, fixed_round(hardware->message_ns, 3, 1), 1);
    table_fixed(table, fixed_round(hardware->arm_ns, 3, 1), 1);
    return table;
}

static struct table *fabric_table(const struct profile *profile)
{
    struct table *table = table_new("writes, measured and fitted");
    table_column(table, "bytes", "bytes");
    table_column(table, "single_us", "alone us");
    table_column(table, "single_fitted_us", "fitted us");
    table_column(table, "streamed_us", "streamed us");
    table_column(table, "streamed_fitted_us", "fitted us");
    for (uint32_t s = 0; s < FABRIC_SIZES; s++) {
        const struct write_time *single = &profile->fabric.single[s];
        const struct write_time *stream = &profile->fabric.stream[s];
        table_row(table);
        table_integer(table, (int64_t)single->bytes);
        table_fixed(table, fixed_round(single->ps, 6, 2), 2);
        table_fixed(table, fixed_round(nic_single_ps(&profile->hardware.nic, single->bytes), 6, 2), 2);
        table_fixed(table, fixed_round(stream->ps, 6, 3), 3);
        table_fixed(table, fixed_round(nic_paged_ps(&profile->hardware.nic, stream->bytes), 6, 3), 3);
    }
    return table;
}

/* The smallest and the largest step of a grid; nothing for one that was not measured. */
static void add_range(struct table *table, const struct step_grid *grid)
{
    if (grid->row_count == 0) {
        table_none(table);
        table_none(table);
        return;
    }
    table_fixed(table, fixed_round(grid->ns[0][0], 6, 3), 3);
    table_fixed(table, fixed_round(grid->ns[grid->row_count - 1][grid->column_count - 1], 6, 3), 3);
}

static struct table *steps_table(const struct profile *profile)
{
    struct table *table = table_new("steps");
    table_column(table, "steps", "steps of");
    table_column(table, "cells_measured", "cells");
    table_column(table, "cells_filled", "filled");
    table_column(table, "spread_percent", "spread %");
    table_column(table, "prefill_least_ms", "prefill ms from");
    table_column(table, "prefill_most_ms", "to");
    table_column(table, "decode_least_ms", "decode ms from");
    table_column(table, "decode_most_ms", "to");
    table_column(table, "first_layer_ms", "first layer ms");
    for (uint32_t t = 0; t < profile->steps->count; t++) {
        const struct step_job *job = &profile->steps->item[t];
        table_row(table);
        table_text(table, job->name);
        table_integer(table, profile->quality[t].cells_measured);
        table_integer(table, profile->quality[t].cells_filled);
        table_fixed(table, profile->quality[t].spread_permille, 1);
        add_range(table, &job->table.prefill);
        add_range(table, &job->table.decode);
        table_fixed(table, fixed_round(job->table.first_layer_ns, 6, 3), 3);
    }
    return table;
}

static void tell(const struct command_context *command, const struct output *output, const char *path,
                 const struct profile *profile)
{
    struct table *machine = machine_table(&profile->hardware);
    struct table *fabric = fabric_table(profile);
    struct table *steps = steps_table(profile);
    if (output->format == OUTPUT_JSON) {
        json_t *rows = table_json(machine);
        json_t *json = json_object();
        json_object_set_new(json, "profile", json_string(path));
        json_object_set_new(json, "name", json_string(profile->hardware.name));
        json_object_set_new(json, "date", json_string(profile->date));
        json_object_set_new(json, "processors", json_integer(profile->load.processors));
        json_object_set_new(json, "misfit_alone_percent", json_fixed(profile->misfit.alone_permille, 1));
        json_object_set_new(json, "misfit_streamed_percent", json_fixed(profile->misfit.streamed_permille, 1));
        json_object_set_new(json, "load", json_fixed(profile->load.load_permille, 3));
        json_object_set(json, "machine", json_array_get(rows, 0));
        json_object_set_new(json, "writes", table_json(fabric));
        json_object_set_new(json, "steps", table_json(steps));
        output_json(output, json);
        json_decref(json);
        json_decref(rows);
    } else {
        output_table(output, machine);
        output_table(output, fabric);
        if (profile->steps->count > 0)
            output_table(output, steps);
        fprintf(command->err, "written: %s\n", path);
    }
    table_free(machine);
    table_free(fabric);
    table_free(steps);
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static int calibrate_run(const struct command_context *command, const struct arguments *arguments,
                         struct user_error *error)
{
    struct output output = output_to(command->out, argument_text(arguments, "format"));
    const char *path = text_or(arguments, "out", OUT_DEFAULT);
    const char *scenarios[STEP_TABLES_MAX];
    struct calibration what;
    struct scenario_sets sets = {.count = 0};
    if (!scenario_sets_read(arguments, &sets, error) || !read_arguments(arguments, &what, scenarios, error) ||
        !profile_may_write(path, argument_flag(arguments, "force"), error)) {
        scenario_sets_free(&sets);
        return EXIT_USER;
    }
    what.sets = sets.sets;
    what.set_count = sets.count;
    struct calibrated *result = memory_zeroed(1, sizeof *result);
    interrupt_install();
    struct machine_load load = machine_load();
    machine_busy_warn(command->err, &load, "times");
    bool good = calibrate(&what, result, error) && profile_write(path, &result->profile, error);
    if (good)
        tell(command, &output, path, &result->profile);
    free(result);
    scenario_sets_free(&sets);
    if (!good && !error->set) {
        fprintf(command->err, "interrupted: nothing was written\n");
        return EXIT_INTERRUPTED;
    }
    return good ? EXIT_OK : EXIT_USER;
}

const struct command command_calibrate = {
    .name = "calibrate",
    .operands = "[SCENARIO...]",
    .operands_min = 0,
    .operands_max = STEP_TABLES_MAX,
    .summary = "measure this machine and write a hardware profile",
    .description =
        "The fabric and the control plane between two processes over loopback, and for each model and sharding of\n"
        "the scenarios the time of its steps over tokens and context, in executor processes as a run has them.\n"
        "The profile is a file that scenarios can name as their machine. A quiet machine is wanted: the load\n"
        "average is told and written into the profile, and none is written whose fits miss what was measured by more\n"
        "than --misfit says, or whose steps spread by more.",
    .options = calibrate_options,
    .run = calibrate_run,
};
