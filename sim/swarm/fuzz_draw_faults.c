/* The faults of fuzz_draw.h. */
#include "sim/swarm/fuzz_draw_internal.h"

#include "base/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- Whom and when ----------------------------------------------------------------------------------------------- */

static void name_one(struct rng *rng, const struct pool *pool, char *text)
{
    char one[FAULT_NODE_SIZE];
    snprintf(one, sizeof one, "%.32s-%" PRIu32, pool->name, between(rng, 0, pool->count - 1));
    memcpy(text, one, sizeof one);
}

static void draw_instance(struct rng *rng, const struct scenario *scenario, char *text)
{
    name_one(rng, &scenario->pools[rng_below(rng, scenario->pool_count)], text);
}

static bool has_role(const struct scenario *scenario, enum node_role role)
{
    bool has = false;
    for (uint32_t p = 0; p < scenario->pool_count; p++)
        has = has || scenario->pools[p].role == role;
    return has;
}

/* One of the role, which there is. */
static void draw_one_of(struct rng *rng, const struct scenario *scenario, enum node_role role, char *text)
{
    const struct pool *pool;
    do
        pool = &scenario->pools[rng_below(rng, scenario->pool_count)];
    while (pool->role != role);
    name_one(rng, pool, text);
}

/* At a moment, or at an edge of a state. */
static void draw_moment(struct rng *rng, const struct scenario *scenario, struct fault *fault)
{
    static const uint16_t edges[] = {
        TRACE_ARRIVED,  TRACE_RECEIVED,  TRACE_DISPATCHED,     TRACE_PREFILL_STARTED, TRACE_PREFILL_FINISHED,
        TRACE_READY,    TRACE_FINISHED,  TRACE_DECODE_STARTED, TRACE_FIRST_TOKEN,     TRACE_ROUTED,
        TRACE_CHUNK,    TRACE_PREEMPTED, TRACE_ADMIT_WAIT,     TRACE_ARMED,           TRACE_ACCEPTED,
        TRACE_NACKED,   TRACE_WRITE,     TRACE_TAIL,           TRACE_DRAINED,         TRACE_CANCELLING,
        TRACE_QUIESCED, TRACE_RELEASED,  TRACE_QUARANTINED,    TRACE_FENCED,          TRACE_DEADLINE,
        TRACE_FAILED,   TRACE_LATE,      TRACE_PEER_LOST,      TRACE_PEER_JOINED,     TRACE_EVICTED,
    };
    fault->nth = 1;
    if (one_in(rng, 3)) {
        fault->at_ns = scaled(rng, 25 * NS_PER_MS);
        return;
    }
    fault->record = edges[rng_below(rng, LENGTH(edges))];
    fault->nth = (uint32_t)scaled(rng, 12);
    fault->at_ns = one_in(rng, 2) ? 0 : scaled(rng, NS_PER_MS);
    if (one_in(rng, 3))
        draw_instance(rng, scenario, fault->by);
}

/* From the beginning on, and of one message or write. */
static struct fault *add_plain(struct drawn *drawn, enum fault_kind kind)
{
    struct fault *fault = &drawn->faults.item[drawn->faults.count++];
    *fault = (struct fault){
        .kind = kind, .nth = 1, .request = FAULT_REQUEST_ANY, .count = 1, .back_ns = TIME_NEVER, .pieces = 1};
    return fault;
}

static struct fault *add_fault(struct rng *rng, struct drawn *drawn, enum fault_kind kind)
{
    struct fault *fault = add_plain(drawn, kind);
    if (kind < FAULT_LATE || kind == FAULT_LEAVE || one_in(rng, 3))
        draw_moment(rng, &drawn->scenario, fault);
    return fault;
}

/* ---- What -------------------------------------------------------------------------------------------------------- */

static void draw_kills(struct rng *rng, struct drawn *drawn)
{
    const struct scenario *scenario = &drawn->scenario;
    uint32_t kills = between(rng, 1, 3);
    for (uint32_t i = 0; i < kills; i++) {
        struct fault *fault = add_fault(rng, drawn, FAULT_KILL);
        draw_instance(rng, scenario, fault->node);
        fault->lingers = one_in(rng, 2);
        if (!one_in(rng, 3)) /* before it is suspected, before it is fenced, after */
            fault->back_ns = one_in(rng, 2) ? scaled(rng, 10 * NS_PER_MS) : scaled(rng, 6 * NS_PER_S);
    }
    if (!has_role(scenario, ROLE_PREFILL) || !one_in(rng, 3))
        return;
    struct fault *fault = add_fault(rng, drawn, FAULT_CUT);
    draw_one_of(rng, scenario, ROLE_PREFILL, fault->node);
    draw_one_of(rng, scenario, ROLE_DECODE, fault->to);
}

/* A prefiller and a decoder come back one after the other, and all is said twice: clients whose requests ended with the
 * decoder ask again at once, and what they ask for meets the prefiller's HELLO. */
static void draw_returns(struct rng *rng, struct drawn *drawn)
{
    static const enum node_role roles[] = {ROLE_PREFILL, ROLE_DECODE};
    if (!has_role(&drawn->scenario, ROLE_PREFILL))
        return;
    for (uint32_t i = 0; i < LENGTH(roles); i++) {
        struct fault *fault = add_plain(drawn, FAULT_KILL);
        draw_one_of(rng, &drawn->scenario, roles[i], fault->node);
        fault->record = TRACE_ARMED;
        fault->nth = i + between(rng, 1, 2);
        fault->at_ns = scaled(rng, 200 * NS_PER_US);
        fault->back_ns = scaled(rng, 200 * NS_PER_US);
    }
    add_plain(drawn, FAULT_TWICE)->count = 0;
    drawn->scenario.messenger.attempts_max = 1;
    drawn->faults.shuffle = max_u64(1, drawn->faults.shuffle);
}

/* What a prefiller said last arrives when its decoders have missed it, and before it is fenced; what the fabric failed
 * is known late. */
static void draw_last_words(struct rng *rng, struct drawn *drawn)
{
    static const uint16_t words[] = {TRACE_ACCEPTED, TRACE_QUIESCED, TRACE_NACKED, TRACE_WRITE, TRACE_DRAINED};
    const struct scenario *scenario = &drawn->scenario;
    if (!has_role(scenario, ROLE_PREFILL))
        return;
    char name_of_it[FAULT_NODE_SIZE];
    draw_one_of(rng, scenario, ROLE_PREFILL, name_of_it);
    struct fault *late = add_fault(rng, drawn, FAULT_LATE);
    memcpy(late->node, name_of_it, sizeof late->node);
    draw_one_of(rng, scenario, ROLE_DECODE, late->to);
    late->count = 0;
    late->skip = between(rng, 0, 2);
    late->delay_ns = SUSPECTED_NS + (int64_t)rng_below(rng, (uint64_t)(FENCED_NS - SUSPECTED_NS));
    struct fault *death = add_fault(rng, drawn, FAULT_KILL);
    memcpy(death->node, name_of_it, sizeof death->node);
    death->record = words[rng_below(rng, LENGTH(words))];
    death->nth = between(rng, 1, 3);
    death->at_ns = scaled(rng, NS_PER_MS);
    if (one_in(rng, 2))
        memcpy(death->by, name_of_it, sizeof death->by);
    if (!one_in(rng, 2))
        return;
    struct fault *fail = add_fault(rng, drawn, FAULT_FAIL);
    fail->count = 0;
    if (one_in(rng, 2)) { /* the last write lands whole, and its failure is told much later */
        drawn->faults.count--;
        fail = add_fault(rng, drawn, FAULT_STALL);
        fail->count = 0;
        fail->delay_ns = scaled(rng, 5 * NS_PER_MS);
        add_fault(rng, drawn, FAULT_FAIL)->count = 0;
    }
}

/* Some of what passes, now and then all of it. */
static void draw_share(struct rng *rng, struct fault *fault)
{
    fault->skip = (uint32_t)scaled(rng, 32) - 1;
    fault->count = one_in(rng, 6) ? 0 : (uint32_t)scaled(rng, 6);
}

static void draw_messages(struct rng *rng, struct drawn *drawn)
{
    static const enum fault_kind kinds[] = {FAULT_LATE, FAULT_LATE, FAULT_TWICE, FAULT_TWICE, FAULT_DROP};
    uint32_t count = between(rng, 1, 4);
    for (uint32_t i = 0; i < count; i++) {
        enum fault_kind kind = kinds[rng_below(rng, LENGTH(kinds))];
        if (kind == FAULT_DROP && drawn->scenario.messenger.deadline_ns == TIME_NEVER)
            continue; /* nothing makes it good */
        struct fault *fault = add_fault(rng, drawn, kind);
        draw_share(rng, fault);
        if (one_in(rng, 2))
            draw_instance(rng, &drawn->scenario, one_in(rng, 2) ? fault->node : fault->to);
        if (fault->kind == FAULT_LATE)
            /* Beyond what it takes to miss and to fence a peer, too. */
            fault->delay_ns = one_in(rng, 5) ? 2 * NS_PER_S + scaled(rng, 5 * NS_PER_S) : scaled(rng, 5 * NS_PER_MS);
    }
}

static void draw_writes(struct rng *rng, const struct tastes *tastes, struct drawn *drawn)
{
    static const enum fault_kind kinds[] = {FAULT_SLOW, FAULT_SLOW, FAULT_STALL, FAULT_FAIL, FAULT_TICKS};
    uint32_t count = between(rng, 1, 4);
    for (uint32_t i = 0; i < count; i++) {
        struct fault *fault = add_fault(rng, drawn, kinds[rng_below(rng, LENGTH(kinds))]);
        draw_share(rng, fault);
        if (one_in(rng, 3))
            draw_instance(rng, &drawn->scenario, one_in(rng, 2) ? fault->node : fault->to);
        if (fault->kind == FAULT_FAIL) {
            /* Half of them are told late: the request may have all its bytes, be decoding and be preempted by then. */
            if (one_in(rng, 2)) {
                struct fault *stall = &drawn->faults.item[drawn->faults.count++];
                *stall = *fault;
                stall->kind = FAULT_STALL;
                stall->delay_ns = scaled(rng, 20 * NS_PER_MS);
            }
            continue;
        }
        fault->delay_ns = tastes->late_writes ? scaled(rng, 30 * NS_PER_S) : scaled(rng, 5 * NS_PER_MS);
        if (fault->kind == FAULT_SLOW && one_in(rng, 2)) {
            fault->pieces = between(rng, 2, 7);
            fault->delay_ns = min_i64(fault->delay_ns, 5 * NS_PER_S);
        }
    }
}

/* One NIC of several, for a while; of a rank's only one for ever nothing would come of the transfer but a deadline. */
static void draw_nics(struct rng *rng, struct drawn *drawn)
{
    const struct scenario *scenario = &drawn->scenario;
    const struct pool *pool = &scenario->pools[rng_below(rng, scenario->pool_count)];
    struct fault *fault = add_fault(rng, drawn, FAULT_NIC);
    name_one(rng, pool, fault->node);
    fault->rank = between(rng, 0, kv_ranks(&pool->shardings[0]) - 1);
    fault->back_ns = scaled(rng, one_in(rng, 2) ? 10 * NS_PER_MS : 10 * NS_PER_S);
}

void fuzz_draw_faults(struct rng *rng, const struct tastes *tastes, struct drawn *drawn)
{
    drawn->faults.count = 0;
    drawn->faults.shuffle = one_in(rng, 2) ? 1 + rng_below(rng, UINT64_C(1) << 40) : 0;
    drawn->scenario.faults = &drawn->faults;
    if (tastes->kills)
        draw_kills(rng, drawn);
    if (tastes->returns)
        draw_returns(rng, drawn);
    if (tastes->last_words)
        draw_last_words(rng, drawn);
    if (tastes->messages)
        draw_messages(rng, drawn);
    if (tastes->writes && !tastes->aggregated)
        draw_writes(rng, tastes, drawn);
    if (tastes->network && !tastes->aggregated)
        draw_nics(rng, drawn);
    for (uint32_t i = 0; tastes->aborts && i < between(rng, 1, 3); i++)
        add_fault(rng, drawn, FAULT_LEAVE);
    for (uint32_t i = 0; i < drawn->faults.count; i++) {
        struct fault *fault = &drawn->faults.item[i];
        if (fault->kind == FAULT_LEAVE && fault->record == 0)
            fault->request = between(rng, 0, drawn->scenario.load.requests - 1);
    }
}

/* Pools so short that sequences of a few tokens are preempted. */
static void shorten_pools(struct drawn *drawn)
{
    struct scenario *scenario = &drawn->scenario;
    scenario->model.layers = scenario->model.full_layers = 1;
    scenario->messenger.handoffs_max = 6;
    for (uint32_t p = 0; p < scenario->pool_count; p++) {
        struct pool *pool = &scenario->pools[p];
        pool->shardings[0] = (struct parallelism){.tensor = 1, .data = 1, .expert = 1, .pipeline = 1};
        if (pool->role != ROLE_DECODE)
            continue;
        pool->scheduler.headroom_tokens = pool->scheduler.reserve_output = 0;
        pool->scheduler.batch_max = 6;
        pool->scheduler.token_budget = max_u32(pool->scheduler.token_budget, 6 * (1 + pool->scheduler.draft_tokens));
        drawn->pages[p] = max_u32(3, 60 / pool->page_tokens);
    }
}

/* Transfers of so few writes that all have landed when the fabric gives up, which is told much later, in pools so short
 * that sequences are preempted: a refusal then meets a request that waits for pages once more. */
void fuzz_draw_late_nacks(struct rng *rng, struct drawn *drawn)
{
    struct scenario *scenario = &drawn->scenario;
    shorten_pools(drawn);
    scenario->load.prompt.high = scenario->load.output.high = 1;
    for (uint32_t i = 0; i < drawn->requests.count; i++) {
        struct listed_request *request = &drawn->requests.item[i];
        request->prompt_tokens = between(rng, 2, 4);
        request->output_tokens = between(rng, 15, 35);
        scenario->load.prompt.high = max_u32(scenario->load.prompt.high, request->prompt_tokens);
        scenario->load.output.high = max_u32(scenario->load.output.high, request->output_tokens);
    }
    drawn->faults.count = 0;
    add_fault(rng, drawn, FAULT_FAIL)->count = 0;
    struct fault *torn = add_fault(rng, drawn, FAULT_SLOW);
    torn->count = 0;
    torn->pieces = 16;
    struct fault *stall = add_fault(rng, drawn, FAULT_STALL);
    stall->count = 0;
    stall->delay_ns = scaled(rng, 4 * NS_PER_MS);
}

/* A prefiller dies at once, and is missed while requests that it was chosen for, but that had nothing to ask of it, are
 * computed again by their decoders. */
void fuzz_draw_recomputes(struct rng *rng, struct drawn *drawn)
{
    struct scenario *scenario = &drawn->scenario;
    shorten_pools(drawn);
    for (uint32_t p = 0; p < scenario->pool_count; p++) {
        if (scenario->pools[p].role != ROLE_DECODE)
            continue;
        scenario->pools[p].scheduler.recompute = RECOMPUTE_DECODER;
        scenario->pools[p].scheduler.chunk_tokens = 1;
    }
    scenario->load.prompt.high = 1;
    for (uint32_t i = 0; i < drawn->requests.count; i++) {
        struct listed_request *request = &drawn->requests.item[i];
        request->prompt_tokens = 1;
        request->output_tokens = between(rng, 20, 45);
        request->at_ns = SUSPECTED_NS - 1 - (int64_t)((drawn->requests.count - i) * NS_PER_MS / 8);
        scenario->load.output.high = max_u32(scenario->load.output.high, request->output_tokens);
    }
    drawn->faults.count = 0;
    struct fault *fault = add_plain(drawn, FAULT_KILL);
    draw_one_of(rng, scenario, ROLE_PREFILL, fault->node);
    if (one_in(rng, 2))
        fault->back_ns = SUSPECTED_NS - scaled(rng, NS_PER_MS); /* its replacement is heard of first */
}
