/* See sim_run.h. */
#include "sim/sim_run.h"

#include "base/arith.h"
#include "world/scenario/policy_host.h"
#include "run/backend.h"
#include "sim/checkers/checkers.h"
#include "sim/engine/fault_play.h"
#include "sim/checkers/oracle.h"
#include "sim/checkers/prefill_peak.h"
#include "sim/checkers/shadow.h"
#include "host/memory.h"
#include "host/user_error.h"

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

struct sim_run {
    struct run *run;
    const struct scenario *scenario;
    const struct sim_options *options;
    const struct deployment *deployment;
    struct run_models own_models;
    const struct run_models *models;
    struct sim *sim;
    struct checkers *checkers;
    struct prefill_peak *peak;
    struct oracle *oracle; /* these three only where the scenario has faults */
    struct shadow *shadow;
    struct fault_play *faults;
    struct node **nodes;
    void **memory;            /* of the nodes, as allocated */
    struct policy **policies; /* what the scenario decides itself, by node; NULL: nothing */
    void **retired;           /* of those that were replaced */
    uint32_t retired_count;
    uint64_t *pages_held_peak;
    uint64_t feeder;  /* generation of the call that feeds the next arrival */
    int64_t until_ns; /* of the turn in hand */
    bool begun;
};

/* ---- Models ----------------------------------------------------------------------------------------------------- */

bool run_models_make(const struct scenario *scenario, const struct deployment_choice *choice, struct run_models *models,
                     struct user_error *error)
{
    *models = (struct run_models){.pool_count = scenario->pool_count};
    for (uint32_t p = 0; p < scenario->pool_count; p++) {
        const struct pool *pool = &scenario->pools[p];
        if (choice->pool[p].count == 0)
            continue;
        struct user_error why = {.set = false};
        models->pool[p] = device_model_of_pool(scenario, pool, pool->shardings[choice->pool[p].sharding], &why);
        if (models->pool[p] == NULL ||
            !device_model_serves(models->pool[p], scenario_step_role(scenario, pool), &why)) {
            user_error_set(error, NULL, 0, NULL, "pool %s: %s", pool->name, why.text);
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

/* ---- Time ------------------------------------------------------------------------------------------------------- */

static int64_t now_ns(const void *self)
{
    return sim_now_ns(((const struct sim_run *)self)->sim);
}

static uint32_t live(const void *self)
{
    return recorder_live(((const struct sim_run *)self)->run->recorder);
}

static void arrive(void *self, const struct event *event)
{
    sim_deliver(((struct sim_run *)self)->sim, 0, event);
}

static void feed(struct sim *sim, void *self, uint64_t generation)
{
    (void)sim;
    struct sim_run *my = self;
    if (generation == my->feeder)
        run_feed(my->run);
}

/* One arrival ahead is in the queue, not all of them. */
static void wake(void *self, int64_t at_ns)
{
    struct sim_run *my = self;
    my->feeder++;
    if (at_ns != TIME_NEVER)
        sim_call_at(my->sim, max_i64(at_ns, sim_now_ns(my->sim)),
                    (struct sim_call){.run = feed, .self = my, .argument = my->feeder});
}

static void answer(struct sim *sim, void *self, uint64_t request)
{
    (void)sim;
    run_answer(((struct sim_run *)self)->run, (uint32_t)request);
}

static void answer_soon(void *self, uint32_t request)
{
    struct sim_run *my = self;
    sim_call_at(my->sim, sim_now_ns(my->sim), (struct sim_call){.run = answer, .self = my, .argument = request});
}

static void count_from(void *self, int64_t from_ns)
{
    sim_itl_from(((struct sim_run *)self)->sim, from_ns);
}

static void stop(void *self)
{
    sim_stop(((struct sim_run *)self)->sim);
}

/* ---- Listening -------------------------------------------------------------------------------------------------- */

static void on_trace(void *self, int64_t at_ns, const struct trace_record *record)
{
    run_trace(((struct sim_run *)self)->run, at_ns, record);
}

/* Pages are taken when a message has brought a request and when a step has ended, for the next one: their number is
 * greatest after one of these. A prompt of one chunk may have given all of them back before its step ends. */
static void after_event(void *self, int64_t now_ns, uint32_t node, const struct event *event)
{
    (void)now_ns;
    struct sim_run *run = self;
    if (event->kind != EVENT_STEPS_DONE && event->kind != EVENT_MESSAGE)
        return;
    struct node_stats stats = node_stats(run->nodes[node]);
    run->pages_held_peak[node] = max_u64(run->pages_held_peak[node], stats.pages_held);
}

/* ---- Set-up ----------------------------------------------------------------------------------------------------- */

static void *allocate(size_t count, size_t size)
{
    CHECK(count > 0 && size > 0);
    return memory_zeroed(count, size);
}

static struct sim *make_sim(struct sim_run *run, uint64_t seed)
{
    const struct deployment *deployment = run->deployment;
    struct sim_node_config *nodes = allocate(deployment->node_count, sizeof *nodes);
    for (uint32_t i = 0; i < deployment->node_count; i++) {
        const struct deployment_instance *instance = &deployment->instances[i];
        struct sim_node_config *node = &nodes[i];
        node->group_count = deployment->configs[i].group_count;
        node->produces_first_token =
            deployment->configs[i].role != ROLE_PREFILL && node_prefills(&deployment->configs[i]);
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
static void make_node(struct sim_run *run, uint32_t index)
{
    const size_t line = 64;
    const struct node_config *config = &run->deployment->configs[index];
    struct runtime *runtime = sim_runtime(run->sim, index);
    size_t size = node_size(config, &runtime->limits);
    run->memory[index] = allocate(1, size + line);
    uintptr_t address = ((uintptr_t)run->memory[index] + line - 1) / line * line;
    runtime->policy = run->policies[index];
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
    struct sim_run *run = self;
    /* Writes that the dead one had posted may still land, along plans that lie in its memory. */
    run->retired = memory_resized(run->retired, (run->retired_count + 1) * sizeof *run->retired);
    run->retired[run->retired_count++] = run->memory[node];
    make_node(run, node);
    checkers_watch(run->checkers, node, run->nodes[node]);
}

/* Whoever replaces instances hears of a loss when everybody does. */
static int64_t replaced_ns(void *self, uint32_t node)
{
    const struct sim_run *run = self;
    const struct pool *pool = &run->scenario->pools[run->deployment->instances[node].pool];
    return pool_replaces(pool) ? time_add(SUSPECT_NS, pool->replace_ns) : TIME_NEVER;
}

static bool make_faults(struct sim_run *run, struct user_error *error)
{
    const struct fault_list *faults = run->scenario->faults;
    struct fault_world world = {.self = run, .restart = restart, .replaced_ns = replaced_ns};
    if (faults != NULL) {
        run->faults = fault_play_make(faults, run->sim, run->deployment, &world, error);
        if (run->faults == NULL)
            return false;
    }
    if (run->options->hooks != NULL)
        sim_set_faults(run->sim, run->options->hooks);
    return true;
}

static void listen(struct sim_run *run)
{
    const struct run_listener *listener = &run->run->config->listener;
    uint32_t count = run->deployment->node_count;
    bool closely = run->scenario->faults != NULL;
    uint32_t every = run->options->check_every == 0 ? UINT32_MAX : run->options->check_every;
    sim_listen(run->sim, &(struct sim_listener){.self = run, .trace = on_trace, .after = after_event});
    if (listener->trace != NULL || listener->steps != NULL || listener->transfer != NULL)
        sim_listen(run->sim, &(struct sim_listener){.self = listener->self,
                                                    .trace = listener->trace,
                                                    .steps = listener->steps,
                                                    .transfer = listener->transfer});
    run->checkers = checkers_make(run->sim, count, closely ? 1 : every);
    if (run->options->devices == NULL) {
        bool modelled[SCENARIO_POOLS_MAX] = {false};
        for (uint32_t p = 0; p < run->models->pool_count; p++)
            modelled[p] = run->models->pool[p] != NULL && !device_model_is_measured(run->models->pool[p]);
        run->peak = prefill_peak_make(run->sim, run->scenario, run->deployment, modelled, run->checkers);
    }
    if (!closely)
        return;
    run->oracle = oracle_make(run->sim, run->deployment->configs, count, run->checkers);
    run->shadow = shadow_make(run->sim, run->deployment->configs, count, run->oracle, run->checkers);
}

static bool set_up(struct sim_run *run, struct user_error *error)
{
    const struct run_config *config = run->run->config;
    const struct load *load = run->run->load;
    uint32_t count = run->deployment->node_count;
    run->models = run->options->models;
    if (run->options->models == NULL && run->options->devices == NULL) {
        if (!run_models_make(run->scenario, config->choice, &run->own_models, error))
            return false;
        run->models = &run->own_models;
    }
    run->sim = make_sim(run, config->seed);
    listen(run);
    sim_itl_from(run->sim, load->warmup_requests > 0 ? TIME_NEVER : load->warmup_ns);
    run->nodes = allocate(count, sizeof *run->nodes);
    run->memory = allocate(count, sizeof *run->memory);
    run->policies = allocate(count, sizeof *run->policies);
    for (uint32_t i = 0; i < count; i++)
        run->policies[i] = policy_host_make(run->scenario, run->deployment->instances[i].pool);
    run->pages_held_peak = allocate(count, sizeof *run->pages_held_peak);
    for (uint32_t i = 0; i < count; i++) {
        make_node(run, i);
        checkers_watch(run->checkers, i, run->nodes[i]);
    }
    if (!make_faults(run, error))
        return false;
    if (run->options->ready != NULL)
        run->options->ready(
            run->options->self, run->sim,
            &(struct run_nodes){.count = count, .configs = run->deployment->configs, .nodes = run->nodes});
    return true;
}

static void tear_down(void *self)
{
    struct sim_run *run = self;
    for (uint32_t i = 0; run->memory != NULL && i < run->deployment->node_count; i++)
        free(run->memory[i]);
    for (uint32_t i = 0; i < run->retired_count; i++)
        free(run->retired[i]);
    free(run->retired);
    for (uint32_t i = 0; run->policies != NULL && i < run->deployment->node_count; i++)
        policy_host_free(run->policies[i]);
    free(run->policies);
    free(run->memory);
    free(run->nodes);
    free(run->pages_held_peak);
    fault_play_free(run->faults);
    prefill_peak_free(run->peak);
    shadow_free(run->shadow);
    oracle_free(run->oracle);
    checkers_free(run->checkers);
    sim_free(run->sim);
    run_models_free(&run->own_models);
    free(run);
}

static void *make(struct run *run, struct user_error *error)
{
    static const struct sim_options none = {0};
    struct sim_run *made = allocate(1, sizeof *made);
    made->run = run;
    made->scenario = run->config->scenario;
    made->options = run->config->options != NULL ? run->config->options : &none;
    made->deployment = run->deployment;
    if (set_up(made, error))
        return made;
    tear_down(made);
    return NULL;
}

/* ---- Running ---------------------------------------------------------------------------------------------------- */

static void no_progress(struct sim_run *run)
{
    char text[4096];
    int used =
        snprintf(text, sizeof text,
                 "no progress: %" PRIu32 " requests are unfinished at %" PRId64 " ns and nothing more will happen\n",
                 live(run), sim_now_ns(run->sim));
    size_t at = used < 0 ? 0 : (size_t)used;
    for (uint32_t i = 0; i < run->deployment->node_count && at < sizeof text; i++) {
        struct node_stats stats = node_stats(run->nodes[i]);
        used = snprintf(text + at, sizeof text - at,
                        "%s: %" PRIu32 " live, %" PRIu32 " waiting, %" PRIu32 " running, %" PRIu32
                        " transfers, pages %" PRIu64 " held of %" PRIu64 "\n",
                        run->deployment->instances[i].name, stats.requests_live, stats.waiting, stats.running,
                        stats.transfers, stats.pages_held, stats.pages_total);
        at += used < 0 ? 0 : (size_t)used;
    }
    if (at < sizeof text)
        sim_describe(run->sim, text + at, sizeof text - at);
    run_break(run->run, RUN_NO_PROGRESS, "%s", text);
}

static bool sound(struct sim_run *run)
{
    const char *failure = checkers_failure(run->checkers);
    if (failure != NULL)
        run_break(run->run, RUN_INVARIANT, "%s", failure);
    for (uint32_t i = 0; i < run->deployment->node_count; i++)
        if (policy_host_failure(run->policies[i]) != NULL) {
            run_break(run->run, RUN_REFUSED, "%s", policy_host_failure(run->policies[i]));
            return false;
        }
    return failure == NULL;
}

/* Requests that go round for ever write records all the time: only the time since the last fault tells. */
static bool stuck(const struct sim_run *run)
{
    if (run->faults == NULL || !run_fed(run->run))
        return false;
    int64_t since_ns = max_i64(fault_play_last_ns(run->faults), run->run->last_arrival_ns);
    return sim_now_ns(run->sim) - since_ns > PROGRESS_MAX_NS;
}

static bool turn(void *self)
{
    struct sim_run *run = self;
    int64_t silence_ns = run->faults != NULL ? PROGRESS_MAX_NS : SILENCE_MAX_NS;
    if (!run->begun) {
        sim_start(run->sim);
        run_begin(run->run);
        run->until_ns = silence_ns;
        run->begun = true;
    }
    if (run->options->pace != NULL) {
        if (!run->options->pace(run->options->self, sim_next_ns(run->sim), &run->until_ns))
            return false;
        wake(run, run->until_ns);
        sim_advance(run->sim, run->until_ns);
        return sound(run) && !run->run->stopped;
    }
    enum sim_status status = sim_advance(run->sim, run->until_ns);
    if (!sound(run) || run->run->stopped)
        return false;
    bool idle = status == SIM_IDLE;
    bool silent = run->until_ns - run->run->last_record_ns >= silence_ns;
    if (stuck(run) || ((idle || silent) && live(run) > 0))
        no_progress(run);
    run->until_ns = time_add(run->until_ns, silence_ns / 2);
    return !idle;
}

/* Lets releases, late completions and timers come to rest. */
static void drain(void *self)
{
    struct sim_run *run = self;
    for (uint32_t i = 0; i < run->deployment->node_count; i++)
        sim_deliver(run->sim, i, &(struct event){.kind = EVENT_STOP});
    /* A request whose answer was lost on its way ends once more, for its client, and stops the simulation again. */
    int64_t until_ns = time_add(sim_now_ns(run->sim), DRAIN_MAX_NS);
    while (sim_advance(run->sim, until_ns) == SIM_STOPPED && checkers_failure(run->checkers) == NULL) {
    }
    checkers_drained(run->checkers);
    if (run->oracle != NULL)
        oracle_drained(run->oracle);
    sound(run);
}

/* ---- Result ----------------------------------------------------------------------------------------------------- */

static void summarize_instance(const struct sim_run *run, struct instance_summary *summary)
{
    const struct sim_ledger *ledger = sim_ledger(run->sim, summary->node);
    struct network_totals network = network_node_totals(sim_network(run->sim), summary->node);
    summary->busy_ns = ledger->busy_ns;
    summary->compute_bound_ns = ledger->bound_ns[BOUND_COMPUTE];
    summary->bandwidth_bound_ns = ledger->bound_ns[BOUND_BANDWIDTH];
    summary->communication_bound_ns = ledger->bound_ns[BOUND_COMMUNICATION];
    summary->overhead_bound_ns = ledger->bound_ns[BOUND_OVERHEAD];
    summary->steps = ledger->steps;
    summary->prefill_tokens = ledger->prefill_tokens;
    summary->decode_tokens = ledger->decode_tokens;
    summary->pages_held_peak = run->pages_held_peak[summary->node];
    summary->nic_transmit_busy_ns = network.transmit_busy_ns;
    summary->nic_receive_busy_ns = network.receive_busy_ns;
    summary->nic_op_bound_ns = network.op_bound_ns;
    summary->posting_busy_ns = network.posting_busy_ns;
    summary->nic_bytes = network.bytes;
}

static void summarize(void *self, struct run_result *result)
{
    struct sim_run *run = self;
    result->summary.trace_hash = sim_trace_hash(run->sim);
    result->summary.event_count = sim_event_count(run->sim);
    result->summary.final_draw = sim_final_draw(run->sim);
    result->queue_events = sim_queue_count(run->sim);
    for (uint32_t i = 0; i < result->instance_count; i++)
        summarize_instance(run, &result->instances[i]);
    memcpy(result->itl, sim_itl(run->sim), ITL_BUCKETS * sizeof *result->itl);
}

const struct run_backend sim_backend = {
    .stored_as = RESULTS_SIM,
    .concurrent = true,
    .rows_at_once = true,
    .make = make,
    .free = tear_down,
    .now_ns = now_ns,
    .live = live,
    .arrive = arrive,
    .wake = wake,
    .answer_soon = answer_soon,
    .count_from = count_from,
    .turn = turn,
    .stop = stop,
    .end = drain,
    .summarize = summarize,
};
