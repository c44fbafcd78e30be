/* The space a scenario spans: every pair of a prefill and a decode pool, every sharding each offers, every pair of
 * counts in their ranges that the budget of machines allows; and aggregated workers, by sharding, token budget and
 * count.
 */
#include "base/arith.h"
#include "sim/plan/plan_internal.h"
#include "host/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Token budgets of aggregated workers. A small one protects decoding from prompts, a large one feeds the prompts; what
 * is best depends on the targets. */
static const uint32_t budgets[] = {512, 2048, 8192};

static struct plan_candidate *add(struct plan *plan)
{
    struct plan_result *result = plan->result;
    if (result->count == plan->capacity) {
        plan->capacity = max_u32(64, plan->capacity * 2);
        result->items = memory_resized(result->items, plan->capacity * sizeof *result->items);
    }
    struct plan_candidate *item = &result->items[result->count++];
    memset(item, 0, sizeof *item);
    return item;
}

static struct device_model *model_of(struct plan *plan, uint32_t pool, uint32_t sharding)
{
    const struct pool *p = &plan->scenario->pools[pool];
    struct device_model **model = &plan->models[pool][sharding];
    struct user_error *error = &plan->model_errors[pool][sharding];
    if (*model == NULL && !error->set)
        *model = device_model_of_pool(plan->scenario, p, p->shardings[sharding], error);
    if (*model != NULL && !error->set && !device_model_serves(*model, scenario_step_role(plan->scenario, p), error)) {
        device_model_free(*model);
        *model = NULL;
    }
    return *model;
}

/* "TP8"; "TP8 on H100" where pools are on different GPUs; "TP8 in spare" where several pools have the role: they may
 * differ in anything, so only the pool's name tells their candidates apart. */
static void side_text(const struct plan *plan, uint32_t pool, uint32_t sharding, char *text, size_t size)
{
    const struct scenario *scenario = plan->scenario;
    const struct pool *p = &scenario->pools[pool];
    bool differ = false;
    bool several = false;
    for (uint32_t i = 0; i < scenario->pool_count; i++) {
        differ |= strcmp(scenario->pools[i].hardware.gpu, p->hardware.gpu) != 0;
        several |= i != pool && scenario->pools[i].role == p->role;
    }
    char parallelism[48];
    parallelism_text(&p->shardings[sharding], parallelism, sizeof parallelism);
    if (several)
        snprintf(text, size, "%s in %s", parallelism, p->name);
    else
        snprintf(text, size, "%s%s%s", parallelism, differ ? " on " : "", differ ? p->hardware.gpu : "");
}

/* What aggregated workers of a pool run on: the same machines at the same price are one kind. */
static bool same_machines(const struct hardware *a, const struct hardware *b)
{
    return strcmp(a->name, b->name) == 0 && a->usd_micros_per_gpu_hour == b->usd_micros_per_gpu_hour &&
           a->memory_bytes == b->memory_bytes && a->gpus_per_node == b->gpus_per_node;
}

static void assess(struct plan *plan, struct candidate *candidate)
{
    candidate->scale = STEP_SCALE_NONE;
    if (candidate->refusal[0] == '\0')
        candidate_assess(candidate, &plan->demand, &plan->sizes);
    else
        candidate->bound_by = BOUND_DOES_NOT_FIT;
    candidate->cost = plan->priced ? candidate->usd_micros_per_hour : candidate->gpus;
}

static void set_model(struct plan *plan, struct candidate *candidate, uint32_t pool, uint32_t sharding,
                      uint32_t in_pool)
{
    candidate->models.pool[in_pool] = model_of(plan, pool, sharding);
    if (candidate->models.pool[in_pool] == NULL && candidate->refusal[0] == '\0')
        snprintf(candidate->refusal, sizeof candidate->refusal, "%.255s", plan->model_errors[pool][sharding].text);
}

/* Machines that two pools take at the least: instances that are smaller than a machine share one, also across pools on
 * one hardware. A deployment may need more, where instances do not fill machines evenly. */
static uint32_t machines_of(const struct pool *p, uint32_t p_gpus, const struct pool *d, uint32_t d_gpus)
{
    if (strcmp(p->hardware.name, d->hardware.name) == 0)
        return ceil_div_u32(p_gpus + d_gpus, p->hardware.gpus_per_node);
    return ceil_div_u32(p_gpus, p->hardware.gpus_per_node) + ceil_div_u32(d_gpus, d->hardware.gpus_per_node);
}

static void add_pair(struct plan *plan, const uint32_t pools[2], const uint32_t shardings[2], uint32_t prefill,
                     uint32_t decode)
{
    const struct scenario *scenario = plan->scenario;
    const struct pool *p = &scenario->pools[pools[0]];
    const struct pool *d = &scenario->pools[pools[1]];
    uint32_t machines = machines_of(p, prefill * kv_ranks(&p->shardings[shardings[0]]), d,
                                    decode * kv_ranks(&d->shardings[shardings[1]]));
    uint32_t machines_max = scenario->plan.nodes_max > 0 ? scenario->plan.nodes_max : UINT32_MAX;
    if (machines > machines_max)
        return;
    struct candidate *candidate = &add(plan)->candidate;
    candidate->scenario = scenario;
    candidate->choice.pool_count = scenario->pool_count;
    candidate->choice.pool[pools[0]].count = prefill;
    candidate->choice.pool[pools[0]].sharding = shardings[0];
    candidate->choice.pool[pools[1]].count = decode;
    candidate->choice.pool[pools[1]].sharding = shardings[1];
    candidate->models.pool_count = scenario->pool_count;
    candidate->prefill = prefill;
    candidate->decode = decode;
    char sides[2][96];
    for (uint32_t side = 0; side < 2; side++) {
        set_model(plan, candidate, pools[side], shardings[side], pools[side]);
        side_text(plan, pools[side], shardings[side], sides[side], sizeof sides[side]);
    }
    snprintf(candidate->sharding, sizeof candidate->sharding, "%s / %s", sides[0], sides[1]);
    snprintf(candidate->label, sizeof candidate->label, "%uP%uD %s", prefill, decode, candidate->sharding);
    assess(plan, candidate);
    if (candidate->machines > machines_max)
        plan->result->count--;
}

static void add_counts(struct plan *plan, const uint32_t pools[2], const uint32_t shardings[2])
{
    const struct pool *p = &plan->scenario->pools[pools[0]];
    const struct pool *d = &plan->scenario->pools[pools[1]];
    for (uint32_t prefill = max_u32(1, p->count_min); prefill <= p->count_max; prefill++)
        for (uint32_t decode = max_u32(1, d->count_min); decode <= d->count_max; decode++)
            add_pair(plan, pools, shardings, prefill, decode);
}

/* Dollars compare candidates only where every machine has a price. */
bool plan_priced(const struct scenario *scenario)
{
    for (uint32_t p = 0; p < scenario->pool_count; p++)
        if (scenario->pools[p].hardware.usd_micros_per_gpu_hour == 0)
            return false;
    return true;
}

/* ---- Aggregated -------------------------------------------------------------------------------------------------- */

/* The scenario in which a pool's machines serve alone, prompts and decoding in one worker, with a budget of tokens a
 * step. */
static struct scenario *aggregated_variant(struct plan *plan, uint32_t pool, uint32_t budget)
{
    struct scenario *variant = memory_get(sizeof *variant);
    *variant = *plan->scenario;
    variant->pool_count = 1;
    variant->pools[0] = plan->scenario->pools[pool];
    variant->pools[0].placement = (struct placement){.kind = PLACEMENT_PACKED}; /* by other pools there are none */
    variant->pools[0].scheduler.token_budget = budget;
    if (variant->pools[0].role != ROLE_MIXED) {
        snprintf(variant->pools[0].name, sizeof variant->pools[0].name, "mixed");
        variant->pools[0].role = ROLE_MIXED;
        /* A prefill pool's limits were not set with decoding in mind. */
        for (uint32_t p = 0; p < plan->scenario->pool_count; p++)
            variant->pools[0].scheduler.batch_max =
                max_u32(variant->pools[0].scheduler.batch_max, plan->scenario->pools[p].scheduler.batch_max);
    }
    /* Aggregated workers draft as the decoders do. */
    const struct pool *drafter = scenario_drafter(plan->scenario, &plan->scenario->pools[pool]);
    if (drafter != NULL) {
        variant->pools[0].scheduler.draft_tokens = drafter->scheduler.draft_tokens;
        variant->pools[0].scheduler.acceptance_permille = drafter->scheduler.acceptance_permille;
        memcpy(variant->pools[0].scheduler.place_permille, drafter->scheduler.place_permille,
               sizeof drafter->scheduler.place_permille);
        variant->pools[0].draft = drafter->draft;
    }
    struct plan_result *result = plan->result;
    result->variants = memory_resized(result->variants, (result->variant_count + 1) * sizeof *result->variants);
    result->variants[result->variant_count++] = variant;
    return variant;
}

static void add_aggregated(struct plan *plan, const struct scenario *variant, uint32_t pool, uint32_t sharding,
                           uint32_t count)
{
    uint32_t machines_max = plan->scenario->plan.nodes_max > 0 ? plan->scenario->plan.nodes_max : UINT32_MAX;
    struct candidate *candidate = &add(plan)->candidate;
    candidate->scenario = variant;
    candidate->aggregated = true;
    candidate->decode = count;
    candidate->choice.pool_count = 1;
    candidate->choice.pool[0].count = count;
    candidate->choice.pool[0].sharding = sharding;
    candidate->models.pool_count = 1;
    set_model(plan, candidate, pool, sharding, 0);
    side_text(plan, pool, sharding, candidate->sharding, sizeof candidate->sharding);
    snprintf(candidate->label, sizeof candidate->label, "%u x %s aggregated, budget %u", count, candidate->sharding,
             variant->pools[0].scheduler.token_budget);
    assess(plan, candidate);
    if (candidate->machines > machines_max)
        plan->result->count--;
}

/* How many workers of so many ranks a number of machines holds. */
static uint32_t workers_on(uint32_t machines, uint32_t ranks, uint32_t node_gpus)
{
    return ranks <= node_gpus ? machines * (node_gpus / ranks) : machines / ceil_div_u32(ranks, node_gpus);
}

/* Workers that serve alone share nothing but the router: per dollar, more of them serve no less. Where the most for the
 * money is wanted, only the most of them are searched, and the most that leave no machine in part unused. */
static void add_aggregated_counts(struct plan *plan, const struct scenario *variant, uint32_t pool, uint32_t sharding,
                                  uint32_t least, uint32_t most)
{
    const struct pool *p = &plan->scenario->pools[pool];
    uint32_t ranks = kv_ranks(&p->shardings[sharding]);
    uint32_t filling = most;
    while (filling > least && filling * ranks % p->hardware.gpus_per_node != 0)
        filling--;
    bool all = plan->options->exhaustive || plan->scenario->plan.goal == PLAN_SERVE_RATE;
    for (uint32_t count = max_u32(1, least); count <= most; count++)
        if (all || count == most || count == filling)
            add_aggregated(plan, variant, pool, sharding, count);
}

/* Whether an earlier pool of the scenario offers the same machines and sharding. */
static bool seen_before(const struct scenario *scenario, uint32_t pool, uint32_t sharding)
{
    const struct pool *p = &scenario->pools[pool];
    for (uint32_t i = 0; i <= pool; i++) {
        const struct pool *q = &scenario->pools[i];
        if (q->role == ROLE_MIXED || !same_machines(&q->hardware, &p->hardware))
            continue;
        for (uint32_t s = 0; s < (i == pool ? sharding : q->sharding_count); s++)
            if (parallelism_same(&q->shardings[s], &p->shardings[sharding]))
                return true;
    }
    return false;
}

static void enumerate_aggregated(struct plan *plan, uint32_t pool, uint32_t budget, uint32_t machines)
{
    const struct pool *p = &plan->scenario->pools[pool];
    const struct scenario *variant = NULL;
    for (uint32_t s = 0; s < p->sharding_count; s++) {
        bool own = p->role == ROLE_MIXED;
        if (!own && seen_before(plan->scenario, pool, s))
            continue;
        if (variant == NULL)
            variant = aggregated_variant(plan, pool, budget);
        uint32_t fits = workers_on(machines, kv_ranks(&p->shardings[s]), p->hardware.gpus_per_node);
        uint32_t most = !own ? fits : plan->scenario->plan.nodes_max > 0 ? min_u32(fits, p->count_max) : p->count_max;
        add_aggregated_counts(plan, variant, pool, s, own ? p->count_min : 1, most);
    }
}

/* A mixed pool's own counts; and, where the scenario wants the comparison, as many workers as the machines of a prefill
 * or decode pool hold. */
static void enumerate_all_aggregated(struct plan *plan)
{
    const struct scenario *scenario = plan->scenario;
    uint32_t machines = scenario->plan.nodes_max;
    for (uint32_t i = 0; i < plan->result->count && scenario->plan.nodes_max == 0; i++)
        machines = max_u32(machines, plan->result->items[i].candidate.machines);
    for (uint32_t pool = 0; pool < scenario->pool_count; pool++) {
        const struct pool *p = &scenario->pools[pool];
        bool own = p->role == ROLE_MIXED;
        if (!own && !scenario->plan.compare_mixed)
            continue;
        bool standard = false;
        for (size_t b = 0; b < sizeof budgets / sizeof *budgets; b++) {
            enumerate_aggregated(plan, pool, budgets[b], machines);
            standard |= budgets[b] == p->scheduler.token_budget;
        }
        if (own && !standard)
            enumerate_aggregated(plan, pool, p->scheduler.token_budget, machines);
    }
}

bool plan_enumerate(struct plan *plan)
{
    const struct scenario *scenario = plan->scenario;
    for (uint32_t p = 0; p < scenario->pool_count; p++) {
        if (scenario->pools[p].role != ROLE_PREFILL)
            continue;
        for (uint32_t d = 0; d < scenario->pool_count; d++) {
            if (scenario->pools[d].role != ROLE_DECODE)
                continue;
            for (uint32_t s = 0; s < scenario->pools[p].sharding_count; s++)
                for (uint32_t t = 0; t < scenario->pools[d].sharding_count; t++)
                    add_counts(plan, (uint32_t[]){p, d}, (uint32_t[]){s, t});
        }
    }
    enumerate_all_aggregated(plan);
    return plan->result->count > 0;
}

void plan_space_free(struct plan *plan)
{
    for (uint32_t pool = 0; pool < SCENARIO_POOLS_MAX; pool++)
        for (uint32_t s = 0; s < SCENARIO_SHARDINGS_MAX; s++)
            device_model_free(plan->models[pool][s]);
    for (uint32_t i = 0; i < plan->result->count; i++)
        plan->result->items[i].candidate.models = (struct run_models){.pool_count = 0};
}

bool plan_better(uint64_t rate_a, const struct candidate *a, uint64_t rate_b, const struct candidate *b)
{
    uint128 left = (uint128)rate_a * b->cost;
    uint128 right = (uint128)rate_b * a->cost;
    if (left != right)
        return left > right;
    return a->cost != b->cost ? a->cost < b->cost : a->gpus < b->gpus;
}
