/* See run.h. */
#include "sim/run.h"

#include "base/arith.h"
#include "run/recorder.h"
#include "sim/checkers/checkers.h"
#include "sim/engine/fault_play.h"
#include "sim/checkers/oracle.h"
#include "sim/checkers/shadow.h"
#include "host/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Virtual time without a single record about a request after which a run with requests in flight is given up. Longer
 * than any deadline or queue that makes sense; nodes that only re-arm timers would go on for ever. */
#define SILENCE_MAX_NS (24 * 3600 * NS_PER_S)

/* Where faults are played: virtual time after the last of them, and after the last arrival, within which every request
 * must have ended. The longest delay of a write is half a minute; deadlines, attempts and fences are seconds. */
#define PROGRESS_MAX_NS (3600 * NS_PER_S)

/* Virtual time that clean-up may take after the last request has ended: deadlines and fences, many times over. */
#define DRAIN_MAX_NS (3600 * NS_PER_S)

/* How long the world takes to notice a lost node: keep-alives of a second, three of them missed; then the time to tear
 * the connections down. */
#define SUSPECT_NS (3 * NS_PER_S)
#define FENCE_NS (1 * NS_PER_S)

/* Tickets of one node in flight, each a chunk on its way: what a transfer engine keeps a table for. */
#define WRITES_IN_FLIGHT_MAX 4096u

struct run {
    const struct scenario *scenario;
    const struct load *load;
    const struct run_options *options;
    struct run_result *result;
    struct deployment *deployment;
    struct run_models own_models;
    const struct run_models *models;
    struct workload *workload;
    struct sim *sim;
    struct recorder *recorder;
    struct checkers *checkers;
    struct oracle *oracle; /* these three only where the scenario has faults */
    struct shadow *shadow;
    struct fault_play *faults;
    struct node **nodes;
    void **memory;  /* of the nodes, as allocated */
    void **retired; /* of those that were replaced */
    uint32_t retired_count;
    uint64_t *pages_held_peak;
    uint64_t feeder;        /* generation of the call that feeds the next arrival */
    uint64_t answering;     /* closed loop: clients that send their next request at this instant */
    int64_t last_record_ns; /* of a record about a request */
    int64_t last_arrival_ns;
    int64_t counted_ns; /* arrival of the first request behind a warm-up of so many */
    bool seen_enough;   /* says the row callback */
    bool done;          /* every request has ended */
};

/* ---- Models ----------------------------------------------------------------------------------------------------- */

bool run_models_make(const struct scenario *scenario, const struct deployment_choice *choice, struct run_models *models,
                     char *error, size_t error_size)
{
    *models = (struct run_models){.pool_count = scenario->pool_count};
    for (uint32_t p = 0; p < scenario->pool_count; p++) {
        const struct pool *pool = &scenario->pools[p];
        if (choice->pool[p].count == 0)
            continue;
        char why[1024] = "";
        models->pool[p] =
            device_model_of_pool(scenario, pool, pool->shardings[choice->pool[p].sharding], why, sizeof why);
        if (models->pool[p] == NULL || !device_model_serves(models->pool[p], pool->role, why, sizeof why)) {
            snprintf(error, error_size, "pool %s: %s", pool->name, why);
            run_models_free(models);
            return false;
        }
    }
    return true;
}

void run_models_free(struct run_models *models)
{
    for (uint32_t p = 0; p < models->pool_count; p++)
        device_model_free(models->pool[p]);
    *models = (struct run_models){0};
}

/* ---- Arrivals --------------------------------------------------------------------------------------------------- */

static void arrive(struct run *run, const struct workload_item *item)
{
    struct event event = {.kind = EVENT_ARRIVAL,
                          .status = item->is_abort ? ARRIVAL_ABORT : ARRIVAL_NEW,
                          .id = item->spec.id,
                          .data = &item->spec};
    run->last_arrival_ns = sim_now_ns(run->sim);
    /* Gaps between tokens count from the first request that does. */
    if (!item->is_abort && item->spec.id > 0 && item->spec.id == run->load->warmup_requests) {
        run->counted_ns = max_i64(run->load->warmup_ns, sim_now_ns(run->sim));
        sim_itl_from(run->sim, run->counted_ns);
    }
    sim_deliver(run->sim, 0, &event);
}

static void feed(struct sim *sim, void *self, uint64_t generation);

/* One arrival ahead is in the queue, not all of them. */
static void feed_next(struct run *run)
{
    int64_t next_ns = workload_next_ns(run->workload);
    run->feeder++;
    if (next_ns != TIME_NEVER)
        sim_call_at(run->sim, max_i64(next_ns, sim_now_ns(run->sim)),
                    (struct sim_call){.run = feed, .self = run, .argument = run->feeder});
}

static void feed(struct sim *sim, void *self, uint64_t generation)
{
    struct run *run = self;
    if (generation != run->feeder)
        return;
    struct workload_item item;
    if (workload_next_ns(run->workload) <= sim_now_ns(sim) && workload_next(run->workload, &item))
        arrive(run, &item);
    feed_next(run);
}

/* Closed loop: a client whose request has ended sends its next one at the same instant, outside of the node in which
 * the end was traced. A conversation: its next turn comes when its user has thought. */
static void answer(struct sim *sim, void *self, uint64_t request)
{
    struct run *run = self;
    run->answering--;
    struct workload_item item;
    if (run->load->arrivals == ARRIVAL_SESSIONS) {
        workload_answered(run->workload, (uint32_t)request, sim_now_ns(sim));
        feed_next(run);
        if (recorder_live(run->recorder) == 0 && run->answering == 0 && workload_next_ns(run->workload) == TIME_NEVER) {
            run->done = true;
            sim_stop(sim);
        }
    } else if (workload_closed_next(run->workload, sim_now_ns(sim), &item)) {
        arrive(run, &item);
        feed_next(run);
    } else if (recorder_live(run->recorder) == 0 && run->answering == 0) {
        run->done = true;
        sim_stop(sim);
    }
}

/* ---- Listening -------------------------------------------------------------------------------------------------- */

static void on_row(void *self, const struct request_row *row, bool met)
{
    struct run *run = self;
    struct request_row told = *row;
    told.conversation = workload_conversation(run->workload, row->request);
    if (run->options->row != NULL && !run->options->row(run->options->self, &told, met)) {
        run->seen_enough = true;
        sim_stop(run->sim);
    }
    bool answers = run->load->arrivals == ARRIVAL_CLOSED || run->load->arrivals == ARRIVAL_SESSIONS;
    if (answers && run->options->arrivals == NULL) {
        run->answering++;
        sim_call_at(run->sim, sim_now_ns(run->sim),
                    (struct sim_call){.run = answer, .self = run, .argument = row->request});
    }
}

static void on_trace(void *self, int64_t now_ns, const struct trace_record *record)
{
    struct run *run = self;
    recorder_trace(run->recorder, now_ns, record);
    if (record->request == TRACE_NO_REQUEST)
        return;
    run->last_record_ns = now_ns;
    bool ends = record->kind >= TRACE_FINISHED && record->kind <= TRACE_ABORTED;
    if (ends && run->answering == 0 && recorder_live(run->recorder) == 0 &&
        workload_next_ns(run->workload) == TIME_NEVER) {
        run->done = true;
        sim_stop(run->sim);
    }
}

/* Pages are taken when a message has brought a request and when a step has ended, for the next one: their number is
 * greatest after one of these. A prompt of one chunk may have given all of them back before its step ends. */
static void after_event(void *self, int64_t now_ns, uint32_t node, const struct event *event)
{
    (void)now_ns;
    struct run *run = self;
    if (event->kind != EVENT_STEPS_DONE && event->kind != EVENT_MESSAGE)
        return;
    struct node_stats stats = node_stats(run->nodes[node]);
    run->pages_held_peak[node] = max_u64(run->pages_held_peak[node], stats.pages_held);
}

/* ---- Set-up ----------------------------------------------------------------------------------------------------- */

static void *make(size_t count, size_t size)
{
    CHECK(count > 0 && size > 0);
    void *memory = memory_zeroed(count, size);
    return memory;
}

static struct sim *make_sim(struct run *run, uint64_t seed)
{
    const struct deployment *deployment = run->deployment;
    struct sim_node_config *nodes = make(deployment->node_count, sizeof *nodes);
    for (uint32_t i = 0; i < deployment->node_count; i++) {
        const struct deployment_instance *instance = &deployment->instances[i];
        struct sim_node_config *node = &nodes[i];
        node->group_count = deployment->configs[i].group_count;
        node->produces_first_token = deployment->configs[i].role == ROLE_MIXED;
        node->network.nvlink_domain = instance->place.nvlink_domain;
        node->network.machine = instance->place.machine;
        node->network.gpu = instance->place.gpu;
        node->network.ranks = instance->ranks;
        /* The front stands beside the first pool and talks as fast. */
        uint32_t pool = instance->pool == UINT32_MAX ? 0 : instance->pool;
        node->network.hardware = run->scenario->pools[pool].hardware;
        if (instance->pool != UINT32_MAX)
            node->device =
                run->options->devices != NULL ? run->options->devices[pool] : device_of(run->models->pool[pool]);
    }
    struct sim_config config = {
        .seed = seed,
        .shuffle_seed = run->scenario->faults != NULL && run->scenario->faults->shuffle != 0
                            ? run->scenario->faults->shuffle
                            : run->options->shuffle_seed,
        .plain = run->options->plain,
        .node_count = deployment->node_count,
        .nodes = nodes,
        .limits = {.writes_in_flight = WRITES_IN_FLIGHT_MAX, .message_bytes = MESSAGE_BYTES_MAX},
        .detection = {.suspect_ns = SUSPECT_NS, .fence_ns = FENCE_NS},
    };
    struct sim *sim = sim_make(&config);
    free(nodes);
    return sim;
}

static void handle(void *self, const struct event *event)
{
    node_handle(self, event);
}

/* memory_zeroed() and not aligned_alloc(): pages that a node never touches then cost nothing. */
static void make_node(struct run *run, uint32_t index)
{
    const size_t line = 64;
    const struct node_config *config = &run->deployment->configs[index];
    struct runtime *runtime = sim_runtime(run->sim, index);
    size_t size = node_size(config, &runtime->limits);
    run->memory[index] = make(1, size + line);
    uintptr_t address = ((uintptr_t)run->memory[index] + line - 1) / line * line;
    run->nodes[index] = node_make(config, runtime, (void *)address, size);
    struct participant participant = {.handle = handle, .self = run->nodes[index]};
    if (sim_alive(run->sim, index))
        sim_attach(run->sim, index, participant);
    else
        sim_restart(run->sim, index, participant);
}

/* ---- Faults ----------------------------------------------------------------------------------------------------- */

static void restart(void *self, uint32_t node)
{
    struct run *run = self;
    /* Writes that the dead one had posted may still land, along plans that lie in its memory. */
    run->retired = memory_resized(run->retired, (run->retired_count + 1) * sizeof *run->retired);
    run->retired[run->retired_count++] = run->memory[node];
    make_node(run, node);
    checkers_watch(run->checkers, node, run->nodes[node]);
}

/* Whoever replaces instances hears of a loss when everybody does. */
static int64_t replaced_ns(void *self, uint32_t node)
{
    const struct run *run = self;
    const struct pool *pool = &run->scenario->pools[run->deployment->instances[node].pool];
    return pool_replaces(pool) ? time_add(SUSPECT_NS, pool->replace_ns) : TIME_NEVER;
}

static bool make_faults(struct run *run, char *error, size_t error_size)
{
    const struct fault_list *faults = run->scenario->faults;
    struct fault_world world = {.self = run, .restart = restart, .replaced_ns = replaced_ns};
    if (faults != NULL) {
        run->faults = fault_play_make(faults, run->sim, run->deployment, &world, error, error_size);
        if (run->faults == NULL)
            return false;
    }
    if (run->options->hooks != NULL)
        sim_set_faults(run->sim, run->options->hooks);
    return true;
}

static void listen(struct run *run)
{
    const struct run_options *options = run->options;
    struct recorder_config recorder = {
        .warmup_ns = run->load->warmup_ns,
        .warmup_requests = run->load->warmup_requests,
        .targets = run->scenario->targets,
        .node_count = run->deployment->node_count,
        .sink = {.row = on_row, .self = run},
    };
    run->recorder = recorder_make(&recorder);
    sim_listen(run->sim, &(struct sim_listener){.self = run, .trace = on_trace, .after = after_event});
    if (options->trace != NULL || options->steps != NULL || options->transfer != NULL)
        sim_listen(run->sim, &(struct sim_listener){.self = options->self,
                                                    .trace = options->trace,
                                                    .steps = options->steps,
                                                    .transfer = options->transfer});
    bool closely = run->scenario->faults != NULL;
    run->checkers = checkers_make(run->sim, run->deployment->node_count,
                                  closely                     ? 1
                                  : options->check_every == 0 ? UINT32_MAX
                                                              : options->check_every);
    if (!closely)
        return;
    run->oracle = oracle_make(run->sim, run->deployment->configs, run->deployment->node_count, run->checkers);
    run->shadow =
        shadow_make(run->sim, run->deployment->configs, run->deployment->node_count, run->oracle, run->checkers);
}

static bool refuse(struct run *run, const char *text)
{
    run->result->status = RUN_REFUSED;
    snprintf(run->result->text, sizeof run->result->text, "%s", text);
    return false;
}

static bool set_up(struct run *run, const struct deployment_choice *choice, uint64_t seed)
{
    char error[1200] = "";
    struct deployment_sizes sizes = deployment_sizes_traced(run->load, run->options->recorded);
    run->deployment = deployment_make(run->scenario, choice, &sizes, seed, error, sizeof error);
    if (run->deployment == NULL)
        return refuse(run, error);
    if (run->options->models == NULL && run->options->devices == NULL) {
        if (!run_models_make(run->scenario, choice, &run->own_models, error, sizeof error))
            return refuse(run, error);
        run->models = &run->own_models;
    } else {
        run->models = run->options->models;
    }
    struct user_error user_error = {0};
    run->workload = workload_create_again(run->load, seed, run->options->recorded, run->options->arrivals, &user_error);
    if (run->workload == NULL)
        return refuse(run, user_error.text);
    run->sim = make_sim(run, seed);
    listen(run);
    sim_itl_from(run->sim, run->load->warmup_requests > 0 ? TIME_NEVER : run->load->warmup_ns);
    run->nodes = make(run->deployment->node_count, sizeof *run->nodes);
    run->memory = make(run->deployment->node_count, sizeof *run->memory);
    run->pages_held_peak = make(run->deployment->node_count, sizeof *run->pages_held_peak);
    for (uint32_t i = 0; i < run->deployment->node_count; i++) {
        make_node(run, i);
        checkers_watch(run->checkers, i, run->nodes[i]);
    }
    if (!make_faults(run, error, sizeof error))
        return refuse(run, error);
    if (run->options->ready != NULL)
        run->options->ready(run->options->self, run->sim,
                            &(struct run_nodes){.count = run->deployment->node_count,
                                                .configs = run->deployment->configs,
                                                .nodes = run->nodes});
    return true;
}

/* ---- Running ---------------------------------------------------------------------------------------------------- */

static void no_progress(struct run *run)
{
    struct run_result *result = run->result;
    result->status = RUN_NO_PROGRESS;
    int used =
        snprintf(result->text, sizeof result->text,
                 "no progress: %" PRIu32 " requests are unfinished at %" PRId64 " ns and nothing more will happen\n",
                 recorder_live(run->recorder), sim_now_ns(run->sim));
    size_t at = used < 0 ? 0 : (size_t)used;
    for (uint32_t i = 0; i < run->deployment->node_count && at < sizeof result->text; i++) {
        struct node_stats stats = node_stats(run->nodes[i]);
        used = snprintf(result->text + at, sizeof result->text - at,
                        "%s: %" PRIu32 " live, %" PRIu32 " waiting, %" PRIu32 " running, %" PRIu32
                        " transfers, pages %" PRIu64 " held of %" PRIu64 "\n",
                        run->deployment->instances[i].name, stats.requests_live, stats.waiting, stats.running,
                        stats.transfers, stats.pages_held, stats.pages_total);
        at += used < 0 ? 0 : (size_t)used;
    }
    if (at < sizeof result->text)
        sim_describe(run->sim, result->text + at, sizeof result->text - at);
}

/* Requests that go round for ever write records all the time: only the time since the last fault tells. */
static bool stuck(const struct run *run)
{
    if (run->faults == NULL || workload_next_ns(run->workload) != TIME_NEVER)
        return false;
    int64_t since_ns = max_i64(fault_play_last_ns(run->faults), run->last_arrival_ns);
    return sim_now_ns(run->sim) - since_ns > PROGRESS_MAX_NS;
}

/* Until every request has ended. False: it came to another end. */
static bool serve(struct run *run)
{
    int64_t silence_ns = run->faults != NULL ? PROGRESS_MAX_NS : SILENCE_MAX_NS;
    int64_t until_ns = silence_ns;
    while (!run->done) {
        enum sim_status status = sim_advance(run->sim, until_ns);
        if (run->seen_enough) {
            run->result->status = RUN_STOPPED;
            return false;
        }
        if (checkers_failure(run->checkers) != NULL)
            return false;
        if (stuck(run)) {
            no_progress(run);
            return false;
        }
        bool silent = recorder_live(run->recorder) > 0 && until_ns - run->last_record_ns >= silence_ns;
        if (status == SIM_IDLE && recorder_live(run->recorder) == 0)
            run->done = true; /* a load without a single request */
        else if (status == SIM_IDLE || silent) {
            no_progress(run);
            return false;
        }
        until_ns = time_add(until_ns, silence_ns / 2);
    }
    return true;
}

/* Lets releases, late completions and timers come to rest. */
static void drain(struct run *run)
{
    for (uint32_t i = 0; i < run->deployment->node_count; i++)
        sim_deliver(run->sim, i, &(struct event){.kind = EVENT_STOP});
    /* A request whose answer was lost on its way ends once more, for its client, and stops the simulation again. */
    int64_t until_ns = time_add(sim_now_ns(run->sim), DRAIN_MAX_NS);
    while (sim_advance(run->sim, until_ns) == SIM_STOPPED && checkers_failure(run->checkers) == NULL) {
    }
    checkers_drained(run->checkers);
    if (run->oracle != NULL)
        oracle_drained(run->oracle);
}

/* ---- Result ----------------------------------------------------------------------------------------------------- */

static void summarize_instance(const struct run *run, uint32_t node, struct instance_summary *summary)
{
    const struct deployment_instance *instance = &run->deployment->instances[node];
    const struct sim_ledger *ledger = sim_ledger(run->sim, node);
    const struct recorder_node *recorded = recorder_node(run->recorder, node);
    struct network_totals network = network_node_totals(sim_network(run->sim), node);
    const struct node_config *config = &run->deployment->configs[node];
    *summary = (struct instance_summary){
        .node = (uint16_t)node,
        .role = config->role,
        .ranks = instance->ranks,
        .requests = recorded->requests,
        .busy_ns = ledger->busy_ns,
        .compute_bound_ns = ledger->bound_ns[BOUND_COMPUTE],
        .bandwidth_bound_ns = ledger->bound_ns[BOUND_BANDWIDTH],
        .communication_bound_ns = ledger->bound_ns[BOUND_COMMUNICATION],
        .overhead_bound_ns = ledger->bound_ns[BOUND_OVERHEAD],
        .steps = ledger->steps,
        .prefill_tokens = ledger->prefill_tokens,
        .decode_tokens = ledger->decode_tokens,
        .pages_total = (uint64_t)config->pages_per_group * config->group_count,
        .pages_held_peak = run->pages_held_peak[node],
        .page_wait_ns = recorded->page_wait_ns,
        .handoff_wait_ns = recorded->handoff_wait_ns,
        .preemptions = recorded->preemptions,
        .nic_transmit_busy_ns = network.transmit_busy_ns,
        .nic_receive_busy_ns = network.receive_busy_ns,
        .nic_op_bound_ns = network.op_bound_ns,
        .posting_busy_ns = network.posting_busy_ns,
        .nic_bytes = network.bytes,
    };
    memcpy(summary->name, instance->name, sizeof summary->name);
}

static void summarize(struct run *run, uint64_t seed, int64_t end_ns)
{
    struct run_result *result = run->result;
    result->summary = (struct run_summary){
        .seed = seed,
        .trace_hash = sim_trace_hash(run->sim),
        .event_count = sim_event_count(run->sim),
        .final_draw = sim_final_draw(run->sim),
        .start_ns = run->load->warmup_requests > 0 ? min_i64(run->counted_ns, end_ns) : run->load->warmup_ns,
        .end_ns = end_ns,
    };
    recorder_summary(run->recorder, &result->summary);
    result->instance_count = run->deployment->node_count - 1;
    result->instances = make(result->instance_count, sizeof *result->instances);
    for (uint32_t i = 0; i < result->instance_count; i++) {
        summarize_instance(run, i + 1, &result->instances[i]);
        result->steps += result->instances[i].steps;
    }
    result->itl = make(ITL_BUCKETS, sizeof *result->itl);
    memcpy(result->itl, sim_itl(run->sim), ITL_BUCKETS * sizeof *result->itl);
    result->machines = run->deployment->machines;
    result->gpus = run->deployment->gpus;
    result->usd_micros_per_hour = run->deployment->usd_micros_per_hour;
    result->queue_events = sim_queue_count(run->sim);
}

static void tear_down(struct run *run)
{
    for (uint32_t i = 0; run->memory != NULL && i < run->deployment->node_count; i++)
        free(run->memory[i]);
    for (uint32_t i = 0; i < run->retired_count; i++)
        free(run->retired[i]);
    free(run->retired);
    free(run->memory);
    free(run->nodes);
    free(run->pages_held_peak);
    fault_play_free(run->faults);
    shadow_free(run->shadow);
    oracle_free(run->oracle);
    checkers_free(run->checkers);
    recorder_free(run->recorder);
    sim_free(run->sim);
    workload_free(run->workload);
    run_models_free(&run->own_models);
    deployment_free(run->deployment);
}

void sim_run(const struct scenario *scenario, const struct deployment_choice *choice, uint64_t seed,
             const struct run_options *options, struct run_result *result)
{
    static const struct run_options none = {0};
    options = options == NULL ? &none : options;
    *result = (struct run_result){.status = RUN_COMPLETE};
    struct run run = {
        .scenario = scenario,
        .load = options->load != NULL ? options->load : &scenario->load,
        .counted_ns = TIME_NEVER,
        .options = options,
        .result = result,
    };
    if (set_up(&run, choice, seed)) {
        sim_start(run.sim);
        feed_next(&run);
        bool served = serve(&run);
        int64_t end_ns = sim_now_ns(run.sim);
        if (served)
            drain(&run);
        const char *failure = checkers_failure(run.checkers);
        if (failure != NULL) {
            result->status = RUN_INVARIANT;
            snprintf(result->text, sizeof result->text, "%s", failure);
        }
        summarize(&run, seed, end_ns);
    }
    tear_down(&run);
}

void run_result_free(struct run_result *result)
{
    free(result->instances);
    free(result->itl);
    *result = (struct run_result){0};
}
