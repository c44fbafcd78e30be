/* See stored_run.h. */
#define _POSIX_C_SOURCE 200809L
#include "sim/stored_run.h"

#include "base/arith.h"
#include "host/build_info.h"
#include "host/interrupt.h"
#include "host/memory.h"
#include "world/scenario/scenario_lua.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct trace_file *scenario_trace(const struct scenario *scenario, struct user_error *error)
{
    if (scenario->load.arrivals != ARRIVAL_TRACE)
        return NULL;
    return trace_file_read(scenario->load.trace_path, scenario->load.trace_format, error);
}

/* Rows on their way to the store, or waiting for it. */
struct rows {
    void *items;
    size_t count;
    size_t capacity;
};

struct stream {
    struct results *store; /* NULL: the rows wait */
    struct user_error *error;
    struct rows requests;
    struct rows steps;
    struct rows transfers;
};

static void wait_in(struct rows *rows, const void *row, size_t size)
{
    if (rows->count == rows->capacity) {
        rows->capacity = rows->capacity == 0 ? 1024 : rows->capacity * 2;
        rows->items = memory_resized(rows->items, rows->capacity * size);
    }
    memcpy((unsigned char *)rows->items + rows->count++ * size, row, size);
}

static bool on_row(void *self, const struct request_row *row, bool met_all_targets)
{
    (void)met_all_targets; /* counted in the summary */
    struct stream *stream = self;
    if (stream->store == NULL) {
        wait_in(&stream->requests, row, sizeof *row);
        return !interrupt_requested();
    }
    return results_add_request(stream->store, row, stream->error) && !interrupt_requested();
}

static void on_steps(void *self, const struct step_row *row)
{
    struct stream *stream = self;
    if (stream->store == NULL)
        wait_in(&stream->steps, row, sizeof *row);
    else
        results_add_step(stream->store, row, stream->error);
}

static void on_transfer(void *self, const struct transfer_row *row)
{
    struct stream *stream = self;
    if (stream->store == NULL)
        wait_in(&stream->transfers, row, sizeof *row);
    else
        results_add_transfer(stream->store, row, stream->error);
}

static bool store_waiting(struct stream *stream, struct results *store)
{
    const struct request_row *requests = stream->requests.items;
    const struct step_row *steps = stream->steps.items;
    const struct transfer_row *transfers = stream->transfers.items;
    for (size_t i = 0; i < stream->requests.count; i++)
        if (!results_add_request(store, &requests[i], stream->error))
            return false;
    for (size_t i = 0; i < stream->steps.count; i++)
        if (!results_add_step(store, &steps[i], stream->error))
            return false;
    for (size_t i = 0; i < stream->transfers.count; i++)
        if (!results_add_transfer(store, &transfers[i], stream->error))
            return false;
    return true;
}

static void stream_free(struct stream *stream)
{
    free(stream->requests.items);
    free(stream->steps.items);
    free(stream->transfers.items);
}

static int64_t wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static int64_t begin(const struct stored_run *what, struct user_error *error)
{
    char *canonical = scenario_canonical(what->scenario);
    int64_t scenario = results_scenario_add(what->store, what->scenario->identity, what->scenario->name,
                                            what->scenario->path, canonical, error);
    free(canonical);
    int64_t build = scenario == 0 ? 0 : results_build_add(what->store, build_identity, build_version, error);
    if (build == 0)
        return 0;
    struct results_begin begin = {
        .key = {.scenario = scenario,
                .build = build,
                .seed = what->seed,
                .backend = RESULTS_SIM,
                .params = what->params,
                .param_count = what->param_count},
        .kind = what->kind,
        .replay_of = what->replay_of,
        .record = what->record,
        .targets = &what->scenario->targets,
        .compiler = build_compiler,
    };
    return results_run_begin(what->store, &begin, error);
}

static enum run_status finish(const struct stored_run *what, const struct run_result *result, int64_t took_ns,
                              struct user_error *error)
{
    if (result->status == RUN_COMPLETE && !error->set &&
        results_run_commit(what->store, &result->summary, took_ns, result->instances, result->instance_count,
                           result->itl, error))
        return RUN_COMPLETE;
    results_run_abort(what->store);
    if (error->set)
        return RUN_REFUSED;
    if (result->status != RUN_STOPPED)
        user_error_set(error, what->scenario->path, 0, NULL, "%s", result->text);
    return result->status;
}

enum run_status stored_run(const struct stored_run *what, int64_t *run, struct run_summary *summary,
                           struct user_error *error)
{
    bool streams = what->lock == NULL;
    struct stream stream = {.store = streams ? what->store : NULL, .error = error};
    *run = streams ? begin(what, error) : 0;
    if (streams && *run == 0)
        return RUN_REFUSED;
    struct run_options options = {
        .load = what->load,
        .recorded = what->recorded,
        .arrivals = what->arrivals,
        .self = &stream,
        .row = on_row,
        .steps = (what->record & RECORD_STEPS) != 0 ? on_steps : NULL,
        .transfer = (what->record & RECORD_TRANSFERS) != 0 ? on_transfer : NULL,
    };
    struct run_result result;
    int64_t start_ns = wall_ns();
    sim_run(what->scenario, what->choice, what->seed, &options, &result);
    int64_t took_ns = wall_ns() - start_ns;
    if (!streams) {
        CHECK(pthread_mutex_lock(what->lock) == 0);
        *run = begin(what, error);
        if (*run != 0)
            store_waiting(&stream, what->store);
    }
    enum run_status status = *run == 0 ? RUN_REFUSED : finish(what, &result, took_ns, error);
    if (!streams)
        CHECK(pthread_mutex_unlock(what->lock) == 0);
    if (summary != NULL)
        *summary = result.summary;
    stream_free(&stream);
    run_result_free(&result);
    return status;
}
