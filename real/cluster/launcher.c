/* See launcher.h. */
#define _GNU_SOURCE
#include "real/cluster/launcher_internal.h"

#include "base/arith.h"
#include "world/scenario/policy_host.h"
#include "host/interrupt.h"
#include "real/executor/executor.h"
#include "real/memory/shared_memory.h"
#include "host/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TURN_NS INT64_C(20000000)
#define LEAD_NS INT64_C(20000000) /* from the word to start to time 0, so that all have heard it */
#define DRAIN_MS 15000u           /* that an instance may take to finish what is under way at the end */
#define DIAGNOSE_MS 500u          /* the same, of a run that is given up */
#define MARGIN_NS (5 * NS_PER_S)  /* beyond that, for the answer to arrive */

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    CHECK(memory != NULL);
    return memory;
}

const char *launcher_name(const struct launcher *launcher, uint32_t node)
{
    return launcher->world.deployment->instances[node].name;
}

/* ---- Listening --------------------------------------------------------------------------------------------------- */

/* Records of all nodes, in order of time. */
static void on_record(void *self, const struct timed_record *record)
{
    struct launcher *launcher = self;
    const struct run_listener *listener = &launcher->run->config->listener;
    launcher->trace_hash = trace_hash_fold(launcher->trace_hash, record->time_ns, &record->record);
    check_context_append(&launcher->check, record->time_ns, &record->record);
    run_trace(launcher->run, record->time_ns, &record->record);
    if (listener->trace != NULL)
        listener->trace(listener->self, record->time_ns, &record->record);
}

static void own_trace(void *self, int64_t now_ns, const struct trace_record *record)
{
    struct launcher *launcher = self;
    trace_merge_add(launcher->merge, 0, &(struct timed_record){.time_ns = now_ns, .record = *record});
}

static void handle(void *self, const struct event *event)
{
    struct launcher *launcher = self;
    real_node_handle(&launcher->node, event);
    const char *failure = policy_host_failure(launcher->node.policy);
    if (failure != NULL)
        run_break(launcher->run, RUN_REFUSED, "%s", failure);
}

/* ---- Set-up ------------------------------------------------------------------------------------------------------ */

static bool make_token(struct launcher *launcher)
{
    FILE *file = fopen("/dev/urandom", "rb");
    bool good = file != NULL && fread(launcher->token, sizeof launcher->token, 1, file) == 1;
    if (file != NULL)
        fclose(file);
    return good;
}

static bool make_node(struct launcher *launcher)
{
    struct user_error error = {.set = false};
    launcher->node.policy = policy_host_make(launcher->world.scenario, UINT32_MAX);
    bool good = real_node_make(&launcher->node, &launcher->world.deployment->configs[0],
                               real_runtime_seam(launcher->real), launcher->options->record_events, 0, &error);
    if (!good)
        run_break(launcher->run, RUN_REFUSED, "%s", error.text);
    return good;
}

static bool make_mesh(struct launcher *launcher)
{
    struct user_error error = {.set = false};
    struct mesh_config config = {
        .node_count = launcher->node_count,
        .bind = launcher->options->address,
        .heartbeat_ns = HEARTBEAT_NS_DEFAULT,
        .heartbeats_missed = launcher->options->heartbeats_missed,
        .listener = {.self = launcher, .up = launcher_up, .frame = launcher_frame, .down = launcher_down},
    };
    if (!make_token(launcher)) {
        run_break(launcher->run, RUN_REFUSED, "no random bytes for the join token");
        return false;
    }
    real_world_hello(&launcher->world, 0, launcher->token, &config.own);
    launcher->mesh = mesh_make(&config, &error);
    if (launcher->mesh == NULL)
        run_break(launcher->run, RUN_REFUSED, "%s", error.text);
    return launcher->mesh != NULL;
}

static bool serves(void *self, uint32_t request)
{
    return node_serves(((struct launcher *)self)->node.node, request);
}

static void make_listeners(struct launcher *launcher)
{
    const struct scenario *scenario = launcher->world.scenario;
    launcher->merge = trace_merge_make(launcher->node_count, on_record, launcher);
    launcher->request_answers =
        answers_make(&(struct answers_config){.vocab = scenario->model.vocab, .serves = serves, .self = launcher});
    launcher->real = real_runtime_make(&(struct real_config){
        .node = 0,
        .answers = launcher->request_answers,
        .limits = real_world_limits(),
        .handle = handle,
        .self = launcher,
        .mesh = launcher->mesh,
        .listener = {.self = launcher, .trace = own_trace, .after = launcher_after},
    });
    if (launcher->options->tokens != NULL)
        launcher->tokens = token_book_make();
    if (launcher->run->config->listener.transfer != NULL)
        launcher->transfers = transfer_book_make();
}

/* One line where devices are shared. */
static void tell_sharing(const struct launcher *launcher)
{
    struct user_error why = {.set = false};
    const struct device_ops *ops = executor_device(launcher->options->device, &why);
    uint32_t ranks = real_world_ranks_before(&launcher->world, launcher->node_count);
    uint32_t count = ops->count == NULL ? 0 : ops->count(&why);
    if (count > 0 && count < ranks)
        run_notice(launcher->run, "%" PRIu32 " ranks on %" PRIu32 " %s device%s: several share one", ranks, count,
                   ops->name, count == 1 ? "" : "s");
}

/* Starts the others, or tells those that somebody else has started where the front listens. */
static bool call_others(struct launcher *launcher)
{
    struct user_error error = {.set = false};
    struct pmix_wire *wire = launcher->wire;
    bool good;
    if (wire == NULL) {
        tell_sharing(launcher);
        good = launcher_start_children(launcher, &error);
    } else if (wire->size != launcher->node_count) {
        user_error_set(&error, NULL, 0, NULL,
                       "the front and %" PRIu32 " instances want %" PRIu32 " processes of the job, not %" PRIu32,
                       launcher->node_count - 1, launcher->node_count, wire->size);
        good = false;
    } else {
        good = pmix_wire_publish(wire, launcher->options->address, mesh_port(launcher->mesh), launcher->token, &error);
    }
    if (!good)
        run_break(launcher->run, RUN_REFUSED, "%s", error.text);
    return good;
}

static bool set_up(struct launcher *launcher)
{
    struct user_error error = {.set = false};
    if (!real_world_check(&launcher->world, NULL, &error)) {
        run_break(launcher->run, RUN_REFUSED, "%s", error.text);
        return false;
    }
    if (!make_mesh(launcher))
        return false;
    make_listeners(launcher);
    launcher_load_make(launcher);
    return make_node(launcher) && call_others(launcher);
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

static bool all_ready(const struct launcher *launcher)
{
    for (uint32_t i = 1; i < launcher->node_count; i++)
        if (!launcher->remotes[i].ready || launcher->remotes[i].clock_asks > 0)
            return false;
    return true;
}

static void start(struct launcher *launcher)
{
    int64_t origin_ns = clock_now_ns() + LEAD_NS;
    launcher->origin_ns = origin_ns;
    for (uint32_t i = 1; i < launcher->node_count; i++)
        launcher_send_start(launcher, i, origin_ns);
    mesh_flush(launcher->mesh);
    launcher->started = true;
    while (clock_now_ns() < origin_ns)
        usleep(1000);
    real_runtime_origin(launcher->real, origin_ns);
    real_runtime_deliver(launcher->real, &(struct event){.kind = EVENT_START});
    run_begin(launcher->run);
    launcher_feed(launcher, 0);
}

static void turn(struct launcher *launcher)
{
    real_runtime_turn(launcher->real, TURN_NS);
    if (!launcher->started)
        return;
    launcher_answer(launcher);
    launcher_replace(launcher);
    trace_merge_promise(launcher->merge, 0, real_runtime_now_ns(launcher->real));
    trace_merge_release(launcher->merge);
}

static bool all_finished(const struct launcher *launcher)
{
    for (uint32_t i = 1; i < launcher->node_count; i++)
        if (!launcher->remotes[i].finished && !launcher->remotes[i].lost)
            return false;
    return true;
}

/* Asks all to finish, and waits for what they have to say. */
static void stop(struct launcher *launcher, uint32_t within_ms)
{
    unsigned char bytes[4];
    struct frame_writer writer = {.bytes = bytes, .size = sizeof bytes};
    write_u32(&writer, within_ms);
    launcher->stopping = true;
    for (uint32_t i = 1; i < launcher->node_count; i++)
        if (!launcher->remotes[i].lost)
            mesh_send(launcher->mesh, i, FRAME_STOP, bytes, writer.used);
    real_runtime_deliver(launcher->real, &(struct event){.kind = EVENT_STOP});
    int64_t until_ns = clock_now_ns() + (int64_t)within_ms * 1000000 + MARGIN_NS;
    while (!all_finished(launcher) && clock_now_ns() < until_ns && !interrupt_requested())
        turn(launcher);
    for (uint32_t i = 0; i < launcher->node_count; i++)
        trace_merge_promise(launcher->merge, i, INT64_MAX);
    trace_merge_release(launcher->merge);
}

/* False: every request has arrived and ended, or the run came to another end than its own. */
static bool serve(void *self)
{
    struct launcher *launcher = self;
    int64_t limit_ns = launcher->options->limit_s * NS_PER_S;
    if (interrupt_requested()) {
        launcher->run->stopped = true;
        return false;
    }
    if (!launcher->started && all_ready(launcher))
        start(launcher);
    turn(launcher);
    if (launcher->started && launcher->front_live == 0 && run_fed(launcher->run))
        return false;
    if (clock_now_ns() - launcher->began_ns > limit_ns && !launcher->run->broken) {
        char text[3500];
        if (launcher->started)
            stop(launcher, DIAGNOSE_MS);
        launcher_diagnose(launcher, text, sizeof text);
        run_break(launcher->run, RUN_NO_PROGRESS, "the run took longer than %" PRId64 " s: %s", limit_ns / NS_PER_S,
                  text);
    }
    return true;
}

/* How far the clocks have drifted apart since they were aligned. Nodes answer until the front hangs up. */
static void align_again(struct launcher *launcher)
{
    int64_t until_ns = clock_now_ns() + MARGIN_NS;
    launcher_ask_clocks(launcher);
    bool asked = true;
    while (asked && clock_now_ns() < until_ns && !interrupt_requested()) {
        turn(launcher);
        asked = false;
        for (uint32_t i = 1; i < launcher->node_count; i++)
            asked = asked || (launcher->remotes[i].clock_asks > 0 && !launcher->remotes[i].lost);
    }
}

static void close_files(struct launcher *launcher)
{
    struct user_error error = {.set = false};
    if (launcher->tokens != NULL && !token_book_write(launcher->tokens, launcher->options->tokens, &error))
        run_break(launcher->run, RUN_REFUSED, "%s", error.text);
    if (!real_node_close(&launcher->node))
        run_break(launcher->run, RUN_REFUSED, "the recording could not be written");
}

static void finish(void *self)
{
    struct launcher *launcher = self;
    const struct run_listener *listener = &launcher->run->config->listener;
    stop(launcher, DRAIN_MS);
    if (interrupt_requested())
        launcher->run->stopped = true;
    if (launcher->run->stopped)
        return;
    align_again(launcher);
    for (uint32_t i = 1; i < launcher->node_count; i++)
        if (!launcher->remotes[i].finished && !launcher->remotes[i].lost)
            run_break(launcher->run, RUN_INVARIANT, "%s did not come to its end", launcher_name(launcher, i));
    launcher_judge(launcher);
    for (uint32_t i = 0; launcher->transfers != NULL && i < transfer_book_count(launcher->transfers); i++)
        listener->transfer(listener->self, transfer_book_row(launcher->transfers, i));
    close_files(launcher);
}

static void tear_down(void *self)
{
    struct launcher *launcher = self;
    /* Hanging up is the word to end; only then are they waited for. */
    mesh_free(launcher->mesh);
    children_end(launcher->children);
    launcher_load_free(launcher);
    real_runtime_free(launcher->real);
    trace_merge_free(launcher->merge);
    answers_free(launcher->request_answers);
    token_book_free(launcher->tokens);
    transfer_book_free(launcher->transfers);
    for (uint32_t i = 0; i < launcher->node_count; i++)
        free(launcher->remotes[i].end);
    free(launcher->remotes);
    real_node_free(&launcher->node);
    check_context_set(NULL);
    free(launcher);
}

static void *make(struct run *run, struct user_error *error)
{
    const struct launcher_options *options = run->config->options;
    struct launcher *launcher = allocate(1, sizeof *launcher);
    launcher->run = run;
    launcher->options = options->options;
    launcher->wire = options->wire;
    launcher->world = (struct real_world){.scenario = run->config->scenario,
                                          .recorded = run->config->recorded,
                                          .deployment = run->deployment,
                                          .seed = run->config->seed};
    launcher->node_count = run->deployment->node_count;
    launcher->remotes = allocate(launcher->node_count, sizeof *launcher->remotes);
    for (uint32_t i = 0; i < launcher->node_count; i++)
        launcher->remotes[i].replace_at_ns = TIME_NEVER;
    launcher->arrival_timer = -1;
    launcher->began_ns = clock_now_ns();
    launcher->check.seed = run->config->seed;
    check_context_set(&launcher->check);
    signal(SIGPIPE, SIG_IGN);
    if (set_up(launcher))
        return launcher;
    user_error_set(error, NULL, 0, NULL, "%s", run->result->text);
    tear_down(launcher);
    return NULL;
}

static int64_t now_ns(const void *self)
{
    const struct launcher *launcher = self;
    return launcher->started ? real_runtime_now_ns(launcher->real) : 0;
}

static uint32_t live(const void *self)
{
    return ((const struct launcher *)self)->front_live;
}

const struct run_backend real_backend = {
    .stored_as = RESULTS_REAL,
    .record = RECORD_SAMPLES,
    .windows_in_pages = true,
    .make = make,
    .free = tear_down,
    .now_ns = now_ns,
    .live = live,
    .arrive = launcher_arrive,
    .wake = launcher_wake,
    .answer_soon = launcher_answer_soon,
    .count_from = launcher_count_from,
    .turn = serve,
    .end = finish,
    .summarize = launcher_summarize,
};
