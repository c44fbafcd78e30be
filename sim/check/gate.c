/* Running, blessing and comparing sides. See check.h. */
#define _POSIX_C_SOURCE 200809L
#include "sim/check/gate.h"

#include "base/arith.h"
#include "host/interrupt.h"
#include "host/progress.h"
#include "run/stored_run.h"
#include "host/thread_pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Running ----------------------------------------------------------------------------------------------------- */

static bool load_case(struct check_case *item, const struct scenario_override *sets, size_t set_count,
                      struct user_error *error)
{
    size_t own = item->item->set_count;
    struct scenario_override *all = calloc(own + set_count + 1, sizeof *all);
    CHECK(all != NULL);
    memcpy(all, item->item->sets, own * sizeof *all);
    if (set_count > 0)
        memcpy(all + own, sets, set_count * sizeof *all);
    item->scenario = scenario_load(item->item->scenario, all, own + set_count, error);
    free(all);
    if (item->scenario == NULL)
        return false;
    item->recorded = scenario_trace(item->scenario, error);
    struct deployment_choice choice = deployment_default(item->scenario);
    char why[1200];
    if (!error->set && !run_models_make(item->scenario, &choice, &item->models, why, sizeof why))
        user_error_set(error, item->scenario->path, 0, NULL, "%s", why);
    return !error->set;
}

bool check_side_load(struct check_side *side, const struct suite *suite, const struct scenario_override *sets,
                     size_t set_count, struct user_error *error)
{
    *side = (struct check_side){.suite = suite, .cases = calloc(suite->case_count, sizeof *side->cases)};
    CHECK(side->cases != NULL);
    for (uint32_t k = 0; k < suite->case_count; k++) {
        side->cases[k].item = &suite->cases[k];
        side->count++;
        if (!load_case(&side->cases[k], sets, set_count, error))
            return false;
    }
    return true;
}

struct work {
    struct check_side *side;
    struct progress *progress;
};

static void take_run(struct check_run *made, const struct scenario *scenario, const struct run_result *result)
{
    struct baseline_run *run = &made->run;
    run->node_count = result->instance_count + 1;
    run->nodes = calloc(run->node_count, sizeof *run->nodes);
    run->itl = malloc(ITL_BUCKETS * sizeof *run->itl);
    CHECK(run->nodes != NULL && run->itl != NULL);
    snprintf(run->nodes[0], sizeof run->nodes[0], "front");
    for (uint32_t i = 0; i < result->instance_count; i++)
        memcpy(run->nodes[i + 1], result->instances[i].name, sizeof run->nodes[0]);
    memcpy(run->itl, result->itl, ITL_BUCKETS * sizeof *run->itl);
    memcpy(run->identity, scenario->identity, sizeof run->identity);
    run->trace_hash = result->summary.trace_hash;
    run->event_count = result->summary.event_count;
    run->final_draw = result->summary.final_draw;
    run->start_ns = result->summary.start_ns;
    run->end_ns = result->summary.end_ns;
    CHECK(trace_log_hash(&run->log) == run->trace_hash);
}

static bool on_row(void *self, const struct request_row *row, bool met_all_targets)
{
    (void)self;
    (void)row;
    (void)met_all_targets;
    return !interrupt_requested();
}

static void on_trace(void *self, int64_t now_ns, const struct trace_record *record)
{
    trace_log_add(self, now_ns, record);
}

/* Jobs are numbered case by case. */
static void run_one(void *context, uint32_t job)
{
    struct work *work = context;
    struct check_case *item = work->side->cases;
    for (; job >= item->item->seeds; item++)
        job -= (uint32_t)item->item->seeds;
    struct check_run *made = &item->runs[job];
    struct deployment_choice choice = deployment_default(item->scenario);
    struct run_config config = {.scenario = item->scenario,
                                .choice = &choice,
                                .seed = item->item->first_seed + job,
                                .recorded = item->recorded,
                                .options = &(struct sim_options){.models = &item->models},
                                .listener = {.self = &made->run.log, .trace = on_trace, .row = on_row}};
    struct run_result result;
    run_play(&sim_backend, &config, &result);
    made->status = result.status;
    if (result.status == RUN_COMPLETE)
        take_run(made, item->scenario, &result);
    else
        snprintf(made->text, sizeof made->text, "%.*s", (int)sizeof made->text - 1, result.text);
    run_result_free(&result);
    progress_add(work->progress, 1);
}

bool check_side_run(struct check_side *side, uint32_t threads)
{
    uint32_t jobs = 0;
    for (uint32_t k = 0; k < side->count; k++)
        jobs += (uint32_t)side->cases[k].item->seeds;
    struct work work = {.side = side, .progress = progress_start("check", jobs)};
    bool whole = workers_run(threads, jobs, run_one, &work);
    progress_end(work.progress);
    return whole && !interrupt_requested();
}

void check_side_free(struct check_side *side)
{
    for (uint32_t k = 0; k < side->count; k++) {
        struct check_case *item = &side->cases[k];
        for (uint32_t s = 0; s < SUITE_SEEDS_MAX; s++)
            baseline_run_free(&item->runs[s].run);
        run_models_free(&item->models);
        trace_file_free(item->recorded);
        if (item->scenario != NULL)
            scenario_free(item->scenario);
    }
    free(side->cases);
    *side = (struct check_side){.count = 0};
}

/* ---- Comparing --------------------------------------------------------------------------------------------------- */

static bool read_before(const struct check_case *item, struct baseline *baseline, struct baseline_run *before,
                        const char *suite, struct user_error *error)
{
    for (uint64_t s = 0; s < item->item->seeds; s++) {
        bool found;
        uint64_t seed = item->item->first_seed + s;
        if (!baseline_run_read(baseline, item->item->name, seed, &before[s], &found, error))
            return false;
        if (found)
            continue;
        user_error_set(error, suite, 0, NULL,
                       "the baseline has no run of %s with seed %" PRIu64
                       "; `tandem check --update --reason TEXT` adds it",
                       item->item->name, seed);
        return false;
    }
    return true;
}

/* A case with a run that did not complete is not compared. */
static bool complete(const struct check_case *item, struct case_result *result)
{
    for (uint64_t s = 0; s < item->item->seeds; s++) {
        if (item->runs[s].status == RUN_COMPLETE)
            continue;
        result->status = item->runs[s].status;
        result->status_seed = item->item->first_seed + s;
        result->text = item->runs[s].text;
        result->verdict = VERDICT_WORSE;
        return false;
    }
    result->status = RUN_COMPLETE;
    return true;
}

bool check_compare(const struct check_side *side, struct baseline *baseline, struct check_result *result,
                   struct user_error *error)
{
    *result = (struct check_result){.cases = calloc(side->count, sizeof *result->cases)};
    CHECK(result->cases != NULL);
    for (uint32_t k = 0; k < side->count; k++) {
        const struct check_case *item = &side->cases[k];
        struct case_result *one = &result->cases[result->count++];
        struct baseline_run before[SUITE_SEEDS_MAX];
        memset(before, 0, sizeof before);
        one->item = item->item;
        one->seeds = (uint32_t)item->item->seeds;
        bool good = read_before(item, baseline, before, side->suite->path, error);
        if (good && complete(item, one))
            check_compare_case(item, before, one);
        for (uint64_t s = 0; s < item->item->seeds; s++)
            baseline_run_free(&before[s]);
        if (!good)
            return false;
        if (one->status == RUN_COMPLETE)
            result->tally[one->verdict]++;
        else
            result->broken++;
    }
    return true;
}

void check_result_free(struct check_result *result)
{
    free(result->cases);
    *result = (struct check_result){.count = 0};
}

/* ---- Blessing ---------------------------------------------------------------------------------------------------- */

static bool write_runs(const struct check_side *side, struct baseline_writer *writer, struct user_error *error)
{
    for (uint32_t k = 0; k < side->count; k++) {
        const struct check_case *item = &side->cases[k];
        for (uint64_t s = 0; s < item->item->seeds; s++) {
            CHECK(item->runs[s].status == RUN_COMPLETE);
            if (!baseline_add_run(writer, item->item->name, item->item->first_seed + s, &item->runs[s].run, error))
                return false;
            if (interrupt_requested()) {
                user_error_set(error, NULL, 0, NULL, "interrupted; the baseline is as it was");
                return false;
            }
        }
    }
    return true;
}

bool check_bless(const struct check_side *side, const char *path, struct baseline *old,
                 const struct baseline_blessing *blessing, struct user_error *error)
{
    struct baseline_writer *writer = baseline_create(path, error);
    if (writer == NULL)
        return false;
    bool good = true;
    for (uint32_t k = 0; old != NULL && good && k < baseline_blessing_count(old); k++)
        good = baseline_add_blessing(writer, baseline_blessing(old, k), error);
    good = good && baseline_add_blessing(writer, blessing, error) && write_runs(side, writer, error);
    if (good)
        return baseline_commit(writer, error);
    baseline_abandon(writer);
    return false;
}

/* ---- Another build ----------------------------------------------------------------------------------------------- */

static _Noreturn void become(const char *program, const struct suite *suite, const char *path, const char *threads)
{
    /* What it says about its side is not the answer. */
    dup2(STDERR_FILENO, STDOUT_FILENO);
    setenv("TANDEM_SCENARIOS", scenario_library_root(), 1);
    execlp(program, program, "check", suite->path, "--update", "--reason", "the other side of a comparison",
           "--baseline", path, "--threads", threads, "--quiet", (char *)NULL);
    fprintf(stderr, "%s: %s\n", program, strerror(errno));
    _exit(126);
}

bool check_other_build(const char *program, const struct suite *suite, const char *path, uint32_t threads, int *exit,
                       struct user_error *error)
{
    char count[16];
    snprintf(count, sizeof count, "%" PRIu32, threads);
    int status = 0;
    *exit = -1;
    if (strchr(program, '/') != NULL && access(program, X_OK) != 0) {
        user_error_set(error, NULL, 0, "--against", "%s cannot be run: %s", program, strerror(errno));
        return false;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        become(program, suite, path, count);
    if (child < 0) {
        user_error_set(error, NULL, 0, "--against", "no process for %s: %s", program, strerror(errno));
        return false;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFEXITED(status))
        *exit = WEXITSTATUS(status);
    if (*exit == 0)
        return true;
    if (*exit < 0)
        user_error_set(error, NULL, 0, "--against", "%s ended by signal %d", program, WTERMSIG(status));
    else
        user_error_set(error, NULL, 0, "--against", "%s cannot run the suite (exit status %d)", program, *exit);
    return false;
}
