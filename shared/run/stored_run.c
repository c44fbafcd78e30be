/* See stored_run.h. */
#define _POSIX_C_SOURCE 200809L
#include "run/stored_run.h"

#include "base/arith.h"
#include "host/build_info.h"
#include "host/interrupt.h"
#include "host/memory.h"
#include "world/scenario/scenario_lua.h"
#include "host/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Rows on their way to the store, or waiting for it. */
struct rows {
    void *items;
    size_t count;
    size_t capacity;
};

struct stream {
    const struct stored_run *what;
    struct results *store; /* NULL: the rows wait */
    struct user_error *error;
    struct rows requests;
    struct rows steps;
    struct rows transfers;
    struct rows samples;
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

static void on_sample(void *self, const struct sample_row *row)
{
    struct stream *stream = self;
    if (stream->store == NULL)
        wait_in(&stream->samples, row, sizeof *row);
    else
        results_add_sample(stream->store, row, stream->error);
}

static void on_notice(void *self, const char *text)
{
    const struct run_listener *listener = &((const struct stream *)self)->what->config->listener;
    listener->notice(listener->self, text);
}

static void store_waiting(struct stream *stream, struct results *store)
{
    const struct request_row *requests = stream->requests.items;
    const struct step_row *steps = stream->steps.items;
    const struct transfer_row *transfers = stream->transfers.items;
    const struct sample_row *samples = stream->samples.items;
    bool good = true;
    for (size_t i = 0; i < stream->requests.count && good; i++)
        good = results_add_request(store, &requests[i], stream->error);
    for (size_t i = 0; i < stream->steps.count && good; i++)
        good = results_add_step(store, &steps[i], stream->error);
    for (size_t i = 0; i < stream->transfers.count && good; i++)
        good = results_add_transfer(store, &transfers[i], stream->error);
    for (size_t i = 0; i < stream->samples.count && good; i++)
        good = results_add_sample(store, &samples[i], stream->error);
}

static void stream_free(struct stream *stream)
{
    free(stream->requests.items);
    free(stream->steps.items);
    free(stream->transfers.items);
    free(stream->samples.items);
}

/* What was set is stored with the run: it is how the run can be had again. */
static uint32_t params_of(const struct stored_run *what, struct results_param *params)
{
    const struct scenario_override *sets = what->config->sets;
    uint32_t kept = 0;
    for (size_t k = 0; k < what->config->set_count; k++) {
        bool last = true;
        for (size_t later = k + 1; later < what->config->set_count; later++)
            last = last && strcmp(sets[later].path, sets[k].path) != 0;
        if (last)
            params[kept++] = (struct results_param){sets[k].path, sets[k].value};
    }
    return kept;
}

static int64_t begin(const struct stored_run *what, struct user_error *error)
{
    const struct scenario *scenario = what->config->scenario;
    char *canonical = scenario_canonical(scenario);
    int64_t row =
        results_scenario_add(what->store, scenario->identity, scenario->name, scenario->path, canonical, error);
    free(canonical);
    int64_t build = row == 0 ? 0 : results_build_add(what->store, build_identity, build_version, error);
    if (build == 0)
        return 0;
    struct results_param *params = memory_zeroed(what->config->set_count + 1, sizeof *params);
    char replayed[24];
    uint32_t count = params_of(what, params);
    snprintf(replayed, sizeof replayed, "%" PRId64, what->replay_of);
    if (what->replay_of != 0)
        params[count++] = (struct results_param){RESULTS_REPLAY_PARAM, replayed};
    struct results_begin begin = {
        .key = {.scenario = row,
                .build = build,
                .seed = what->config->seed,
                .backend = what->backend->stored_as,
                .params = params,
                .param_count = count},
        .kind = what->kind,
        .replay_of = what->replay_of,
        .record = what->record | what->backend->record,
        .targets = &scenario->targets,
        .compiler = build_compiler,
    };
    int64_t run = results_run_begin(what->store, &begin, error);
    free(params);
    return run;
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
        user_error_set(error, what->config->scenario->path, 0, NULL, "%s", result->text);
    return result->status;
}

enum run_status stored_run(const struct stored_run *what, int64_t *run, struct run_summary *summary,
                           struct user_error *error)
{
    bool streams = what->lock == NULL;
    struct stream stream = {.what = what, .store = streams ? what->store : NULL, .error = error};
    *run = streams ? begin(what, error) : 0;
    if (streams && *run == 0)
        return RUN_REFUSED;
    struct run_config config = *what->config;
    config.listener = (struct run_listener){
        .self = &stream,
        .row = on_row,
        .steps = (what->record & RECORD_STEPS) != 0 ? on_steps : NULL,
        .transfer = (what->record & RECORD_TRANSFERS) != 0 ? on_transfer : NULL,
        .sample = on_sample,
        .notice = what->config->listener.notice != NULL ? on_notice : NULL,
    };
    struct run_result result;
    int64_t start_ns = clock_now_ns();
    run_play(what->backend, &config, &result);
    int64_t took_ns = clock_now_ns() - start_ns;
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
