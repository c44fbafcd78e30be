/* See coverage.h. */
#include "sim/swarm/coverage.h"

#include "base/arith.h"
#include "messenger/wire.h"
#include "serve/sequence.h"
#include "host/memory.h"

#include <stdlib.h>
#include <string.h>

/* Tickets of writes in flight and sequences of a node that are told apart: more than a drawn deployment has. */
#define TICKETS 128
#define SEQUENCES 512

enum { TABLE_DECODER, TABLE_PREFILLER, TABLE_MIXED, TABLE_FRONT };

enum decoder_event {
    DECODER_REQUEST,
    DECODER_ABORT,
    DECODER_ACCEPTED,
    DECODER_NACK,
    DECODER_QUIESCED,
    DECODER_COUNT,
    DECODER_DEADLINE,
    DECODER_STEP,
    DECODER_SUSPECTED,
    DECODER_FENCED,
    DECODER_REPLACED,
};

enum prefiller_event {
    PREFILLER_PREFILL,
    PREFILLER_CANCEL,
    PREFILLER_WRITE_OK,
    PREFILLER_WRITE_STOPPED,
    PREFILLER_WRITE_FAILED,
    PREFILLER_STEP,
    PREFILLER_SUSPECTED,
    PREFILLER_FENCED,
    PREFILLER_REPLACED,
};

enum mixed_event { MIXED_REQUEST, MIXED_ABORT, MIXED_STEP };

enum front_event {
    FRONT_ARRIVAL,
    FRONT_LEAVE,
    FRONT_FIRST_TOKEN,
    FRONT_FINISHED,
    FRONT_FAILED,
    FRONT_REJECTED,
    FRONT_ABORT_DONE,
    FRONT_PREFILLED,
    FRONT_DECODER_SUSPECTED,
    FRONT_DECODER_FENCED,
    FRONT_DECODER_REPLACED,
    FRONT_PREFILLER_SUSPECTED,
    FRONT_PREFILLER_FENCED,
    FRONT_PREFILLER_REPLACED,
};

static const char *const table_names[COVERAGE_TABLES] = {"decoder", "prefiller", "mixed", "front"};

static const char *const state_names[COVERAGE_TABLES][COVERAGE_STATES_MAX] = {
    {"none", "alloc", "dispatched", "filling", "cancelling", "quarantine", "ready", "decode", "queued", "streaming"},
    {"none", "queued", "streaming", "drain", "cancelled"},
    {"none", "queued", "streaming", "ready", "decode"},
    {"none", "waiting", "answering", "aborted"},
};

static const char *const event_names[COVERAGE_TABLES][COVERAGE_EVENTS_MAX] = {
    {"request", "abort", "accepted", "nack", "quiesced", "count", "deadline", "step", "suspected", "fenced",
     "replaced"},
    {"prefill", "cancel", "write_ok", "write_stopped", "write_failed", "step", "suspected", "fenced", "replaced"},
    {"request", "abort", "step"},
    {"arrival", "leave", "first_token", "finished", "failed", "rejected", "aborted", "prefilled", "decoder_suspected",
     "decoder_fenced", "decoder_replaced", "prefiller_suspected", "prefiller_fenced", "prefiller_replaced"},
};

struct ticket {
    uint32_t request;
    uint32_t epoch;
    uint32_t peer;
    uint32_t incarnation;
};

struct coverage_watch {
    struct coverage *coverage;
    struct run_nodes nodes;
    struct ticket *tickets; /* by node */
    uint32_t count;         /* sequences of the node in hand, as they were before the event */
    struct node_sequence sequences[SEQUENCES];
};

/* ---- Counting ---------------------------------------------------------------------------------------------------- */

static uint32_t state_of(uint32_t table, uint8_t state)
{
    static const uint8_t decoder[] = {SEQUENCE_FREE,       SEQUENCE_ALLOC,      SEQUENCE_DISPATCHED, SEQUENCE_FILLING,
                                      SEQUENCE_CANCELLING, SEQUENCE_QUARANTINE, SEQUENCE_READY,      SEQUENCE_DECODE,
                                      SEQUENCE_QUEUED,     SEQUENCE_STREAMING};
    static const uint8_t prefiller[] = {SEQUENCE_FREE, SEQUENCE_QUEUED, SEQUENCE_STREAMING, SEQUENCE_DRAIN,
                                        SEQUENCE_CANCELLED};
    static const uint8_t mixed[] = {SEQUENCE_FREE, SEQUENCE_QUEUED, SEQUENCE_STREAMING, SEQUENCE_READY,
                                    SEQUENCE_DECODE};
    static const uint8_t front[] = {0, FRONT_WAITING, FRONT_ANSWERING, FRONT_ABORTED};
    static const struct {
        const uint8_t *states;
        uint32_t count;
    } tables[] = {{decoder, 10}, {prefiller, 5}, {mixed, 5}, {front, 4}};
    for (uint32_t i = 0; i < tables[table].count; i++)
        if (tables[table].states[i] == state)
            return i;
    CHECK(false);
    return 0;
}

static void hit(struct coverage_watch *watch, uint32_t table, const struct node_sequence *sequence, uint32_t event)
{
    watch->coverage->count[table][sequence == NULL ? 0 : state_of(table, sequence->state)][event]++;
}

static const struct node_sequence *by_request(const struct coverage_watch *watch, uint32_t request)
{
    for (uint32_t i = 0; i < watch->count; i++)
        if (watch->sequences[i].request == request)
            return &watch->sequences[i];
    return NULL;
}

/* A replacement numbers its epochs afresh. */
static const struct node_sequence *by_epoch(const struct coverage_watch *watch, uint32_t peer, uint32_t incarnation,
                                            uint32_t epoch)
{
    for (uint32_t i = 0; i < watch->count; i++) {
        const struct node_sequence *s = &watch->sequences[i];
        if (s->peer == peer && s->peer_incarnation == incarnation && s->epoch == epoch)
            return s;
    }
    return NULL;
}

/* Every sequence whose peer (front: whose decoder, or prefiller) is that node; none where there is none. */
static void hit_peers(struct coverage_watch *watch, uint32_t table, uint32_t peer, uint32_t event, bool other)
{
    bool any = false;
    for (uint32_t i = 0; i < watch->count; i++) {
        const struct node_sequence *s = &watch->sequences[i];
        if ((other ? s->other : s->peer) != peer)
            continue;
        hit(watch, table, s, event);
        any = true;
    }
    if (!any)
        hit(watch, table, NULL, event);
}

static void hit_all(struct coverage_watch *watch, uint32_t table, uint32_t event)
{
    for (uint32_t i = 0; i < watch->count; i++)
        hit(watch, table, &watch->sequences[i], event);
}

static void decoder_message(struct coverage_watch *watch, uint32_t source, const struct message *m)
{
    const struct node_sequence *s = by_request(watch, m->request);
    bool same = s != NULL && s->epoch == m->epoch && s->peer == source && s->peer_incarnation == m->incarnation;
    switch (m->kind) {
    case MESSAGE_REQUEST:
        hit(watch, TABLE_DECODER, s, DECODER_REQUEST);
        break;
    case MESSAGE_ABORT:
        hit(watch, TABLE_DECODER, s, DECODER_ABORT);
        break;
    case MESSAGE_ACCEPTED:
        hit(watch, TABLE_DECODER, same ? s : NULL, DECODER_ACCEPTED);
        break;
    case MESSAGE_NACK:
        hit(watch, TABLE_DECODER, same ? s : NULL, DECODER_NACK);
        break;
    case MESSAGE_QUIESCED:
        hit(watch, TABLE_DECODER, same ? s : NULL, DECODER_QUIESCED);
        break;
    case MESSAGE_HELLO:
        hit_peers(watch, TABLE_DECODER, source, DECODER_REPLACED, false);
        break;
    default:
        break;
    }
}

static void decoder_event(struct coverage_watch *watch, const struct event *event)
{
    if (event->kind == EVENT_STEPS_DONE) {
        hit_all(watch, TABLE_DECODER, DECODER_STEP);
    } else if (event->kind == EVENT_PEER_LOST) {
        hit_peers(watch, TABLE_DECODER, event->id, event->status == PEER_FENCED ? DECODER_FENCED : DECODER_SUSPECTED,
                  false);
    } else if (event->kind == EVENT_IMMEDIATE) {
        const struct node_sequence *found = NULL;
        for (uint32_t i = 0; i < watch->count; i++) {
            const struct node_sequence *s = &watch->sequences[i];
            bool transfers = s->state >= SEQUENCE_DISPATCHED && s->state <= SEQUENCE_QUARANTINE;
            if (transfers && s->immediate == event->id)
                found = s;
        }
        hit(watch, TABLE_DECODER, found, DECODER_COUNT);
    }
}

static void prefiller_message(struct coverage_watch *watch, uint32_t source, const struct message *m)
{
    if (m->kind == MESSAGE_PREFILL)
        hit(watch, TABLE_PREFILLER, by_epoch(watch, source, m->incarnation, m->epoch), PREFILLER_PREFILL);
    else if (m->kind == MESSAGE_CANCEL)
        hit(watch, TABLE_PREFILLER, by_epoch(watch, source, m->incarnation, m->epoch), PREFILLER_CANCEL);
    else if (m->kind == MESSAGE_HELLO)
        hit_peers(watch, TABLE_PREFILLER, source, PREFILLER_REPLACED, false);
}

static void prefiller_event(struct coverage_watch *watch, uint32_t node, const struct event *event)
{
    if (event->kind == EVENT_STEPS_DONE) {
        hit_all(watch, TABLE_PREFILLER, PREFILLER_STEP);
    } else if (event->kind == EVENT_PEER_LOST) {
        hit_peers(watch, TABLE_PREFILLER, event->id,
                  event->status == PEER_FENCED ? PREFILLER_FENCED : PREFILLER_SUSPECTED, false);
    } else if (event->kind == EVENT_WRITE_DONE && event->id < TICKETS) {
        const struct ticket *ticket = &watch->tickets[node * TICKETS + event->id];
        hit(watch, TABLE_PREFILLER, by_epoch(watch, ticket->peer, ticket->incarnation, ticket->epoch),
            event->status == WRITE_OK        ? PREFILLER_WRITE_OK
            : event->status == WRITE_STOPPED ? PREFILLER_WRITE_STOPPED
                                             : PREFILLER_WRITE_FAILED);
    }
}

static void mixed_event(struct coverage_watch *watch, const struct event *event, const struct message *m)
{
    if (event->kind == EVENT_STEPS_DONE)
        hit_all(watch, TABLE_MIXED, MIXED_STEP);
    else if (m != NULL && m->kind == MESSAGE_REQUEST)
        hit(watch, TABLE_MIXED, by_request(watch, m->request), MIXED_REQUEST);
    else if (m != NULL && m->kind == MESSAGE_ABORT)
        hit(watch, TABLE_MIXED, by_request(watch, m->request), MIXED_ABORT);
}

static void front_message(struct coverage_watch *watch, uint32_t source, const struct message *m)
{
    const struct node_sequence *s = by_request(watch, m->request);
    bool prefiller = watch->nodes.configs[source].role == ROLE_PREFILL;
    static const uint8_t events[] = {
        [MESSAGE_FIRST_TOKEN] = FRONT_FIRST_TOKEN, [MESSAGE_FINISHED] = FRONT_FINISHED,
        [MESSAGE_FAILED] = FRONT_FAILED,           [MESSAGE_REJECTED] = FRONT_REJECTED,
        [MESSAGE_ABORTED] = FRONT_ABORT_DONE,      [MESSAGE_PREFILLED] = FRONT_PREFILLED,
    };
    if (m->kind == MESSAGE_HELLO) {
        hit_peers(watch, TABLE_FRONT, source, prefiller ? FRONT_PREFILLER_REPLACED : FRONT_DECODER_REPLACED, prefiller);
        return;
    }
    if (m->kind >= sizeof events || events[m->kind] == 0)
        return;
    bool same = s != NULL && s->epoch == m->attempt &&
                (s->peer == source || (m->kind == MESSAGE_PREFILLED && s->other == source));
    hit(watch, TABLE_FRONT, same ? s : NULL, events[m->kind]);
}

static void front_event(struct coverage_watch *watch, const struct event *event)
{
    if (event->kind == EVENT_ARRIVAL) {
        const struct request_spec *spec = event->data;
        hit(watch, TABLE_FRONT, by_request(watch, spec->id),
            event->status == ARRIVAL_ABORT ? FRONT_LEAVE : FRONT_ARRIVAL);
    } else if (event->kind == EVENT_PEER_LOST) {
        bool prefiller = watch->nodes.configs[event->id].role == ROLE_PREFILL;
        bool fenced = event->status == PEER_FENCED;
        hit_peers(watch, TABLE_FRONT, event->id,
                  prefiller ? (fenced ? FRONT_PREFILLER_FENCED : FRONT_PREFILLER_SUSPECTED)
                            : (fenced ? FRONT_DECODER_FENCED : FRONT_DECODER_SUSPECTED),
                  prefiller);
    }
}

static void on_event(void *self, int64_t now_ns, uint32_t node, const struct event *event)
{
    struct coverage_watch *watch = self;
    struct message m;
    bool message = event->kind == EVENT_MESSAGE && wire_decode(event->data, (size_t)event->count, &m);
    (void)now_ns;
    watch->count = min_u32(SEQUENCES, node_sequences(watch->nodes.nodes[node], watch->sequences, SEQUENCES));
    switch (watch->nodes.configs[node].role) {
    case ROLE_DECODE:
        if (message)
            decoder_message(watch, event->id, &m);
        else
            decoder_event(watch, event);
        break;
    case ROLE_PREFILL:
        if (message)
            prefiller_message(watch, event->id, &m);
        else
            prefiller_event(watch, node, event);
        break;
    case ROLE_MIXED:
        mixed_event(watch, event, message ? &m : NULL);
        break;
    case ROLE_FRONT:
        if (message)
            front_message(watch, event->id, &m);
        else
            front_event(watch, event);
        break;
    }
}

/* Which transfers a deadline meets the timer does not say. */
static void on_trace(void *self, int64_t now_ns, const struct trace_record *record)
{
    struct coverage_watch *watch = self;
    (void)now_ns;
    if (record->kind == TRACE_DEADLINE)
        hit(watch, TABLE_DECODER, by_request(watch, record->request), DECODER_DEADLINE);
}

static void on_post(void *self, uint32_t node, const struct paged_write *write)
{
    struct coverage_watch *watch = self;
    if (write->ticket < TICKETS)
        watch->tickets[node * TICKETS + write->ticket] = (struct ticket){.request = write->request,
                                                                         .epoch = write->epoch,
                                                                         .peer = write->destination,
                                                                         .incarnation = write->destination_incarnation};
}

struct coverage_watch *coverage_listen(struct coverage *coverage, struct sim *sim, const struct run_nodes *nodes)
{
    struct coverage_watch *watch = memory_get(sizeof *watch);
    watch->coverage = coverage;
    watch->nodes = *nodes;
    watch->tickets = memory_zeroed((size_t)nodes->count * TICKETS, sizeof *watch->tickets);
    sim_listen(sim, &(struct sim_listener){.self = watch, .before = on_event, .trace = on_trace, .post = on_post});
    return watch;
}

void coverage_watch_free(struct coverage_watch *watch)
{
    if (watch == NULL)
        return;
    free(watch->tickets);
    free(watch);
}

void coverage_add(struct coverage *to, const struct coverage *from)
{
    for (uint32_t t = 0; t < COVERAGE_TABLES; t++)
        for (uint32_t s = 0; s < COVERAGE_STATES_MAX; s++)
            for (uint32_t e = 0; e < COVERAGE_EVENTS_MAX; e++)
                to->count[t][s][e] += from->count[t][s][e];
}

/* ---- In words ---------------------------------------------------------------------------------------------------- */

const char *coverage_table_name(uint32_t table)
{
    return table < COVERAGE_TABLES ? table_names[table] : NULL;
}

const char *coverage_state_name(uint32_t table, uint32_t state)
{
    return state < COVERAGE_STATES_MAX ? state_names[table][state] : NULL;
}

const char *coverage_event_name(uint32_t table, uint32_t event)
{
    return event < COVERAGE_EVENTS_MAX ? event_names[table][event] : NULL;
}
