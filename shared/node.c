/* See node.h. Gives each event to the part it concerns, and keeps the instance's device busy. */
#include "node.h"

#include "base/arith.h"
#include "messenger/decode_side.h"
#include "messenger/prefill_side.h"
#include "messenger/report.h"
#include "roles/front.h"
#include "roles/mixed.h"
#include "serve/decode_batch.h"
#include "serve/prefill_batch.h"

struct node {
    const struct node_config *config;
    struct runtime *rt;
    struct front front;
    struct instance instance;
    struct decode_side decoder;
    struct prefill_side prefiller;
    uint64_t late;      /* messages meant for a predecessor */
    uint64_t malformed; /* messages that did not parse or made no sense here */
};

/* ---- Set-up ------------------------------------------------------------------------------------------------------ */

/* The smallest page among the decoders, which bounds how many pages one of their requests can name. */
static uint32_t smallest_peer_page(const struct node_config *config)
{
    uint32_t smallest = 0;
    for (uint32_t i = 0; i < config->peer_count; i++) {
        const struct peer_config *peer = &config->peers[i];
        if (peer->role == ROLE_DECODE && (smallest == 0 || peer->geometry.page_tokens < smallest))
            smallest = peer->geometry.page_tokens;
    }
    return smallest;
}

static void lay_out(struct node *node, struct arena *arena, const struct node_config *config, struct runtime *rt)
{
    node->config = config;
    node->rt = rt;
    switch (config->role) {
    case ROLE_FRONT:
        front_make(&node->front, arena, config, rt);
        break;
    case ROLE_PREFILL:
        instance_make(&node->instance, arena, config, rt, smallest_peer_page(config));
        prefill_side_make(&node->prefiller, arena, &node->instance);
        break;
    case ROLE_DECODE:
        instance_make(&node->instance, arena, config, rt, 0);
        decode_side_make(&node->decoder, arena, &node->instance);
        break;
    case ROLE_MIXED:
        instance_make(&node->instance, arena, config, rt, 0);
        break;
    }
}

size_t node_size(const struct node_config *config, const struct runtime_limits *limits)
{
    struct runtime nowhere = {.limits = *limits};
    struct node scratch = {.config = config};
    struct arena arena = arena_measure();
    arena_take(&arena, 1, sizeof(struct node));
    lay_out(&scratch, &arena, config, &nowhere);
    return (arena.used + 63) & ~(size_t)63;
}

struct node *node_make(const struct node_config *config, struct runtime *rt, void *memory, size_t size)
{
    struct arena arena = arena_over(memory, size);
    struct node *node = arena_take(&arena, 1, sizeof *node);
    lay_out(node, &arena, config, rt);
    arena_seal(&arena);
    return node;
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

static void admitted(void *context, uint32_t slot)
{
    struct node *node = context;
    if (node->config->role == ROLE_PREFILL)
        prefill_side_admitted(&node->prefiller, slot);
    else
        mixed_admitted(&node->instance, slot);
}

static void trace_batches(struct instance *instance)
{
    for (uint32_t g = 0; g < instance->config->group_count; g++) {
        const struct step_group *sums = &instance->current->groups[g];
        if (!instance->current->changed[g])
            continue;
        instance->current->changed[g] = false;
        rt_trace(instance->rt, TRACE_BATCH, TRACE_NO_REQUEST, (uint64_t)g << 32 | sums->decode_sequences,
                 sums->prefill_tokens);
    }
}

/* How often the batch may be repeated: not past the first sequence that needs attention, and not over a step whose end
 * somebody waits for. Microbatches take turns in the stages. */
static uint32_t repetitions(const struct instance *instance)
{
    const struct microbatch *microbatch = instance->current;
    bool first_tokens = false; /* of sequences whose prompts were computed elsewhere */
    for (uint32_t i = 0; i < microbatch->joined_count && instance->config->role == ROLE_DECODE; i++)
        first_tokens |= !instance->sequences[microbatch->joined[i]].resumed ||
                        instance->sequences[microbatch->joined[i]].handoff != SLOT_NONE;
    if (microbatch->chunk_count > 0 || first_tokens || instance->microbatch_count > 1)
        return 1;
    uint64_t steps = min_u64(instance->config->scheduler.repeat_max, decode_steps_to_attention(instance));
    if (instance->held_steps > 0)
        steps = min_u64(steps, instance->held_steps);
    return (uint32_t)max_u64(1, steps);
}

/* Writes that chunks may still post: those in the stages keep what they need at the end of their prompts. */
static uint32_t write_budget(const struct node *node)
{
    const struct instance *instance = &node->instance;
    uint32_t kept = 0;
    if (node->config->role != ROLE_PREFILL)
        return UINT32_MAX;
    for (uint32_t i = 0; i < instance->microbatch_count && node->config->tail_writes > 0; i++)
        if (instance->microbatches[i].stepping)
            kept += instance->microbatches[i].chunk_count * PREFILL_TAIL_WRITES;
    return node->prefiller.unused_write_count - min_u32(kept, node->prefiller.unused_write_count);
}

static void launched(struct node *node)
{
    const struct instance *instance = &node->instance;
    if (node->config->role == ROLE_PREFILL) {
        prefill_side_launched(&node->prefiller);
        return;
    }
    mixed_launched(&node->instance);
    for (uint32_t i = 0; i < instance->current->joined_count; i++) {
        const struct sequence *s = &instance->sequences[instance->current->joined[i]];
        if (!s->resumed) /* nor has it had its first token here */
            rt_trace(node->rt, TRACE_DECODE_STARTED, s->request, s->group, 0);
    }
}

static void launch_microbatch(struct node *node, struct microbatch *microbatch)
{
    struct instance *instance = &node->instance;
    enum node_role role = node->config->role;
    instance->current = microbatch;
    microbatch->joined_count = 0;
    if (role != ROLE_PREFILL)
        decode_join_ready(instance);
    if (node_prefills(node->config))
        prefill_schedule(instance, write_budget(node), admitted, node);
    if (microbatch->decode_sequences == 0 && microbatch->chunk_count == 0)
        return;
    trace_batches(instance);
    microbatch->ticket = ++instance->ticket;
    microbatch->stepping = true;
    rt_launch(node->rt, &(struct step_launch){
                            .ticket = microbatch->ticket,
                            .microbatch = (uint32_t)(microbatch - instance->microbatches),
                            .repeat_max = repetitions(instance),
                            .group_count = node->config->group_count,
                            .yield = instance->yield,
                            .step = microbatch->step_counter,
                            .groups = microbatch->groups,
                            .change_count = instance->change_count,
                            .changes = instance->changes,
                        });
    instance->change_count = 0;
    launched(node);
}

/* Whatever can be launched is: at most one launch a stage, which follow each other through the stages. */
static void launch(struct node *node)
{
    struct instance *instance = &node->instance;
    for (uint32_t i = 0; i < instance->microbatch_count; i++)
        if (!instance->microbatches[i].stepping)
            launch_microbatch(node, &instance->microbatches[i]);
}

static void first_tokens(struct node *node)
{
    struct instance *instance = &node->instance;
    for (uint32_t i = 0; i < instance->current->joined_count; i++) {
        uint32_t slot = instance->current->joined[i];
        struct sequence *s = &instance->sequences[slot];
        decode_side_tail_read(&node->decoder, slot);
        if (s->resumed || s->aborting)
            continue;
        s->resumed = true;
        rt_trace(node->rt, TRACE_FIRST_TOKEN, s->request, 0, 0);
        struct report report = report_of(s, MESSAGE_FIRST_TOKEN);
        report.produced = decode_produced(instance, s);
        report_to_front(instance, &report);
    }
}

static void finished(struct node *node, uint32_t slot)
{
    struct instance *instance = &node->instance;
    struct sequence *s = &instance->sequences[slot];
    rt_trace(node->rt, TRACE_FINISHED, s->request, s->produced, 0);
    instance_publish(instance, slot, s->prompt_tokens);
    struct report report = report_of(s, MESSAGE_FINISHED);
    if (node->config->role == ROLE_DECODE)
        decode_side_end(&node->decoder, slot);
    else
        instance_end(instance, slot);
    report_to_front(instance, &report);
}

/* Whoever computes prompts computes this one again, from where it is. */
static void preempted(struct node *node, uint32_t slot)
{
    if (node->config->role == ROLE_DECODE)
        decode_side_tail_read(&node->decoder, slot); /* or never will be */
    mixed_preempted(&node->instance, slot);
}

static void serve_due(struct node *node)
{
    uint32_t slot;
    enum decode_due due;
    while ((due = decode_next_due(&node->instance, &slot)) != DECODE_NOTHING) {
        if (due == DECODE_FINISHED)
            finished(node, slot);
        else if (node_prefills(node->config))
            preempted(node, slot);
        else
            decode_side_preempted(&node->decoder, slot);
    }
}

static void steps_done(struct node *node, const struct event *event)
{
    struct instance *instance = &node->instance;
    uint32_t at = 0;
    while (at < instance->microbatch_count &&
           !(instance->microbatches[at].stepping && instance->microbatches[at].ticket == event->id))
        at++;
    CHECK(at < instance->microbatch_count && event->status == 0);
    CHECK(event->count >= 1 && event->count <= UINT32_MAX);
    instance->current = &instance->microbatches[at];
    instance->current->stepping = false;
    decode_advance(instance, (uint32_t)event->count);
    switch (node->config->role) {
    case ROLE_PREFILL:
        prefill_side_step_done(&node->prefiller);
        break;
    case ROLE_MIXED:
        mixed_step_done(instance);
        serve_due(node);
        break;
    default:
        first_tokens(node);
        mixed_step_done(instance);
        serve_due(node);
        decode_side_admit(&node->decoder);
        break;
    }
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static void say_hello(struct node *node, uint32_t peer)
{
    struct message message = {
        .kind = MESSAGE_HELLO,
        .incarnation = node->instance.incarnation,
        .geometry_hash = kv_geometry_hash(&node->config->geometry),
    };
    unsigned char bytes[WIRE_HEADER_BYTES];
    size_t length = wire_encode(&message, NULL, NULL, bytes, sizeof bytes);
    rt_send(node->rt, peer, bytes, length);
}

/* Who has just joined does not know who else has. */
static bool hello(struct node *node, uint32_t source, const struct message *m)
{
    bool news = node->config->role == ROLE_DECODE ? decode_side_hello(&node->decoder, source, m)
                                                  : prefill_side_hello(&node->prefiller, source, m);
    if (news && node->instance.incarnation > 0)
        say_hello(node, source);
    return peers_find(node->config->role == ROLE_DECODE ? &node->decoder.peers : &node->prefiller.peers, source) !=
           NULL;
}

/* Sequences whose prompts a decoder computes itself are a mixed instance's, until they are ready. */
static void decoder_abort(struct decode_side *side, uint32_t request)
{
    if (mixed_abort_prompt(side->instance, request))
        decode_side_admit(side);
    else
        decode_side_abort(side, request);
}

static bool decoder_message(struct decode_side *side, uint32_t source, const struct message *m)
{
    bool from_front = source == side->instance->config->front;
    if (from_front != (m->kind == MESSAGE_REQUEST || m->kind == MESSAGE_ABORT))
        return false;
    switch (m->kind) {
    case MESSAGE_REQUEST:
        if (decode_side_prefills(side, m))
            mixed_request(side->instance, m);
        else
            decode_side_request(side, m);
        return true;
    case MESSAGE_ABORT:
        decoder_abort(side, m->request);
        return true;
    case MESSAGE_ACCEPTED:
        decode_side_accepted(side, source, m);
        return true;
    case MESSAGE_NACK:
        decode_side_nack(side, source, m);
        return true;
    case MESSAGE_QUIESCED:
        decode_side_quiesced(side, source, m);
        return true;
    default:
        return false;
    }
}

static bool prefiller_message(struct prefill_side *side, uint32_t source, const struct message *m)
{
    switch (m->kind) {
    case MESSAGE_PREFILL:
        prefill_side_prefill(side, source, m);
        return true;
    case MESSAGE_CANCEL:
        prefill_side_cancel(side, source, m);
        return true;
    default:
        return false;
    }
}

static bool mixed_message(struct instance *instance, uint32_t source, const struct message *m)
{
    if (source != instance->config->front)
        return false;
    switch (m->kind) {
    case MESSAGE_REQUEST:
        mixed_request(instance, m);
        return true;
    case MESSAGE_ABORT:
        mixed_abort(instance, m->request);
        return true;
    default:
        return false;
    }
}

/* Meant for a predecessor, or a request that came before: served again after its end, it would be a ghost that nobody
 * waits for. */
static bool is_late(struct node *node, uint32_t source, const struct message *m)
{
    if (m->kind != MESSAGE_HELLO && m->peer_incarnation != node->instance.incarnation)
        return true;
    bool request = m->kind == MESSAGE_REQUEST && source == node->config->front;
    return request && (node->config->role == ROLE_DECODE || node->config->role == ROLE_MIXED) &&
           !instance_received(&node->instance, m->number);
}

static void message(struct node *node, const struct event *event)
{
    struct message m;
    bool understood = false;
    if (wire_decode(event->data, (size_t)event->count, &m)) {
        if (is_late(node, event->id, &m)) {
            node->late++;
            rt_trace(node->rt, TRACE_LATE, m.request, m.epoch, m.kind);
            return;
        }
        switch (node->config->role) {
        case ROLE_FRONT:
            front_message(&node->front, event->id, &m);
            understood = true;
            break;
        case ROLE_PREFILL:
            understood = m.kind == MESSAGE_HELLO ? hello(node, event->id, &m)
                                                 : prefiller_message(&node->prefiller, event->id, &m);
            break;
        case ROLE_DECODE:
            understood =
                m.kind == MESSAGE_HELLO ? hello(node, event->id, &m) : decoder_message(&node->decoder, event->id, &m);
            break;
        case ROLE_MIXED:
            understood = mixed_message(&node->instance, event->id, &m);
            break;
        }
    }
    node->malformed += !understood;
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

static void peer_lost(struct node *node, const struct event *event)
{
    uint32_t peer = event->id;
    uint32_t incarnation = narrow_u32(event->count);
    switch (node->config->role) {
    case ROLE_FRONT:
        front_peer_lost(&node->front, peer, incarnation);
        break;
    case ROLE_PREFILL:
        prefill_side_peer_lost(&node->prefiller, peer, incarnation);
        break;
    case ROLE_DECODE:
        decode_side_peer_lost(&node->decoder, peer, (enum peer_status)event->status, incarnation);
        break;
    case ROLE_MIXED:
        break;
    }
}

/* A replacement tells everybody it works with, before anything else, that it starts empty. */
static void start(struct node *node, uint64_t incarnation)
{
    if (incarnation == 0 || node->config->role == ROLE_FRONT)
        return;
    node->instance.incarnation = narrow_u32(incarnation);
    for (uint32_t i = 0; i < node->config->peer_count; i++)
        say_hello(node, node->config->peers[i].node);
}

static void arrival(struct node *node, const struct event *event)
{
    const struct request_spec *request = event->data;
    CHECK(node->config->role == ROLE_FRONT);
    if (event->status == ARRIVAL_ABORT)
        front_abort(&node->front, request->id);
    else
        front_arrival(&node->front, request);
}

void node_handle(struct node *node, const struct event *event)
{
    switch ((enum event_kind)event->kind) {
    case EVENT_START:
        start(node, event->count);
        break;
    case EVENT_STOP:
        break;
    case EVENT_ARRIVAL:
        arrival(node, event);
        break;
    case EVENT_TIMER:
        CHECK(node->config->role == ROLE_DECODE && event->id == TIMER_TRANSFER_DEADLINE);
        decode_side_timer(&node->decoder);
        break;
    case EVENT_STEPS_DONE:
        steps_done(node, event);
        break;
    case EVENT_WRITE_DONE:
        CHECK(node->config->role == ROLE_PREFILL);
        prefill_side_write_done(&node->prefiller, event->id, (enum write_status)event->status);
        break;
    case EVENT_IMMEDIATE:
        CHECK(node->config->role == ROLE_DECODE);
        decode_side_immediate(&node->decoder, event->id);
        break;
    case EVENT_MESSAGE:
        message(node, event);
        break;
    case EVENT_PEER_LOST:
        peer_lost(node, event);
        break;
    }
    if (node->config->role != ROLE_FRONT)
        launch(node);
}

bool node_serves(const struct node *node, uint32_t request)
{
    const struct instance *instance = &node->instance;
    if (node->config->role == ROLE_FRONT)
        return index_map_get(&node->front.by_id, request) != INDEX_NONE;
    const struct index_map *requests = node->config->role == ROLE_PREFILL ? &instance->by_request : &instance->by_key;
    return index_map_get(requests, request) != INDEX_NONE;
}

struct node_stats node_stats(const struct node *node)
{
    const struct instance *instance = &node->instance;
    if (node->config->role == ROLE_FRONT)
        return (struct node_stats){
            .requests_live = front_live(&node->front),
            .messages_late = node->front.late,
            .messages_malformed = node->malformed,
        };
    struct node_stats stats = {
        .requests_live = node->config->requests_max - instance->unused_count,
        .waiting = instance->waiting_count,
        .running = instance->running + (uint32_t)instance->decode_sequences,
        .transfers = instance->transfers,
        .quarantined = instance->quarantined,
        .queued_tokens = instance->queued_tokens,
        .decode_sequences = instance->decode_sequences,
        .messages_late = node->decoder.late + node->prefiller.late + node->late,
        .messages_malformed = node->malformed,
    };
    for (uint32_t g = 0; g < node->config->group_count; g++) {
        const struct page_pool *pool = &instance->groups[g].pool;
        uint32_t cached = pool->evictable * pool->pages_per_block;
        stats.pages_total += pool->pages_total;
        stats.pages_free += page_pool_available(pool);
        stats.pages_held += pool->pages_total - pool->free_count - cached;
        stats.pages_cached += cached;
        for (uint32_t i = 0; i < instance->microbatch_count; i++)
            stats.decode_context += instance->microbatches[i].groups[g].decode_context;
    }
    return stats;
}

static bool front_sequence(const struct front *front, uint32_t slot, struct node_sequence *sequence)
{
    const struct front_request *r = &front->requests[slot];
    if (!r->live)
        return false;
    *sequence = (struct node_sequence){
        .request = r->id,
        .epoch = r->attempt,
        .peer = front_decoder(front, r),
        .other = front_prefiller(front, r),
        .state = r->aborted       ? FRONT_ABORTED
                 : r->first_token ? FRONT_ANSWERING
                                  : FRONT_WAITING,
    };
    return true;
}

static bool instance_sequence(const struct instance *instance, uint32_t slot, struct node_sequence *sequence)
{
    const struct sequence *s = &instance->sequences[slot];
    if (s->state == SEQUENCE_FREE)
        return false;
    *sequence = (struct node_sequence){
        .request = s->request,
        .epoch = s->epoch,
        .peer = s->peer,
        .peer_incarnation = s->peer_incarnation,
        .immediate = s->immediate,
        .state = s->state,
        .in_step = s->in_step > 0,
    };
    return true;
}

uint32_t node_sequences(const struct node *node, struct node_sequence *sequences, uint32_t max)
{
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < node->config->requests_max; slot++) {
        struct node_sequence sequence;
        bool here = node->config->role == ROLE_FRONT ? front_sequence(&node->front, slot, &sequence)
                                                     : instance_sequence(&node->instance, slot, &sequence);
        if (here && count < max)
            sequences[count] = sequence;
        count += here;
    }
    return count;
}

bool node_landing(const struct node *node, uint32_t immediate, struct node_landing *landing)
{
    return node->config->role == ROLE_DECODE && decode_side_landing(&node->decoder, immediate, landing);
}
