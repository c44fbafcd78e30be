/* tandem fuzz: scenarios drawn from seeds, run under all checkers, until one fails or the budget is used up. */
#define _POSIX_C_SOURCE 200809L

#include "base/arith.h"
#include "host/interrupt.h"
#include "host/memory.h"
#include "host/output.h"
#include "host/progress.h"
#include "world/scenario/scenario_write.h"
#include "cli/commands.h"
#include "sim/swarm/shrink.h"
#include "sim/swarm/swarm.h"
#include "host/thread_pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_MAX (7 * 24 * 3600)
#define EXIT_BUG 127

static const struct option fuzz_options[] = {
    {"seed", "FIRST", "the first seed (1)", OPTION_INTEGER},
    {"seeds", "N", "how many (without --seconds: 1000)", OPTION_INTEGER},
    {"seconds", "S", "stop after so long", OPTION_INTEGER},
    {"jobs", "N", "processes (one a processor)", OPTION_INTEGER},
    {"out", "FILE", "the scenario that fails (fuzz-SEED.lua)", OPTION_TEXT},
    {"complete", NULL, "fail where a pair of state and event is neither reached nor explained", OPTION_FLAG},
    {"no-shrink", NULL, "keep the scenario of the failing seed as it was drawn", OPTION_FLAG},
    {"format", "text|json", "of the answer", OPTION_CHOICE},
    {NULL, NULL, NULL, OPTION_FLAG},
};

/* ---- What was reached -------------------------------------------------------------------------------------------- */

/* Pairs that nobody explains and no seed reached, and those that are explained and happened all the same. */
struct gaps {
    uint32_t pairs;
    uint32_t reached;
    uint32_t unreached;
    uint32_t contradicted;
};

static struct gaps count_gaps(const struct coverage *coverage)
{
    struct gaps gaps = {0};
    for (uint32_t t = 0; coverage_table_name(t) != NULL; t++)
        for (uint32_t s = 0; coverage_state_name(t, s) != NULL; s++)
            for (uint32_t e = 0; coverage_event_name(t, e) != NULL; e++) {
                bool reached = coverage->count[t][s][e] > 0;
                bool explained = coverage_explanation(t, s, e) != NULL;
                gaps.pairs++;
                gaps.reached += reached;
                gaps.unreached += !reached && !explained;
                gaps.contradicted += reached && explained;
            }
    return gaps;
}

/* A number in four places: 7, 1234, 56k, 78M. */
static const char *short_count(uint64_t count, char text[16])
{
    if (count < 10000)
        snprintf(text, 16, "%" PRIu64, count);
    else if (count < 10000000)
        snprintf(text, 16, "%" PRIu64 "k", count / 1000);
    else
        snprintf(text, 16, "%" PRIu64 "M", count / 1000000);
    return text;
}

static void print_coverage(const struct coverage *coverage, const struct output *output)
{
    for (uint32_t t = 0; coverage_table_name(t) != NULL; t++) {
        struct table *table = table_new(NULL);
        table_column(table, "event", coverage_table_name(t));
        for (uint32_t s = 0; coverage_state_name(t, s) != NULL; s++)
            table_column(table, coverage_state_name(t, s), coverage_state_name(t, s));
        for (uint32_t e = 0; coverage_event_name(t, e) != NULL; e++) {
            table_row(table);
            table_text(table, coverage_event_name(t, e));
            for (uint32_t s = 0; coverage_state_name(t, s) != NULL; s++) {
                char text[16];
                uint64_t count = coverage->count[t][s][e];
                bool explained = coverage_explanation(t, s, e) != NULL;
                table_text(table, count == 0 && explained ? "-" : count == 0 ? "NONE" : short_count(count, text));
            }
        }
        output_table(output, table);
        table_free(table);
        fprintf(output->file, "\n");
    }
}

static json_t *coverage_json(const struct coverage *coverage)
{
    json_t *rows = json_array();
    for (uint32_t t = 0; coverage_table_name(t) != NULL; t++)
        for (uint32_t s = 0; coverage_state_name(t, s) != NULL; s++)
            for (uint32_t e = 0; coverage_event_name(t, e) != NULL; e++) {
                const char *why = coverage_explanation(t, s, e);
                json_t *row = json_pack("{s:s, s:s, s:s, s:I}", "node", coverage_table_name(t), "state",
                                        coverage_state_name(t, s), "event", coverage_event_name(t, e), "count",
                                        (json_int_t)coverage->count[t][s][e]);
                if (why != NULL)
                    json_object_set_new(row, "impossible", json_string(why));
                json_array_append_new(rows, row);
            }
    return rows;
}

/* ---- A seed that failed -------------------------------------------------------------------------------------------
 */

static int failure_exit(const struct seed_result *failure)
{
    if (failure->crashed)
        return EXIT_BUG;
    return failure->status == RUN_NO_PROGRESS ? EXIT_NO_PROGRESS
           : failure->status == RUN_INVARIANT ? EXIT_INVARIANT
                                              : EXIT_USER;
}

/* Shrinks it, and leaves it in a file. */
static bool keep_failure(const struct swarm_result *result, const struct arguments *arguments, char *path,
                         size_t path_size, struct seed_result *failure, struct user_error *error)
{
    struct drawn *drawn = memory_zeroed(1, sizeof *drawn);
    fuzz_draw(result->seed, drawn);
    *failure = result->failure;
    if (!argument_flag(arguments, "no-shrink"))
        shrink(drawn, NULL, failure);
    const char *out = argument_text(arguments, "out");
    if (out != NULL)
        snprintf(path, path_size, "%s", out);
    else
        snprintf(path, path_size, "fuzz-%" PRIu64 ".lua", result->seed);
    FILE *file = fopen(path, "w");
    bool written = file != NULL && scenario_write(&drawn->scenario, file);
    if (file != NULL)
        written = fclose(file) == 0 && written;
    if (!written)
        user_error_set(error, path, 0, NULL, "the scenario could not be written: %s", strerror(errno));
    free(drawn);
    return written;
}

/* ---- The answer -------------------------------------------------------------------------------------------------- */

static uint64_t rate(const struct swarm_result *result)
{
    return result->wall_ns <= 0 ? 0 : mul_div_floor_u64(result->seeds, NS_PER_S, (uint64_t)result->wall_ns);
}

static void answer_json(const struct swarm_options *options, const struct swarm_result *result, const char *path,
                        const struct seed_result *failure, const struct output *output)
{
    struct gaps gaps = count_gaps(&result->coverage);
    json_t *json = json_pack("{s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I}", "first", (json_int_t)options->first,
                             "seeds", (json_int_t)result->seeds, "failures", (json_int_t)(result->failed ? 1 : 0),
                             "seeds_per_s", (json_int_t)rate(result), "wall_s",
                             json_fixed(result->wall_ns / NS_PER_MS, 3), "events", (json_int_t)result->events, "pairs",
                             (json_int_t)gaps.pairs, "pairs_reached", (json_int_t)gaps.reached, "pairs_unexplained",
                             (json_int_t)gaps.unreached, "pairs_contradicted", (json_int_t)gaps.contradicted);
    json_object_set_new(json, "coverage", coverage_json(&result->coverage));
    if (result->failed)
        json_object_set_new(json, "failure",
                            json_pack("{s:I, s:i, s:s, s:s}", "seed", (json_int_t)result->seed, "exit",
                                      failure_exit(failure), "text", failure->text, "scenario", path));
    output_json(output, json);
    json_decref(json);
}

static void answer_text(const struct swarm_options *options, const struct swarm_result *result, const char *path,
                        const struct seed_result *failure, const struct output *output)
{
    struct gaps gaps = count_gaps(&result->coverage);
    print_coverage(&result->coverage, output);
    fprintf(output->file,
            "%" PRIu64 " seeds from %" PRIu64 " in %" PRId64 ".%" PRId64 " s, %" PRIu64 " a second; %" PRIu64
            " events\n%" PRIu32 " of %" PRIu32 " pairs of state and event reached, %" PRIu32
            " are not and nothing says why (NONE), %" PRIu32 " were although they cannot be\n",
            result->seeds, options->first, result->wall_ns / NS_PER_S, result->wall_ns / (NS_PER_S / 10) % 10,
            rate(result), result->events, gaps.reached, gaps.pairs, gaps.unreached, gaps.contradicted);
    if (result->failed)
        fprintf(output->file, "seed %" PRIu64 " failed (exit status %d): %s\nrun it again: tandem run %s\n",
                result->seed, failure_exit(failure), failure->text, path);
}

static void progressed(void *self, uint64_t seeds)
{
    progress_add(self, seeds);
}

static int fuzz_run_command(const struct command_context *context, const struct arguments *arguments,
                            struct user_error *error)
{
    struct output output = output_to(context->out, argument_text(arguments, "format"));
    int64_t seconds = argument_integer(arguments, "seconds", 0);
    uint32_t jobs = argument_workers(arguments, "jobs", workers_default(), error);
    int64_t seeds = argument_integer(arguments, "seeds", seconds > 0 ? 0 : 1000);
    if (jobs == 0)
        return EXIT_USER;
    if (seconds > SECONDS_MAX || (seeds < 1 && seconds < 1)) {
        user_error_set(error, NULL, 0, NULL, "--seeds is at least 1, --seconds at most a week");
        return EXIT_USER;
    }
    struct swarm_options options = {
        .first = (uint64_t)argument_integer(arguments, "seed", 1),
        .seeds = (uint64_t)seeds,
        .seconds = (uint32_t)seconds,
        .jobs = jobs,
        .progress = progressed,
        .self = progress_start("fuzz", (uint64_t)seeds),
    };
    struct swarm_result *result = memory_get(sizeof *result);
    struct seed_result failure = {0};
    char path[1024] = "";
    interrupt_install();
    swarm_run(&options, result);
    progress_end(options.self);
    bool kept = !result->failed || keep_failure(result, arguments, path, sizeof path, &failure, error);
    if (output.format == OUTPUT_JSON)
        answer_json(&options, result, path, &failure, &output);
    else
        answer_text(&options, result, path, &failure, &output);
    struct gaps gaps = count_gaps(&result->coverage);
    bool incomplete = argument_flag(arguments, "complete") && gaps.unreached > 0;
    int exit = !kept                   ? EXIT_USER
               : result->failed        ? failure_exit(&failure)
               : gaps.contradicted > 0 ? EXIT_WORSE
               : result->interrupted   ? EXIT_INTERRUPTED
               : incomplete            ? EXIT_WORSE
                                       : EXIT_OK;
    free(result);
    return exit;
}

const struct command command_fuzz = {
    .name = "fuzz",
    .operands = "",
    .operands_min = 0,
    .operands_max = 0,
    .summary = "draws small scenarios in which much goes wrong, and watches everything",
    .description =
        "Each seed draws a cluster, shardings, policies, a load and faults: instances that die and return,\n"
        "connections cut, NICs down, messages late or twice, writes late, torn or failed, clients that leave.\n"
        "Checkers know whose every page is, what is in it, what was counted, and that every request ends.\n"
        "The first seed that fails is shrunk to a scenario file that `tandem run` fails on in the same way.\n"
        "Exit status: 0 none failed; 1 a pair of state and event was reached that cannot be, or (--complete) is\n"
        "missing; 127 a CHECK failed; 128 no progress; 129 an invariant is broken. The same seeds have the same\n"
        "outcome whatever --jobs is.",
    .options = fuzz_options,
    .run = fuzz_run_command,
};
