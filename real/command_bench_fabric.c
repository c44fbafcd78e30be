/* `tandem bench-fabric`: the transfer engine beside a bare libfabric loop. */
#include "real/commands.h"

#include "base/arith.h"
#include "host/output.h"
#include "real/fabric/fabric_bench.h"
#include "real/fabric/provider.h"

#include <stdio.h>

#define TURNS_MOST 15
#define MILLISECONDS_MOST 60000

static const struct option bench_fabric_options[] = {
    {"provider", "NAME", "only this one (default: shm and tcp)", OPTION_LIST},
    {"address", "ADDRESS", "to bind to (default 127.0.0.1)", OPTION_TEXT},
    {"window", "N", "writes in flight (default 32)", OPTION_INTEGER},
    {"turns", "N", "of each of the two, the median counts (default 3)", OPTION_INTEGER},
    {"milliseconds", "N", "of a turn (default 300)", OPTION_INTEGER},
    {"format", OUTPUT_FORMATS, "how to write the table", OPTION_CHOICE},
    {NULL, NULL, NULL, 0},
};

static bool measure(const struct arguments *arguments, struct fabric_bench_config *config, struct table *table,
                    struct user_error *error)
{
    char text[256] = "";
    size_t cursor = 0;
    config->provider = argument_next(arguments, "provider", &cursor);
    if (config->provider == NULL) {
        config->provider = "shm";
        if (fabric_bench(config, table, text, sizeof text)) {
            config->provider = "tcp";
            fabric_bench(config, table, text, sizeof text);
        }
    } else {
        for (; config->provider != NULL && text[0] == '\0';
             config->provider = argument_next(arguments, "provider", &cursor)) {
            if (provider_find(config->provider) == NULL)
                snprintf(text, sizeof text, "no provider \"%s\"; known: efa, verbs, tcp, net, shm", config->provider);
            else
                fabric_bench(config, table, text, sizeof text);
        }
    }
    if (text[0] != '\0')
        user_error_set(error, NULL, 0, NULL, "%s", text);
    return !error->set;
}

static int bench_fabric_run(const struct command_context *command, const struct arguments *arguments,
                            struct user_error *error)
{
    struct output output = output_to(command->out, argument_text(arguments, "format"));
    int64_t window = argument_integer(arguments, "window", 32);
    int64_t turns = argument_integer(arguments, "turns", 3);
    int64_t milliseconds = argument_integer(arguments, "milliseconds", 300);
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
    struct table *table = fabric_bench_table();
    bool good = measure(arguments, &config, table, error);
    if (good && output.format == OUTPUT_JSON) {
        json_t *json = json_object();
        json_object_set_new(json, "paged", table_json(table));
        output_json(&output, json);
        json_decref(json);
    } else if (good) {
        output_table(&output, table);
    }
    table_free(table);
    return good ? EXIT_OK : EXIT_USER;
}

const struct command command_bench_fabric = {
    .name = "bench-fabric",
    .operands = "",
    .operands_min = 0,
    .operands_max = 0,
    .summary = "measure the transfer engine beside a bare libfabric loop",
    .description =
        "Pages of several sizes between two processes, over loopback unless an address is given. Engine and bare\n"
        "loop take turns with the same flags and window; each figure is the median of its turns. Single writes\n"
        "one at a time give the times to post, to the completion and to the counted immediate at the target.",
    .options = bench_fabric_options,
    .run = bench_fabric_run,
};
