/* Set-up and loop. See sim.h for the order of events. */
#include "sim/engine/sim_internal.h"
#include "host/memory.h"

#include <stdlib.h>

static void step_of_model(const void *model, const struct step_group *groups, uint32_t group_count,
                          struct step_time *time)
{
    device_step(model, groups, group_count, time);
}

static int64_t decode_fixed_of_model(const void *model, const struct step_group *groups, uint32_t group_count)
{
    return device_decode_fixed_ns(model, groups, group_count);
}

static void decode_line_of_model(const void *model, uint32_t decode_sequences, uint64_t decode_context,
                                 struct decode_line *line)
{
    device_decode_line(model, decode_sequences, decode_context, line);
}

struct device device_of(const struct device_model *model)
{
    static const struct device_ops ops = {step_of_model, decode_fixed_of_model, decode_line_of_model};
    if (model == NULL)
        return (struct device){.ops = &ops};
    return (struct device){
        .ops = &ops, .model = model, .launch_ns = device_launch_ns(model), .stages = device_stages(model)};
}

static void *make(size_t count, size_t size)
{
    void *memory = memory_zeroed(count, size);
    return memory;
}

/* Doubles an array; never moves back. */
void *sim_grow(void *array, uint32_t *capacity, size_t size)
{
    uint32_t grown = *capacity == 0 ? 64 : *capacity * 2;
    CHECK(grown > *capacity);
    array = memory_resized(array, grown * size);
    *capacity = grown;
    return array;
}

static void node_set_up(struct sim *sim, uint32_t index, const struct sim_config *config)
{
    const struct sim_node_config *from = &config->nodes[index];
    struct sim_node *node = &sim->nodes[index];
    node->runtime = (struct runtime){.ops = &sim_ops, .node = index, .limits = config->limits};
    node->sim = sim;
    node->device = from->device;
    node->message_ns = from->network.hardware.message_ns;
    node->arm_ns = from->network.hardware.arm_ns;
    node->armed_ns = -1;
    node->watcher_ns = from->network.hardware.watcher_ns;
    node->group_count = from->group_count;
    node->produces_first_token = from->produces_first_token;
    node->alive = true;
    node->step_end_ns = -1;
    node->write_first = INDEX_NONE;
    for (uint32_t i = 0; i < TIMERS_MAX; i++)
        node->timer[i] = HANDLE_NONE;
    if (from->device.ops != NULL) {
        CHECK(from->group_count >= 1 && from->group_count <= GROUPS_MAX);
        node->stages = max_u32(1, from->device.stages);
        CHECK(node->stages <= STAGES_MAX);
        node->runtime.limits.launches_in_flight = node->stages;
        node->launches = make(node->stages, sizeof *node->launches);
        for (uint32_t i = 0; i < node->stages; i++) {
            node->launches[i].groups = make(from->group_count, sizeof *node->launches[i].groups);
            node->launches[i].lines = make(from->group_count, sizeof *node->launches[i].lines);
            node->launches[i].decode_end_ns = -1;
        }
        node->costs = make(COST_CACHE, sizeof *node->costs);
    }
}

struct sim *sim_make(const struct sim_config *config)
{
    CHECK(config->node_count >= 1 && config->node_count <= NODES_MAX);
    CHECK(config->limits.message_bytes <= PAYLOAD_SMALLEST << (PAYLOAD_CLASSES - 1));
    struct sim *sim = make(1, sizeof *sim);
    sim->node_count = config->node_count;
    sim->shuffle_seed = config->shuffle_seed;
    sim->plain = config->plain;
    sim->poison = config->poison;
    sim->detection = config->detection;
    sim->queue = event_queue_make(config->shuffle_seed);
    sim->fingerprint = rng_stream(config->seed, 0, RNG_FINGERPRINT);
    sim->check.seed = config->seed;
    sim->write_free = INDEX_NONE;
    sim->message_free = INDEX_NONE;
    sim->nodes = make(config->node_count, sizeof *sim->nodes);
    sim->batch = make(config->node_count, sizeof *sim->batch);
    size_t pairs = (size_t)config->node_count * config->node_count;
    sim->last_arrival_ns = make(pairs, sizeof *sim->last_arrival_ns);
    sim->cut_fence_ns = make(pairs, sizeof *sim->cut_fence_ns);
    for (size_t i = 0; i < pairs; i++)
        sim->cut_fence_ns[i] = TIME_NEVER;
    struct network_node *placement = make(config->node_count, sizeof *placement);
    for (uint32_t i = 0; i < config->node_count; i++) {
        placement[i] = config->nodes[i].network;
        node_set_up(sim, i, config);
    }
    sim->network = network_make(placement, config->node_count, config->plain);
    free(placement);
    return sim;
}

void sim_free(struct sim *sim)
{
    if (sim == NULL)
        return;
    for (uint32_t i = 0; i < sim->node_count; i++) {
        struct sim_node *node = &sim->nodes[i];
        for (uint32_t m = 0; m < node->stages; m++) {
            free(node->launches[m].groups);
            free(node->launches[m].lines);
        }
        free(node->launches);
        free(node->costs);
        free(node->expectations);
    }
    for (struct payload *payload = sim->payload_made; payload != NULL;) {
        struct payload *next = payload->next_made;
        free(payload);
        payload = next;
    }
    event_queue_free(sim->queue);
    network_free(sim->network);
    free(sim->nodes);
    free(sim->batch);
    free(sim->last_arrival_ns);
    free(sim->cut_fence_ns);
    free(sim->writes);
    free(sim->messages);
    free(sim->calls);
    free(sim->call_free);
    free(sim);
}

struct runtime *sim_runtime(struct sim *sim, uint32_t node)
{
    CHECK(node < sim->node_count);
    return &sim->nodes[node].runtime;
}

void sim_attach(struct sim *sim, uint32_t node, struct participant participant)
{
    CHECK(node < sim->node_count && participant.handle != NULL);
    sim->nodes[node].participant = participant;
}

void sim_start(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->node_count; i++)
        sim_push(sim, sim->now_ns, pending_pack(PENDING_START, i, 0, 0));
}

/* ---- Order ------------------------------------------------------------------------------------------------------ */

/* Queue keys are twice the time, plus one for step boundaries. What a boundary gives rise to at its own instant follows
 * it, so keys never run backwards. */
int64_t sim_key(const struct sim *sim, int64_t at_ns)
{
    CHECK(at_ns >= sim->now_ns && at_ns <= TIME_NEVER / 2 - 1);
    return 2 * at_ns + (at_ns == sim->now_ns ? (int64_t)sim->phase : 0);
}

uint32_t sim_push(struct sim *sim, int64_t at_ns, uint64_t payload)
{
    return event_queue_push(sim->queue, sim_key(sim, at_ns), payload);
}

/* ---- Handing events over ---------------------------------------------------------------------------------------- */

void sim_hand_over(struct sim *sim, struct sim_node *node, const struct event *event)
{
    if (!node->alive)
        return;
    CHECK(!node->inside);
    if (node->stages == 1 && node->launches[0].running && event->kind != EVENT_STEPS_DONE)
        sim_launch_cut(node);
    if (sim->listens_before)
        for (uint32_t i = 0; i < sim->listener_count; i++)
            if (sim->listeners[i].before != NULL)
                sim->listeners[i].before(sim->listeners[i].self, sim->now_ns, node->runtime.node, event);
    sim->event_count++;
    rng_next(&sim->fingerprint);
    node->runtime.now_ns = sim->now_ns;
    node->inside = true;
    node->participant.handle(node->participant.self, event);
    node->inside = false;
    if (sim->listens_after)
        for (uint32_t i = 0; i < sim->listener_count; i++)
            if (sim->listeners[i].after != NULL)
                sim->listeners[i].after(sim->listeners[i].self, sim->now_ns, node->runtime.node, event);
}

void sim_deliver(struct sim *sim, uint32_t node, const struct event *event)
{
    CHECK(node < sim->node_count);
    sim_hand_over(sim, &sim->nodes[node], event);
}

void sim_call_at(struct sim *sim, int64_t at_ns, struct sim_call call)
{
    uint32_t index;
    if (sim->call_free_count > 0) {
        index = sim->call_free[--sim->call_free_count];
    } else {
        if (sim->call_used == sim->call_capacity) {
            uint32_t capacity = sim->call_capacity;
            sim->call_free = sim_grow(sim->call_free, &capacity, sizeof *sim->call_free);
            sim->calls = sim_grow(sim->calls, &sim->call_capacity, sizeof *sim->calls);
        }
        index = sim->call_used++;
    }
    sim->calls[index] = call;
    sim_push(sim, at_ns, pending_pack(PENDING_CALL, 0, 0, index));
}

static void run_call(struct sim *sim, uint32_t index)
{
    struct sim_call call = sim->calls[index];
    sim->call_free[sim->call_free_count++] = index;
    call.run(sim, call.self, call.argument);
}

/* ---- Loop ------------------------------------------------------------------------------------------------------- */

static void handle_pending(struct sim *sim, uint64_t payload)
{
    uint32_t index = (uint32_t)(payload >> 32);
    uint32_t aux = (uint32_t)(payload >> 24) & 0xff;
    struct sim_node *node = &sim->nodes[(uint32_t)(payload >> 8) & 0xffff];
    switch ((enum pending_kind)(payload & 0xff)) {
    case PENDING_START:
        sim_hand_over(sim, node, &(struct event){.kind = EVENT_START, .count = node->incarnation});
        break;
    case PENDING_TIMER:
        node->timer[aux] = HANDLE_NONE;
        sim_hand_over(sim, node, &(struct event){.kind = EVENT_TIMER, .id = aux});
        break;
    case PENDING_MESSAGE:
        sim_message(sim, index);
        break;
    case PENDING_LANDED:
        sim_landed(sim, index, aux);
        break;
    case PENDING_WRITE_DONE:
        sim_write_done(sim, index);
        break;
    case PENDING_CALL:
        run_call(sim, index);
        break;
    case PENDING_LOST:
        sim_lost(sim, node, aux, index);
        break;
    case PENDING_FENCE:
        sim_fence(sim, index);
        break;
    case PENDING_STEPS:
        CHECK(false); /* handled apart */
    }
}

/* Step boundaries that share an instant are handled in order of node, not of push: repetitions push at other moments
 * than launches of one step do. With shuffled ties the queue's order stands. */
static void handle_boundaries(struct sim *sim, int64_t key, uint64_t payload)
{
    uint32_t count = 0;
    for (;;) {
        struct sim_node *node = &sim->nodes[(uint32_t)(payload >> 8) & 0xffff];
        uint32_t microbatch = (uint32_t)(payload >> 24) & 0xff;
        node->launches[microbatch].handle = HANDLE_NONE;
        node->ending = microbatch; /* launches of one node end one after the other, never together */
        uint32_t place = count++;
        while (sim->shuffle_seed == 0 && place > 0 && sim->batch[place - 1] > node->runtime.node) {
            sim->batch[place] = sim->batch[place - 1];
            place--;
        }
        sim->batch[place] = node->runtime.node;
        int64_t next;
        if (sim->shuffle_seed != 0 || !event_queue_peek(sim->queue, &next) || next != key)
            break;
        /* What follows from boundaries comes with an odd key too, but only after the first of them was handled. */
        event_queue_pop(sim->queue, &key, &payload);
        sim->queue_count++;
        CHECK((payload & 0xff) == PENDING_STEPS);
    }
    for (uint32_t i = 0; i < count; i++)
        sim_steps(sim, &sim->nodes[sim->batch[i]]);
}

/* True when the network had something to do before the queue's next entry. */
static bool network_first(struct sim *sim, bool pending, int64_t key, int64_t until_ns)
{
    int64_t at_ns = network_next_ns(sim->network);
    if (at_ns == TIME_NEVER || at_ns > until_ns || (pending && at_ns > key >> 1))
        return false;
    CHECK(at_ns >= sim->now_ns);
    if (at_ns > sim->now_ns)
        sim->phase = 0;
    sim->now_ns = at_ns;
    struct flow_done done;
    while (network_advance(sim->network, at_ns, &done))
        sim_flow_done(sim, &done);
    return true;
}

int64_t sim_next_ns(struct sim *sim)
{
    int64_t key;
    int64_t network_ns = network_next_ns(sim->network);
    return event_queue_peek(sim->queue, &key) ? min_i64(key >> 1, network_ns) : network_ns;
}

enum sim_status sim_advance(struct sim *sim, int64_t until_ns)
{
    check_context_set(&sim->check);
    sim->stop = false;
    enum sim_status status = SIM_STOPPED;
    while (!sim->stop) {
        int64_t key = 0;
        bool pending = event_queue_peek(sim->queue, &key);
        if (network_first(sim, pending, key, until_ns))
            continue;
        if (!pending) {
            status = network_next_ns(sim->network) == TIME_NEVER ? SIM_IDLE : SIM_TIME;
            break;
        }
        if (key >> 1 > until_ns) {
            status = SIM_TIME;
            break;
        }
        uint64_t payload;
        event_queue_pop(sim->queue, &key, &payload);
        sim->queue_count++;
        sim->now_ns = key >> 1;
        sim->phase = (uint32_t)(key & 1);
        if ((payload & 0xff) == PENDING_STEPS)
            handle_boundaries(sim, key, payload);
        else
            handle_pending(sim, payload);
    }
    check_context_set(NULL);
    return status;
}

void sim_stop(struct sim *sim)
{
    sim->stop = true;
}

void sim_listen(struct sim *sim, const struct sim_listener *listener)
{
    CHECK(sim->listener_count < SIM_LISTENERS_MAX);
    sim->listeners[sim->listener_count++] = *listener;
    sim->listens_before = sim->listens_before || listener->before != NULL;
    sim->listens_after = sim->listens_after || listener->after != NULL;
    sim->listens_steps = sim->listens_steps || listener->steps != NULL;
    sim->listens_transfer = sim->listens_transfer || listener->transfer != NULL;
}
