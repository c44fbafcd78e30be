/* See front.h. */
#include "roles/front.h"

#include "base/arith.h"
#include "serve/admission.h"
#include "serve/page_pool.h"
#include "serve/sequence.h"

#define NO_MEMBER UINT32_MAX

void front_make(struct front *front, struct arena *arena, const struct node_config *config, struct runtime *rt)
{
    uint32_t slots = config->requests_max;
    *front = (struct front){.config = config, .rt = rt};
    router_make(&front->routers[ROLE_DECODE], arena, config, ROLE_DECODE, config->decode_router);
    /* Where a mixed instance's prompts wait decides its first tokens, as on a prefiller. */
    router_make(&front->routers[ROLE_MIXED], arena, config, ROLE_MIXED, config->prefill_router);
    router_make(&front->routers[ROLE_PREFILL], arena, config, ROLE_PREFILL, config->prefill_router);
    front->routers[ROLE_DECODE].decides = POLICY_DECODE;
    for (uint32_t role = ROLE_PREFILL; role <= ROLE_MIXED; role++)
        front->routers[role].rt = rt;
    front->requests = arena_take(arena, slots, sizeof *front->requests);
    front->blocks = arena_take(arena, (size_t)slots * config->request_blocks_max, sizeof *front->blocks);
    front->unused = arena_take(arena, slots, sizeof *front->unused);
    index_map_make(&front->by_id, arena, slots);
    front->buffer = arena_take(arena, MESSAGE_BYTES_MAX, 1);
    if (router_remembers(config, ROLE_PREFILL, config->prefill_router) ||
        router_remembers(config, ROLE_DECODE, config->decode_router))
        front->evicted = arena_take(arena, EVICTIONS_MAX, sizeof *front->evicted);
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

/* Who has the request, and who computes its prompt. */
static struct router_member *decoder_of(struct front *front, const struct front_request *r)
{
    return &front->routers[r->role].members[r->decoder];
}

static struct router_member *prefiller_of(struct front *front, const struct front_request *r)
{
    return r->prefiller == NO_MEMBER ? decoder_of(front, r) : &front->routers[ROLE_PREFILL].members[r->prefiller];
}

/* The router that the node is a member of, or NULL. */
static struct router *router_of(struct front *front, uint32_t node, uint32_t *member)
{
    for (uint32_t role = ROLE_PREFILL; role <= ROLE_MIXED; role++) {
        *member = router_member_of(&front->routers[role], node);
        if (*member != NO_MEMBER)
            return &front->routers[role];
    }
    return NULL;
}

/* ---- What members are busy with ---------------------------------------------------------------------------------- */

static void forget_queued(struct front *front, struct front_request *r, bool computed)
{
    if (!r->queued)
        return;
    r->queued = false;
    struct router_member *m = prefiller_of(front, r);
    m->queued_requests--;
    m->computed_tokens += computed ? r->uncached : 0;
    if (m->queued_requests == 0)
        m->busy_ns += front->rt->now_ns - m->busy_since_ns;
    m->tokens_to_compute -= r->uncached;
    if (m->config->role == ROLE_DECODE)
        return; /* counts what it serves, to the end */
    CHECK(m->queued_tokens >= r->prompt_tokens);
    m->queued_tokens -= r->prompt_tokens;
}

/* The decoder has been sent a request of which its reports will say nothing for a while. */
static void promise_pages(struct front *front, struct router_member *decoder, uint32_t slot)
{
    struct front_request *r = &front->requests[slot];
    r->number = ++decoder->number;
    r->pages_promised = kv_pages(&decoder->config->geometry, r->prompt_tokens + r->produced);
    r->unseen_next = SLOT_NONE;
    decoder->pages_promised += r->pages_promised;
    if (decoder->unseen_last == SLOT_NONE)
        decoder->unseen_first = slot;
    else
        front->requests[decoder->unseen_last].unseen_next = slot;
    decoder->unseen_last = slot;
}

/* The decoder has got its requests up to `number`: from there on its reports count their pages. */
static void seen(struct front *front, struct router_member *decoder, uint32_t number)
{
    while (decoder->unseen_first != SLOT_NONE) {
        const struct front_request *r = &front->requests[decoder->unseen_first];
        if (!number_reached(number, r->number))
            return;
        decoder->pages_promised -= r->pages_promised;
        decoder->unseen_first = r->unseen_next;
    }
    decoder->unseen_last = SLOT_NONE;
}

static void forget_route(struct front *front, struct front_request *r)
{
    forget_queued(front, r, false);
    if (r->role == ROLE_DECODE)
        decoder_of(front, r)->queued_tokens -= r->prompt_tokens;
}

static void count_route(struct front *front, uint32_t slot)
{
    struct front_request *r = &front->requests[slot];
    struct router_member *decoder = decoder_of(front, r);
    struct router_member *prefiller = prefiller_of(front, r);
    decoder->queued_tokens += r->prompt_tokens;
    if (prefiller != decoder)
        prefiller->queued_tokens += r->prompt_tokens;
    if (prefiller->queued_requests++ == 0)
        prefiller->busy_since_ns = front->rt->now_ns;
    prefiller->tokens_to_compute += r->uncached;
    r->queued = true;
    promise_pages(front, decoder, slot);
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
    uint32_t decoder = front_decoder(front, r);
    uint32_t prefiller = front_prefiller(front, r);
    struct message message = {
        .kind = MESSAGE_REQUEST,
        .flags = r->first_token ? FLAG_RESUMED : 0,
        .request = r->id,
        .attempt = r->attempt,
        .peer = prefiller,
        .prompt_tokens = r->prompt_tokens,
        .output_tokens = r->output_tokens,
        .produced = r->produced,
        .block_tokens = r->block_tokens,
        .block_count = r->block_count,
        .token_seed = r->token_seed,
        .number = r->number,
        .deadline_ns = r->deadline_ns,
        .peer_incarnation = decoder_of(front, r)->incarnation,
    };
    rt_trace(front->rt, TRACE_ROUTED, r->id, decoder, prefiller);
    size_t length = wire_encode(&message, blocks_of(front, slot), NULL, front->buffer, MESSAGE_BYTES_MAX);
    rt_send(front->rt, decoder, front->buffer, length);
}

/* The prefiller, where the decoder is not to compute the prompt itself: another one than `avoid`, where there is. */
static uint32_t choose_prefiller(struct front *front, const struct request_spec *spec, uint32_t tokens, uint32_t avoid)
{
    if (tokens <= front->config->conditional.max_local_prefill_length)
        return NO_MEMBER; /* however little of it is cached there */
    return router_choose(&front->routers[ROLE_PREFILL], spec, avoid);
}

/* Decoder first, then prefiller. With node affinity the prefiller first, for the decoder is to be where it is: every
 * prefiller has its share then, wherever decoders stand. No prefiller is kept where the decoder is to compute the
 * prompt: it is short, or the prefiller's queue is long, or none lives. A longer prompt of which enough is cached the
 * decoder keeps, and says so. False when a role has no live member. */
static bool choose_pair(struct front *front, struct front_request *r, const struct request_spec *spec, uint32_t avoid)
{
    const struct conditional_policy *policy = &front->config->conditional;
    const struct router *prefillers = &front->routers[ROLE_PREFILL];
    struct router *decoders = &front->routers[ROLE_DECODE];
    uint32_t tokens = r->prompt_tokens + r->produced;
    bool near = front->config->node_affinity;
    r->role = ROLE_DECODE;
    r->prefiller = near ? choose_prefiller(front, spec, tokens, avoid) : NO_MEMBER;
    if (r->prefiller != NO_MEMBER)
        r->decoder = router_choose_near(decoders, spec, prefillers->members[r->prefiller].config->nvlink_domain);
    else
        r->decoder = router_choose(decoders, spec, NO_MEMBER);
    if (!near && r->decoder != NO_MEMBER)
        r->prefiller = choose_prefiller(front, spec, tokens, avoid);
    if (r->decoder == NO_MEMBER || (r->prefiller == NO_MEMBER && !conditional_is_on(policy)))
        return false;
    if (r->prefiller != NO_MEMBER && policy->max_prefill_queue_size > 0 &&
        prefillers->members[r->prefiller].queued_requests >= policy->max_prefill_queue_size)
        r->prefiller = NO_MEMBER;
    return true;
}

static bool choose_mixed(struct front *front, struct front_request *r, const struct request_spec *spec)
{
    r->role = ROLE_MIXED;
    r->prefiller = NO_MEMBER;
    r->decoder = router_choose(&front->routers[ROLE_MIXED], spec, NO_MEMBER);
    return r->decoder != NO_MEMBER;
}

/* Whether those who were chosen have too much to do: prompts that wait and this one are more than may be pending where
 * it would be computed, or its pages are more than there are where it would be decoded (splitwise-sim's
 * MixedPoolScheduler: is_queue_long, is_memory_loaded). */
static bool overloaded(struct front *front, const struct front_request *r)
{
    const struct router_member *decoder = decoder_of(front, r);
    const struct router_member *prefiller = prefiller_of(front, r);
    if (prefiller->config->role != ROLE_DECODE && prefiller->queued_requests > 0 &&
        prefiller->queued_tokens + r->prompt_tokens > front->config->pending_tokens_max)
        return true;
    uint64_t pages = kv_pages(&decoder->config->geometry, r->prompt_tokens + r->output_tokens - 1);
    return decoder->pages_wanted + decoder->pages_promised + pages > decoder->pages_available;
}

static bool waits_less(struct front *front, const struct front_request *a, const struct front_request *b)
{
    return prefiller_of(front, a)->queued_tokens <= prefiller_of(front, b)->queued_tokens;
}

/* Where there are both, a pair of prefiller and decoder that is not overloaded, else a mixed instance that is not, else
 * where fewer prompt tokens wait. */
static bool choose(struct front *front, struct front_request *r, const struct request_spec *spec, uint32_t avoid)
{
    if (front->routers[ROLE_DECODE].count == 0)
        return choose_mixed(front, r, spec);
    bool pair = choose_pair(front, r, spec, avoid);
    if (front->routers[ROLE_MIXED].count == 0 || (pair && !overloaded(front, r)))
        return pair;
    struct front_request of_pair = *r;
    bool mixed = choose_mixed(front, r, spec);
    if (pair && (!mixed || (overloaded(front, r) && waits_less(front, &of_pair, r))))
        *r = of_pair;
    return pair || mixed;
}

static bool route(struct front *front, uint32_t slot, uint32_t avoid)
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
    if (!choose(front, r, &spec, avoid))
        return false;
    bool kept = r->prefiller == NO_MEMBER;
    r->uncached =
        router_uncached(&front->routers[kept ? r->role : ROLE_PREFILL], kept ? r->decoder : r->prefiller, &spec);
    if (!kept)
        router_remember(&front->routers[ROLE_PREFILL], r->prefiller, &spec);
    if (kept || conditional_is_on(&front->config->conditional) || front->config->decode_router == ROUTER_FUNCTION)
        router_remember(&front->routers[r->role], r->decoder, &spec);
    count_route(front, slot);
    send_request(front, slot);
    return true;
}

static enum reject_reason admit(struct front *front, const struct request_spec *spec)
{
    if (index_map_get(&front->by_id, spec->id) != INDEX_NONE)
        return REJECT_DUPLICATE;
    if (front->unused_count == 0)
        return REJECT_QUEUE_FULL;
    const struct router *prefillers = &front->routers[ROLE_PREFILL];
    const struct router *mixed = &front->routers[ROLE_MIXED];
    const struct router *decoders = &front->routers[ROLE_DECODE];
    const struct admission_policy *policy = &front->config->admission;
    struct admission_outlook outlook = {
        .queued_tokens = min_u64(router_least_to_compute(prefillers, NULL), router_least_to_compute(mixed, NULL)),
    };
    if (policy->ttft_limit_ns > 0)
        outlook.tokens_to_first =
            min_u64(router_least_to_compute(prefillers, spec), router_least_to_compute(mixed, spec));
    if (policy->ttft_limit_ns > 0 && policy->prefill_tokens_per_s == 0)
        outlook.prefill_tokens_per_s =
            router_prefill_rate(prefillers->count > 0 ? prefillers : mixed, front->rt->now_ns);
    if (policy->decode_load_max_permille > 0)
        outlook.decode_load_permille = min_u64(router_least_load(decoders, spec), router_least_load(mixed, spec));
    bool alone = conditional_is_on(&front->config->conditional);
    if (outlook.queued_tokens == UINT64_MAX && alone && router_least_to_compute(decoders, NULL) != UINT64_MAX)
        outlook.queued_tokens = outlook.tokens_to_first = 0; /* decoders compute their prompts */
    if (outlook.queued_tokens == UINT64_MAX)
        return REJECT_NO_INSTANCE;
    struct policy *said = front->rt->policy;
    struct router *computing = &front->routers[prefillers->count > 0 ? ROLE_PREFILL
                                               : mixed->count > 0    ? ROLE_MIXED
                                                                     : ROLE_DECODE];
    if (said != NULL && said->decides[POLICY_ADMISSION] && !router_admits(computing, said, spec))
        return REJECT_ADMISSION;
    return admission_check(&front->config->admission, &outlook);
}

/* Whether somebody could have been chosen, and the scenario's own policy chose nobody. */
static bool refused(const struct front *front)
{
    bool any = false;
    for (uint32_t role = ROLE_PREFILL; role <= ROLE_MIXED; role++)
        any = any || front->routers[role].refused;
    return any;
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
        .block_tokens = spec->block_tokens,
        .block_count = min_u32(spec->block_count, front->config->request_blocks_max),
        .deadline_ns = spec->deadline_ns,
        .token_seed = spec->token_seed,
    };
    for (uint32_t b = 0; b < r->block_count; b++)
        blocks_of(front, slot)[b] = spec->blocks[b];
    index_map_put(&front->by_id, r->id, slot);
    if (!route(front, slot, NO_MEMBER))
        end_unserved(front, slot, TRACE_REJECTED, refused(front) ? REJECT_ADMISSION : REJECT_NO_INSTANCE);
}

void front_abort(struct front *front, uint32_t id)
{
    uint32_t slot = index_map_get(&front->by_id, id);
    if (slot == INDEX_NONE || front->requests[slot].aborted)
        return; /* it ended before its client left */
    struct front_request *r = &front->requests[slot];
    r->aborted = true;
    const struct router_member *decoder = decoder_of(front, r);
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
    /* A decoder may know that a prefiller is lost before the front does: a request that failed by it goes to another,
     * or all its attempts would be over by the time the front hears. */
    bool by_prefiller = reason == FAIL_PEER_LOST && r->prefiller != NO_MEMBER && !decoder_of(front, r)->lost;
    if (again && route(front, slot, by_prefiller ? r->prefiller : NO_MEMBER))
        return;
    end_unserved(front, slot, TRACE_FAILED, reason);
}

/* ---- Members that are lost -------------------------------------------------------------------------------------- */

static void lose(struct front *front, uint32_t node)
{
    uint32_t index;
    struct router *router = router_of(front, node, &index);
    if (router == NULL || router->members[index].lost)
        return;
    struct router_member *member = &router->members[index];
    member->lost = true;
    rt_trace(front->rt, TRACE_PEER_LOST, TRACE_NO_REQUEST, node, 0);
    if (member->config->role == ROLE_PREFILL)
        return;                          /* its decoders see it too, and say which requests failed */
    seen(front, member, member->number); /* nothing is promised */
    for (uint32_t slot = 0; slot < front->config->requests_max; slot++) {
        struct front_request *r = &front->requests[slot];
        if (!r->live || decoder_of(front, r) != member)
            continue;
        r->produced = 0; /* how far it was is not known; the client keeps what it was sent */
        failed(front, slot, FAIL_PEER_LOST);
    }
}

static struct router_member *member_of(struct front *front, uint32_t node)
{
    uint32_t index;
    struct router *router = router_of(front, node, &index);
    return router == NULL ? NULL : &router->members[index];
}

void front_peer_lost(struct front *front, uint32_t node, uint32_t incarnation)
{
    struct router_member *member = member_of(front, node);
    if (member == NULL || incarnation < member->incarnation)
        return; /* a replacement is here already */
    lose(front, node);
    member->incarnation = incarnation; /* its HELLO may be on its way still, and means nothing any more */
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static void late(struct front *front, const struct message *m)
{
    front->late++;
    rt_trace(front->rt, TRACE_LATE, m->request, m->attempt, m->kind);
}

static void hello(struct front *front, uint32_t source, uint32_t incarnation)
{
    uint32_t member;
    struct router *router = router_of(front, source, &member);
    if (router == NULL || incarnation <= router->members[member].incarnation)
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
        forget_queued(front, r, true);
        break;
    case MESSAGE_FINISHED:
        forget_route(front, r);
        end(front, slot);
        break;
    case MESSAGE_REJECTED:
        if (m->reason == REJECT_DUPLICATE) { /* of a message that came twice: the first is being served */
            late(front, m);
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
        late(front, m);
        break;
    }
}

static void forget_evicted(struct front *front, uint32_t source, const struct message *m)
{
    if (m->block_count == 0)
        return;
    uint32_t member;
    struct router *router = router_of(front, source, &member);
    if (router == NULL || front->evicted == NULL)
        return;
    wire_blocks(m, front->evicted);
    router_forget(router, member, front->evicted, m->block_count);
}

void front_message(struct front *front, uint32_t source, const struct message *m)
{
    if (m->kind == MESSAGE_HELLO) {
        hello(front, source, m->incarnation);
        return;
    }
    struct router_member *member = member_of(front, source);
    if (member == NULL || m->incarnation != member->incarnation) {
        late(front, m); /* from before it was replaced */
        return;
    }
    member->pages_available = m->load.pages_available;
    member->pages_wanted = m->load.pages_wanted;
    forget_evicted(front, source, m);
    seen(front, member, m->number);
    uint32_t slot = index_map_get(&front->by_id, m->request);
    struct front_request *r = slot == INDEX_NONE ? NULL : &front->requests[slot];
    if (r == NULL && m->kind == MESSAGE_PREFILLED)
        return; /* it may well finish before the prefiller has said so */
    if (r == NULL || m->attempt != r->attempt) {
        late(front, m);
        return;
    }
    struct router_member *decoder = decoder_of(front, r);
    if (m->kind == MESSAGE_PREFILLED) {
        if (member == prefiller_of(front, r) || member == decoder)
            forget_queued(front, r, member == prefiller_of(front, r));
    } else if (member == decoder) {
        seen(front, decoder, r->number); /* what it speaks of it has got */
        from_decoder(front, slot, m);
    } else {
        late(front, m); /* a decoder that was given up still talks */
    }
}
