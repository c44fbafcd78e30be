/* See fuzz_draw.h. */
#include "sim/swarm/fuzz_draw.h"

#include "sim/swarm/fuzz_draw_internal.h"
#include "model/footprint.h"
#include "world/scenario/policy_code.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MEMORY_AMPLE (UINT64_C(1) << 40)

static void name(char *text, size_t size, const char *value)
{
    snprintf(text, size, "%s", value);
}

/* ---- Model and pools --------------------------------------------------------------------------------------------- */

static void draw_model(struct rng *rng, const struct tastes *tastes, struct architecture *model)
{
    static const uint32_t kv_heads[] = {1, 2, 2, 4, 8};
    bool latent = one_in(rng, 4);
    bool sparse = latent && one_in(rng, 3);
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
        .fp4_block = 16,
        .index_topk = sparse ? 4 : 0, /* a key of the indexer lies beside each latent */
        .index_heads = sparse ? 1 : 0,
        .index_dim = sparse ? between(rng, 1, 4) : 0,
        .draft_layers = tastes->drafts ? between(rng, 1, 2) : 0,
        .tail_bytes = tastes->tail ? 1024 : 0,
        .tail_writes = tastes->tail ? between(rng, 1, 3) : 0,
    };
    model->full_layers = model->layers;
    if (!latent && model->layers == 3) { /* not drawn: older seeds draw what they drew */
        model->window = 7;
        model->full_layers = 1;
    }
    name(model->name, sizeof model->name, "drawn");
}

static struct parallelism draw_sharding(struct rng *rng, const struct architecture *model, enum node_role role)
{
    static const uint16_t tensor[] = {1, 1, 2, 2, 4, 8};
    return (struct parallelism){
        .tensor = tensor[rng_below(rng, LENGTH(tensor))],
        .data = one_in(rng, 3) ? (uint16_t)between(rng, 2, 3) : 1,
        .expert = 1,
        .pipeline = model->layers > 1 && one_in(rng, role == ROLE_MIXED ? 2 : 4)
                        ? (uint16_t)between(rng, 2, min_u32(model->layers, 4))
                        : 1,
    };
}

/* A step takes some microseconds and grows with its tokens. */
static void draw_steps(struct rng *rng, const struct scenario *scenario, struct step_tables *tables)
{
    int64_t unit_ns = (int64_t)between(rng, 2, 60) * NS_PER_US;
    struct step_table *table = &tables->item[0];
    memset(tables, 0, sizeof *tables);
    tables->count = 1;
    name(table->model, sizeof table->model, scenario->model.name);
    table->first_layer_ns = unit_ns / 4 + 1;
    table->in_flight = one_in(rng, 4) ? 1 : 4; /* no more than there are stages */
    table->launch_ns = one_in(rng, 3) ? between(rng, 1, 30000) : 0;
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
        .arm_ns = one_in(rng, 3) ? between(rng, 1, 20000) : 0,
        .nic = {.base_ns = 2000,
                .bytes_per_s = UINT64_C(1000000) << between(rng, 0, 14),
                .gap_ps = between(rng, 1, 200000),
                .knee_permille = 1750,
                .posting_ps = between(rng, 1, 200000),
                .queue_depth = 1u << between(rng, 0, 8)},
    };
    machine->nic.posts_together = one_in(rng, 2);
    machine->nics_per_node = one_in(rng, 2) ? (uint32_t)between(rng, 1, machine->gpus_per_node) : 0;
    /* not drawn: older seeds draw what they drew */
    if (machine->nics_per_node == 2 && machine->gpus_per_node > 2) {
        for (uint32_t g = 0; g < machine->gpus_per_node; g++)
            machine->gpu_nics[g] = (uint8_t)(1 + g % machine->nics_per_node);
        machine->nics_per_node = 0;
    }
    name(machine->name, sizeof machine->name, "drawn");
    name(machine->price_basis, sizeof machine->price_basis, "none");
    name(machine->nic.name, sizeof machine->nic.name, "drawn");
}

/* So much memory that about `pages` pages fit beside the weights. */
static void size_memory(const struct scenario *scenario, struct pool *pool, uint32_t pages)
{
    struct kv_geometry geometry;
    struct footprint footprint;
    const struct architecture model = scenario_served(scenario, pool);
    CHECK(kv_geometry_make(&model, pool->shardings[0], pool->page_tokens, pool->layout, &geometry) == GEOMETRY_OK);
    uint32_t verified = pool->scheduler.batch_max * (1 + pool->scheduler.draft_tokens);
    uint32_t sampled = pool->role == ROLE_PREFILL ? 0 : verified;
    uint64_t activations = footprint_activation_bytes(&model, &geometry, scenario_step_tokens(scenario, pool), sampled);
    CHECK(footprint_kv_pages(&model, &geometry, pool->hardware.memory_bytes, MEMORY_SHARE_GPU, 1000, activations, 0,
                             &footprint) == FOOTPRINT_FITS);
    pool->hardware.memory_bytes = footprint.weight_bytes + footprint.activation_bytes + pages * footprint.page_bytes;
    /* The tightest stage may be another one now. */
    while (footprint_kv_pages(&model, &geometry, pool->hardware.memory_bytes, MEMORY_SHARE_GPU, 1000, activations, 0,
                              &footprint) != FOOTPRINT_FITS)
        pool->hardware.memory_bytes *= 2;
}

/* What a step yields: nothing beyond the token itself, everything, or something between. */
static void draw_draft(struct rng *rng, const struct architecture *model, struct pool *pool)
{
    static const uint32_t acceptance[] = {0, 1000, 500, 850};
    uint32_t tokens = between(rng, 1, 4);
    pool->scheduler.draft_tokens = tokens;
    pool->scheduler.acceptance_permille =
        one_in(rng, 3) ? between(rng, 0, 1000) : acceptance[rng_below(rng, LENGTH(acceptance))];
    if (pool->scheduler.acceptance_permille == 850) { /* the same by place: rounded down, and so another clock */
        pool->scheduler.acceptance_permille = 0;
        for (uint32_t k = 0, share = 850; k < tokens; k++, share = share * 850 / 1000)
            pool->scheduler.place_permille[k] = (uint16_t)share;
    }
    pool->scheduler.token_budget = max_u32(pool->scheduler.token_budget, pool->scheduler.batch_max * (1 + tokens));
    pool->draft.reuse = tokens > model->draft_layers;
    pool->shardings[0].pipeline = 1;
}

#define LISTED_MACHINES 160u /* of a pool */

/* Machines far enough apart for instances of several, or one for all instances where they fit. */
static void draw_list(struct rng *rng, const struct scenario *scenario, const struct pool *pool,
                      struct placement *placement)
{
    bool together = pool->count * kv_ranks(&pool->shardings[0]) <= pool->hardware.gpus_per_node && one_in(rng, 2);
    uint32_t row = 4 + ceil_div_u32(kv_ranks(&pool->shardings[0]), pool->hardware.gpus_per_node);
    if (row * pool->count > LISTED_MACHINES) {
        placement->kind = PLACEMENT_PACKED;
        return;
    }
    placement->machine_count = pool->count;
    for (uint32_t i = 0; i < pool->count; i++)
        placement->machines[i] =
            (uint16_t)(1 + LISTED_MACHINES * scenario->pool_count + (together ? 0 : row * i + between(rng, 0, 3)));
}

static void draw_placement(struct rng *rng, const struct scenario *scenario, struct pool *pool)
{
    struct placement *placement = &pool->placement;
    placement->kind = (enum placement_kind)between(rng, PLACEMENT_APART, PLACEMENT_LISTED);
    const struct pool *other =
        scenario->pool_count == 0 ? NULL : &scenario->pools[rng_below(rng, scenario->pool_count)];
    bool named = placement->kind == PLACEMENT_APART_FROM || placement->kind == PLACEMENT_BESIDE;
    if (named && (other == NULL || other->placement.kind == PLACEMENT_BESIDE))
        placement->kind = PLACEMENT_PACKED;
    else if (named)
        name(placement->pool, sizeof placement->pool, other->name);
    else if (placement->kind == PLACEMENT_LISTED)
        draw_list(rng, scenario, pool, placement);
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
        .replace_ns = TIME_NEVER,
        .sharding_count = 1,
        .shardings = {draw_sharding(rng, &scenario->model, role)},
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
    if (role == ROLE_DECODE && budget % 3 == 0) { /* not drawn: older seeds draw what they drew */
        pool->scheduler.recompute = RECOMPUTE_DECODER;
        pool->scheduler.chunk_tokens = 1; /* so that much happens meanwhile */
    }
    pool->draft.head = DRAFT_MTP;
    if (tastes->drafts && role != ROLE_PREFILL && !one_in(rng, 6))
        draw_draft(rng, &scenario->model, pool);
    if (role == ROLE_MIXED) {
        pool->engine.receive_steps = one_in(rng, 3) ? between(rng, 1, 8) : 0;
        pool->engine.gather_steps = one_in(rng, 3) ? between(rng, 1, 8) : 0;
    }
    draw_machine(rng, &pool->hardware);
    if (scenario->pool_count > 0 && one_in(rng, 2))
        pool->hardware = scenario->pools[0].hardware; /* so that instances of the two may share machines */
    draw_placement(rng, scenario, pool);
    draw_steps(rng, scenario, &drawn->steps[scenario->pool_count]);
    pool->hardware.steps = &drawn->steps[scenario->pool_count];
    uint32_t tokens = tastes->tight ? between(rng, 100, 260) : between(rng, 600, 1600);
    drawn->pages[scenario->pool_count] = max_u32(2, tokens / page_tokens);
    scenario->pool_count++;
}

/* Pools of one role differ in everything but what must be alike. They are in the order of role and name. */
static void draw_pools(struct rng *rng, const struct tastes *tastes, struct drawn *drawn)
{
    static const struct {
        enum node_role role;
        const char *name;
        bool second;
    } pools[] = {
        {ROLE_PREFILL, "prefill", false}, {ROLE_PREFILL, "prefill2", true}, {ROLE_DECODE, "decode", false},
        {ROLE_DECODE, "decode2", true},   {ROLE_MIXED, "mixed", false},     {ROLE_MIXED, "mixed2", true},
    };
    static const uint32_t pages[] = {16, 16, 8, 4, 1, 32};
    uint32_t most = 1;
    for (size_t i = 0; i < LENGTH(pools); i++) {
        bool fits = (pools[i].role == ROLE_MIXED) == tastes->aggregated || tastes->beside;
        if (!fits || (pools[i].second && !(tastes->pools && one_in(rng, 2))))
            continue;
        uint32_t page = pages[rng_below(rng, LENGTH(pages))];
        most = max_u32(most, page);
        draw_pool(rng, tastes, drawn, pools[i].name, pools[i].role, between(rng, 1, tastes->pools ? 2 : 3), page);
    }
    drawn->scenario.load.block_tokens = tastes->prefixes ? most * between(rng, 1, 2) : 0;
}

/* ---- Load and policies ------------------------------------------------------------------------------------------- */

/* What older seeds did not draw: they draw what they drew. */
static struct rng aside_of(uint64_t seed, uint32_t what)
{
    return rng_stream(seed, what, RNG_FAULTS);
}

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
    if (one_in(rng, 8))
        scenario->load.warmup_ns = scaled(rng, 10 * NS_PER_MS);
}

/* Bursts and pauses, of about as long as the load lasts. */
static void draw_profile(uint64_t seed, struct load *load)
{
    struct rng aside = aside_of(seed, 3);
    if (load->arrivals == ARRIVAL_CLOSED || !one_in(&aside, 2))
        return;
    load->profile.count = between(&aside, 1, 4);
    for (uint32_t k = 0; k < load->profile.count; k++) {
        load->profile.step[k].lasts_ns = NS_PER_MS + scaled(&aside, 5 * NS_PER_MS);
        load->profile.step[k].weight = k == 0 ? between(&aside, 1, 1000) : between(&aside, 0, 9) * 1000;
    }
}

/* Loads that make their requests, some of them as others end: what the run does beside the nodes goes wrong too. */
static void draw_generated(struct rng *rng, const struct tastes *tastes, struct drawn *drawn)
{
    static const enum arrival_kind kinds[] = {ARRIVAL_POISSON, ARRIVAL_UNIFORM,  ARRIVAL_BURST,
                                              ARRIVAL_CLOSED,  ARRIVAL_SESSIONS, ARRIVAL_SESSIONS};
    struct load *load = &drawn->scenario.load;
    int64_t gap_ns = NS_PER_US + scaled(rng, 2 * NS_PER_MS);
    uint32_t most = 1;
    for (uint32_t p = 0; p < drawn->scenario.pool_count; p++)
        most = max_u32(most, drawn->scenario.pools[p].page_tokens);
    drawn->requests.count = 0;
    *load = (struct load){
        .arrivals = tastes->returns ? ARRIVAL_CLOSED : kinds[rng_below(rng, LENGTH(kinds))],
        .requests = between(rng, 1, one_in(rng, 4) ? 40 : 14),
        .prompt = {.kind = LENGTH_UNIFORM, .low = between(rng, 1, 40), .high = between(rng, 40, 120)},
        .output = {.kind = LENGTH_UNIFORM, .low = 1, .high = between(rng, 1, 50)},
        .trace_repeat = 1,
        .abort_permille = tastes->aborts ? between(rng, 1, 600) : 0,
        .abort_after_ns = scaled(rng, 10 * NS_PER_MS),
        .deadline_ns = one_in(rng, 3) ? scaled(rng, 5 * NS_PER_MS) : 0,
        .warmup_ns = one_in(rng, 4) ? scaled(rng, 10 * NS_PER_MS) : 0,
    };
    if (one_in(rng, 3))
        load->warmup_requests = between(rng, 1, load->requests + 1);
    if (one_in(rng, 6))
        load->duration_ns = load->warmup_ns + scaled(rng, 20 * NS_PER_MS);
    if (load->arrivals != ARRIVAL_CLOSED)
        load->rate_micro_per_s = UINT64_C(1000000000000000) / (uint64_t)gap_ns;
    if (load->arrivals == ARRIVAL_BURST)
        load->burst_size = between(rng, 1, 8);
    if (load->arrivals == ARRIVAL_CLOSED)
        load->concurrency = between(rng, 1, 8);
    draw_profile(drawn->scenario.seed, load);
    if (load->arrivals != ARRIVAL_SESSIONS)
        return;
    load->session_turns = (struct length_distribution){.kind = LENGTH_UNIFORM, .low = 1, .high = between(rng, 1, 4)};
    load->session_think_ns = one_in(rng, 3) ? 0 : scaled(rng, 5 * NS_PER_MS);
    load->session_system_tokens = one_in(rng, 2) ? between(rng, 1, 60) : 0;
    load->session_block_tokens = most * between(rng, 1, 2);
    load->prompt = (struct length_distribution){.kind = LENGTH_UNIFORM, .low = 1, .high = between(rng, 1, 50)};
    load->output.high = min_u32(load->output.high, 20);
    if (one_in(rng, 2)) {
        load->rate_micro_per_s = 0;
        load->profile.count = 0;
        load->concurrency = between(rng, 1, 4);
    }
    if (one_in(rng, 2))
        load->session_first =
            (struct length_distribution){.kind = LENGTH_UNIFORM, .low = 1, .high = between(rng, 1, 90)};
}

/* What the scenario decides itself, of the shipped policies. Read once in a process. */
static void draw_functions(struct rng *rng, struct scenario *scenario)
{
    static const struct {
        const char *name;
        enum policy_kind kind;
    } policies[] = {
        {"policies.shortest_wait", POLICY_PREFILL}, {"policies.longest_prefix", POLICY_PREFILL},
        {"policies.affinity", POLICY_PREFILL},      {"policies.dynamo_kv", POLICY_PREFILL},
        {"policies.room", POLICY_DECODE},           {"policies.affinity", POLICY_DECODE},
        {"policies.light", POLICY_ADMISSION},       {"policies.shortest_first", POLICY_QUEUE},
    };
    static struct policy_code *codes[LENGTH(policies)];
    uint32_t drawn = (uint32_t)rng_below(rng, LENGTH(policies));
    struct user_error error = {.set = false};
    if (codes[drawn] == NULL)
        codes[drawn] = policy_code_of_module(policies[drawn].name, policies[drawn].name, &error);
    CHECK(codes[drawn] != NULL);
    if (policies[drawn].kind == POLICY_QUEUE) {
        struct pool *pool = &scenario->pools[rng_below(rng, scenario->pool_count)];
        pool->scheduler.queue = QUEUE_FUNCTION;
        pool->queue_function = codes[drawn];
        return;
    }
    scenario->functions[policies[drawn].kind] = codes[drawn];
    if (policies[drawn].kind == POLICY_PREFILL)
        scenario->prefill_router = ROUTER_FUNCTION;
    else if (policies[drawn].kind == POLICY_DECODE)
        scenario->decode_router = ROUTER_FUNCTION;
}

static void draw_policies(struct rng *rng, const struct tastes *tastes, struct scenario *scenario)
{
    struct rng aside = aside_of(scenario->seed, 1);
    scenario->decode_router = router_built_in(between(rng, 1, ROUTER_BUILT_IN_COUNT));
    scenario->prefill_router = router_built_in(between(rng, 1, ROUTER_BUILT_IN_COUNT));
    scenario->node_affinity = (scenario->decode_router + scenario->prefill_router) % 3 == 0; /* likewise not drawn */
    if (one_in(rng, 8))
        scenario->admission = (struct admission_policy){.ttft_limit_ns = (int64_t)between(rng, 1, 20) * NS_PER_MS,
                                                        .prefill_tokens_per_s = between(rng, 10000, 1000000)};
    if (one_in(&aside, 2))
        scenario->admission.prefill_tokens_per_s = 0; /* it is learned */
    if (one_in(rng, 8))
        scenario->admission.queued_tokens_max = between(rng, 50, 600);
    if (scenario->admission.queued_tokens_max % 2 == 1) /* not drawn: older seeds draw what they drew */
        scenario->admission.decode_load_max_permille = 10 * scenario->admission.queued_tokens_max;
    scenario->messenger = (struct messenger_policy){
        .deadline_ns = one_in(rng, 6) ? TIME_NEVER : (int64_t)between(rng, 1, 5000) * NS_PER_MS,
        .attempts_max = between(rng, 1, 4),
        .handoffs_max = between(rng, 1, 8),
    };
    if (tastes->functions)
        draw_functions(&aside, scenario);
    scenario->pending_tokens_max = tastes->beside ? between(&aside, 0, 200) : 8192;
    if (tastes->conditional && one_in(&aside, 2))
        scenario->conditional.max_prefill_queue_size = between(&aside, 1, 3);
    if (tastes->conditional && (one_in(&aside, 2) || scenario->conditional.max_prefill_queue_size == 0))
        scenario->conditional.max_local_prefill_length = between(&aside, 1, 100);
    if (tastes->overload)
        scenario->messenger.handoffs_max = between(rng, 1, 2);
    if (tastes->short_deadlines)
        scenario->messenger.deadline_ns = NS_PER_MS + scaled(rng, 4 * NS_PER_MS);
}

/* ---- All together ------------------------------------------------------------------------------------------------ */

static struct tastes draw_tastes(struct rng *rng, uint64_t seed)
{
    struct rng aside = aside_of(seed, 2);
    struct tastes tastes = {
        .aborts = one_in(rng, 2),
        .prefixes = one_in(rng, 2),
        .tight = one_in(rng, 2),
        .tail = one_in(rng, 3),
        .drafts = one_in(rng, 5),
        .aggregated = one_in(rng, 5),
        .pools = one_in(rng, 8),
        .generated = one_in(rng, 5),
        .bursts = one_in(rng, 3),
        .short_deadlines = one_in(rng, 4),
        .kills = one_in(rng, 2),
        .messages = one_in(rng, 2),
        .writes = one_in(rng, 2),
        .network = one_in(rng, 6),
        .late_writes = one_in(rng, 4),
        .overload = one_in(rng, 6),
        .last_words = one_in(rng, 8),
        .in_time = one_in(rng, 6),
        .late_nacks = one_in(rng, 24),
        .returns = one_in(rng, 16),
    };
    tastes.beside = !tastes.aggregated && one_in(&aside, 6);
    tastes.functions = one_in(&aside, 6);
    tastes.conditional = !tastes.aggregated && one_in(&aside, 4);
    return tastes;
}

void fuzz_draw(uint64_t seed, struct drawn *drawn)
{
    struct rng rng = rng_stream(seed, 0, RNG_FAULTS);
    struct scenario *scenario = &drawn->scenario;
    const struct tastes tastes = draw_tastes(&rng, seed);
    bool late_nacks = tastes.late_nacks && !tastes.aggregated;
    memset(scenario, 0, sizeof *scenario);
    snprintf(scenario->name, sizeof scenario->name, "fuzz-%" PRIu64, seed);
    snprintf(scenario->question, sizeof scenario->question, "What goes wrong with seed %" PRIu64 "?", seed);
    scenario->seed = seed & INT64_MAX;
    scenario->load.arrivals = ARRIVAL_LISTED;
    scenario->load.prompt = (struct length_distribution){.kind = LENGTH_UNIFORM, .low = 1, .high = 1};
    scenario->load.output = (struct length_distribution){.kind = LENGTH_UNIFORM, .low = 1, .high = 1};
    scenario->load.trace_repeat = 1;
    scenario->plan = (struct plan_space){.goal = PLAN_HIGHEST_RATE, .requests = 4000, .seeds = 3, .compare_mixed = 1};
    draw_model(&rng, &tastes, &scenario->model);
    draw_pools(&rng, &tastes, drawn);
    if ((tastes.generated || tastes.returns) && !late_nacks)
        draw_generated(&rng, &tastes, drawn);
    else
        draw_requests(&rng, &tastes, drawn);
    draw_policies(&rng, &tastes, scenario);
    fuzz_draw_faults(&rng, &tastes, drawn);
    if (late_nacks && seed % 4 == 3) /* not drawn: older seeds draw what they drew */
        fuzz_draw_recomputes(&rng, drawn);
    else if (late_nacks)
        fuzz_draw_late_nacks(&rng, drawn);
    for (uint32_t p = 0; p < scenario->pool_count; p++)
        fuzz_fit(drawn, p);
}

void fuzz_fit(struct drawn *drawn, uint32_t pool)
{
    struct pool *changed = &drawn->scenario.pools[pool];
    const struct pool *drafter = scenario_drafter(&drawn->scenario, changed);
    drawn->steps[pool].item[0].parallelism = changed->shardings[0];
    drawn->steps[pool].item[0].draft_tokens = drafter == NULL ? 0 : drafter->scheduler.draft_tokens;
    changed->hardware.memory_bytes = MEMORY_AMPLE;
    size_memory(&drawn->scenario, changed, drawn->pages[pool]);
}

void drawn_copy(struct drawn *to, const struct drawn *from)
{
    *to = *from;
    to->scenario.faults = &to->faults;
    if (from->scenario.load.list != NULL)
        to->scenario.load.list = &to->requests;
    for (uint32_t p = 0; p < to->scenario.pool_count; p++)
        to->scenario.pools[p].hardware.steps = &to->steps[p];
}
