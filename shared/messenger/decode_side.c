/* See decode_side.h. */
#include "messenger/decode_side.h"

#include "base/arith.h"
#include "messenger/report.h"
#include "messenger/request.h"
#include "serve/decode_batch.h"
#include "serve/prefill_batch.h"

static struct sequence *at(struct decode_side *side, uint32_t slot)
{
    return &side->instance->sequences[slot];
}

void decode_side_make(struct decode_side *side, struct arena *arena, struct instance *instance)
{
    const struct node_config *config = instance->config;
    uint32_t handoffs = config->messenger.handoffs_max;
    CHECK(handoffs >= 1 && handoffs <= UINT32_C(1) << IMMEDIATE_SLOT_BITS);
    *side = (struct decode_side){.instance = instance, .next_epoch = 1};
    peers_make(&side->peers, arena, config, ROLE_PREFILL);
    sequence_list_make(&side->waiting);
    sequence_list_make(&side->transfers);
    side->handoffs = arena_take(arena, handoffs, sizeof *side->handoffs);
    side->unused_handoffs = arena_take(arena, handoffs, sizeof *side->unused_handoffs);
    side->buffer = arena_take(arena, MESSAGE_BYTES_MAX, 1);
    if (node_prefills(config))
        side->blocks = arena_take(arena, config->request_blocks_max, sizeof *side->blocks);
    if (arena->memory == NULL)
        return;
    side->unused_handoff_count = handoffs;
    for (uint32_t i = 0; i < handoffs; i++)
        side->unused_handoffs[i] = handoffs - 1 - i;
}

/* ---- Hand-off slots and immediates ------------------------------------------------------------------------------ */

static uint32_t immediate_of(uint32_t slot, uint32_t generation)
{
    return (generation & ((UINT32_C(1) << IMMEDIATE_GENERATION_BITS) - 1)) << IMMEDIATE_SLOT_BITS | slot;
}

static void take_handoff(struct decode_side *side, uint32_t slot)
{
    struct sequence *s = at(side, slot);
    CHECK(side->unused_handoff_count > 0 && s->handoff == SLOT_NONE);
    s->handoff = side->unused_handoffs[--side->unused_handoff_count];
    struct handoff *handoff = &side->handoffs[s->handoff];
    handoff->owner = slot;
    handoff->generation++;
    s->immediate = immediate_of(s->handoff, handoff->generation);
}

static void give_handoff(struct decode_side *side, uint32_t slot)
{
    struct sequence *s = at(side, slot);
    if (s->handoff == SLOT_NONE)
        return;
    side->handoffs[s->handoff].owner = SLOT_NONE;
    side->unused_handoffs[side->unused_handoff_count++] = s->handoff;
    s->handoff = SLOT_NONE;
}

void decode_side_tail_read(struct decode_side *side, uint32_t slot)
{
    give_handoff(side, slot);
}

/* ---- Ends ------------------------------------------------------------------------------------------------------- */

void decode_side_end(struct decode_side *side, uint32_t slot)
{
    give_handoff(side, slot);
    instance_end(side->instance, slot);
}

/* Tells the front how the request ended here and frees it. Whatever it held must be safe to use again. */
static void end_without_answer(struct decode_side *side, uint32_t slot, enum fail_reason reason)
{
    struct report report = report_of(at(side, slot), reason == FAIL_CLIENT ? MESSAGE_ABORTED : MESSAGE_FAILED);
    report.reason = reason;
    decode_side_end(side, slot); /* first, so that the report's load is without it */
    report_to_front(side->instance, &report);
}

/* An armed transfer is over and nobody will write for it any more. */
static void disarm(struct decode_side *side, uint32_t slot)
{
    struct sequence *s = at(side, slot);
    rt_immediate_expect(side->instance->rt, s->immediate, 0);
    rt_trace(side->instance->rt, TRACE_RELEASED, s->request, s->epoch, 0);
    CHECK(side->instance->transfers > 0);
    side->instance->transfers--;
}

/* ---- From the request to the dispatch --------------------------------------------------------------------------- */

static enum reject_reason check_request(struct decode_side *side, const struct message *m, const struct peer *peer)
{
    const struct node_config *config = side->instance->config;
    enum reject_reason reason = request_check(side->instance, m);
    if (reason != REJECT_NONE)
        return reason;
    if (peer == NULL)
        return REJECT_NO_INSTANCE;
    if (peer->refusal != GEOMETRY_OK)
        return REJECT_GEOMETRY;
    if (kv_pages(&peer->config->geometry, m->prompt_tokens + m->output_tokens - 1) > peer->config->pages_per_group)
        return REJECT_TOO_LARGE_PREFILL;
    uint64_t units = ceil_div_u32(m->prompt_tokens + m->output_tokens, peer->unit_tokens);
    if (mul_u64(units, peer->writes_per_unit) + config->tail_writes > UINT32_MAX)
        return REJECT_COUNT_OVERFLOW;
    return REJECT_NONE;
}

bool decode_side_prefills(struct decode_side *side, const struct message *m)
{
    struct instance *instance = side->instance;
    uint32_t most = instance->config->conditional.max_local_prefill_length;
    uint32_t tokens = m->prompt_tokens + m->produced;
    if (m->peer == instance->config->node)
        return true;
    if (most == 0 || m->block_count > instance->config->request_blocks_max)
        return false;
    wire_blocks(m, side->blocks);
    return tokens <= most ||
           tokens - prefill_cached(instance, side->blocks, m->block_count, m->block_tokens, tokens) <= most;
}

void decode_side_request(struct decode_side *side, const struct message *m)
{
    struct instance *instance = side->instance;
    uint32_t slot = request_take(instance, m, check_request(side, m, peers_find(&side->peers, m->peer)));
    if (slot == SLOT_NONE)
        return;
    struct sequence *s = at(side, slot);
    s->state = SEQUENCE_ALLOC;
    s->wanted = m->prompt_tokens + m->produced - 1;
    sequence_list_append(&side->waiting, instance->sequences, slot);
    instance_wait(instance, slot, decode_reserve_tokens(instance, s, s->wanted));
    decode_side_admit(side);
}

static void send_prefill(struct decode_side *side, uint32_t slot)
{
    struct instance *instance = side->instance;
    struct sequence *s = at(side, slot);
    uint32_t page_tokens = instance->config->geometry.page_tokens;
    uint32_t first_page = s->local / page_tokens;
    struct message message = {
        .kind = MESSAGE_PREFILL,
        .group = s->group,
        .request = s->request,
        .epoch = s->epoch,
        .attempt = s->attempt,
        .prompt_tokens = s->wanted,
        .produced = s->produced,
        .immediate = s->immediate,
        .tail_slot = s->handoff,
        .first_token = s->local,
        .block_tokens = s->block_tokens,
        .block_count = s->block_count,
        .page_count = kv_pages(&instance->config->geometry, s->wanted) - first_page,
        .token_seed = s->token_seed,
        .geometry_hash = side->peers.own_geometry_hash,
        .deadline_ns = s->deadline_ns,
        .incarnation = instance->incarnation,
        .peer_incarnation = s->peer_incarnation,
    };
    size_t length = wire_encode(&message, instance_blocks(instance, slot), instance_pages(instance, slot) + first_page,
                                side->buffer, MESSAGE_BYTES_MAX);
    rt_send(instance->rt, s->peer, side->buffer, length);
}

static void become_ready(struct decode_side *side, uint32_t slot)
{
    struct sequence *s = at(side, slot);
    s->state = SEQUENCE_READY;
    rt_trace(side->instance->rt, TRACE_READY, s->request, s->epoch, 0);
    sequence_list_append(&side->instance->groups[s->group].ready, side->instance->sequences, slot);
}

static void watch_deadline(struct decode_side *side)
{
    if (side->timer_armed || side->transfers.count == 0)
        return;
    int64_t deadline_ns = at(side, side->transfers.head)->transfer_deadline_ns;
    if (deadline_ns == TIME_NEVER)
        return;
    side->timer_armed = true;
    rt_timer_set(side->instance->rt, TIMER_TRANSFER_DEADLINE, deadline_ns);
}

static void dispatch(struct decode_side *side, uint32_t slot, const struct peer *peer)
{
    struct instance *instance = side->instance;
    struct sequence *s = at(side, slot);
    uint32_t first = s->local / peer->unit_tokens;
    uint32_t units = ceil_div_u32(s->wanted, peer->unit_tokens);
    uint32_t behind = transfer_units_behind(instance->config->geometry.window, peer->unit_tokens, s->wanted);
    behind = max_u32(behind, first);
    uint64_t expected = mul_u64(behind - first, peer->writes_behind) + mul_u64(units - behind, peer->writes_per_unit) +
                        instance->config->tail_writes;
    take_handoff(side, slot);
    CHECK(side->next_epoch < UINT32_MAX);
    s->epoch = side->next_epoch++;
    s->peer_incarnation = peer->incarnation;
    s->state = SEQUENCE_DISPATCHED;
    /* Arming comes before dispatch: no write may find its counter missing. */
    rt_immediate_expect(instance->rt, s->immediate, expected);
    rt_trace(instance->rt, TRACE_ARMED, s->request, s->immediate, expected);
    send_prefill(side, slot);
    rt_trace(instance->rt, TRACE_DISPATCHED, s->request, s->peer, expected);
    s->transfer_deadline_ns = time_add(instance->rt->now_ns, instance->config->messenger.deadline_ns);
    sequence_list_append(&side->transfers, instance->sequences, slot);
    instance->transfers++;
    watch_deadline(side);
}

static void wait_for_room(struct decode_side *side, struct sequence *s, uint64_t pages, uint64_t available)
{
    if (s->wait_traced)
        return;
    s->wait_traced = true;
    rt_trace(side->instance->rt, TRACE_ADMIT_WAIT, s->request, pages, available);
}

/* Gives the first waiting request all it needs, or false. */
static bool admit_first(struct decode_side *side)
{
    struct instance *instance = side->instance;
    uint32_t slot = side->waiting.head;
    struct sequence *s = at(side, slot);
    const struct peer *peer = peers_find(&side->peers, s->peer);
    bool lost = peer->lost;
    if (!lost) {
        s->group = (uint16_t)instance_roomiest_group(instance);
        uint32_t tokens = decode_reserve_tokens(instance, s, s->wanted);
        if (side->unused_handoff_count == 0) {
            wait_for_room(side, s, 0, page_pool_available(&instance->groups[s->group].pool));
            return false;
        }
        if (instance->short_age[LINE_PREFILL] < s->age)
            return false;
        if (!instance_take_pages(instance, slot, tokens, s->wanted)) {
            instance->short_age[LINE_TRANSFER] = s->age;
            wait_for_room(side, s, kv_pages(&instance->config->geometry, tokens),
                          page_pool_available(&instance->groups[s->group].pool));
            return false;
        }
    }
    sequence_list_remove(&side->waiting, instance->sequences, slot);
    instance_wait_over(instance, slot);
    if (lost) {
        end_without_answer(side, slot, FAIL_PEER_LOST);
        return true;
    }
    bool tail = instance->config->tail_writes > 0 && s->wanted > 0;
    if (s->wanted > s->local || tail) {
        dispatch(side, slot, peer);
    } else {
        rt_trace(instance->rt, TRACE_DISPATCHED, s->request, s->peer, 0);
        become_ready(side, slot);
    }
    return true;
}

void decode_side_admit(struct decode_side *side)
{
    side->instance->short_age[LINE_TRANSFER] = UINT32_MAX;
    while (side->waiting.count > 0 && admit_first(side)) {
    }
}

/* ---- While the transfer runs ------------------------------------------------------------------------------------- */

/* The sequence that a prefiller's message is about, or NULL when its epoch has ended. */
static struct sequence *addressed(struct decode_side *side, uint32_t source, const struct message *m, uint32_t *slot)
{
    *slot = index_map_get(&side->instance->by_key, m->request);
    if (*slot != INDEX_NONE) {
        struct sequence *s = at(side, *slot);
        bool open = s->state == SEQUENCE_DISPATCHED || s->state == SEQUENCE_FILLING || s->state == SEQUENCE_CANCELLING;
        if (open && s->epoch == m->epoch && s->peer == source && s->peer_incarnation == m->incarnation)
            return s;
    }
    side->late++;
    rt_trace(side->instance->rt, TRACE_LATE, m->request, m->epoch, m->kind);
    return NULL;
}

void decode_side_accepted(struct decode_side *side, uint32_t source, const struct message *m)
{
    uint32_t slot;
    struct sequence *s = addressed(side, source, m, &slot);
    if (s != NULL && s->state == SEQUENCE_DISPATCHED)
        s->state = SEQUENCE_FILLING;
}

/* The sequence that awaits an immediate, or SLOT_NONE. */
static uint32_t awaiting(const struct decode_side *side, uint32_t immediate)
{
    uint32_t handoff = immediate & ((UINT32_C(1) << IMMEDIATE_SLOT_BITS) - 1);
    CHECK(handoff < side->instance->config->messenger.handoffs_max);
    uint32_t slot = side->handoffs[handoff].owner;
    const struct sequence *s = slot == SLOT_NONE ? NULL : &side->instance->sequences[slot];
    bool awaits =
        s != NULL && s->immediate == immediate && (s->state == SEQUENCE_DISPATCHED || s->state == SEQUENCE_FILLING);
    return awaits ? slot : SLOT_NONE;
}

bool decode_side_landing(const struct decode_side *side, uint32_t immediate, struct node_landing *landing)
{
    uint32_t slot = awaiting(side, immediate);
    if (slot == SLOT_NONE)
        return false;
    const struct kv_geometry *geometry = &side->instance->config->geometry;
    const struct sequence *s = &side->instance->sequences[slot];
    uint32_t first_page = s->local / geometry->page_tokens;
    *landing = (struct node_landing){.group = s->group,
                                     .page_count = kv_pages(geometry, s->wanted) - first_page,
                                     .pages = instance_pages(side->instance, slot) + first_page,
                                     .tail_slot = s->handoff};
    return true;
}

void decode_side_immediate(struct decode_side *side, uint32_t immediate)
{
    /* A cancel decides alone: bytes that complete meanwhile change nothing. */
    uint32_t slot = awaiting(side, immediate);
    if (slot == SLOT_NONE) {
        side->late++;
        return;
    }
    sequence_list_remove(&side->transfers, side->instance->sequences, slot);
    side->instance->transfers--;
    become_ready(side, slot);
    if (side->instance->config->tail_writes == 0) {
        give_handoff(side, slot);
        decode_side_admit(side);
    }
}

static enum reject_reason reject_reason_of(enum nack_reason reason)
{
    switch (reason) {
    case NACK_GEOMETRY:
        return REJECT_GEOMETRY;
    case NACK_TOO_LARGE:
        return REJECT_TOO_LARGE_PREFILL;
    default:
        return REJECT_NONE;
    }
}

void decode_side_nack(struct decode_side *side, uint32_t source, const struct message *m)
{
    uint32_t slot;
    struct sequence *s = addressed(side, source, m, &slot);
    /* In CANCELLING the QUIESCED that answers the cancel decides. */
    if (s == NULL || s->state == SEQUENCE_CANCELLING)
        return;
    rt_trace(side->instance->rt, TRACE_NACKED, s->request, s->epoch, m->reason);
    sequence_list_remove(&side->transfers, side->instance->sequences, slot);
    disarm(side, slot);
    enum reject_reason refused = reject_reason_of((enum nack_reason)m->reason);
    if (refused != REJECT_NONE) {
        request_reject(side->instance, s->request, s->attempt, refused);
        decode_side_end(side, slot);
    } else {
        end_without_answer(side, slot, m->reason == NACK_WRITE ? FAIL_WRITE : FAIL_REFUSED);
    }
    decode_side_admit(side);
}

static void cancel(struct decode_side *side, uint32_t slot, enum fail_reason reason)
{
    struct sequence *s = at(side, slot);
    CHECK(s->state == SEQUENCE_DISPATCHED || s->state == SEQUENCE_FILLING);
    sequence_list_remove(&side->transfers, side->instance->sequences, slot);
    s->state = SEQUENCE_CANCELLING;
    s->reason = (uint8_t)reason;
    rt_trace(side->instance->rt, TRACE_CANCELLING, s->request, s->epoch, reason);
    struct message message = {
        .kind = MESSAGE_CANCEL,
        .request = s->request,
        .epoch = s->epoch,
        .incarnation = side->instance->incarnation,
        .peer_incarnation = s->peer_incarnation,
    };
    size_t length = wire_encode(&message, NULL, NULL, side->buffer, MESSAGE_BYTES_MAX);
    rt_send(side->instance->rt, s->peer, side->buffer, length);
}

void decode_side_quiesced(struct decode_side *side, uint32_t source, const struct message *m)
{
    uint32_t slot;
    struct sequence *s = addressed(side, source, m, &slot);
    if (s == NULL || s->state != SEQUENCE_CANCELLING)
        return;
    disarm(side, slot);
    end_without_answer(side, slot, (enum fail_reason)s->reason);
    decode_side_admit(side);
}

void decode_side_abort(struct decode_side *side, uint32_t request)
{
    struct instance *instance = side->instance;
    uint32_t slot = index_map_get(&instance->by_key, request);
    if (slot == INDEX_NONE)
        return; /* its last message and the abort crossed */
    struct sequence *s = at(side, slot);
    switch (s->state) {
    case SEQUENCE_ALLOC:
        sequence_list_remove(&side->waiting, instance->sequences, slot);
        instance_wait_over(instance, slot);
        end_without_answer(side, slot, FAIL_CLIENT);
        break;
    case SEQUENCE_DISPATCHED:
    case SEQUENCE_FILLING:
        cancel(side, slot, FAIL_CLIENT);
        break;
    case SEQUENCE_CANCELLING:
    case SEQUENCE_QUARANTINE:
        s->reason = FAIL_CLIENT;
        break;
    case SEQUENCE_READY:
        sequence_list_remove(&instance->groups[s->group].ready, instance->sequences, slot);
        end_without_answer(side, slot, FAIL_CLIENT);
        break;
    default:
        CHECK(s->state == SEQUENCE_DECODE);
        if (instance_steps(instance, slot)) {
            instance_abort_after_step(instance, slot); /* how many tokens it has then is not known before */
        } else {
            decode_leave(instance, slot);
            end_without_answer(side, slot, FAIL_CLIENT);
        }
        break;
    }
    decode_side_admit(side);
}

void decode_side_timer(struct decode_side *side)
{
    side->timer_armed = false;
    while (side->transfers.count > 0) {
        uint32_t slot = side->transfers.head;
        struct sequence *s = at(side, slot);
        if (s->transfer_deadline_ns > side->instance->rt->now_ns)
            break;
        rt_trace(side->instance->rt, TRACE_DEADLINE, s->request, s->epoch, 0);
        cancel(side, slot, FAIL_DEADLINE);
    }
    watch_deadline(side);
}

/* ---- Peers that come and go -------------------------------------------------------------------------------------- */

static void suspect(struct decode_side *side, uint32_t slot)
{
    struct sequence *s = at(side, slot);
    if (s->state == SEQUENCE_DISPATCHED || s->state == SEQUENCE_FILLING) {
        sequence_list_remove(&side->transfers, side->instance->sequences, slot);
        s->reason = FAIL_PEER_LOST;
    } else if (s->state != SEQUENCE_CANCELLING) {
        return;
    }
    s->state = SEQUENCE_QUARANTINE;
    side->instance->quarantined++;
    rt_trace(side->instance->rt, TRACE_QUARANTINED, s->request, s->epoch, s->peer);
}

static void fence(struct decode_side *side, uint32_t slot)
{
    struct sequence *s = at(side, slot);
    if (s->state != SEQUENCE_QUARANTINE)
        return;
    side->instance->quarantined--;
    rt_trace(side->instance->rt, TRACE_FENCED, s->request, s->epoch, s->peer);
    disarm(side, slot);
    end_without_answer(side, slot, (enum fail_reason)s->reason);
}

/* The peer's incarnations up to `incarnation` are lost, or may be: their transfers go into quarantine, and out of it
 * when they are fenced. */
static void lose(struct decode_side *side, uint32_t node, uint32_t incarnation, bool fenced)
{
    for (uint32_t slot = 0; slot < side->instance->config->requests_max; slot++) {
        const struct sequence *s = at(side, slot);
        if (s->state == SEQUENCE_FREE || s->peer != node || s->peer_incarnation > incarnation)
            continue;
        suspect(side, slot);
        if (fenced)
            fence(side, slot);
    }
}

void decode_side_peer_lost(struct decode_side *side, uint32_t node, enum peer_status status, uint32_t incarnation)
{
    struct peer *peer = peers_find(&side->peers, node);
    if (peer == NULL)
        return;
    if (incarnation >= peer->incarnation) { /* else a replacement is here already */
        peer->incarnation = incarnation;    /* its HELLO may be on its way still, and means nothing any more */
        if (!peer->lost)
            rt_trace(side->instance->rt, TRACE_PEER_LOST, TRACE_NO_REQUEST, node, 0);
        peer->lost = true;
    }
    lose(side, node, incarnation, status == PEER_FENCED);
    decode_side_admit(side);
}

bool decode_side_hello(struct decode_side *side, uint32_t source, const struct message *m)
{
    struct peer *peer = peers_find(&side->peers, source);
    if (peer == NULL || m->incarnation <= peer->incarnation)
        return false;
    /* A replacement knows nothing of its predecessor's transfers, and that one may still write: the fence is to
     * come. */
    lose(side, source, m->incarnation - 1, false);
    peer->incarnation = m->incarnation;
    peer->lost = false;
    rt_trace(side->instance->rt, TRACE_PEER_JOINED, TRACE_NO_REQUEST, source, m->incarnation);
    return true;
}

/* ---- Preemption -------------------------------------------------------------------------------------------------- */

void decode_side_preempted(struct decode_side *side, uint32_t slot)
{
    struct sequence *s = at(side, slot);
    give_handoff(side, slot);
    instance_release_pages(side->instance, slot);
    s->wanted = s->prompt_tokens + s->produced - 1;
    s->local = 0;
    s->wait_traced = false;
    s->state = SEQUENCE_ALLOC;
    rt_trace(side->instance->rt, TRACE_PREEMPTED, s->request, s->wanted, 0);
    sequence_list_insert_by_age(&side->waiting, side->instance->sequences, slot);
    instance_wait(side->instance, slot, decode_reserve_tokens(side->instance, s, s->wanted));
}
