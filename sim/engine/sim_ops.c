/* Operations of the seam in virtual time, but for launches: timers, messages, writes, immediates, traces. */
#include "sim/engine/sim_internal.h"

#include <stdlib.h>
#include <string.h>

#define IMMEDIATE_SLOT_MASK ((1u << IMMEDIATE_SLOT_BITS) - 1)
#define POISON 0xa5

static struct sim_node *node_of(struct runtime *rt)
{
    struct sim_node *node = (struct sim_node *)(void *)rt;
    CHECK(node->inside); /* operations are for the node, and a node acts only while it handles an event */
    return node;
}

static void op_timer_set(struct runtime *rt, uint32_t slot, int64_t at_ns)
{
    struct sim_node *node = node_of(rt);
    struct sim *sim = node->sim;
    CHECK(slot < TIMERS_MAX);
    uint32_t handle = node->timer[slot];
    if (at_ns == TIME_NEVER) {
        if (handle != HANDLE_NONE)
            event_queue_cancel(sim->queue, handle);
        node->timer[slot] = HANDLE_NONE;
        return;
    }
    at_ns = max_i64(at_ns, sim->now_ns);
    if (handle != HANDLE_NONE)
        event_queue_move(sim->queue, handle, sim_key(sim, at_ns));
    else
        node->timer[slot] = sim_push(sim, at_ns, pending_pack(PENDING_TIMER, rt->node, slot, 0));
}

/* ---- Messages --------------------------------------------------------------------------------------------------- */

static struct payload *payload_take(struct sim *sim, size_t length)
{
    uint32_t class = 0;
    while ((size_t)PAYLOAD_SMALLEST << class < length)
        class ++;
    CHECK(class < PAYLOAD_CLASSES);
    struct payload *payload = sim->payload_free[class];
    if (payload != NULL) {
        sim->payload_free[class] = payload->next_free;
        return payload;
    }
    payload = malloc(sizeof *payload + ((size_t)PAYLOAD_SMALLEST << class));
    CHECK(payload != NULL);
    payload->class = class;
    payload->next_made = sim->payload_made;
    sim->payload_made = payload;
    return payload;
}

static uint32_t message_take(struct sim *sim)
{
    uint32_t index = sim->message_free;
    if (index != INDEX_NONE) {
        sim->message_free = sim->messages[index].next_free;
        return index;
    }
    if (sim->message_used == sim->message_capacity)
        sim->messages = sim_grow(sim->messages, &sim->message_capacity, sizeof *sim->messages);
    return sim->message_used++;
}

static void message_release(struct sim *sim, uint32_t index)
{
    struct message *message = &sim->messages[index];
    message->payload->next_free = sim->payload_free[message->payload->class];
    sim->payload_free[message->payload->class] = message->payload;
    message->next_free = sim->message_free;
    sim->message_free = index;
}

static void op_send(struct runtime *rt, uint32_t destination, const void *bytes, size_t length)
{
    struct sim_node *node = node_of(rt);
    struct sim *sim = node->sim;
    CHECK(destination < sim->node_count && length <= rt->limits.message_bytes);
    node->ledger.messages++;
    node->ledger.message_bytes += length;
    for (uint32_t i = 0; i < sim->listener_count; i++)
        if (sim->listeners[i].send != NULL)
            sim->listeners[i].send(sim->listeners[i].self, rt->node, destination, bytes, length);
    if (sim_is_cut(sim, rt->node, destination))
        return;
    struct message_fault fault = {.copies = 1};
    if (sim->faults.message != NULL)
        fault = sim->faults.message(sim->faults.self, sim->now_ns, rt->node, destination, bytes, length);
    for (uint32_t copy = 0; copy < fault.copies; copy++) {
        uint32_t index = message_take(sim);
        struct message *message = &sim->messages[index];
        message->source = rt->node;
        message->destination = destination;
        message->incarnation = sim->nodes[destination].incarnation;
        message->length = (uint32_t)length;
        message->payload = payload_take(sim, length);
        if (length > 0)
            memcpy(message->payload->bytes, bytes, length);
        /* In order per pair whatever the delay; where equal times are shuffled, the order needs times that differ. */
        int64_t *last = &sim->last_arrival_ns[(size_t)rt->node * sim->node_count + destination];
        int64_t arm_ns = node->armed_ns == sim->now_ns ? node->arm_ns : 0;
        int64_t at_ns = time_add(sim->now_ns, node->message_ns + arm_ns + fault.delay_ns);
        at_ns = max_i64(at_ns, *last + (sim->shuffle_seed != 0));
        *last = at_ns;
        sim_push(sim, at_ns, pending_pack(PENDING_MESSAGE, destination, 0, index));
    }
}

void sim_message(struct sim *sim, uint32_t index)
{
    struct message message = sim->messages[index];
    struct sim_node *node = &sim->nodes[message.destination];
    if (message.incarnation == node->incarnation)
        sim_hand_over(
            sim, node,
            &(struct event){
                .kind = EVENT_MESSAGE, .id = message.source, .count = message.length, .data = message.payload->bytes});
    if (sim->poison)
        memset(message.payload->bytes, POISON, message.length);
    message_release(sim, index);
}

/* ---- Writes ----------------------------------------------------------------------------------------------------- */

static uint32_t write_take(struct sim *sim)
{
    uint32_t index = sim->write_free;
    if (index != INDEX_NONE) {
        sim->write_free = sim->writes[index].next;
        return index;
    }
    if (sim->write_used == sim->write_capacity)
        sim->writes = sim_grow(sim->writes, &sim->write_capacity, sizeof *sim->writes);
    return sim->write_used++;
}

static void write_link(struct sim *sim, struct sim_node *node, uint32_t index)
{
    struct write *write = &sim->writes[index];
    write->linked = true;
    write->previous = INDEX_NONE;
    write->next = node->write_first;
    if (write->next != INDEX_NONE)
        sim->writes[write->next].previous = index;
    node->write_first = index;
    node->write_count++;
    CHECK(node->write_count <= node->runtime.limits.writes_in_flight);
}

void sim_write_unlink(struct sim *sim, uint32_t index)
{
    struct write *write = &sim->writes[index];
    CHECK(write->linked);
    struct sim_node *node = &sim->nodes[write->source];
    write->linked = false;
    node->write_count--;
    if (write->next != INDEX_NONE)
        sim->writes[write->next].previous = write->previous;
    if (write->previous != INDEX_NONE)
        sim->writes[write->previous].next = write->next;
    else
        node->write_first = write->next;
}

/* Gives the ticket back once nothing names it any more. */
void sim_write_release(struct sim *sim, uint32_t index)
{
    struct write *write = &sim->writes[index];
    if (write->flowing || write->linked || write->pending > 0)
        return;
    write->next = sim->write_free;
    sim->write_free = index;
}

/* The instants at which the layers of a write become available. */
static void write_gate(const struct sim_node *node, const struct paged_write *spec, struct flow_spec *flow)
{
    const struct launch *launch = spec->gate == STEP_NONE ? NULL : sim_launch_running(node, spec->gate);
    const struct sim_faults *faults = &node->sim->faults;
    flow->gate_first_ns = node->sim->now_ns;
    flow->gate_layer_ns = 0;
    if (launch == NULL)
        return;
    CHECK(!launch->decode_only);
    flow->gate_first_ns = launch->gate_first_ns + node->watcher_ns;
    flow->gate_layer_ns = launch->layer_ns;
    int64_t late_ns = -1;
    if (faults->ticks_ns != NULL)
        late_ns = faults->ticks_ns(faults->self, node->sim->now_ns, node->runtime.node, spec);
    if (late_ns < 0)
        return;
    flow->gate_first_ns = time_add(flow->gate_first_ns, (spec->plan->layers - 1) * launch->layer_ns + late_ns);
    flow->gate_layer_ns = 0;
}

static void op_write_post(struct runtime *rt, const struct paged_write *spec)
{
    struct sim_node *node = node_of(rt);
    struct sim *sim = node->sim;
    CHECK(spec->destination < sim->node_count && spec->plan != NULL);
    uint32_t index = write_take(sim);
    struct write *write = &sim->writes[index];
    *write = (struct write){
        .spec = *spec,
        .source = rt->node,
        .source_incarnation = node->incarnation,
        .posted_ns = sim->now_ns,
        .fence_ns = TIME_NEVER,
    };
    for (uint32_t i = 0; i < sim->listener_count; i++)
        if (sim->listeners[i].post != NULL)
            sim->listeners[i].post(sim->listeners[i].self, rt->node, spec);
    /* Page lists die with this call, and a flow needs none. */
    write->spec.source_pages = NULL;
    write->spec.destination_pages = NULL;
    write_link(sim, node, index);
    node->ledger.writes++;
    const struct sim_node *destination = &sim->nodes[spec->destination];
    int64_t cut_ns = sim->cut_fence_ns[(size_t)rt->node * sim->node_count + spec->destination];
    if (!destination->alive || destination->incarnation != spec->destination_incarnation || cut_ns <= sim->now_ns) {
        sim_write_fail(sim, index);
        return;
    }
    struct flow_spec flow = {
        .source = rt->node,
        .destination = spec->destination,
        .plan = spec->plan,
        .units = spec->unit_count,
        .tail_writes = spec->tail_writes,
        .tail_bytes = spec->tail_bytes,
        .owner = index,
    };
    write_gate(node, spec, &flow);
    write->flowing = true;
    write->flow = network_start(sim->network, sim->now_ns, &flow);
    if (cut_ns != TIME_NEVER)
        sim_write_fence(sim, index, cut_ns);
}

static void op_write_stop(struct runtime *rt, uint32_t ticket)
{
    struct sim_node *node = node_of(rt);
    struct sim *sim = node->sim;
    for (uint32_t index = node->write_first; index != INDEX_NONE; index = sim->writes[index].next) {
        struct write *write = &sim->writes[index];
        if (write->spec.ticket != ticket)
            continue;
        if (write->flowing && !write->stopped) {
            write->stopped = true;
            network_stop(sim->network, sim->now_ns, write->flow);
        }
        return;
    }
}

/* The network has carried the whole of a flow; what remains is for both ends to learn of it. */
void sim_flow_done(struct sim *sim, const struct flow_done *done)
{
    uint32_t index = (uint32_t)done->owner;
    struct write *write = &sim->writes[index];
    CHECK(write->flowing && write->flow == done->flow);
    write->flowing = false;
    write->status = done->stopped ? WRITE_STOPPED : WRITE_OK;
    write->layers = done->layers;
    write->writes = done->writes;
    write->bytes = done->bytes;
    struct write_fault fault = {0};
    if (sim->faults.write != NULL)
        fault = sim->faults.write(sim->faults.self, sim->now_ns, write->source, &write->spec);
    CHECK(fault.pieces <= SIM_PIECES_MAX);
    write->fails = fault.fails;
    write->status = fault.fails ? WRITE_FAILED : write->status;
    write->pieces = (uint8_t)max_u32(fault.fails ? 2 : 1, fault.pieces);
    int64_t spread_ns = (write->pieces - 1) * fault.piece_ns;
    int64_t first_ns = time_add(max_i64(done->landed_ns, sim->now_ns), fault.delay_ns);
    write->landed_ns = time_add(first_ns, spread_ns);
    write->confirmed_ns =
        time_add(max_i64(done->confirmed_ns, sim->now_ns), fault.delay_ns + spread_ns + fault.confirm_ns);
    if (fault.fails) /* nothing lands after that has been said */
        write->confirmed_ns = max_i64(write->confirmed_ns, time_add(write->landed_ns, 1));
    write->pending = (uint8_t)(write->pending + write->pieces + 1);
    for (uint32_t piece = write->pieces; piece-- > 0;)
        sim_push(sim, time_add(first_ns, (write->pieces - 1 - piece) * fault.piece_ns),
                 pending_pack(PENDING_LANDED, write->spec.destination, piece, index));
    sim_push(sim, write->confirmed_ns, pending_pack(PENDING_WRITE_DONE, write->source, 0, index));
}

/* The fabric gives up on a ticket whose destination is gone: the sender learns it when it would suspect the peer. */
void sim_write_fail(struct sim *sim, uint32_t index)
{
    struct write *write = &sim->writes[index];
    write->status = WRITE_FAILED;
    write->pending++;
    write->confirmed_ns = time_add(sim->now_ns, sim->detection.suspect_ns);
    sim_push(sim, write->confirmed_ns, pending_pack(PENDING_WRITE_DONE, write->source, 0, index));
}

static void count_landed(struct sim *sim, struct sim_node *node, uint32_t immediate, uint64_t writes)
{
    uint32_t slot = immediate & IMMEDIATE_SLOT_MASK;
    struct expectation *expectation = slot < node->expectation_count ? &node->expectations[slot] : NULL;
    if (expectation == NULL || !expectation->armed || expectation->immediate != immediate) {
        node->ledger.writes_late += writes;
        return;
    }
    /* More writes than agreed means that the two sides computed different plans. */
    CHECK(writes <= expectation->expected - expectation->counted);
    expectation->counted += writes;
    if (writes > 0 && expectation->counted == expectation->expected)
        sim_hand_over(sim, node,
                      &(struct event){.kind = EVENT_IMMEDIATE, .id = immediate, .count = expectation->expected});
}

void sim_landed(struct sim *sim, uint32_t index, uint32_t piece)
{
    struct write *write = &sim->writes[index];
    struct sim_node *node = &sim->nodes[write->spec.destination];
    uint32_t immediate = write->spec.immediate;
    struct sim_landing landing = {
        .source = write->source,
        .source_incarnation = write->source_incarnation,
        .destination = write->spec.destination,
        .ticket = write->spec.ticket,
        .layers = write->layers,
        .piece = piece,
        .pieces = write->pieces,
        .writes = write->writes / write->pieces + (piece < write->writes % write->pieces),
    };
    bool fenced = sim->now_ns >= write->fence_ns;
    bool lost = fenced || (write->fails && piece == write->pieces - 1u);
    bool reaches = node->alive && node->incarnation == write->spec.destination_incarnation && !lost;
    if (fenced)
        write->status = WRITE_FAILED;
    write->pending--;
    sim_write_release(sim, index);
    if (!reaches)
        return;
    for (uint32_t i = 0; i < sim->listener_count; i++)
        if (sim->listeners[i].landed != NULL)
            sim->listeners[i].landed(sim->listeners[i].self, &landing);
    count_landed(sim, node, immediate, landing.writes);
}

static void report_transfer(struct sim *sim, const struct write *write)
{
    struct transfer_row row = {
        .request = write->spec.request,
        .epoch = write->spec.epoch,
        .ticket = write->spec.ticket,
        .source = (uint16_t)write->source,
        .destination = (uint16_t)write->spec.destination,
        .layers = write->layers,
        .bytes = write->bytes,
        .writes = write->writes,
        .posted_ns = write->posted_ns,
        .landed_ns = write->landed_ns,
        .confirmed_ns = write->confirmed_ns,
    };
    for (uint32_t i = 0; i < sim->listener_count; i++)
        if (sim->listeners[i].transfer != NULL)
            sim->listeners[i].transfer(sim->listeners[i].self, &row);
}

void sim_write_done(struct sim *sim, uint32_t index)
{
    struct write *write = &sim->writes[index];
    struct sim_node *node = &sim->nodes[write->source];
    bool reaches = node->alive && node->incarnation == write->source_incarnation;
    struct event event = {
        .kind = EVENT_WRITE_DONE, .status = write->status, .id = write->spec.ticket, .count = write->layers};
    if (sim->listens_transfer && write->status != WRITE_FAILED)
        report_transfer(sim, write);
    write->pending--;
    if (write->linked)
        sim_write_unlink(sim, index);
    sim_write_release(sim, index);
    if (reaches)
        sim_hand_over(sim, node, &event);
}

static void op_immediate_expect(struct runtime *rt, uint32_t immediate, uint64_t count)
{
    struct sim_node *node = node_of(rt);
    struct sim *sim = node->sim;
    uint32_t slot = immediate & IMMEDIATE_SLOT_MASK;
    for (uint32_t i = 0; i < sim->listener_count; i++)
        if (sim->listeners[i].expect != NULL)
            sim->listeners[i].expect(sim->listeners[i].self, rt->node, immediate, count);
    while (slot >= node->expectation_count) {
        uint32_t old = node->expectation_count;
        node->expectations = sim_grow(node->expectations, &node->expectation_count, sizeof *node->expectations);
        memset(node->expectations + old, 0, (node->expectation_count - old) * sizeof *node->expectations);
    }
    struct expectation *expectation = &node->expectations[slot];
    if (count == 0) {
        /* Forgetting an older generation must not disarm the one that took its slot. */
        if (expectation->armed && expectation->immediate == immediate)
            expectation->armed = false;
        return;
    }
    *expectation = (struct expectation){.immediate = immediate, .armed = true, .expected = count};
    node->armed_ns = node->sim->now_ns;
}

static void op_trace(struct runtime *rt, const struct trace_record *record)
{
    struct sim_node *node = node_of(rt);
    struct sim *sim = node->sim;
    sim->trace_hash = trace_hash_fold(sim->trace_hash, sim->now_ns, record);
    check_context_append(&sim->check, sim->now_ns, record);
    for (uint32_t i = 0; i < sim->listener_count; i++)
        if (sim->listeners[i].trace != NULL)
            sim->listeners[i].trace(sim->listeners[i].self, sim->now_ns, record);
}

const struct runtime_ops sim_ops = {
    .timer_set = op_timer_set,
    .launch = sim_launch,
    .launch_end = sim_launch_end,
    .write_post = op_write_post,
    .write_stop = op_write_stop,
    .immediate_expect = op_immediate_expect,
    .send = op_send,
    .trace = op_trace,
};
