/* See prefill_side.h. */
#include "messenger/prefill_side.h"

#include "base/arith.h"
#include "messenger/report.h"
#include "serve/prefill_batch.h"

static struct sequence *at(struct prefill_side *side, uint32_t slot)
{
    return &side->instance->sequences[slot];
}

static uint64_t key_of(uint32_t decoder, uint32_t epoch)
{
    return (uint64_t)decoder << 32 | epoch;
}

void prefill_side_make(struct prefill_side *side, struct arena *arena, struct instance *instance)
{
    const struct node_config *config = instance->config;
    *side = (struct prefill_side){.instance = instance};
    peers_make(&side->peers, arena, config, ROLE_DECODE);
    side->writes_max = instance->rt->limits.writes_in_flight;
    CHECK(side->writes_max >= prefill_writes_max(config)); /* or nothing would ever be scheduled */
    side->write_owner = arena_take(arena, side->writes_max, sizeof *side->write_owner);
    side->unused_writes = arena_take(arena, side->writes_max, sizeof *side->unused_writes);
    if (arena->memory == NULL)
        return;
    side->replica_rng = rng_stream(config->seed, config->node, RNG_REPLICA);
    side->unused_write_count = side->writes_max;
    for (uint32_t i = 0; i < side->writes_max; i++)
        side->unused_writes[i] = side->writes_max - 1 - i;
}

static void answer(struct prefill_side *side, uint32_t decoder, enum message_kind kind, uint32_t request,
                   uint32_t epoch, enum nack_reason reason)
{
    struct message message = {
        .kind = (uint16_t)kind,
        .reason = (uint16_t)reason,
        .request = request,
        .epoch = epoch,
        .incarnation = side->instance->incarnation,
        .peer_incarnation = peers_find(&side->peers, decoder)->incarnation,
    };
    unsigned char bytes[WIRE_HEADER_BYTES];
    size_t length = wire_encode(&message, NULL, NULL, bytes, sizeof bytes);
    rt_send(side->instance->rt, decoder, bytes, length);
}

/* ---- ACCEPT ------------------------------------------------------------------------------------------------------ */

static enum nack_reason check_prefill(struct prefill_side *side, const struct message *m, const struct peer *peer)
{
    const struct node_config *config = side->instance->config;
    if (m->geometry_hash != peer->geometry_hash || peer->refusal != GEOMETRY_OK ||
        m->group >= peer->config->group_count)
        return NACK_GEOMETRY;
    if (m->prompt_tokens == 0 || m->prompt_tokens > config->request_tokens_max ||
        kv_pages(&config->geometry, m->prompt_tokens) > side->instance->pages_max)
        return NACK_TOO_LARGE;
    const struct kv_geometry *theirs = &peer->config->geometry;
    if (m->produced > m->prompt_tokens || m->first_token > m->prompt_tokens ||
        m->first_token % theirs->page_tokens != 0 ||
        m->page_count != kv_pages(theirs, m->prompt_tokens) - m->first_token / theirs->page_tokens ||
        m->page_count > side->instance->peer_pages_max || m->block_count > config->request_blocks_max)
        return NACK_MALFORMED;
    return NACK_NONE;
}

/* A request may be here twice: an attempt that failed drains while its decoder, or another one, tries again. */
static void remember_request(struct instance *instance, uint32_t slot)
{
    struct sequence *s = &instance->sequences[slot];
    s->twin = index_map_get(&instance->by_request, s->request);
    if (s->twin != INDEX_NONE)
        index_map_remove(&instance->by_request, s->request);
    index_map_put(&instance->by_request, s->request, slot);
}

static void forget_request(struct instance *instance, uint32_t slot)
{
    const struct sequence *s = &instance->sequences[slot];
    uint32_t at = index_map_get(&instance->by_request, s->request);
    if (at == slot) {
        index_map_remove(&instance->by_request, s->request);
        if (s->twin != SLOT_NONE)
            index_map_put(&instance->by_request, s->request, s->twin);
        return;
    }
    while (instance->sequences[at].twin != slot)
        at = instance->sequences[at].twin;
    instance->sequences[at].twin = s->twin;
}

/* Queues the request; its source group is known from there on, and with it the plan. */
static void accept(struct prefill_side *side, uint32_t slot, const struct peer *peer, const struct message *m)
{
    struct instance *instance = side->instance;
    struct sequence *s = at(side, slot);
    s->peer = peer->config->node;
    s->peer_incarnation = m->incarnation;
    s->peer_group = m->group;
    s->request = m->request;
    s->epoch = m->epoch;
    s->attempt = m->attempt;
    s->token_seed = m->token_seed;
    s->deadline_ns = m->deadline_ns;
    s->wanted = m->prompt_tokens;
    s->prompt_tokens = m->prompt_tokens + 1 - m->produced; /* T' ends before the last token known, output included */
    s->produced = m->produced;
    s->immediate = m->immediate;
    s->peer_tail_slot = m->tail_slot;
    s->block_tokens = m->block_tokens;
    s->block_count = m->block_count;
    wire_blocks(m, instance_blocks(instance, slot));
    wire_pages(m, instance_peer_pages(instance, slot));
    index_map_put(&instance->by_key, key_of(s->peer, s->epoch), slot);
    s->keyed = true;
    remember_request(instance, slot);
    prefill_enqueue(instance, slot);
    uint32_t choice = side->peers.choices == 1 ? 0 : (uint32_t)rng_below(&side->replica_rng, side->peers.choices);
    s->plan = peers_plan(&side->peers, peer, s->group, s->peer_group, choice);
    s->units_total = transfer_units(s->plan, s->wanted);
    s->units_sent = s->peer_first_unit = m->first_token / s->plan->unit_tokens;
    rt_trace(instance->rt, TRACE_ACCEPTED, s->request, s->epoch, 0);
    answer(side, s->peer, MESSAGE_ACCEPTED, s->request, s->epoch, NACK_NONE);
}

void prefill_side_prefill(struct prefill_side *side, uint32_t source, const struct message *m)
{
    struct instance *instance = side->instance;
    struct peer *peer = peers_find(&side->peers, source);
    /* Messages of a pair arrive in order and epochs only grow: one that is not new is a duplicate, of a request that is
     * here or has already gone. Serving it again would write into pages that are no longer its own. */
    if (peer == NULL || peer->lost || m->incarnation != peer->incarnation || m->epoch <= peer->last_epoch) {
        side->late++;
        rt_trace(instance->rt, TRACE_LATE, m->request, m->epoch, m->kind);
        return;
    }
    peer->last_epoch = m->epoch;
    enum nack_reason reason = check_prefill(side, m, peer);
    uint32_t slot = reason == NACK_NONE ? instance_take_slot(instance) : SLOT_NONE;
    if (slot != SLOT_NONE) {
        accept(side, slot, peer, m);
        return;
    }
    answer(side, source, MESSAGE_NACK, m->request, m->epoch, reason == NACK_NONE ? NACK_FULL : reason);
}

/* ---- Streaming --------------------------------------------------------------------------------------------------- */

/* A write of the next `units` units, under a ticket of its own. */
static struct paged_write next_write(struct prefill_side *side, uint32_t slot, const struct transfer_plan *plan,
                                     uint32_t units, uint32_t gate)
{
    struct instance *instance = side->instance;
    struct sequence *s = at(side, slot);
    CHECK(side->unused_write_count > 0 && s->page_count > 0);
    uint32_t ticket = side->unused_writes[--side->unused_write_count];
    side->write_owner[ticket] = slot + 1;
    s->writes_posted++;
    uint32_t peer_first_page = s->peer_first_unit / plan->destination_units_per_page;
    return (struct paged_write){
        .ticket = ticket,
        .gate = gate,
        .destination = s->peer,
        .destination_incarnation = s->peer_incarnation,
        .immediate = s->immediate,
        .request = s->request,
        .epoch = s->epoch,
        .unit_first = s->units_sent,
        .unit_count = units,
        .source_group = s->group,
        .destination_group = s->peer_group,
        .source_page_count = transfer_pages(s->units_sent, units, plan->source_units_per_page),
        .destination_page_count = transfer_pages(s->units_sent, units, plan->destination_units_per_page),
        .source_pages = instance_pages(instance, slot) + s->units_sent / plan->source_units_per_page,
        .destination_pages =
            instance_peer_pages(instance, slot) + (s->units_sent / plan->destination_units_per_page - peer_first_page),
        .plan = plan,
    };
}

/* Posts units [units_sent, end) of the layers of `plan` behind `gate`. */
static void post_layers(struct prefill_side *side, uint32_t slot, const struct transfer_plan *plan, uint32_t end,
                        uint32_t gate)
{
    struct runtime *rt = side->instance->rt;
    struct sequence *s = at(side, slot);
    if (end <= s->units_sent)
        return;
    struct paged_write write = next_write(side, slot, plan, end - s->units_sent, gate);
    rt_trace(rt, TRACE_WRITE, s->request, (uint64_t)write.unit_first << 32 | write.unit_count, s->epoch);
    s->units_sent = end;
    rt_write_post(rt, &write);
}

/* Posts units [units_sent, end) behind `gate`; windowed layers only from where the decoder reads them. */
static void post(struct prefill_side *side, uint32_t slot, uint32_t end, uint32_t gate)
{
    const struct sequence *s = at(side, slot);
    const struct transfer_plan *plan = s->plan;
    uint32_t behind = transfer_units_behind(plan->window, plan->unit_tokens, s->wanted);
    if (behind > 0)
        post_layers(side, slot, plan->behind, min_u32(end, behind), gate);
    post_layers(side, slot, plan, end, gate);
}

/* Posts the tail. Its bytes are what the step of the last chunk leaves behind, so that it waits for the end of that
 * step and needs no gate. */
static void post_tail(struct prefill_side *side, uint32_t slot)
{
    const struct node_config *config = side->instance->config;
    struct runtime *rt = side->instance->rt;
    const struct sequence *s = at(side, slot);
    if (config->tail_writes == 0)
        return;
    CHECK(s->units_sent == s->units_total);
    struct paged_write write = next_write(side, slot, s->plan, 0, STEP_NONE);
    write.tail_writes = config->tail_writes;
    write.tail_bytes = config->tail_bytes;
    write.tail_source_slot = slot;
    write.tail_destination_slot = s->peer_tail_slot;
    rt_trace(rt, TRACE_TAIL, s->request, s->epoch, 0);
    rt_write_post(rt, &write);
}

static void forget_key(struct prefill_side *side, struct sequence *s)
{
    if (s->keyed)
        index_map_remove(&side->instance->by_key, key_of(s->peer, s->epoch));
    s->keyed = false;
}

static void finish(struct prefill_side *side, uint32_t slot)
{
    struct sequence *s = at(side, slot);
    forget_key(side, s);
    forget_request(side->instance, slot);
    instance_free_slot(side->instance, slot);
}

static void release(struct prefill_side *side, uint32_t slot)
{
    CHECK(side->instance->running > 0);
    side->instance->running--;
    instance_release_pages(side->instance, slot);
    finish(side, slot);
}

/* Everything is computed and posted: the pages wait for the completions. */
static void drain(struct prefill_side *side, uint32_t slot)
{
    struct sequence *s = at(side, slot);
    s->state = SEQUENCE_DRAIN;
    if (s->writes_posted > 0)
        return;
    rt_trace(side->instance->rt, TRACE_DRAINED, s->request, s->epoch, 0);
    release(side, slot);
}

static void computed(struct prefill_side *side, uint32_t slot)
{
    struct sequence *s = at(side, slot);
    rt_trace(side->instance->rt, TRACE_PREFILL_FINISHED, s->request, s->epoch, 0);
    instance_publish(side->instance, slot, s->wanted);
    struct report report = report_of(s, MESSAGE_PREFILLED);
    report_to_front(side->instance, &report);
    post_tail(side, slot);
    drain(side, slot);
}

void prefill_side_admitted(struct prefill_side *side, uint32_t slot)
{
    struct sequence *s = at(side, slot);
    rt_trace(side->instance->rt, TRACE_PREFILL_STARTED, s->request, s->epoch, s->local);
    bool all = s->computed == s->wanted;
    if (s->local > 0)
        post(side, slot, all ? s->units_total : s->local / s->plan->unit_tokens, STEP_NONE);
    if (all)
        computed(side, slot);
}

void prefill_side_launched(struct prefill_side *side)
{
    const struct microbatch *microbatch = side->instance->current;
    for (uint32_t i = 0; i < microbatch->chunk_count; i++) {
        const struct chunk *chunk = &microbatch->chunks[i];
        struct sequence *s = at(side, chunk->slot);
        uint32_t end = chunk->start + chunk->tokens;
        bool last = end == s->wanted;
        rt_trace(side->instance->rt, TRACE_CHUNK, s->request, chunk->start, chunk->tokens);
        post(side, chunk->slot, last ? s->units_total : end / s->plan->unit_tokens, microbatch->ticket);
    }
}

/* A cancelled sequence's writes and step: whichever ends last frees it. The decoder is answered as soon as nothing is
 * posted, for the step only touches this side's pages. */
static void settle(struct prefill_side *side, uint32_t slot)
{
    struct sequence *s = at(side, slot);
    CHECK(s->state == SEQUENCE_CANCELLED);
    if (s->writes_posted > 0)
        return;
    if (s->answer_due) {
        s->answer_due = false;
        if (s->reason == NACK_NONE) {
            rt_trace(side->instance->rt, TRACE_QUIESCED, s->request, s->epoch, 0);
            answer(side, s->peer, MESSAGE_QUIESCED, s->request, s->epoch, NACK_NONE);
        } else {
            answer(side, s->peer, MESSAGE_NACK, s->request, s->epoch, (enum nack_reason)s->reason);
        }
    }
    if (s->in_step == 0)
        release(side, slot);
}

void prefill_side_step_done(struct prefill_side *side)
{
    struct microbatch *microbatch = side->instance->current;
    for (uint32_t i = 0; i < microbatch->chunk_count; i++) {
        uint32_t slot = microbatch->chunks[i].slot;
        struct sequence *s = at(side, slot);
        bool complete = prefill_chunk_done(side->instance, &microbatch->chunks[i]);
        if (s->state == SEQUENCE_CANCELLED && s->in_step == 0) {
            prefill_abandon(side->instance, slot);
            settle(side, slot);
        } else if (s->state != SEQUENCE_CANCELLED && complete) {
            computed(side, slot);
        }
    }
    microbatch->chunk_count = 0;
}

/* ---- Cancels and failures ---------------------------------------------------------------------------------------- */

static void stop_writes(struct prefill_side *side, uint32_t slot)
{
    if (at(side, slot)->writes_posted == 0)
        return;
    for (uint32_t ticket = 0; ticket < side->writes_max; ticket++)
        if (side->write_owner[ticket] == slot + 1)
            rt_write_stop(side->instance->rt, ticket);
}

/* No chunk and no write of the sequence will be started any more. */
static void give_up(struct prefill_side *side, uint32_t slot)
{
    struct sequence *s = at(side, slot);
    CHECK(s->state == SEQUENCE_STREAMING || s->state == SEQUENCE_DRAIN);
    if (s->state == SEQUENCE_STREAMING && s->in_step == 0)
        prefill_abandon(side->instance, slot);
    s->state = SEQUENCE_CANCELLED;
    stop_writes(side, slot);
    settle(side, slot);
}

void prefill_side_cancel(struct prefill_side *side, uint32_t source, const struct message *m)
{
    struct instance *instance = side->instance;
    const struct peer *peer = peers_find(&side->peers, source);
    if (peer == NULL || m->incarnation != peer->incarnation) {
        side->late++;
        return;
    }
    uint32_t slot = index_map_get(&instance->by_key, key_of(source, m->epoch));
    if (slot == INDEX_NONE) { /* never accepted, or done: nothing is posted or will be */
        rt_trace(instance->rt, TRACE_QUIESCED, m->request, m->epoch, 0);
        answer(side, source, MESSAGE_QUIESCED, m->request, m->epoch, NACK_NONE);
        return;
    }
    struct sequence *s = at(side, slot);
    s->answer_due = true;
    s->reason = NACK_NONE;
    if (s->state == SEQUENCE_QUEUED) {
        prefill_dequeue(instance, slot);
        rt_trace(instance->rt, TRACE_QUIESCED, s->request, s->epoch, 0);
        answer(side, source, MESSAGE_QUIESCED, s->request, s->epoch, NACK_NONE);
        finish(side, slot);
    } else if (s->state == SEQUENCE_CANCELLED) {
        settle(side, slot);
    } else {
        give_up(side, slot);
    }
}

void prefill_side_write_done(struct prefill_side *side, uint32_t ticket, enum write_status status)
{
    CHECK(ticket < side->writes_max && side->write_owner[ticket] != 0);
    uint32_t slot = side->write_owner[ticket] - 1;
    struct sequence *s = at(side, slot);
    side->write_owner[ticket] = 0;
    side->unused_writes[side->unused_write_count++] = ticket;
    CHECK(s->writes_posted > 0);
    s->writes_posted--;
    if (s->state == SEQUENCE_CANCELLED) {
        settle(side, slot);
    } else if (status != WRITE_OK) {
        s->reason = NACK_WRITE;
        s->answer_due = true;
        give_up(side, slot);
    } else if (s->state == SEQUENCE_DRAIN) {
        drain(side, slot);
    }
}

/* ---- Peers that come and go -------------------------------------------------------------------------------------- */

static void lose(struct prefill_side *side, struct peer *peer)
{
    struct instance *instance = side->instance;
    uint32_t node = peer->config->node;
    if (peer->lost)
        return;
    peer->lost = true;
    rt_trace(instance->rt, TRACE_PEER_LOST, TRACE_NO_REQUEST, node, 0);
    for (uint32_t slot = 0; slot < instance->config->requests_max; slot++) {
        struct sequence *s = at(side, slot);
        if (s->state == SEQUENCE_FREE || s->peer != node)
            continue;
        s->answer_due = false;
        forget_key(side, s); /* a replacement may use the same epochs */
        if (s->state == SEQUENCE_QUEUED) {
            prefill_dequeue(instance, slot);
            finish(side, slot);
        } else if (s->state != SEQUENCE_CANCELLED) {
            give_up(side, slot);
        }
    }
}

void prefill_side_peer_lost(struct prefill_side *side, uint32_t node, uint32_t incarnation)
{
    struct peer *peer = peers_find(&side->peers, node);
    if (peer == NULL || incarnation < peer->incarnation)
        return; /* a replacement is here already */
    lose(side, peer);
    peer->incarnation = incarnation; /* its HELLO may be on its way still, and means nothing any more */
}

bool prefill_side_hello(struct prefill_side *side, uint32_t source, const struct message *m)
{
    struct peer *peer = peers_find(&side->peers, source);
    if (peer == NULL || m->incarnation <= peer->incarnation)
        return false;
    /* A replacement numbers its epochs afresh. What was started for its predecessor goes. */
    lose(side, peer);
    peer->incarnation = m->incarnation;
    peer->last_epoch = 0;
    peer->lost = false;
    rt_trace(side->instance->rt, TRACE_PEER_JOINED, TRACE_NO_REQUEST, source, m->incarnation);
    return true;
}
