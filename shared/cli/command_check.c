/* tandem check: the regression gate. */
#define _POSIX_C_SOURCE 200809L
#include "host/build_info.h"
#include "host/interrupt.h"
#include "cli/run_options.h"
#include "sim/check/gate_output.h"
#include "cli/commands.h"
#include "host/thread_pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PATH_SIZE 1024

/* Where the suite of this project's own scenarios is, below the shipped ones. */
#define OWN_SUITE "suites/own.lua"

static const struct option check_options[] = {
    {"baseline", "FILE", "what to compare with (the suite's, with .baseline in place of .lua)", OPTION_TEXT},
    {"against", "PROGRAM", "compare with another build of tandem in place of the baseline", OPTION_TEXT},
    {"set", "PATH=VALUE", "change a value of every scenario, on this side alone", OPTION_LIST},
    {"exact", NULL, "exit 1 also where something has changed and is not worse", OPTION_FLAG},
    {"update", NULL, "make the baseline what this build decides; wants --reason", OPTION_FLAG},
    {"reason", "TEXT", "why that is right: it is kept in the baseline", OPTION_TEXT},
    {"history", NULL, "only show the blessings of the baseline and their reasons", OPTION_FLAG},
    {"junit", "FILE", "also write the verdicts as JUnit XML", OPTION_TEXT},
    {"threads", "N", "simulations at once (all processors)", OPTION_INTEGER},
    {"quiet", NULL, "with --update: say nothing", OPTION_FLAG},
    {"format", OUTPUT_FORMATS, "of the answer; md is for a pull request", OPTION_CHOICE},
    {NULL, NULL, NULL, OPTION_FLAG},
};

/* ---- What is asked for ------------------------------------------------------------------------------------------- */

struct request {
    const struct command_context *context;
    struct output output;
    struct suite *suite;
    char suite_path[PATH_SIZE];
    char baseline_path[PATH_SIZE];
    const char *against; /* NULL: the baseline */
    const char *reason;
    bool update;
    bool history;
    bool exact;
    bool quiet;
    const char *junit;
    uint32_t threads;
    struct scenario_sets sets;
};

static bool wrong(struct user_error *error, const char *option, const char *what)
{
    user_error_set(error, NULL, 0, option, "%s", what);
    return false;
}

static bool goes_together(const struct request *request, struct user_error *error)
{
    if (request->update && request->against != NULL)
        return wrong(error, "--update", "does not go with --against: another build's decisions are not a baseline");
    if (request->update && request->sets.count > 0)
        return wrong(error, "--update", "does not go with --set: a baseline is of the suite as it stands");
    if (request->update && (request->reason == NULL || strspn(request->reason, " ") == strlen(request->reason)))
        return wrong(error, "--update",
                     "wants --reason TEXT: whoever reads the history wants to know why it was right");
    if (request->update && strlen(request->reason) >= sizeof((struct baseline_blessing *)0)->reason)
        return wrong(error, "--reason", "at most 511 bytes are kept");
    if (!request->update && request->reason != NULL)
        return wrong(error, "--reason", "is for --update");
    if (!request->update && request->quiet)
        return wrong(error, "--quiet", "is for --update: a check that says nothing is its exit status");
    if (request->history && (request->update || request->against != NULL))
        return wrong(error, "--history", "shows a baseline and does nothing else");
    return true;
}

static bool paths_read(struct request *request, const struct arguments *arguments, struct user_error *error)
{
    const char *baseline = argument_text(arguments, "baseline");
    int length;
    if (operand_count(arguments) > 0)
        length = snprintf(request->suite_path, PATH_SIZE, "%s", operand(arguments, 0));
    else
        length = snprintf(request->suite_path, PATH_SIZE, "%s/" OWN_SUITE, scenario_library_root());
    if (length >= 0 && length < PATH_SIZE && baseline == NULL) {
        const char *dot = strrchr(request->suite_path, '.');
        const char *slash = strrchr(request->suite_path, '/');
        size_t stem = dot == NULL || (slash != NULL && dot < slash) ? strlen(request->suite_path)
                                                                    : (size_t)(dot - request->suite_path);
        length = snprintf(request->baseline_path, PATH_SIZE, "%.*s.baseline", (int)stem, request->suite_path);
    } else if (length >= 0 && length < PATH_SIZE) {
        length = snprintf(request->baseline_path, PATH_SIZE, "%s", baseline);
    }
    return (length >= 0 && length < PATH_SIZE) || wrong(error, NULL, "the path of the suite or baseline is too long");
}

static bool request_read(struct request *request, const struct command_context *context,
                         const struct arguments *arguments, struct user_error *error)
{
    uint32_t threads = argument_workers(arguments, "threads", workers_default(), error);
    *request = (struct request){
        .context = context,
        .output = output_to(context->out, argument_text(arguments, "format")),
        .against = argument_text(arguments, "against"),
        .reason = argument_text(arguments, "reason"),
        .update = argument_flag(arguments, "update"),
        .history = argument_flag(arguments, "history"),
        .exact = argument_flag(arguments, "exact"),
        .quiet = argument_flag(arguments, "quiet"),
        .junit = argument_text(arguments, "junit"),
        .threads = threads,
    };
    if (threads == 0 || !scenario_sets_read(arguments, &request->sets, error) || !goes_together(request, error) ||
        !paths_read(request, arguments, error))
        return false;
    request->suite = request->history ? NULL : suite_load(request->suite_path, error);
    return request->history || request->suite != NULL;
}

/* ---- History ----------------------------------------------------------------------------------------------------- */

static int show_history(const struct request *request, struct user_error *error)
{
    struct baseline *baseline = baseline_open(request->baseline_path, error);
    if (baseline == NULL)
        return EXIT_USER;
    struct table *table = table_new(NULL);
    static const char *const names[][2] = {{"blessing", ""},    {"blessed_at", "when"}, {"version", "version"},
                                           {"cases", "cases"},  {"changed", "changed"}, {"worse", "worse"},
                                           {"reason", "reason"}};
    for (size_t c = 0; c < sizeof names / sizeof *names; c++)
        table_column(table, names[c][0], names[c][1]);
    for (uint32_t k = 0; k < baseline_blessing_count(baseline); k++) {
        const struct baseline_blessing *b = baseline_blessing(baseline, k);
        table_row(table);
        table_integer(table, k + 1);
        table_text(table, b->at);
        table_text(table, b->version);
        table_integer(table, b->cases);
        table_integer(table, b->changed);
        table_integer(table, b->worse);
        table_text(table, b->reason);
    }
    output_table(&request->output, table);
    table_free(table);
    baseline_close(baseline);
    return EXIT_OK;
}

/* ---- Comparing --------------------------------------------------------------------------------------------------- */

static int exit_of(const struct request *request, const struct check_result *result)
{
    int exit = result->tally[VERDICT_WORSE] > 0 ? EXIT_WORSE : EXIT_OK;
    if (request->exact && result->tally[VERDICT_SAME] < result->count)
        exit = EXIT_WORSE;
    for (uint32_t k = 0; k < result->count; k++) {
        if (result->cases[k].status == RUN_INVARIANT)
            return EXIT_INVARIANT;
        if (result->cases[k].status == RUN_NO_PROGRESS)
            exit = EXIT_NO_PROGRESS;
        else if (result->cases[k].status == RUN_REFUSED && exit < EXIT_USER)
            exit = EXIT_USER;
    }
    return exit;
}

static int compare(const struct request *request, const struct check_side *side, const char *path,
                   struct user_error *error)
{
    struct baseline *baseline = baseline_open(path, error);
    if (baseline == NULL)
        return EXIT_USER;
    struct check_result result;
    int exit = EXIT_USER;
    uint32_t blessings = baseline_blessing_count(baseline);
    if (blessings == 0)
        user_error_set(error, path, 0, NULL, "the baseline holds no blessing");
    if (blessings > 0 && check_compare(side, baseline, &result, error)) {
        struct check_before before = {
            .name = request->against != NULL ? request->against : path,
            .program = request->against != NULL,
            .blessings = blessings,
            .blessing = baseline_blessing(baseline, blessings - 1),
        };
        check_print(&request->output, request->suite, &before, &result);
        exit = exit_of(request, &result);
        if (request->junit != NULL && !check_junit(request->junit, request->suite, &result, error))
            exit = EXIT_USER;
    }
    if (blessings > 0)
        check_result_free(&result);
    baseline_close(baseline);
    return exit;
}

/* The other build writes its decisions to a file that lives as long as the comparison. */
static int compare_with_build(const struct request *request, const struct check_side *side, struct user_error *error)
{
    const char *folder = getenv("TMPDIR");
    char path[PATH_SIZE];
    if (snprintf(path, sizeof path, "%s/tandem-check-XXXXXX", folder == NULL ? "/tmp" : folder) >= PATH_SIZE) {
        wrong(error, NULL, "TMPDIR: the path is too long");
        return EXIT_USER;
    }
    int file = mkstemp(path);
    if (file < 0) {
        user_error_set(error, path, 0, NULL, "cannot be created: %s", strerror(errno));
        return EXIT_USER;
    }
    close(file);
    unlink(path); /* a name that is nobody's; what is there would be taken for a baseline */
    int status;
    int exit = EXIT_USER;
    bool ran = check_other_build(request->against, request->suite, path, request->threads, &status, error);
    if (ran && access(path, F_OK) != 0)
        user_error_set(error, request->against, 0, NULL, "ran and wrote no baseline: it is no tandem, or an older one");
    else if (ran)
        exit = compare(request, side, path, error);
    unlink(path);
    return interrupt_requested() ? EXIT_INTERRUPTED : exit;
}

/* ---- Blessing ---------------------------------------------------------------------------------------------------- */

/* Everything has to have completed: what stands still is no baseline. */
static int all_complete(const struct check_side *side, struct user_error *error)
{
    for (uint32_t k = 0; k < side->count; k++) {
        const struct check_case *item = &side->cases[k];
        for (uint64_t s = 0; s < item->item->seeds; s++) {
            const struct check_run *run = &item->runs[s];
            if (run->status == RUN_COMPLETE)
                continue;
            user_error_set(error, item->item->scenario, 0, NULL, "with seed %" PRIu64 ": %s",
                           item->item->first_seed + s, run->text);
            return run->status == RUN_NO_PROGRESS ? EXIT_NO_PROGRESS
                   : run->status == RUN_INVARIANT ? EXIT_INVARIANT
                                                  : EXIT_USER;
        }
    }
    return EXIT_OK;
}

/* Counts how the new baseline differs from the old one; a case that the old one lacks, or has damaged, has changed.
 * Returns whether anything differs, if only that cases are gone. */
static bool count_changes(const struct check_side *side, struct baseline *old, struct baseline_blessing *blessing)
{
    uint64_t runs = 0;
    blessing->changed = 0;
    for (uint32_t k = 0; k < side->count; k++) {
        const struct check_case *item = &side->cases[k];
        struct check_side alone = {.suite = side->suite, .count = 1, .cases = &side->cases[k]};
        struct check_result result;
        struct user_error lacking = {.set = false};
        runs += item->item->seeds;
        if (check_compare(&alone, old, &result, &lacking)) {
            blessing->changed += result.cases[0].verdict != VERDICT_SAME || result.cases[0].scenario_changed;
            blessing->worse += result.cases[0].verdict == VERDICT_WORSE;
        } else {
            blessing->changed++;
        }
        check_result_free(&result);
    }
    return blessing->changed > 0 || runs != baseline_run_count(old);
}

static int update(const struct request *request, const struct check_side *side, struct user_error *error)
{
    int status = all_complete(side, error);
    if (status != EXIT_OK)
        return status;
    struct baseline_blessing blessing = {.cases = side->count, .changed = side->count};
    time_t now = time(NULL);
    struct tm utc;
    snprintf(blessing.reason, sizeof blessing.reason, "%s", request->reason);
    snprintf(blessing.version, sizeof blessing.version, "%s", build_version);
    snprintf(blessing.build, sizeof blessing.build, "%s", build_identity);
    if (gmtime_r(&now, &utc) != NULL)
        strftime(blessing.at, sizeof blessing.at, "%Y-%m-%d %H:%M", &utc);
    struct baseline *old = NULL;
    if (access(request->baseline_path, F_OK) == 0) {
        old = baseline_open(request->baseline_path, error);
        if (old == NULL)
            return EXIT_USER;
    }
    bool same = old != NULL && !count_changes(side, old, &blessing);
    bool good = same || check_bless(side, request->baseline_path, old, &blessing, error);
    if (good && !request->quiet && same)
        fprintf(request->context->out, "%s: nothing has changed, the baseline stays as it is\n",
                request->baseline_path);
    else if (good && !request->quiet)
        fprintf(request->context->out, "%s: blessed, %" PRId64 " of %" PRId64 " scenarios changed, %" PRId64 " worse\n",
                request->baseline_path, blessing.changed, blessing.cases, blessing.worse);
    if (old != NULL)
        baseline_close(old);
    return good ? EXIT_OK : EXIT_USER;
}

static int check_run_command(const struct command_context *context, const struct arguments *arguments,
                             struct user_error *error)
{
    struct request request;
    struct check_side side = {.count = 0};
    int exit = EXIT_USER;
    interrupt_install();
    if (request_read(&request, context, arguments, error)) {
        if (request.history)
            exit = show_history(&request, error);
        else if (!check_side_load(&side, request.suite, request.sets.sets, request.sets.count, error))
            exit = EXIT_USER;
        else if (!check_side_run(&side, request.threads))
            exit = EXIT_INTERRUPTED;
        else if (request.update)
            exit = update(&request, &side, error);
        else if (request.against != NULL)
            exit = compare_with_build(&request, &side, error);
        else
            exit = compare(&request, &side, request.baseline_path, error);
    }
    if (interrupt_requested())
        exit = EXIT_INTERRUPTED;
    check_side_free(&side);
    suite_free(request.suite);
    scenario_sets_free(&request.sets);
    return exit;
}

const struct command command_check = {
    .name = "check",
    .operands = "[SUITE]",
    .operands_min = 0,
    .operands_max = 1,
    .summary = "regression gate: the decisions of a suite against a baseline or another build",
    .description =
        "Runs every scenario of the suite (a Lua file; without one, tandem's own) under its seeds and compares with "
        "the\n"
        "baseline beside it: the same decisions, or the first one that differs with what led to it; requests that are\n"
        "faster or slower and the spans that moved; what is watched, paired by seed. A change is better or worse "
        "where\n"
        "the 99 % interval of the mean difference leaves out zero and the difference exceeds the tolerance.\n"
        "Exit status: 0 nothing is worse; 1 something is, or has changed with --exact; 2 the suite, a scenario or the\n"
        "baseline is wrong; 128 and 129 a simulation stood still or broke an invariant.",
    .options = check_options,
    .run = check_run_command,
};
