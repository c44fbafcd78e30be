/* See run.h and backend.h. */
#include "run/backend.h"

#include "base/arith.h"
#include "host/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum exit_status run_exit(enum run_status status)
{
    switch (status) {
    case RUN_COMPLETE:
        return EXIT_OK;
    case RUN_NO_PROGRESS:
        return EXIT_NO_PROGRESS;
    case RUN_INVARIANT:
        return EXIT_INVARIANT;
    case RUN_STOPPED:
        return EXIT_INTERRUPTED;
    case RUN_REFUSED:
        break;
    }
    return EXIT_USER;
}

struct trace_file *scenario_trace(const struct scenario *scenario, struct user_error *error)
{
    if (scenario->load.arrivals != ARRIVAL_TRACE)
        return NULL;
    return trace_file_read(scenario->load.trace_path, &scenario->load.trace, error);
}

static void *make(size_t count, size_t size)
{
    CHECK(count > 0 && size > 0);
    void *memory = memory_zeroed(count, size);
    return memory;
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

void run_break(struct run *run, enum run_status status, const char *format, ...)
{
    if (run->broken)
        return;
    run->broken = true;
    run->result->status = status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(run->result->text, sizeof run->result->text, format, arguments);
    va_end(arguments);
}

void run_notice(const struct run *run, const char *format, ...)
{
    char text[1024];
    if (run->config->listener.notice == NULL)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    run->config->listener.notice(run->config->listener.self, text);
}

static void stop(struct run *run)
{
    if (run->backend->stop != NULL)
        run->backend->stop(run->self);
}

static void finish_if(struct run *run, bool fed)
{
    if (!fed || run->answering > 0 || run->backend->live(run->self) > 0)
        return;
    run->done = true;
    stop(run);
}

/* ---- Arrivals ---------------------------------------------------------------------------------------------------- */

bool run_answers(const struct run *run)
{
    if (run->config->source != NULL)
        return false;
    bool closed = run->load->arrivals == ARRIVAL_CLOSED && run->config->arrivals == NULL;
    return closed || workload_follows(run->workload);
}

bool run_fed(const struct run *run)
{
    const struct run_source *source = run->config->source;
    if (source != NULL)
        return source->closed(source->self);
    return run->answering == 0 && workload_next_ns(run->workload) == TIME_NEVER;
}

/* A request's row may come when its conversation has gone on. */
static void note_conversation(struct run *run, uint32_t request)
{
    if (request >= run->conversation_room) {
        run->conversation_room = max_u32(request + 1, 2 * run->conversation_room);
        run->conversations = memory_resized(run->conversations, run->conversation_room * sizeof *run->conversations);
    }
    run->conversations[request] = workload_conversation(run->workload, request);
}

static void arrive(struct run *run, const struct workload_item *item)
{
    int64_t now_ns = run->backend->now_ns(run->self);
    uint32_t request = item->spec.id;
    struct event event = {.kind = EVENT_ARRIVAL,
                          .status = item->is_abort ? ARRIVAL_ABORT : ARRIVAL_NEW,
                          .id = request,
                          .data = &item->spec};
    run->last_arrival_ns = now_ns;
    if (!item->is_abort && run->workload != NULL && workload_conversation(run->workload, request) > 0)
        note_conversation(run, request);
    /* Gaps between tokens count from the first request that does. */
    if (!item->is_abort && request > 0 && request == run->load->warmup_requests) {
        run->counted_ns = max_i64(run->load->warmup_ns, now_ns);
        run->backend->count_from(run->self, run->counted_ns);
    }
    run->backend->arrive(run->self, &event);
}

static void wake(struct run *run)
{
    if (run->config->source != NULL)
        return; /* it says itself when it has something */
    run->backend->wake(run->self, workload_next_ns(run->workload));
}

void run_begin(struct run *run)
{
    wake(run);
}

void run_feed(struct run *run)
{
    struct workload_item item;
    const struct run_source *source = run->config->source;
    if (source != NULL) {
        while (source->next(source->self, &item))
            arrive(run, &item);
        return;
    }
    if (workload_next_ns(run->workload) <= run->backend->now_ns(run->self) && workload_next(run->workload, &item))
        arrive(run, &item);
    wake(run);
}

void run_ended(struct run *run, uint32_t request)
{
    if (!run_answers(run))
        return;
    run->answering++;
    run->backend->answer_soon(run->self, request);
}

void run_answer(struct run *run, uint32_t request)
{
    int64_t now_ns = run->backend->now_ns(run->self);
    struct workload_item item;
    run->answering--;
    if (workload_follows(run->workload)) {
        workload_answered(run->workload, request, now_ns);
        wake(run);
        finish_if(run, run_fed(run));
    } else if (workload_closed_next(run->workload, now_ns, &item)) {
        arrive(run, &item);
        wake(run);
    } else {
        finish_if(run, true);
    }
}

/* ---- Listening --------------------------------------------------------------------------------------------------- */

static void on_row(void *self, const struct request_row *row, bool met)
{
    struct run *run = self;
    const struct run_listener *listener = &run->config->listener;
    struct request_row told = *row;
    if (run->conversations != NULL)
        told.conversation = run->conversations[row->request];
    if (listener->row != NULL && !listener->row(listener->self, &told, met)) {
        run->stopped = true;
        stop(run);
    }
    if (run->backend->rows_at_once)
        run_ended(run, row->request);
}

void run_trace(struct run *run, int64_t now_ns, const struct trace_record *record)
{
    recorder_trace(run->recorder, now_ns, record);
    if (record->request == TRACE_NO_REQUEST)
        return;
    run->last_record_ns = now_ns;
    if (record->kind >= TRACE_FINISHED && record->kind <= TRACE_ABORTED)
        finish_if(run, run_fed(run));
}

/* ---- The run ----------------------------------------------------------------------------------------------------- */

/* What comes from outside is bounded by what was said of it, not by the load. */
static void open_to(struct deployment_sizes *sizes, const struct run_source *source)
{
    sizes->request_tokens_max = source->request_tokens_max;
    sizes->requests_together = source->requests_together;
    if (sizes->prefix_block_tokens != 0)
        sizes->request_blocks_max = ceil_div_u32(source->request_tokens_max, sizes->prefix_block_tokens);
}

static bool set_up(struct run *run, struct user_error *error)
{
    const struct run_config *config = run->config;
    struct deployment_sizes sizes = deployment_sizes_traced(run->load, config->recorded);
    sizes.windows_in_pages = run->backend->windows_in_pages;
    if (config->source != NULL)
        open_to(&sizes, config->source);
    run->deployment = deployment_make(config->scenario, config->choice, &sizes, config->seed, error);
    if (run->deployment == NULL)
        return false;
    if (config->source == NULL)
        run->workload = workload_create_again(run->load, config->seed, config->recorded, config->arrivals, error);
    if (config->source == NULL && run->workload == NULL)
        return false;
    run->recorder = recorder_make(&(struct recorder_config){
        .warmup_ns = run->load->warmup_ns,
        .warmup_requests = run->load->warmup_requests,
        .targets = config->scenario->targets,
        .node_count = run->deployment->node_count,
        .sink = {.row = on_row, .self = run},
    });
    run->self = run->backend->make(run, error);
    return run->self != NULL;
}

/* What deployment and records say; the backend adds what it measured. */
static void summarize(struct run *run, int64_t end_ns)
{
    struct run_result *result = run->result;
    const struct deployment *deployment = run->deployment;
    int64_t start_ns = run->load->warmup_requests > 0 ? run->counted_ns : run->load->warmup_ns;
    result->summary =
        (struct run_summary){.seed = run->config->seed, .start_ns = min_i64(start_ns, end_ns), .end_ns = end_ns};
    recorder_summary(run->recorder, &result->summary);
    result->machines = deployment->machines;
    result->gpus = deployment->gpus;
    result->usd_micros_per_hour = deployment->usd_micros_per_hour;
    result->itl = make(ITL_BUCKETS, sizeof *result->itl);
    result->instance_count = deployment->node_count - 1;
    result->instances = make(result->instance_count, sizeof *result->instances);
    for (uint32_t i = 0; i < result->instance_count; i++) {
        const struct deployment_instance *instance = &deployment->instances[i + 1];
        const struct node_config *config = &deployment->configs[i + 1];
        const struct recorder_node *recorded = recorder_node(run->recorder, i + 1);
        result->instances[i] = (struct instance_summary){
            .node = (uint16_t)(i + 1),
            .role = config->role,
            .ranks = instance->ranks,
            .requests = recorded->requests,
            .pages_total = (uint64_t)config->pages_per_group * config->group_count,
            .page_wait_ns = recorded->page_wait_ns,
            .handoff_wait_ns = recorded->handoff_wait_ns,
            .preemptions = recorded->preemptions,
        };
        memcpy(result->instances[i].name, instance->name, sizeof instance->name);
    }
    run->backend->summarize(run->self, result);
    for (uint32_t i = 0; i < result->instance_count; i++)
        result->steps += result->instances[i].steps;
}

static void play(struct run *run)
{
    const struct run_backend *backend = run->backend;
    while (!run->done && !run->broken && !run->stopped && backend->turn(run->self))
        continue;
    int64_t end_ns = backend->now_ns(run->self);
    if (!run->broken && !run->stopped)
        backend->end(run->self);
    if (!run->broken && run->stopped)
        run->result->status = RUN_STOPPED;
    summarize(run, end_ns);
}

void run_play(const struct run_backend *backend, const struct run_config *config, struct run_result *result)
{
    *result = (struct run_result){.status = RUN_COMPLETE};
    struct user_error error = {.set = false};
    struct run run = {
        .backend = backend,
        .config = config,
        .load = config->load != NULL ? config->load : &config->scenario->load,
        .result = result,
        .counted_ns = TIME_NEVER,
    };
    if (set_up(&run, &error))
        play(&run);
    else
        run_break(&run, RUN_REFUSED, "%s", error.text);
    if (run.self != NULL)
        backend->free(run.self);
    recorder_free(run.recorder);
    workload_free(run.workload);
    free(run.conversations);
    deployment_free(run.deployment);
}

void run_result_free(struct run_result *result)
{
    free(result->instances);
    free(result->itl);
    *result = (struct run_result){0};
}
