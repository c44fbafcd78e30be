/* See front.h. */
#include "roles/front.h"

#include "base/arith.h"
#include "serve/admission.h"

#define NO_MEMBER UINT32_MAX

void front_make(struct front *front, struct arena *arena, const struct node_config *config, struct runtime *rt)
{
    uint32_t slots = config->requests_max;
    *front = (struct front){.config = config, .rt = rt, .mixed = true};
    for (uint32_t i = 0; i < config->peer_count; i++)
        if (config->peers[i].role == ROLE_DECODE)
            front->mixed = false;
    router_make(&front->decoders, arena, config, front->mixed ? ROLE_MIXED : ROLE_DECODE, config->decode_router);
    router_make(&front->prefillers, arena, config, ROLE_PREFILL, config->prefill_router);
    front->requests = arena_take(arena, slots, sizeof *front->requests);
    front->blocks = arena_take(arena, (size_t)slots * config->request_blocks_max, sizeof *front->blocks);
    front->unused = arena_take(arena, slots, sizeof *front->unused);
    index_map_make(&front->by_id, arena, slots);
    front->buffer = arena_take(arena, MESSAGE_BYTES_MAX, 1);
    if (arena->memory == NULL)
        return;
    front->unused_count = slots;
    for (uint32_t i = 0; i < slots; i++)
        front->unused[i] = slots - 1 - i;
}

static uint64_t *blocks_of(struct front *front, uint32_t slot)
{
    return &front->blocks[(size_t)slot * front->config->request_blocks_max];
}

/* ---- What members are busy with ---------------------------------------------------------------------------------- */

static void forget_queued(struct front *front, struct front_request *r)
{
    if (!r->queued)
        return;
    r->queued = false;
    struct router_member *m =
        front->mixed ? &front->decoders.members[r->decoder] : &front->prefillers.members[r->prefiller];
    CHECK(m->queued_tokens >= r->prompt_tokens);
    m->queued_tokens -= r->prompt_tokens;
}

static void forget_promised(struct front *front, struct front_request *r)
{
    if (!r->promised)
        return;
    r->promised = false;
    front->decoders.members[r->decoder].pages_promised -= r->pages_promised;
}

static void forget_route(struct front *front, struct front_request *r)
{
    forget_queued(front, r);
    forget_promised(front, r);
    if (!front->mixed)
        front->decoders.members[r->decoder].queued_tokens -= r->prompt_tokens;
}

static void count_route(struct front *front, struct front_request *r)
{
    struct router_member *decoder = &front->decoders.members[r->decoder];
    decoder->queued_tokens += r->prompt_tokens;
    if (!front->mixed)
        front->prefillers.members[r->prefiller].queued_tokens += r->prompt_tokens;
    r->queued = true;
    r->pages_promised = kv_pages(&decoder->config->geometry, r->prompt_tokens + r->produced);
    decoder->pages_promised += r->pages_promised;
    r->promised = true;
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

static void end(struct front *front, uint32_t slot)
{
    struct front_request *r = &front->requests[slot];
    index_map_remove(&front->by_id, r->id);
    r->live = false;
    front->unused[front->unused_count++] = slot;
}

static void end_unserved(struct front *front, uint32_t slot, enum trace_kind kind, uint32_t reason)
{
    struct front_request *r = &front->requests[slot];
    if (r->aborted)
        rt_trace(front->rt, TRACE_ABORTED, r->id, FAIL_CLIENT, 0);
    else
        rt_trace(front->rt, (uint16_t)kind, r->id, reason, 0);
    end(front, slot);
}

/* ---- Routing ----------------------------------------------------------------------------------------------------- */

static void send_request(struct front *front, uint32_t slot)
{
    struct front_request *r = &front->requests[slot];
    uint32_t decoder = front->decoders.members[r->decoder].node;
    uint32_t prefiller = front->mixed ? decoder : front->prefillers.members[r->prefiller].node;
    struct message message = {
        .kind = MESSAGE_REQUEST,
        .flags = r->first_token ? FLAG_RESUMED : 0,
        .request = r->id,
        .attempt = r->attempt,
        .peer = prefiller,
        .prompt_tokens = r->prompt_tokens,
        .output_tokens = r->output_tokens,
        .produced = r->produced,
        .priority = r->priority,
        .block_tokens = r->block_tokens,
        .block_count = r->block_count,
        .token_seed = r->token_seed,
        .deadline_ns = r->deadline_ns,
        .peer_incarnation = front->decoders.members[r->decoder].incarnation,
    };
    rt_trace(front->rt, TRACE_ROUTED, r->id, decoder, prefiller);
    size_t length = wire_encode(&message, blocks_of(front, slot), NULL, front->buffer, MESSAGE_BYTES_MAX);
    rt_send(front->rt, decoder, front->buffer, length);
}

/* Decoder first, then prefiller. False when a role has no live member. */
static bool route(struct front *front, uint32_t slot)
{
    struct front_request *r = &front->requests[slot];
    struct request_spec spec = {
        .id = r->id,
        .prompt_tokens = r->prompt_tokens,
        .output_tokens = r->output_tokens,
        .block_count = r->block_count,
        .block_tokens = r->block_tokens,
        .blocks = blocks_of(front, slot),
    };
    r->decoder = router_choose(&front->decoders, &spec);
    r->prefiller = front->mixed || r->decoder == NO_MEMBER ? NO_MEMBER : router_choose(&front->prefillers, &spec);
    if (r->decoder == NO_MEMBER || (!front->mixed && r->prefiller == NO_MEMBER))
        return false;
    if (front->mixed)
        router_remember(&front->decoders, r->decoder, &spec);
    else
        router_remember(&front->prefillers, r->prefiller, &spec);
    count_route(front, r);
    send_request(front, slot);
    return true;
}

static enum reject_reason admit(struct front *front, const struct request_spec *spec)
{
    if (index_map_get(&front->by_id, spec->id) != INDEX_NONE)
        return REJECT_DUPLICATE;
    if (front->unused_count == 0)
        return REJECT_QUEUE_FULL;
    uint64_t queued = router_least_queued(front->mixed ? &front->decoders : &front->prefillers);
    if (queued == UINT64_MAX)
        return REJECT_NO_INSTANCE;
    return admission_check(&front->config->admission, queued, spec->prompt_tokens);
}

void front_arrival(struct front *front, const struct request_spec *spec)
{
    rt_trace(front->rt, TRACE_ARRIVED, spec->id, spec->prompt_tokens, spec->output_tokens);
    enum reject_reason reason = admit(front, spec);
    if (reason != REJECT_NONE) {
        rt_trace(front->rt, TRACE_REJECTED, spec->id, reason, 0);
        return;
    }
    uint32_t slot = front->unused[--front->unused_count];
    struct front_request *r = &front->requests[slot];
    *r = (struct front_request){
        .live = true,
        .id = spec->id,
        .prompt_tokens = spec->prompt_tokens,
        .output_tokens = spec->output_tokens,
        .priority = spec->priority,
        .block_tokens = spec->block_tokens,
        .block_count = min_u32(spec->block_count, front->config->request_blocks_max),
        .deadline_ns = spec->deadline_ns,
        .token_seed = spec->token_seed,
    };
    for (uint32_t b = 0; b < r->block_count; b++)
        blocks_of(front, slot)[b] = spec->blocks[b];
    index_map_put(&front->by_id, r->id, slot);
    if (!route(front, slot))
        end_unserved(front, slot, TRACE_REJECTED, REJECT_NO_INSTANCE);
}

void front_abort(struct front *front, uint32_t id)
{
    uint32_t slot = index_map_get(&front->by_id, id);
    if (slot == INDEX_NONE || front->requests[slot].aborted)
        return; /* it ended before its client left */
    struct front_request *r = &front->requests[slot];
    r->aborted = true;
    const struct router_member *decoder = &front->decoders.members[r->decoder];
    struct message message = {.kind = MESSAGE_ABORT, .request = id, .peer_incarnation = decoder->incarnation};
    size_t length = wire_encode(&message, NULL, NULL, front->buffer, MESSAGE_BYTES_MAX);
    rt_send(front->rt, decoder->node, front->buffer, length);
}

static void failed(struct front *front, uint32_t slot, enum fail_reason reason)
{
    struct front_request *r = &front->requests[slot];
    forget_route(front, r);
    r->attempt++;
    bool again = !r->aborted && r->attempt < front->config->messenger.attempts_max;
    if (again && route(front, slot))
        return;
    end_unserved(front, slot, TRACE_FAILED, reason);
}

/* ---- Members that are lost -------------------------------------------------------------------------------------- */

static void lose(struct front *front, uint32_t node)
{
    uint32_t prefiller = router_member_of(&front->prefillers, node);
    if (prefiller != NO_MEMBER && !front->prefillers.members[prefiller].lost) {
        /* Its decoders see it too, and say which requests failed. */
        front->prefillers.members[prefiller].lost = true;
        rt_trace(front->rt, TRACE_PEER_LOST, TRACE_NO_REQUEST, node, 0);
    }
    uint32_t decoder = router_member_of(&front->decoders, node);
    if (decoder == NO_MEMBER || front->decoders.members[decoder].lost)
        return;
    front->decoders.members[decoder].lost = true;
    rt_trace(front->rt, TRACE_PEER_LOST, TRACE_NO_REQUEST, node, 0);
    for (uint32_t slot = 0; slot < front->config->requests_max; slot++) {
        struct front_request *r = &front->requests[slot];
        if (!r->live || r->decoder != decoder)
            continue;
        r->produced = 0; /* how far it was is not known; the client keeps what it was sent */
        failed(front, slot, FAIL_PEER_LOST);
    }
}

static const struct router_member *member_of(const struct front *front, uint32_t node)
{
    uint32_t member = router_member_of(&front->prefillers, node);
    if (member != NO_MEMBER)
        return &front->prefillers.members[member];
    member = router_member_of(&front->decoders, node);
    return member != NO_MEMBER ? &front->decoders.members[member] : NULL;
}

void front_peer_lost(struct front *front, uint32_t node, uint32_t incarnation)
{
    const struct router_member *member = member_of(front, node);
    if (member != NULL && incarnation >= member->incarnation) /* else a replacement is here already */
        lose(front, node);
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static void note_load(struct front *front, uint32_t source, const struct load_report *load)
{
    uint32_t member = router_member_of(&front->decoders, source);
    if (member != NO_MEMBER)
        front->decoders.members[member].pages_available = load->pages_available;
    member = router_member_of(&front->prefillers, source);
    if (member != NO_MEMBER)
        front->prefillers.members[member].pages_available = load->pages_available;
}

static void hello(struct front *front, uint32_t source, uint32_t incarnation)
{
    uint32_t member = router_member_of(&front->decoders, source);
    struct router *router = member != NO_MEMBER ? &front->decoders : &front->prefillers;
    member = router_member_of(router, source);
    if (member == NO_MEMBER || incarnation <= router->members[member].incarnation)
        return;
    lose(front, source); /* what its predecessor was doing is lost */
    router_rejoin(router, member, incarnation);
    rt_trace(front->rt, TRACE_PEER_JOINED, TRACE_NO_REQUEST, source, incarnation);
}

static void from_decoder(struct front *front, uint32_t slot, const struct message *m)
{
    struct front_request *r = &front->requests[slot];
    switch (m->kind) {
    case MESSAGE_FIRST_TOKEN:
        r->first_token = true;
        forget_queued(front, r);
        forget_promised(front, r);
        break;
    case MESSAGE_FINISHED:
        forget_route(front, r);
        end(front, slot);
        break;
    case MESSAGE_REJECTED:
        if (m->reason == REJECT_DUPLICATE) { /* of a message that came twice: the first is being served */
            front->late++;
            rt_trace(front->rt, TRACE_LATE, r->id, 0, m->kind);
            break;
        }
        forget_route(front, r);
        end_unserved(front, slot, TRACE_REJECTED, m->reason);
        break;
    case MESSAGE_ABORTED:
        forget_route(front, r);
        end_unserved(front, slot, TRACE_ABORTED, m->reason);
        break;
    case MESSAGE_FAILED:
        r->produced = m->produced;
        failed(front, slot, (enum fail_reason)m->reason);
        break;
    default:
        front->late++;
        break;
    }
}

void front_message(struct front *front, uint32_t source, const struct message *m)
{
    if (m->kind == MESSAGE_HELLO) {
        hello(front, source, m->incarnation);
        return;
    }
    note_load(front, source, &m->load);
    uint32_t slot = index_map_get(&front->by_id, m->request);
    if (slot == INDEX_NONE) {
        front->late += m->kind != MESSAGE_PREFILLED;
        return;
    }
    struct front_request *r = &front->requests[slot];
    if (m->kind == MESSAGE_PREFILLED) {
        uint32_t member = front->mixed ? r->decoder : r->prefiller;
        const struct router *router = front->mixed ? &front->decoders : &front->prefillers;
        if (router->members[member].node == source)
            forget_queued(front, r);
    } else if (front->decoders.members[r->decoder].node == source) {
        from_decoder(front, slot, m);
    } else {
        front->late++; /* a decoder that was given up still talks */
        rt_trace(front->rt, TRACE_LATE, m->request, m->epoch, m->kind);
    }
}
