/* See fake_runtime.h. */
#include "support/fake_runtime.h"

#include "base/arith.h"

#include <stdlib.h>
#include <string.h>

#define POISON 0xa5
#define EVENT_NS 1000

static void *append(void **array, uint32_t *count, uint32_t *capacity, size_t size)
{
    if (*count == *capacity) {
        *capacity = *capacity == 0 ? 32 : *capacity * 2;
        *array = realloc(*array, *capacity * size);
        CHECK(*array != NULL);
    }
    void *entry = (char *)*array + (size_t)(*count)++ * size;
    memset(entry, 0, size);
    return entry;
}

static struct fake_node *node_of(struct runtime *rt)
{
    struct fake_node *node = (struct fake_node *)(void *)rt;
    CHECK(node->inside);
    return node;
}

static struct fake_call *record(struct runtime *rt, enum fake_call_kind kind)
{
    struct fake_runtime *fake = node_of(rt)->fake;
    void *calls = fake->calls;
    struct fake_call *call = append(&calls, &fake->call_count, &fake->call_capacity, sizeof *call);
    fake->calls = calls;
    call->kind = kind;
    call->node = rt->node;
    call->at_ns = rt->now_ns;
    return call;
}

/* ---- Operations -------------------------------------------------------------------------------------------------- */

static void op_timer_set(struct runtime *rt, uint32_t slot, int64_t at_ns)
{
    struct fake_call *call = record(rt, FAKE_TIMER_SET);
    CHECK(slot < FAKE_TIMERS);
    call->timer.slot = slot;
    call->timer.at_ns = at_ns;
    node_of(rt)->timer_ns[slot] = at_ns;
}

static void op_launch(struct runtime *rt, const struct step_launch *launch)
{
    struct fake_node *node = node_of(rt);
    record(rt, FAKE_LAUNCH)->launch = *launch;
    CHECK(!node->running && launch->repeat_max >= 1 && launch->group_count >= 1);
    node->running = true;
    node->ends = false;
    node->ticket = launch->ticket;
    node->repeat_max = launch->repeat_max;
    node->steps = 0;
}

static void op_launch_end(struct runtime *rt, uint32_t ticket)
{
    struct fake_node *node = node_of(rt);
    record(rt, FAKE_LAUNCH_END)->ticket = ticket;
    if (node->running && node->ticket == ticket)
        node->ends = true;
}

static void op_write_post(struct runtime *rt, const struct paged_write *spec)
{
    struct fake_runtime *fake = node_of(rt)->fake;
    record(rt, FAKE_WRITE_POST)->write = *spec;
    CHECK(spec->destination < fake->node_count);
    void *writes = fake->writes;
    struct fake_write *write = append(&writes, &fake->write_count, &fake->write_capacity, sizeof *write);
    fake->writes = writes;
    write->spec = *spec;
    write->source = rt->node;
}

static void op_write_stop(struct runtime *rt, uint32_t ticket)
{
    struct fake_runtime *fake = node_of(rt)->fake;
    record(rt, FAKE_WRITE_STOP)->ticket = ticket;
    for (uint32_t i = 0; i < fake->write_count; i++) {
        struct fake_write *write = &fake->writes[i];
        if (write->source == rt->node && write->spec.ticket == ticket && !write->confirmed &&
            write->layers < write->spec.plan->layers)
            write->stopped = true;
    }
}

static struct fake_expectation *expectation_of(struct fake_node *node, uint32_t immediate)
{
    const uint32_t mask = (1u << IMMEDIATE_SLOT_BITS) - 1;
    for (uint32_t i = 0; i < node->expectation_count; i++)
        if ((node->expectations[i].immediate & mask) == (immediate & mask))
            return &node->expectations[i];
    return NULL;
}

static void op_immediate_expect(struct runtime *rt, uint32_t immediate, uint64_t count)
{
    struct fake_node *node = node_of(rt);
    struct fake_call *call = record(rt, FAKE_IMMEDIATE_EXPECT);
    call->expect.immediate = immediate;
    call->expect.count = count;
    struct fake_expectation *expectation = expectation_of(node, immediate);
    if (count == 0) {
        if (expectation != NULL && expectation->immediate == immediate)
            expectation->armed = false;
        return;
    }
    if (expectation == NULL) {
        CHECK(node->expectation_count < sizeof node->expectations / sizeof *node->expectations);
        expectation = &node->expectations[node->expectation_count++];
    }
    *expectation = (struct fake_expectation){.immediate = immediate, .armed = true, .expected = count};
}

static void op_send(struct runtime *rt, uint32_t destination, const void *bytes, size_t length)
{
    struct fake_runtime *fake = node_of(rt)->fake;
    struct fake_call *call = record(rt, FAKE_SEND);
    call->send.destination = destination;
    call->send.length = (uint32_t)length;
    CHECK(destination < fake->node_count && length <= rt->limits.message_bytes);
    void *messages = fake->messages;
    struct fake_message *message = append(&messages, &fake->message_count, &fake->message_capacity, sizeof *message);
    fake->messages = messages;
    message->source = rt->node;
    message->destination = destination;
    message->length = (uint32_t)length;
    message->bytes = malloc(length + 1);
    CHECK(message->bytes != NULL);
    if (length > 0)
        memcpy(message->bytes, bytes, length);
}

static void op_trace(struct runtime *rt, const struct trace_record *trace)
{
    record(rt, FAKE_TRACE)->trace = *trace;
}

static const struct runtime_ops ops = {
    .timer_set = op_timer_set,
    .launch = op_launch,
    .launch_end = op_launch_end,
    .write_post = op_write_post,
    .write_stop = op_write_stop,
    .immediate_expect = op_immediate_expect,
    .send = op_send,
    .trace = op_trace,
};

/* ---- Set-up ------------------------------------------------------------------------------------------------------ */

struct fake_runtime *fake_make(uint32_t node_count, uint64_t seed)
{
    struct fake_runtime *fake = calloc(1, sizeof *fake);
    CHECK(fake != NULL && node_count <= FAKE_NODES_MAX);
    fake->node_count = node_count;
    fake->rng = rng_stream(seed, 0, RNG_TIES);
    for (uint32_t i = 0; i < node_count; i++) {
        struct fake_node *node = &fake->nodes[i];
        node->fake = fake;
        node->runtime = (struct runtime){
            .ops = &ops,
            .node = i,
            .limits = {.writes_in_flight = 1024, .message_bytes = MESSAGE_BYTES_MAX},
        };
        for (uint32_t slot = 0; slot < FAKE_TIMERS; slot++)
            node->timer_ns[slot] = TIME_NEVER;
    }
    return fake;
}

void fake_free(struct fake_runtime *fake)
{
    for (uint32_t i = 0; i < fake->message_count; i++)
        free(fake->messages[i].bytes);
    free(fake->calls);
    free(fake->messages);
    free(fake->writes);
    free(fake);
}

struct runtime *fake_runtime_of(struct fake_runtime *fake, uint32_t node)
{
    CHECK(node < fake->node_count);
    return &fake->nodes[node].runtime;
}

void fake_attach(struct fake_runtime *fake, uint32_t node, struct participant participant)
{
    CHECK(node < fake->node_count);
    fake->nodes[node].participant = participant;
}

/* ---- Bringing things about --------------------------------------------------------------------------------------- */

void fake_deliver(struct fake_runtime *fake, uint32_t index, const struct event *event)
{
    CHECK(index < fake->node_count);
    struct fake_node *node = &fake->nodes[index];
    CHECK(!node->inside);
    if (node->running && event->kind != EVENT_STEPS_DONE)
        node->ends = true;
    fake->now_ns += EVENT_NS;
    node->runtime.now_ns = fake->now_ns;
    node->inside = true;
    node->participant.handle(node->participant.self, event);
    node->inside = false;
}

bool fake_message(struct fake_runtime *fake, uint32_t source, uint32_t destination)
{
    for (uint32_t i = 0; i < fake->message_count; i++) {
        struct fake_message message = fake->messages[i];
        if (message.delivered || message.source != source || message.destination != destination)
            continue;
        fake->messages[i].delivered = true;
        fake_deliver(
            fake, destination,
            &(struct event){.kind = EVENT_MESSAGE, .id = source, .count = message.length, .data = message.bytes});
        memset(message.bytes, POISON, message.length);
        return true;
    }
    return false;
}

bool fake_timer(struct fake_runtime *fake, uint32_t index, uint32_t slot)
{
    struct fake_node *node = &fake->nodes[index];
    if (node->timer_ns[slot] == TIME_NEVER)
        return false;
    fake->now_ns = max_i64(fake->now_ns, node->timer_ns[slot] - EVENT_NS);
    node->timer_ns[slot] = TIME_NEVER;
    fake_deliver(fake, index, &(struct event){.kind = EVENT_TIMER, .id = slot});
    return true;
}

bool fake_step(struct fake_runtime *fake, uint32_t index)
{
    struct fake_node *node = &fake->nodes[index];
    if (!node->running)
        return false;
    node->steps++;
    if (node->ends || node->steps == node->repeat_max) {
        node->running = false;
        fake_deliver(fake, index, &(struct event){.kind = EVENT_STEPS_DONE, .id = node->ticket, .count = node->steps});
    }
    return true;
}

/* Writes of the write's layers [0, layers), the tail after the last. */
static uint64_t writes_of(const struct fake_write *write, uint32_t layers)
{
    const struct transfer_plan *plan = write->spec.plan;
    uint64_t all = plan->writes_per_unit * write->spec.unit_count;
    return all * layers / plan->layers + (layers == plan->layers ? write->spec.tail_writes : 0);
}

static void count(struct fake_runtime *fake, uint32_t destination, uint32_t immediate, uint64_t writes)
{
    struct fake_node *node = &fake->nodes[destination];
    struct fake_expectation *expectation = expectation_of(node, immediate);
    if (expectation == NULL || !expectation->armed || expectation->immediate != immediate) {
        node->late += writes;
        return;
    }
    expectation->counted += writes;
    CHECK(expectation->counted <= expectation->expected);
    if (writes > 0 && expectation->counted == expectation->expected)
        fake_deliver(fake, destination,
                     &(struct event){.kind = EVENT_IMMEDIATE, .id = immediate, .count = expectation->expected});
}

/* A gated write's layers come while its launch runs: the last only with its step. */
static bool available(const struct fake_runtime *fake, const struct fake_write *write)
{
    const struct fake_node *node = &fake->nodes[write->source];
    bool gated = write->spec.gate != STEP_NONE && node->running && node->ticket == write->spec.gate;
    return !gated || write->layers + 1 < write->spec.plan->layers;
}

bool fake_layer(struct fake_runtime *fake, uint32_t index)
{
    struct fake_write *write = &fake->writes[index];
    if (write->confirmed || write->stopped || write->layers == write->spec.plan->layers || !available(fake, write))
        return false;
    uint64_t writes = writes_of(write, write->layers + 1) - writes_of(write, write->layers);
    write->layers++;
    count(fake, write->spec.destination, write->spec.immediate, writes);
    return true;
}

bool fake_confirm(struct fake_runtime *fake, uint32_t index)
{
    struct fake_write *write = &fake->writes[index];
    if (write->confirmed || (!write->stopped && write->layers < write->spec.plan->layers))
        return false;
    write->confirmed = true;
    fake_deliver(fake, write->source,
                 &(struct event){.kind = EVENT_WRITE_DONE,
                                 .status = write->stopped ? WRITE_STOPPED : WRITE_OK,
                                 .id = write->spec.ticket,
                                 .count = write->layers});
    return true;
}

/* ---- In any order ------------------------------------------------------------------------------------------------ */

static bool messages_and_steps(struct fake_runtime *fake)
{
    uint32_t source = (uint32_t)rng_below(&fake->rng, fake->node_count);
    uint32_t destination = (uint32_t)rng_below(&fake->rng, fake->node_count);
    return rng_chance(&fake->rng, 1, 2) ? fake_message(fake, source, destination) : fake_step(fake, source);
}

static bool writes(struct fake_runtime *fake)
{
    if (fake->write_count == 0)
        return false;
    uint32_t index = (uint32_t)rng_below(&fake->rng, fake->write_count);
    return rng_chance(&fake->rng, 3, 4) ? fake_layer(fake, index) : fake_confirm(fake, index);
}

static bool pending(const struct fake_runtime *fake)
{
    for (uint32_t i = 0; i < fake->node_count; i++)
        if (fake->nodes[i].running)
            return true;
    for (uint32_t i = 0; i < fake->message_count; i++)
        if (!fake->messages[i].delivered)
            return true;
    for (uint32_t i = 0; i < fake->write_count; i++)
        if (!fake->writes[i].confirmed)
            return true;
    return false;
}

/* The next timer that is due, or, with `idle`, the earliest of all. */
static bool timers(struct fake_runtime *fake, bool idle)
{
    uint32_t node = 0;
    uint32_t slot = 0;
    int64_t at_ns = TIME_NEVER;
    for (uint32_t i = 0; i < fake->node_count * FAKE_TIMERS; i++) {
        int64_t timer_ns = fake->nodes[i / FAKE_TIMERS].timer_ns[i % FAKE_TIMERS];
        if (timer_ns < at_ns) {
            at_ns = timer_ns;
            node = i / FAKE_TIMERS;
            slot = i % FAKE_TIMERS;
        }
    }
    if (at_ns == TIME_NEVER || (!idle && at_ns > fake->now_ns))
        return false;
    return fake_timer(fake, node, slot);
}

void fake_run(struct fake_runtime *fake)
{
    for (;;) {
        if (timers(fake, false))
            continue;
        if (pending(fake)) {
            if (rng_chance(&fake->rng, 1, 2))
                writes(fake);
            else
                messages_and_steps(fake);
        } else if (!timers(fake, true)) {
            return;
        }
    }
}

uint32_t fake_call_count(const struct fake_runtime *fake, uint32_t node, enum fake_call_kind kind)
{
    uint32_t calls = 0;
    for (uint32_t i = 0; i < fake->call_count; i++)
        calls += fake->calls[i].kind == kind && fake->calls[i].node == node;
    return calls;
}

const struct fake_call *fake_call_nth(const struct fake_runtime *fake, uint32_t node, enum fake_call_kind kind,
                                      uint32_t n)
{
    for (uint32_t i = 0; i < fake->call_count; i++)
        if (fake->calls[i].kind == kind && fake->calls[i].node == node && n-- == 0)
            return &fake->calls[i];
    return NULL;
}
