/* See deployment.h. */
#include "world/deployment.h"

#include "base/arith.h"
#include "world/load/sessions.h"
#include "host/memory.h"
#include "host/user_error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All requests that may wait at an instance, whatever the load. */
#define WAITING_LIMIT (1u << 20)

/* Transfers under way that one prefiller may hold, whatever its decoders are allowed together. */
#define STREAMS_MAX 16384u

#define GIB 1073741824.0

struct deployment_choice deployment_default(const struct scenario *scenario)
{
    struct deployment_choice choice = {.pool_count = scenario->pool_count};
    for (uint32_t i = 0; i < scenario->pool_count; i++)
        choice.pool[i].count = scenario->pools[i].count;
    return choice;
}

static uint32_t length_max(const struct length_distribution *length)
{
    if (length->kind == LENGTH_QUANTILES)
        return length->quantile_tokens[length->quantile_count - 1];
    return length->kind == LENGTH_CONSTANT ? max_u32(length->low, length->high) : length->high;
}

struct deployment_sizes deployment_sizes(const struct load *load)
{
    if (load->arrivals == ARRIVAL_SESSIONS) {
        uint32_t tokens = (uint32_t)min_u64(REQUEST_TOKENS_MAX, load_session_tokens_max(load));
        return (struct deployment_sizes){
            .request_tokens_max = tokens,
            .request_blocks_max = ceil_div_u32(tokens, load->session_block_tokens),
            .prefix_block_tokens = load->session_block_tokens,
        };
    }
    return (struct deployment_sizes){
        .requests_together = max_u32(load_is_closed(load) ? load->concurrency : 0,
                                     load->arrivals == ARRIVAL_BURST ? load->burst_size : 0),
        .request_tokens_max = length_max(&load->prompt) + length_max(&load->output),
        .request_blocks_max = load->block_tokens == 0 ? 0 : ceil_div_u32(length_max(&load->prompt), load->block_tokens),
        .prefix_block_tokens = load->block_tokens,
    };
}

struct deployment_sizes deployment_sizes_traced(const struct load *load, const struct trace_file *trace)
{
    struct deployment_sizes sizes = deployment_sizes(load);
    if (load->arrivals != ARRIVAL_TRACE || trace == NULL)
        return sizes;
    sizes.request_tokens_max = 0;
    sizes.prefix_block_tokens = trace->block_tokens;
    for (uint32_t i = 0; i < trace->count; i++) {
        uint32_t output = trace->output_tokens[i] > 0 ? trace->output_tokens[i] : length_max(&load->output);
        sizes.request_tokens_max = max_u32(sizes.request_tokens_max, trace->prompt_tokens[i] + output);
        if (trace->block_tokens != 0)
            sizes.request_blocks_max =
                max_u32(sizes.request_blocks_max, narrow_u32(trace->block_first[i + 1] - trace->block_first[i]));
    }
    return sizes;
}

void parallelism_text(const struct parallelism *parallelism, char *text, size_t size)
{
    int used = 0;
    const struct {
        const char *name;
        uint32_t ranks;
    } part[] = {{"TP", parallelism->tensor},
                {"DP", parallelism->data},
                {"EP", parallelism->expert},
                {"PP", parallelism->pipeline}};
    text[0] = '\0';
    for (size_t i = 0; i < sizeof part / sizeof *part && used >= 0 && (size_t)used < size; i++) {
        bool only = i == 0 && parallelism->data <= 1 && parallelism->pipeline <= 1;
        if (part[i].ranks > 1 || only)
            used += snprintf(text + used, size - (size_t)used, "%s%s%" PRIu32, used > 0 ? " " : "", part[i].name,
                             part[i].ranks);
    }
}

/* ---- Pools ------------------------------------------------------------------------------------------------------ */

/* What all instances of a pool have in common. */
struct member {
    struct kv_geometry geometry;
    struct footprint footprint;
    uint32_t ranks;
};

static bool refuse(struct user_error *error, const struct pool *pool, const struct parallelism *parallelism,
                   const char *why)
{
    char sharding[64];
    parallelism_text(parallelism, sharding, sizeof sharding);
    user_error_set(error, NULL, 0, NULL, "pool %s (%s on %s): %s", pool->name, sharding, pool->hardware.name, why);
    return false;
}

static bool refuse_footprint(struct user_error *error, const struct pool *pool, const struct parallelism *parallelism,
                             enum footprint_verdict verdict, const struct footprint *footprint)
{
    char why[512];
    if (verdict == FOOTPRINT_WEIGHTS || verdict == FOOTPRINT_PAGES)
        snprintf(why, sizeof why,
                 "%s: weights take %.1f GiB of a rank and activations %.1f GiB, %.1f GiB may be used, a KV page is "
                 "%.1f MiB",
                 footprint_verdict_text(verdict), (double)footprint->weight_bytes / GIB,
                 (double)footprint->activation_bytes / GIB, (double)footprint->usable_bytes / GIB,
                 (double)footprint->page_bytes / (GIB / 1024));
    else
        snprintf(why, sizeof why, "%s", footprint_verdict_text(verdict));
    return refuse(error, pool, parallelism, why);
}

/* Tokens whose logits a step keeps; a prefiller samples nothing. */
static uint32_t sampled(const struct pool *pool)
{
    return pool->role == ROLE_PREFILL ? 0 : pool->scheduler.batch_max * (1 + pool->scheduler.draft_tokens);
}

/* What a draft model takes beside the model, on a rank: its weights, and the KV of a page's tokens. */
static bool draft_model_footprint(const struct pool *pool, const struct parallelism *parallelism,
                                  uint64_t *weight_bytes, uint64_t *page_bytes, struct user_error *error)
{
    struct kv_geometry geometry;
    struct footprint_weights weights;
    const struct architecture *model = &pool->draft.model;
    char why[256];
    *weight_bytes = *page_bytes = 0;
    if (pool->scheduler.draft_tokens == 0 || pool->draft.head != DRAFT_MODEL)
        return true;
    enum geometry_refusal refusal = kv_geometry_make(model, *parallelism, pool->page_tokens, pool->layout, &geometry);
    enum footprint_verdict verdict = FOOTPRINT_FITS;
    if (refusal == GEOMETRY_OK)
        verdict = footprint_weights(model, &geometry, 0, &weights);
    snprintf(why, sizeof why, "draft model %s: %s", model->name,
             refusal != GEOMETRY_OK ? geometry_refusal_text(refusal) : footprint_verdict_text(verdict));
    if (refusal != GEOMETRY_OK || verdict != FOOTPRINT_FITS)
        return refuse(error, pool, parallelism, why);
    *weight_bytes = weights.total;
    *page_bytes = kv_token_rank_bytes(&geometry, model->layers) * geometry.page_tokens;
    return true;
}

/* Sequences of an attention group that may hold KV at once; 0 where pages keep windowed layers whole: prefixes are
 * served from prefillers and mixed instances. */
static uint32_t window_sequences(const struct scenario *scenario, const struct pool *pool)
{
    if (pool->role != ROLE_DECODE)
        return 0;
    return pool->scheduler.batch_max + min_u32(scenario->messenger.handoffs_max, STREAMS_MAX);
}

static bool member_make(const struct scenario *scenario, const struct pool *pool, uint32_t sharding,
                        bool windows_in_pages, struct member *member, struct user_error *error)
{
    const struct parallelism *parallelism = &pool->shardings[sharding];
    const struct architecture model = scenario_served(scenario, pool);
    enum geometry_refusal refusal =
        kv_geometry_make(&model, *parallelism, pool->page_tokens, pool->layout, &member->geometry);
    if (refusal != GEOMETRY_OK)
        return refuse(error, pool, parallelism, geometry_refusal_text(refusal));
    member->ranks = kv_ranks(parallelism);
    if (parallelism->data > GROUPS_MAX || member->ranks > RANKS_MAX)
        return refuse(error, pool, parallelism, "more ranks or attention groups than an instance may have");
    uint64_t draft_bytes;
    uint64_t draft_page_bytes;
    if (!draft_model_footprint(pool, parallelism, &draft_bytes, &draft_page_bytes, error))
        return false;
    uint64_t activation_bytes =
        draft_bytes +
        footprint_activation_bytes(&model, &member->geometry, scenario_step_tokens(scenario, pool), sampled(pool));
    struct footprint *footprint = &member->footprint;
    uint32_t sequences = windows_in_pages ? 0 : window_sequences(scenario, pool);
    enum footprint_verdict verdict =
        footprint_kv_pages(&model, &member->geometry, pool->hardware.memory_bytes, pool->engine.memory_share,
                           pool->memory_utilization_permille, activation_bytes, sequences, footprint);
    if (verdict == FOOTPRINT_FITS && draft_page_bytes > 0) {
        /* Pages of both models come in pairs. */
        uint64_t pair_bytes = footprint->page_bytes + draft_page_bytes;
        footprint->pages = mul_div_floor_u64(footprint->pages, footprint->page_bytes, pair_bytes);
        footprint->page_bytes = pair_bytes;
        verdict = footprint->pages == 0 ? FOOTPRINT_PAGES : FOOTPRINT_FITS;
    }
    if (verdict != FOOTPRINT_FITS)
        return refuse_footprint(error, pool, parallelism, verdict, &member->footprint);
    return true;
}

bool deployment_kv_capacity(const struct scenario *scenario, const struct pool *pool, uint32_t sharding,
                            int32_t change_permille, struct kv_capacity *capacity, struct user_error *error)
{
    struct member member = {.ranks = 0};
    struct pool *changed = memory_get(sizeof *changed);
    *changed = *pool;
    int64_t share = (int64_t)pool->memory_utilization_permille + change_permille;
    changed->memory_utilization_permille = share < 1 ? 1 : share > 1000 ? 1000 : (uint32_t)share;
    bool fits = member_make(scenario, changed, sharding, false, &member, error);
    free(changed);
    capacity->footprint = member.footprint;
    capacity->tokens =
        fits ? member.footprint.pages * member.geometry.page_tokens * member.geometry.parallelism.data : 0;
    return fits;
}

/* ---- Nodes ------------------------------------------------------------------------------------------------------ */

struct builder {
    const struct scenario *scenario;
    const struct deployment_choice *choice;
    const struct deployment_sizes *sizes;
    uint64_t seed;
    struct member member[SCENARIO_POOLS_MAX];
    struct deployment *deployment;
    uint32_t handoffs; /* of all decoders together */
};

static uint32_t requests_max(const struct builder *builder, const struct pool *pool, uint32_t groups)
{
    uint32_t batch = groups * pool->scheduler.batch_max;
    if (pool->role == ROLE_PREFILL)
        return min_u32(builder->handoffs, STREAMS_MAX) + 1;
    if (pool->role == ROLE_DECODE)
        batch += min_u32(builder->scenario->messenger.handoffs_max, STREAMS_MAX);
    uint32_t waiting = pool->queue_max != 0 ? pool->queue_max : DEPLOYMENT_QUEUE_MAX;
    return batch + waiting + min_u32(builder->sizes->requests_together, WAITING_LIMIT);
}

static void instance_config(const struct builder *builder, uint32_t pool_index, uint32_t node)
{
    const struct scenario *scenario = builder->scenario;
    const struct pool *pool = &scenario->pools[pool_index];
    const struct member *member = &builder->member[pool_index];
    uint32_t groups = member->geometry.parallelism.data;
    const struct architecture model = scenario_served(scenario, pool);
    builder->deployment->configs[node] = (struct node_config){
        .node = node,
        .role = pool->role,
        .seed = builder->seed,
        .front = 0,
        .geometry = member->geometry,
        .group_count = groups,
        .pages_per_group = narrow_u32(min_u64(member->footprint.pages, UINT32_MAX / 2)),
        .requests_max = requests_max(builder, pool, groups),
        .request_tokens_max = builder->sizes->request_tokens_max,
        .request_blocks_max = builder->sizes->request_blocks_max,
        .prefix_block_tokens = builder->sizes->prefix_block_tokens,
        .tail_bytes = model.tail_bytes,
        .tail_writes = model.tail_writes,
        .scheduler = pool->scheduler,
        .messenger = scenario->messenger,
        .conditional = scenario->conditional,
    };
    enum router_policy router = pool->role == ROLE_DECODE ? scenario->decode_router : scenario->prefill_router;
    builder->deployment->configs[node].scheduler.tell_evictions =
        pool->scheduler.prefix_cache &&
        (router == ROUTER_FUNCTION ||
         (scenario_prefills(scenario, pool) &&
          (router == ROUTER_PREFIX_AWARE || admission_counts_cached(&scenario->admission))));
    builder->deployment->configs[node].scheduler.receive_steps = pool->engine.receive_steps;
    builder->deployment->configs[node].scheduler.gather_steps = pool->engine.gather_steps;
}

static void front_config(const struct builder *builder)
{
    struct deployment *deployment = builder->deployment;
    uint32_t live = 1;
    for (uint32_t i = 1; i < deployment->node_count; i++)
        if (deployment->configs[i].role != ROLE_PREFILL)
            live += deployment->configs[i].requests_max;
    deployment->configs[0] = (struct node_config){
        .node = 0,
        .role = ROLE_FRONT,
        .seed = builder->seed,
        .requests_max = live,
        .request_tokens_max = builder->sizes->request_tokens_max,
        .request_blocks_max = builder->sizes->request_blocks_max,
        .prefix_block_tokens = builder->sizes->prefix_block_tokens,
        .messenger = builder->scenario->messenger,
        .decode_router = builder->scenario->decode_router,
        .prefill_router = builder->scenario->prefill_router,
        .conditional = builder->scenario->conditional,
        .pending_tokens_max = builder->scenario->pending_tokens_max,
        .node_affinity = builder->scenario->node_affinity != 0,
        .admission = builder->scenario->admission,
    };
}

static void make_instances(const struct builder *builder, const struct instance_place *places)
{
    struct deployment *deployment = builder->deployment;
    uint32_t node = 1;
    for (uint32_t p = 0; p < builder->scenario->pool_count; p++) {
        const struct pool *pool = &builder->scenario->pools[p];
        for (uint32_t i = 0; i < builder->choice->pool[p].count; i++, node++) {
            struct deployment_instance *instance = &deployment->instances[node];
            snprintf(instance->name, sizeof instance->name, "%s-%" PRIu32, pool->name, i);
            instance->pool = p;
            instance->ranks = builder->member[p].ranks;
            instance->parallelism = builder->member[p].geometry.parallelism;
            instance->footprint = builder->member[p].footprint;
            instance_config(builder, p, node);
            instance->place = places[node - 1];
        }
    }
    snprintf(deployment->instances[0].name, sizeof deployment->instances[0].name, "front");
    deployment->instances[0].pool = UINT32_MAX;
    deployment->instances[0].place.machine = deployment->instances[0].place.nvlink_domain = DEPLOYMENT_NO_MACHINE;
    front_config(builder);
}

/* ---- Peers ------------------------------------------------------------------------------------------------------ */

/* Whom a role talks to. Prefillers know decoders and decoders prefillers; all know the front, and it knows all. */
static bool acquainted(enum node_role role, enum node_role other)
{
    if (role == ROLE_FRONT || other == ROLE_FRONT)
        return role != other;
    return (role == ROLE_PREFILL && other == ROLE_DECODE) || (role == ROLE_DECODE && other == ROLE_PREFILL);
}

/* One list for each role, shared by all its nodes: none of them is in its own. */
static void make_peers(struct deployment *deployment)
{
    struct peer_config *next = deployment->peers;
    for (enum node_role role = ROLE_FRONT; role <= ROLE_MIXED; role++) {
        struct peer_config *first = next;
        for (uint32_t i = 0; i < deployment->node_count; i++) {
            const struct node_config *config = &deployment->configs[i];
            if (!acquainted(role, config->role))
                continue;
            *next++ = (struct peer_config){
                .node = i,
                .role = config->role,
                .caches = config->scheduler.prefix_cache != 0,
                .nvlink_domain = deployment->instances[i].place.nvlink_domain,
                .group_count = config->group_count,
                .pages_per_group = config->pages_per_group,
                .geometry = config->geometry,
            };
        }
        for (uint32_t i = 0; i < deployment->node_count; i++) {
            if (deployment->configs[i].role == role) {
                deployment->configs[i].peers = first;
                deployment->configs[i].peer_count = (uint32_t)(next - first);
            }
        }
    }
}

/* ---- Paths ------------------------------------------------------------------------------------------------------- */

static bool has_decoder_near(const struct deployment *deployment, const struct deployment_instance *prefiller)
{
    for (uint32_t d = 1; d < deployment->node_count; d++)
        if (deployment->configs[d].role == ROLE_DECODE &&
            deployment->instances[d].place.nvlink_domain == prefiller->place.nvlink_domain)
            return true;
    return false;
}

struct deployment_paths deployment_paths(const struct deployment *deployment, uint32_t prefill_pool,
                                         uint32_t decode_pool)
{
    struct deployment_paths paths = {0};
    bool paired = deployment->configs[0].node_affinity;
    for (uint32_t p = 1; p < deployment->node_count; p++) {
        const struct deployment_instance *from = &deployment->instances[p];
        if (deployment->configs[p].role != ROLE_PREFILL ||
            (prefill_pool != DEPLOYMENT_ANY_POOL && from->pool != prefill_pool))
            continue;
        for (uint32_t d = 1; d < deployment->node_count; d++) {
            const struct deployment_instance *to = &deployment->instances[d];
            bool near = from->place.nvlink_domain == to->place.nvlink_domain;
            if (deployment->configs[d].role != ROLE_DECODE ||
                (decode_pool != DEPLOYMENT_ANY_POOL && to->pool != decode_pool))
                continue;
            if (near)
                paths.by_nvlink++;
            else if (!paired || !has_decoder_near(deployment, from))
                paths.by_nic++;
        }
    }
    return paths;
}

const char *deployment_paths_name(const struct deployment_paths *paths)
{
    if (paths->by_nvlink > 0)
        return paths->by_nic > 0 ? "NVLink, NIC" : "NVLink";
    return paths->by_nic > 0 ? "NIC" : "none";
}

/* ---- All together ----------------------------------------------------------------------------------------------- */

static bool check_roles(const struct builder *builder, struct user_error *error)
{
    uint32_t count[ROLE_MIXED + 1] = {0};
    uint64_t nodes = 1;
    for (uint32_t p = 0; p < builder->scenario->pool_count; p++) {
        count[builder->scenario->pools[p].role] += builder->choice->pool[p].count;
        nodes += builder->choice->pool[p].count;
    }
    if (nodes > NODES_MAX) {
        user_error_set(error, NULL, 0, NULL, "%" PRIu64 " nodes, at most %d may take part", nodes, NODES_MAX);
        return false;
    }
    bool alone = conditional_is_on(&builder->scenario->conditional);
    bool pairs = count[ROLE_DECODE] > 0 && (count[ROLE_PREFILL] > 0 || alone);
    bool half = (count[ROLE_PREFILL] > 0 || count[ROLE_DECODE] > 0) && !pairs;
    if (half || (!pairs && count[ROLE_MIXED] == 0)) {
        user_error_set(error, NULL, 0, NULL, "a deployment needs prefill and decode instances, or mixed ones");
        return false;
    }
    return true;
}

/* Prefixes are shared in whole pages. */
static bool check_blocks(const struct builder *builder, const struct pool *pool, struct user_error *error)
{
    uint32_t block = builder->sizes->prefix_block_tokens;
    if (!pool->scheduler.prefix_cache || block % pool->page_tokens == 0)
        return true;
    user_error_set(error, NULL, 0, NULL,
                   "pool %s: the load shares prefixes in blocks of %" PRIu32
                   " tokens, which are not whole pages of %u: "
                   "a page that divides them is wanted, or prefix_cache = false",
                   pool->name, block, (unsigned)pool->page_tokens);
    return false;
}

static bool make_members(struct builder *builder, struct user_error *error)
{
    const struct scenario *scenario = builder->scenario;
    for (uint32_t p = 0; p < scenario->pool_count; p++) {
        const struct pool *pool = &scenario->pools[p];
        uint32_t count = builder->choice->pool[p].count;
        uint32_t sharding = builder->choice->pool[p].sharding;
        CHECK(sharding < pool->sharding_count);
        if (count > 0 &&
            (!check_blocks(builder, pool, error) ||
             !member_make(scenario, pool, sharding, builder->sizes->windows_in_pages, &builder->member[p], error)))
            return false;
        if (pool->role == ROLE_DECODE)
            builder->handoffs += count * min_u32(scenario->messenger.handoffs_max, STREAMS_MAX);
    }
    return true;
}

static void *make(size_t count, size_t size)
{
    void *memory = memory_zeroed(count, size);
    return memory;
}

/* Where the instances stand; NULL where the scenario asks for what does not go. The caller frees it. */
static struct instance_place *make_places(const struct builder *builder, uint32_t count,
                                          struct placement_totals *totals, struct user_error *error)
{
    struct placement_demand demand[SCENARIO_POOLS_MAX] = {{0}};
    for (uint32_t p = 0; p < builder->scenario->pool_count; p++)
        demand[p] = (struct placement_demand){builder->choice->pool[p].count, builder->member[p].ranks};
    struct instance_place *places = make(count, sizeof *places);
    if (placement_make(builder->scenario, demand, places, totals, error))
        return places;
    free(places);
    return NULL;
}

struct deployment *deployment_make(const struct scenario *scenario, const struct deployment_choice *choice,
                                   const struct deployment_sizes *sizes, uint64_t seed, struct user_error *error)
{
    struct builder builder = {.scenario = scenario, .choice = choice, .sizes = sizes, .seed = seed};
    CHECK(choice->pool_count == scenario->pool_count);
    if (!check_roles(&builder, error) || !make_members(&builder, error))
        return NULL;
    uint32_t nodes = 1;
    for (uint32_t p = 0; p < scenario->pool_count; p++)
        nodes += choice->pool[p].count;
    struct placement_totals totals;
    struct instance_place *places = make_places(&builder, nodes, &totals, error);
    if (places == NULL)
        return NULL;
    struct deployment *deployment = make(1, sizeof *deployment);
    deployment->node_count = nodes;
    deployment->machines = totals.machines;
    deployment->gpus = totals.gpus;
    deployment->usd_micros_per_hour = totals.usd_micros_per_hour;
    deployment->configs = make(deployment->node_count, sizeof *deployment->configs);
    deployment->instances = make(deployment->node_count, sizeof *deployment->instances);
    /* The front's list holds every instance, and each of the three others at most every node. */
    deployment->peers = make((size_t)deployment->node_count * 4, sizeof *deployment->peers);
    builder.deployment = deployment;
    make_instances(&builder, places);
    free(places);
    make_peers(deployment);
    return deployment;
}

void deployment_free(struct deployment *deployment)
{
    if (deployment == NULL)
        return;
    free(deployment->configs);
    free(deployment->instances);
    free(deployment->peers);
    free(deployment);
}
