/* See draw.h. */
#include "sim/fuzz/draw.h"

#include "base/arith.h"
#include "base/rng.h"
#include "model/footprint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* After a death, in a simulated run: sim/run.c. */
#define SUSPECTED_NS (3 * NS_PER_S)
#define FENCED_NS (4 * NS_PER_S)

#define MEMORY_AMPLE (UINT64_C(1) << 40)
#define LENGTH(list) (sizeof(list) / sizeof((list)[0]))

/* What a seed turns on; the more, the rarer each is in company. */
struct tastes {
    bool aborts;
    bool prefixes;
    bool tight;
    bool tail;
    bool colocated;
    bool bursts;
    bool short_deadlines;
    bool kills;
    bool messages;
    bool writes;
    bool network;
    bool late_writes; /* by up to half a minute */
    bool overload;
    bool last_words; /* messages and completions of the dead, when they have been missed and are not fenced yet */
    bool in_time;    /* requests that come when a loss is noticed */
};

static uint32_t between(struct rng *rng, uint32_t low, uint32_t high)
{
    return (uint32_t)rng_between(rng, low, high);
}

static bool one_in(struct rng *rng, uint32_t n)
{
    return rng_below(rng, n) == 0;
}

/* Small ones often, large ones sometimes: uniform in the number of digits. In [1, most]. */
static int64_t scaled(struct rng *rng, int64_t most)
{
    uint32_t digits = 1;
    while (digits < 62 && INT64_C(1) << digits < most)
        digits++;
    uint32_t bits = between(rng, digits > 16 ? digits - 16 : 1, digits);
    return min_i64(most, 1 + (int64_t)rng_below(rng, UINT64_C(1) << bits));
}

static void name(char *text, size_t size, const char *value)
{
    snprintf(text, size, "%s", value);
}

/* ---- Model and pools --------------------------------------------------------------------------------------------- */

static void draw_model(struct rng *rng, struct architecture *model, bool tail)
{
    static const uint32_t kv_heads[] = {1, 2, 2, 4, 8};
    bool latent = one_in(rng, 4);
    *model = (struct architecture){
        .attention = latent ? ATTENTION_MLA : ATTENTION_GQA,
        .layers = between(rng, 1, 4),
        .hidden = 8,
        .heads = 8,
        .kv_heads = latent ? 1 : kv_heads[rng_below(rng, LENGTH(kv_heads))],
        .head_dim = latent ? 0 : 2,
        .vocab = 1 << 20, /* weights of some MiB: the least memory that a machine may have is one */
        .latent_dim = latent ? 4 : 0,
        .rope_dim = latent ? 2 : 0,
        .nope_dim = latent ? 2 : 0,
        .value_dim = latent ? 2 : 0,
        .intermediate = 8,
        .weight_format = FORMAT_BF16,
        .expert_weight_format = FORMAT_BF16,
        .kv_format = one_in(rng, 4) ? FORMAT_FP8 : FORMAT_BF16,
        .tail_bytes = tail ? 1024 : 0,
        .tail_writes = tail ? between(rng, 1, 3) : 0,
    };
    model->full_layers = model->layers;
    name(model->name, sizeof model->name, "drawn");
}

static struct parallelism draw_sharding(struct rng *rng, const struct architecture *model)
{
    static const uint16_t tensor[] = {1, 1, 2, 2, 4, 8};
    return (struct parallelism){
        .tensor = tensor[rng_below(rng, LENGTH(tensor))],
        .data = one_in(rng, 3) ? (uint16_t)between(rng, 2, 3) : 1,
        .expert = 1,
        .pipeline = model->layers > 1 && one_in(rng, 6) ? 2 : 1,
    };
}

/* A step takes some microseconds and grows with its tokens. */
static void draw_steps(struct rng *rng, const struct scenario *scenario, const struct pool *pool,
                       struct step_tables *tables)
{
    int64_t unit_ns = (int64_t)between(rng, 2, 60) * NS_PER_US;
    struct step_table *table = &tables->item[0];
    memset(tables, 0, sizeof *tables);
    tables->count = 1;
    name(table->model, sizeof table->model, scenario->model.name);
    table->parallelism = pool->shardings[0];
    table->first_layer_ns = unit_ns / 4 + 1;
    table->prefill = (struct step_grid){.row_count = 2,
                                        .column_count = 2,
                                        .rows = {1, 64},
                                        .columns = {1, 512},
                                        .ns = {{unit_ns, 2 * unit_ns}, {4 * unit_ns, 6 * unit_ns}}};
    table->decode = (struct step_grid){.row_count = 2,
                                       .column_count = 2,
                                       .rows = {1, 16},
                                       .columns = {1, 4096},
                                       .ns = {{unit_ns, 2 * unit_ns}, {2 * unit_ns, 4 * unit_ns}}};
}

static void draw_machine(struct rng *rng, struct hardware *machine)
{
    static const uint32_t gpus[] = {1, 4, 16};
    *machine = (struct hardware){
        .gpus_per_node = gpus[rng_below(rng, LENGTH(gpus))],
        .memory_bytes = MEMORY_AMPLE,
        .memory_bytes_per_s = UINT64_C(1000000000000),
        .bf16_flops = UINT64_C(100000000000000),
        .nvlink_bytes_per_s = UINT64_C(100000000000),
        .watcher_ns = between(rng, 0, 3000),
        .poll_ns = between(rng, 0, 900),
        .message_ns = between(rng, 1, 20000),
        .nic = {.base_ns = 2000,
                .bytes_per_s = UINT64_C(1000000) << between(rng, 0, 14),
                .gap_ps = between(rng, 1, 200000),
                .knee_permille = 1750,
                .posting_ps = between(rng, 1, 200000),
                .queue_depth = 1u << between(rng, 0, 8)},
    };
    name(machine->name, sizeof machine->name, "drawn");
    name(machine->price_basis, sizeof machine->price_basis, "none");
    name(machine->nic.name, sizeof machine->nic.name, "drawn");
}

/* So much memory that about `pages` pages fit beside the weights. */
static void size_memory(const struct scenario *scenario, struct pool *pool, uint32_t pages)
{
    struct kv_geometry geometry;
    struct footprint footprint;
    CHECK(kv_geometry_make(&scenario->model, pool->shardings[0], pool->page_tokens, pool->layout, &geometry) ==
          GEOMETRY_OK);
    uint32_t tokens = pool->role == ROLE_DECODE ? pool->scheduler.batch_max : pool->scheduler.token_budget;
    uint32_t sampled = pool->role == ROLE_PREFILL ? 0 : pool->scheduler.batch_max;
    uint64_t activations = footprint_activation_bytes(&scenario->model, &geometry, tokens, sampled);
    CHECK(footprint_kv_pages(&scenario->model, &geometry, pool->hardware.memory_bytes, 1000, activations, &footprint) ==
          FOOTPRINT_FITS);
    pool->hardware.memory_bytes = footprint.weight_bytes + footprint.activation_bytes + pages * footprint.page_bytes;
    /* The tightest stage may be another one now. */
    while (footprint_kv_pages(&scenario->model, &geometry, pool->hardware.memory_bytes, 1000, activations,
                              &footprint) != FOOTPRINT_FITS)
        pool->hardware.memory_bytes *= 2;
}

static void draw_pool(struct rng *rng, const struct tastes *tastes, struct drawn *drawn, const char *pool_name,
                      enum node_role role, uint32_t count, uint32_t page_tokens)
{
    struct scenario *scenario = &drawn->scenario;
    struct pool *pool = &scenario->pools[scenario->pool_count];
    uint32_t batch = between(rng, 1, tastes->overload ? 2 : 8);
    uint32_t budget = between(rng, batch, 80);
    *pool = (struct pool){
        .role = role,
        .count = count,
        .count_min = count,
        .count_max = count,
        .engine = engine_neutral(),
        .sharding_count = 1,
        .shardings = {draw_sharding(rng, &scenario->model)},
        .page_tokens = page_tokens,
        .layout = scenario->pool_count > 0 ? scenario->pools[0].layout
                  : one_in(rng, 4)         ? LAYOUT_NHD
                                           : LAYOUT_HND,
        .memory_utilization_permille = 1000,
        .queue_max = tastes->overload || one_in(rng, 3) ? between(rng, 1, 2) : 32,
        .scheduler = {.queue = (enum queue_policy)between(rng, QUEUE_FCFS, QUEUE_EARLIEST_DEADLINE),
                      .token_budget = budget,
                      .chunk_tokens = one_in(rng, 2) ? between(rng, 1, budget) : 0,
                      .batch_max = batch,
                      .headroom_tokens = between(rng, 0, 64),
                      .reserve_output = one_in(rng, 4),
                      .prefix_cache = tastes->prefixes && !one_in(rng, 4),
                      .repeat_max = one_in(rng, 3) ? 1 : 64},
    };
    name(pool->name, sizeof pool->name, pool_name);
    if (role == ROLE_MIXED) {
        pool->engine.receive_steps = one_in(rng, 3) ? between(rng, 1, 8) : 0;
        pool->engine.gather_steps = one_in(rng, 3) ? between(rng, 1, 8) : 0;
    }
    draw_machine(rng, &pool->hardware);
    draw_steps(rng, scenario, pool, &drawn->steps[scenario->pool_count]);
    pool->hardware.steps = &drawn->steps[scenario->pool_count];
    uint32_t tokens = tastes->tight ? between(rng, 100, 260) : between(rng, 600, 1600);
    drawn->pages[scenario->pool_count] = max_u32(2, tokens / page_tokens);
    size_memory(scenario, pool, drawn->pages[scenario->pool_count]);
    scenario->pool_count++;
}

static void draw_pools(struct rng *rng, const struct tastes *tastes, struct drawn *drawn)
{
    static const uint32_t pages[] = {16, 16, 8, 4, 1, 32};
    uint32_t most = 0;
    uint32_t page[2];
    for (uint32_t i = 0; i < 2; i++) {
        page[i] = pages[rng_below(rng, LENGTH(pages))];
        most = max_u32(most, page[i]);
    }
    drawn->scenario.load.block_tokens = tastes->prefixes ? most * between(rng, 1, 2) : 0;
    if (!tastes->colocated) {
        draw_pool(rng, tastes, drawn, "prefill", ROLE_PREFILL, between(rng, 1, 3), page[0]);
        draw_pool(rng, tastes, drawn, "decode", ROLE_DECODE, between(rng, 1, 3), page[1]);
    }
    if (tastes->colocated || one_in(rng, 20))
        draw_pool(rng, tastes, drawn, "mixed", ROLE_MIXED, between(rng, 1, 3), page[0]);
}

/* ---- Load and policies ------------------------------------------------------------------------------------------- */

/* Edges of pages and blocks more often than what lies between. */
static uint32_t draw_prompt(struct rng *rng, const struct scenario *scenario)
{
    uint32_t page = scenario->pools[rng_below(rng, scenario->pool_count)].page_tokens;
    uint32_t longest = one_in(rng, 20) ? 400 : 120;
    if (one_in(rng, 10))
        return between(rng, 1, 2);
    if (one_in(rng, 2))
        return between(rng, 1, longest);
    /* T' is one less than the prompt. */
    return max_u32(1, page * between(rng, 1, max_u32(1, longest / page)) + between(rng, 0, 2));
}

static int by_arrival(const struct listed_request *a, const struct listed_request *b)
{
    return a->at_ns > b->at_ns;
}

static void draw_requests(struct rng *rng, const struct tastes *tastes, struct drawn *drawn)
{
    struct scenario *scenario = &drawn->scenario;
    struct request_list *list = &drawn->requests;
    int64_t spread_ns = scaled(rng, 20 * NS_PER_MS);
    int64_t burst_ns = 0;
    list->count = between(rng, 1, one_in(rng, 4) ? 40 : 14);
    for (uint32_t i = 0; i < list->count; i++) {
        struct listed_request *request = &list->item[i];
        if (!tastes->bursts || one_in(rng, 4))
            burst_ns = (int64_t)rng_below(rng, (uint64_t)spread_ns + 1);
        if (tastes->in_time && one_in(rng, 3))
            burst_ns = (one_in(rng, 2) ? SUSPECTED_NS : FENCED_NS) + scaled(rng, 20 * NS_PER_MS) - 5 * NS_PER_MS;
        *request = (struct listed_request){
            .at_ns = burst_ns,
            .prompt_tokens = draw_prompt(rng, scenario),
            .output_tokens = one_in(rng, 5) ? 1 : between(rng, 1, 50),
            .leaves_ns = tastes->aborts && one_in(rng, 4) ? scaled(rng, 10 * NS_PER_MS) : TIME_NEVER,
            .deadline_ns = one_in(rng, 3) ? scaled(rng, 5 * NS_PER_MS) : 0,
        };
        if (tastes->prefixes && one_in(rng, 2)) {
            request->family = between(rng, 1, 2);
            request->shared_blocks = between(rng, 1, 8);
        }
        scenario->load.prompt.high = max_u32(scenario->load.prompt.high, request->prompt_tokens);
        scenario->load.output.high = max_u32(scenario->load.output.high, request->output_tokens);
        for (uint32_t at = i; at > 0 && by_arrival(&list->item[at - 1], &list->item[at]); at--) {
            struct listed_request swapped = list->item[at];
            list->item[at] = list->item[at - 1];
            list->item[at - 1] = swapped;
        }
    }
    scenario->load.requests = list->count;
    scenario->load.list = list;
}

static void draw_policies(struct rng *rng, const struct tastes *tastes, struct scenario *scenario)
{
    scenario->decode_router = (enum router_policy)between(rng, ROUTER_ROUND_ROBIN, ROUTER_PREFIX_AWARE);
    scenario->prefill_router = (enum router_policy)between(rng, ROUTER_ROUND_ROBIN, ROUTER_PREFIX_AWARE);
    if (one_in(rng, 8))
        scenario->admission = (struct admission_policy){.ttft_limit_ns = (int64_t)between(rng, 1, 20) * NS_PER_MS,
                                                        .prefill_tokens_per_s = between(rng, 10000, 1000000)};
    if (one_in(rng, 8))
        scenario->admission.queued_tokens_max = between(rng, 50, 600);
    scenario->messenger = (struct messenger_policy){
        .deadline_ns = one_in(rng, 6) ? TIME_NEVER : (int64_t)between(rng, 1, 5000) * NS_PER_MS,
        .attempts_max = between(rng, 1, 4),
        .handoffs_max = between(rng, 1, 8),
    };
    if (tastes->overload)
        scenario->messenger.handoffs_max = between(rng, 1, 2);
    if (tastes->short_deadlines)
        scenario->messenger.deadline_ns = NS_PER_MS + scaled(rng, 4 * NS_PER_MS);
}

/* ---- Faults ------------------------------------------------------------------------------------------------------ */

static void draw_instance(struct rng *rng, const struct scenario *scenario, char *text)
{
    const struct pool *pool = &scenario->pools[rng_below(rng, scenario->pool_count)];
    snprintf(text, FAULT_NODE_SIZE, "%.32s-%" PRIu32, pool->name, between(rng, 0, pool->count - 1));
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

static struct fault *add_fault(struct rng *rng, struct drawn *drawn, enum fault_kind kind)
{
    struct fault *fault = &drawn->faults.item[drawn->faults.count++];
    *fault = (struct fault){
        .kind = kind, .nth = 1, .request = FAULT_REQUEST_ANY, .count = 1, .back_ns = TIME_NEVER, .pieces = 1};
    if (kind < FAULT_LATE || kind == FAULT_LEAVE)
        draw_moment(rng, &drawn->scenario, fault);
    else if (one_in(rng, 3))
        draw_moment(rng, &drawn->scenario, fault);
    return fault;
}

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
    if (scenario->pools[0].role != ROLE_PREFILL || !one_in(rng, 3))
        return;
    struct fault *fault = add_fault(rng, drawn, FAULT_CUT);
    snprintf(fault->node, sizeof fault->node, "prefill-%" PRIu32, between(rng, 0, scenario->pools[0].count - 1));
    snprintf(fault->to, sizeof fault->to, "decode-%" PRIu32, between(rng, 0, scenario->pools[1].count - 1));
}

/* What a prefiller said last arrives when its decoders have missed it, and before it is fenced; what the fabric failed
 * is known late. */
static void draw_last_words(struct rng *rng, struct drawn *drawn)
{
    static const uint16_t words[] = {TRACE_ACCEPTED, TRACE_QUIESCED, TRACE_NACKED, TRACE_WRITE, TRACE_DRAINED};
    const struct scenario *scenario = &drawn->scenario;
    if (scenario->pools[0].role != ROLE_PREFILL)
        return;
    char name_of_it[FAULT_NODE_SIZE];
    snprintf(name_of_it, sizeof name_of_it, "prefill-%" PRIu32, between(rng, 0, scenario->pools[0].count - 1));
    struct fault *late = add_fault(rng, drawn, FAULT_LATE);
    memcpy(late->node, name_of_it, sizeof late->node);
    snprintf(late->to, sizeof late->to, "decode-%" PRIu32, between(rng, 0, scenario->pools[1].count - 1));
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
    uint32_t count = between(rng, 1, 4);
    for (uint32_t i = 0; i < count; i++) {
        struct fault *fault = add_fault(rng, drawn, one_in(rng, 2) ? FAULT_LATE : FAULT_TWICE);
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
        if (fault->kind == FAULT_FAIL)
            continue;
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
    snprintf(fault->node, sizeof fault->node, "%.32s-%" PRIu32, pool->name, between(rng, 0, pool->count - 1));
    fault->rank = between(rng, 0, kv_ranks(&pool->shardings[0]) - 1);
    fault->back_ns = scaled(rng, one_in(rng, 2) ? 10 * NS_PER_MS : 10 * NS_PER_S);
}

static void draw_faults(struct rng *rng, const struct tastes *tastes, struct drawn *drawn)
{
    drawn->faults.count = 0;
    drawn->faults.shuffle = one_in(rng, 2) ? 1 + rng_below(rng, UINT64_C(1) << 40) : 0;
    drawn->scenario.faults = &drawn->faults;
    if (tastes->kills)
        draw_kills(rng, drawn);
    if (tastes->last_words)
        draw_last_words(rng, drawn);
    if (tastes->messages)
        draw_messages(rng, drawn);
    if (tastes->writes && !tastes->colocated)
        draw_writes(rng, tastes, drawn);
    if (tastes->network && !tastes->colocated)
        draw_nics(rng, drawn);
    for (uint32_t i = 0; tastes->aborts && i < between(rng, 1, 3); i++)
        add_fault(rng, drawn, FAULT_LEAVE);
    for (uint32_t i = 0; i < drawn->faults.count; i++) {
        struct fault *fault = &drawn->faults.item[i];
        if (fault->kind == FAULT_LEAVE && fault->record == 0)
            fault->request = between(rng, 0, drawn->requests.count - 1);
    }
}

/* ---- All together ------------------------------------------------------------------------------------------------ */

void fuzz_draw(uint64_t seed, struct drawn *drawn)
{
    struct rng rng = rng_stream(seed, 0, RNG_FAULTS);
    struct scenario *scenario = &drawn->scenario;
    struct tastes tastes = {
        .aborts = one_in(&rng, 2),
        .prefixes = one_in(&rng, 2),
        .tight = one_in(&rng, 2),
        .tail = one_in(&rng, 3),
        .colocated = one_in(&rng, 5),
        .bursts = one_in(&rng, 3),
        .short_deadlines = one_in(&rng, 4),
        .kills = one_in(&rng, 2),
        .messages = one_in(&rng, 2),
        .writes = one_in(&rng, 2),
        .network = one_in(&rng, 6),
        .late_writes = one_in(&rng, 4),
        .overload = one_in(&rng, 6),
        .last_words = one_in(&rng, 8),
        .in_time = one_in(&rng, 6),
    };
    memset(scenario, 0, sizeof *scenario);
    snprintf(scenario->name, sizeof scenario->name, "fuzz-%" PRIu64, seed);
    snprintf(scenario->question, sizeof scenario->question, "What goes wrong with seed %" PRIu64 "?", seed);
    scenario->seed = seed & INT64_MAX;
    scenario->load.arrivals = ARRIVAL_LISTED;
    scenario->load.prompt = (struct length_distribution){.kind = LENGTH_UNIFORM, .low = 1, .high = 1};
    scenario->load.output = (struct length_distribution){.kind = LENGTH_UNIFORM, .low = 1, .high = 1};
    scenario->load.trace_repeat = 1;
    scenario->plan = (struct plan_space){.goal = PLAN_HIGHEST_RATE, .requests = 4000, .seeds = 3, .compare_mixed = 1};
    draw_model(&rng, &scenario->model, tastes.tail);
    draw_pools(&rng, &tastes, drawn);
    draw_requests(&rng, &tastes, drawn);
    draw_policies(&rng, &tastes, scenario);
    draw_faults(&rng, &tastes, drawn);
}

void fuzz_fit(struct drawn *drawn, uint32_t pool)
{
    struct pool *changed = &drawn->scenario.pools[pool];
    drawn->steps[pool].item[0].parallelism = changed->shardings[0];
    changed->hardware.memory_bytes = MEMORY_AMPLE;
    size_memory(&drawn->scenario, changed, drawn->pages[pool]);
}

void drawn_copy(struct drawn *to, const struct drawn *from)
{
    *to = *from;
    to->scenario.faults = &to->faults;
    to->scenario.load.list = &to->requests;
    for (uint32_t p = 0; p < to->scenario.pool_count; p++)
        to->scenario.pools[p].hardware.steps = &to->steps[p];
}
