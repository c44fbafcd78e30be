/* `tandem bench-fabric`: the transfer engine beside a bare libfabric loop. */
#include "cli/real/commands_real.h"

#include "base/arith.h"
#include "host/busy.h"
#include "host/output.h"
#include "real/bench/fabric_bench.h"

#include <stdio.h>

#define TURNS_MOST FABRIC_BENCH_TURNS_MAX
#define MILLISECONDS_MOST 60000

static const struct option bench_fabric_options[] = {
    {"provider", "NAME", "only this one (default: shm and tcp)", OPTION_LIST},
    {"address", "ADDRESS", "to bind to (default 127.0.0.1)", OPTION_TEXT},
    {"window", "N", "writes in flight (default 32)", OPTION_INTEGER},
    {"turns", "N", "of each of the two, the median counts (default 5)", OPTION_INTEGER},
    {"milliseconds", "N", "counted of a stream (default 200)", OPTION_INTEGER},
    {"format", OUTPUT_FORMATS, "how to write the table", OPTION_CHOICE},
    {NULL, NULL, NULL, 0},
};

static bool measure(const struct arguments *arguments, struct fabric_bench_config *config, struct table *speeds,
                    struct table *latencies, struct user_error *error)
{
    static const char *const usual[] = {"shm", "tcp"};
    size_t cursor = 0;
    const char *name = argument_next(arguments, "provider", &cursor);
    bool chosen = name != NULL;
    for (size_t i = 0; chosen ? name != NULL : i < sizeof usual / sizeof *usual; i++) {
        config->provider = chosen ? name : usual[i];
        if (!fabric_bench(config, speeds, latencies, error))
            return false;
        name = chosen ? argument_next(arguments, "provider", &cursor) : NULL;
    }
    return true;
}

static int bench_fabric_run(const struct command_context *command, const struct arguments *arguments,
                            struct user_error *error)
{
    struct output output = output_to(command->out, argument_text(arguments, "format"));
    int64_t window = argument_integer(arguments, "window", 32);
    int64_t turns = argument_integer(arguments, "turns", 5);
    int64_t milliseconds = argument_integer(arguments, "milliseconds", 200);
    const char *address = argument_text(arguments, "address");
    if (window < 1 || window > 1024 || turns < 1 || turns > TURNS_MOST || milliseconds < 1 ||
        milliseconds > MILLISECONDS_MOST) {
        user_error_set(error, NULL, 0, NULL, "--window is 1 to 1024, --turns 1 to %d, --milliseconds 1 to %d",
                       TURNS_MOST, MILLISECONDS_MOST);
        return EXIT_USER;
    }
    struct fabric_bench_config config = {
        .address = address != NULL ? address : "127.0.0.1",
        .window = (uint32_t)window,
        .turns = (uint32_t)turns,
        .duration_ns = milliseconds * NS_PER_MS,
    };
    struct table *speeds = fabric_bench_speeds();
    struct table *latencies = fabric_bench_latencies();
    struct machine_load load = machine_load();
    machine_busy_warn(command->err, &load, "speeds and latencies");
    bool good = measure(arguments, &config, speeds, latencies, error);
    if (good && output.format == OUTPUT_JSON) {
        json_t *json = json_object();
        json_object_set_new(json, "load", json_fixed(load.load_permille, 3));
        json_object_set_new(json, "processors", json_integer(load.processors));
        json_object_set_new(json, "speeds", table_json(speeds));
        json_object_set_new(json, "latencies", table_json(latencies));
        output_json(&output, json);
        json_decref(json);
    } else if (good) {
        output_table(&output, speeds);
        fputc('\n', output.file);
        output_table(&output, latencies);
    }
    table_free(speeds);
    table_free(latencies);
    return good ? EXIT_OK : EXIT_USER;
}

const struct command command_bench_fabric = {
    .name = "bench-fabric",
    .operands = "",
    .operands_min = 0,
    .operands_max = 0,
    .summary = "measure the transfer engine beside a bare libfabric loop",
    .description =
        "Pages of several sizes between two processes, over loopback unless an address is given. The engine is driven\n"
        "through its thread, as a node's messenger drives it, with many pages to a write and with one; the bare loop\n"
        "posts the same writes with libfabric alone. The two take turns. Speeds are medians of the turns; of bare is\n"
        "the median of the ratios of neighbouring turns, low and high are its quartiles; where these are more than a\n"
        "fifth of the median apart the ratio is called noise. Latencies are of one write at a time: from the\n"
        "messenger's command to the post, to the word of its delivery, and to the event at the target's loop;\n"
        "of that, the last step from the counted immediate to the event.",
    .options = bench_fabric_options,
    .run = bench_fabric_run,
};
