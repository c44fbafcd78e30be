/* tandem timeline: a stored run as a timeline, and where two stored runs part. */
#include "host/interrupt.h"
#include "host/output.h"
#include "run/timeline.h"
#include "cli/commands.h"
#include "sim/check/first_divergence.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct option timeline_options[] = {
    {"bisect", NULL, "instead: the first trace record in which two runs differ", OPTION_FLAG},
    {"out", "FILE", "write the timeline to FILE (standard output)", OPTION_TEXT},
    {"db", "FILE", "the results database (tandem.db)", OPTION_TEXT},
    {"format", "text|json", "of --bisect", OPTION_CHOICE},
    {NULL, NULL, NULL, OPTION_FLAG},
};

/* ---- Where two runs part ----------------------------------------------------------------------------------------- */

static int bisect(struct results *store, int64_t a, int64_t b, const struct output *output, struct user_error *error)
{
    struct divergence found;
    struct run_report reports[2] = {{.run = 0}, {.run = 0}};
    char names[2][32];
    bool good = results_run_read(store, a, &reports[0], error) && results_run_read(store, b, &reports[1], error);
    bool same = good && reports[0].trace_hash == reports[1].trace_hash;
    memset(&found, 0, sizeof found);
    if (good && !same)
        good = sim_divergence(store, a, b, &found, error);
    run_report_free(&reports[0]);
    run_report_free(&reports[1]);
    if (!good)
        return EXIT_USER;
    if (found.unknown[0] != '\0') {
        user_error_set(error, NULL, 0, NULL, "the traces cannot be compared: %s", found.unknown);
        return EXIT_USER;
    }
    snprintf(names[0], sizeof names[0], "run %" PRId64, a);
    snprintf(names[1], sizeof names[1], "run %" PRId64, b);
    if (output->format == OUTPUT_JSON) {
        json_t *json = json_pack("{s:I, s:I, s:b, s:o}", "a", (json_int_t)a, "b", (json_int_t)b, "same", same,
                                 "divergence", divergence_json(&found));
        output_json(output, json);
        json_decref(json);
    } else if (same) {
        fputs("the same decisions at the same times\n", output->file);
    } else {
        divergence_write(output->file, &found, names[0], names[1], "");
    }
    return same ? EXIT_OK : EXIT_WORSE;
}

/* ---- A timeline -------------------------------------------------------------------------------------------------- */

static int timeline(struct results *store, int64_t run, const char *path, FILE *out, struct user_error *error)
{
    FILE *file = path == NULL ? out : fopen(path, "w");
    if (file == NULL) {
        user_error_set(error, path, 0, "--out", "cannot be written: %s", strerror(errno));
        return EXIT_USER;
    }
    bool good = timeline_write(store, run, file, error);
    if (file != out && fclose(file) != 0 && good)
        user_error_set(error, path, 0, "--out", "could not be written");
    return error->set ? EXIT_USER : EXIT_OK;
}

static int timeline_run(const struct command_context *context, const struct arguments *arguments,
                        struct user_error *error)
{
    struct output output = output_to(context->out, argument_text(arguments, "format"));
    bool two = argument_flag(arguments, "bisect");
    const char *path = argument_text(arguments, "out");
    if (two != (operand_count(arguments) == 2) || (two && path != NULL)) {
        user_error_set(error, NULL, 0, "--bisect", "%s",
                       two && path != NULL ? "makes no timeline: --out is for one run"
                       : two               ? "two runs are wanted: tandem timeline --bisect A B"
                                           : "goes with two runs; one run makes a timeline");
        return EXIT_USER;
    }
    interrupt_install();
    struct results *store = results_open(database_path(arguments), RESULTS_READ, error);
    if (store == NULL)
        return EXIT_USER;
    int64_t a = results_run_lookup(store, operand(arguments, 0), error);
    int64_t b = two && a != 0 ? results_run_lookup(store, operand(arguments, 1), error) : 0;
    int exit = EXIT_USER;
    if (two && b != 0)
        exit = bisect(store, a, b, &output, error);
    else if (!two && a != 0)
        exit = timeline(store, a, path, context->out, error);
    results_close(store, error);
    return interrupt_requested() ? EXIT_INTERRUPTED : exit;
}

const struct command command_timeline = {
    .name = "timeline",
    .formerly = "trace",
    .operands = "RUN | --bisect A B",
    .operands_min = 1,
    .operands_max = 2,
    .summary = "a stored run as a timeline for ui.perfetto.dev; --bisect: where two runs part",
    .description =
        "A run is its number, last, last~N, or SCENARIO/SEED. The timeline has the spans of every request, and steps "
        "and\n"
        "transfers where the run recorded them (tandem run --record transfers,steps).\n"
        "With --bisect both runs, simulated by this build, are simulated again, and the first decision in which they\n"
        "differ is told: when, at which node, about which request, what led to it, and what every node had to do.\n"
        "Exit status: 0 all decisions are the same; 1 they differ.",
    .options = timeline_options,
    .run = timeline_run,
};
