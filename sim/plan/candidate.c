/* See candidate.h. */
#include "sim/plan/candidate.h"

#include "base/arith.h"
#include "serve/token_clock.h"
#include "world/load/workload.h"
#include "host/memory.h"
#include "host/user_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *bound_name(enum bound bound)
{
    static const char *const names[] = {
        [BOUND_NONE] = "none",
        [BOUND_PREFILL_COMPUTE] = "prefill compute",
        [BOUND_DECODE_COMPUTE] = "decode compute",
        [BOUND_DECODE_BANDWIDTH] = "decode bandwidth",
        [BOUND_DECODE_COMMUNICATION] = "decode communication",
        [BOUND_DECODE_OVERHEAD] = "decode overhead",
        [BOUND_KV_CAPACITY] = "KV capacity",
        [BOUND_HANDOFFS] = "hand-offs in flight",
        [BOUND_NIC_BANDWIDTH] = "NIC bandwidth",
        [BOUND_NIC_OP_RATE] = "NIC op rate",
        [BOUND_DOES_NOT_FIT] = "model does not fit",
        [BOUND_PREFILL_INTERFERENCE] = "prefill interference",
        [BOUND_BATCH_LIMIT] = "batch limit",
    };
    return names[bound];
}

/* ---- Demand ------------------------------------------------------------------------------------------------------ */

/* Prefix blocks seen so far, by hash: open addressing, never asked for its order. */
struct seen_blocks {
    uint64_t *cells;
    uint64_t mask;
};

static void seen_make(struct seen_blocks *seen, const struct trace_file *recorded, uint64_t most)
{
    uint64_t blocks = recorded == NULL || recorded->block_tokens == 0 ? most : recorded->block_first[recorded->count];
    uint64_t size = 2;
    while (size < 2 * blocks + 2)
        size *= 2;
    seen->mask = size - 1;
    seen->cells = memory_zeroed(size, sizeof *seen->cells);
}

/* Notes a block; true when it was there. */
static bool seen_before(struct seen_blocks *seen, uint64_t hash)
{
    uint64_t key = hash == 0 ? 1 : hash;
    uint64_t cell = key * UINT64_C(0x9e3779b97f4a7c15) & seen->mask;
    while (seen->cells[cell] != 0 && seen->cells[cell] != key)
        cell = (cell + 1) & seen->mask;
    bool there = seen->cells[cell] == key;
    seen->cells[cell] = key;
    return there;
}

/* Tokens of a prompt whose blocks have all come before, as if nothing were ever evicted or routed elsewhere. One token
 * is always computed. */
static uint32_t cached_at_most(struct seen_blocks *seen, const struct request_spec *spec)
{
    uint64_t tokens = 0;
    bool leading = true;
    for (uint32_t b = 0; b < spec->block_count; b++) {
        leading &= seen_before(seen, spec->blocks[b]);
        tokens += leading ? spec->block_tokens : 0;
    }
    return (uint32_t)min_u64(tokens, spec->prompt_tokens - 1);
}

static void demand_draw(struct demand *demand, struct workload *workload, uint64_t stride, uint32_t count,
                        struct seen_blocks *seen)
{
    struct workload_item item;
    uint64_t number = 0;
    while (demand->count < count && workload_next(workload, &item)) {
        if (item.is_abort)
            continue;
        uint32_t cached = cached_at_most(seen, &item.spec);
        workload_answered(workload, item.spec.id, item.arrival_ns); /* as if at once: the conversation's next turn */
        if (number++ % stride != 0)
            continue;
        demand->prompt_tokens[demand->count] = item.spec.prompt_tokens;
        demand->output_tokens[demand->count] = item.spec.output_tokens;
        demand->cached_tokens[demand->count] = cached;
        demand->prompt_sum += item.spec.prompt_tokens;
        demand->output_sum += item.spec.output_tokens;
        demand->count++;
    }
}

bool demand_make(struct demand *demand, const struct scenario *scenario, const struct trace_file *recorded,
                 uint32_t count, struct user_error *error)
{
    struct load load = scenario->load;
    *demand = (struct demand){.count = 0};
    if (recorded == NULL) {
        load.requests = count;
        load.duration_ns = 0;
        if (load.rate_micro_per_s == 0)
            load.rate_micro_per_s = 1000000;
    }
    struct workload *workload = workload_create(&load, 1, recorded, error);
    if (workload == NULL)
        return false;
    struct workload_summary summary;
    workload_describe(workload, &summary);
    uint64_t stride = recorded == NULL ? 1 : max_u64(1, summary.requests / count);
    demand->prompt_tokens = memory_zeroed(count, sizeof *demand->prompt_tokens);
    demand->output_tokens = memory_zeroed(count, sizeof *demand->output_tokens);
    demand->cached_tokens = memory_zeroed(count, sizeof *demand->cached_tokens);
    struct seen_blocks seen;
    seen_make(&seen, recorded, recorded == NULL ? (uint64_t)count * deployment_sizes(&load).request_blocks_max : 0);
    demand_draw(demand, workload, stride, count, &seen);
    free(seen.cells);
    workload_free(workload);
    if (demand->count == 0)
        user_error_set(error, NULL, 0, NULL, "the load has no requests");
    return demand->count > 0;
}

void demand_free(struct demand *demand)
{
    free(demand->prompt_tokens);
    free(demand->output_tokens);
    free(demand->cached_tokens);
}

uint64_t demand_context(const struct demand *demand)
{
    /* A token is produced at a context of the prompt and half the output, in the mean over tokens. */
    uint64_t weighted = 0;
    for (uint32_t i = 0; i < demand->count; i++)
        weighted += (uint64_t)demand->output_tokens[i] * (demand->prompt_tokens[i] + demand->output_tokens[i] / 2);
    return weighted / max_u64(1, demand->output_sum);
}

/* ---- Bounds ------------------------------------------------------------------------------------------------------ */

/* Requests per 1e6 s that something serves which takes total_ns for `count` of them. */
static uint64_t rate_of(uint64_t count, uint64_t total_ns)
{
    return total_ns == 0 ? UINT64_MAX : mul_div_floor_u64(count * 1000000, (uint64_t)NS_PER_S, total_ns);
}

/* One instance, prompts back to back in full steps: prompts fill the groups' budgets in turn. What a prefix cache could
 * have of them is not computed. */
static uint64_t prefill_ns(struct device device, const struct pool *pool, uint32_t groups, const struct demand *demand)
{
    struct step_group sums[GROUPS_MAX];
    uint64_t total_ns = 0;
    uint32_t group = 0;
    memset(sums, 0, groups * sizeof *sums);
    for (uint32_t i = 0; i < demand->count; i++) {
        uint64_t done = pool->scheduler.prefix_cache ? demand->cached_tokens[i] : 0;
        uint64_t left = demand->prompt_tokens[i] - done;
        while (left > 0) {
            uint64_t q = min_u64(left, pool->scheduler.token_budget - sums[group].prefill_tokens);
            sums[group].prefill_sequences++;
            sums[group].prefill_tokens += q;
            sums[group].prefill_context += done;
            sums[group].prefill_pairs += q * done + q * (q + 1) / 2;
            left -= q;
            done += q;
            bool last = i + 1 == demand->count && left == 0;
            if (sums[group].prefill_tokens == pool->scheduler.token_budget)
                group++;
            if (group == groups || last) {
                struct step_time time;
                device.ops->step(device.model, sums, groups, &time);
                total_ns += (uint64_t)step_interval_ns(&time, device.stages);
                memset(sums, 0, groups * sizeof *sums);
                group = 0;
            }
        }
    }
    return total_ns;
}

/* A sequence's share of a step's time for one of the tokens that it takes in it, or the step's for all of them. */
static int64_t of_step(int64_t step_ns, uint32_t yield)
{
    return (int64_t)mul_div_floor_u64((uint64_t)step_ns, TOKEN_CLOCK_ONE, yield);
}

/* The inverse: the step whose tokens take so long each. */
static int64_t steps_for(int64_t token_ns, uint32_t yield)
{
    if (token_ns > TIME_NEVER / 16) /* more tokens than a step can yield */
        return TIME_NEVER;
    return (int64_t)mul_div_floor_u64((uint64_t)token_ns, yield, TOKEN_CLOCK_ONE);
}

/* What the mean step may take that yields so many tokens a sequence. A target that most may miss says nothing about the
 * mean. Of the gaps between tokens those within a step are nothing, and the others a step. */
static int64_t step_limit_ns(const struct targets *targets, uint32_t yield)
{
    int64_t limit_ns = TIME_NEVER;
    for (uint32_t t = 0; t < targets->count; t++) {
        const struct target *target = &targets->item[t];
        bool of_tokens = target->metric == TARGET_TPOT || target->metric == TARGET_ITL;
        if (of_tokens && target->percentile_permille >= 500)
            limit_ns =
                min_i64(limit_ns, target->metric == TARGET_ITL ? target->limit_ns : steps_for(target->limit_ns, yield));
    }
    return limit_ns;
}

/* Over pipeline stages the batch is in as many microbatches, and a sequence's next step follows when its own has passed
 * all stages and each of the others has had its turn. */
static struct step_time decode_step(struct device device, uint32_t groups, uint64_t batch, uint64_t context)
{
    struct step_group sums[GROUPS_MAX];
    uint32_t stages = max_u32(1, device.stages);
    uint64_t together = ceil_div_u64(batch, stages);
    for (uint32_t g = 0; g < groups; g++)
        sums[g] = (struct step_group){.decode_sequences = (uint32_t)together, .decode_context = together * context};
    struct step_time time;
    device.ops->step(device.model, sums, groups, &time);
    int64_t round_ns = (int64_t)min_u64(batch, stages) * step_interval_ns(&time, stages);
    time.total_ns = max_i64(time.total_ns, round_ns);
    return time;
}

static enum bound step_bound_of(const struct step_time *time)
{
    switch (time->bound) {
    case BOUND_COMPUTE:
        return BOUND_DECODE_COMPUTE;
    case BOUND_COMMUNICATION:
        return BOUND_DECODE_COMMUNICATION;
    case BOUND_OVERHEAD:
        return BOUND_DECODE_OVERHEAD;
    case BOUND_BANDWIDTH:
        break;
    }
    return BOUND_DECODE_BANDWIDTH;
}

struct decode_bound {
    uint64_t batch; /* per group; 0: not even one sequence fits, or is fast enough */
    int64_t step_ns;
    int64_t alone_ns; /* a step of one sequence a group */
    enum bound by;
};

/* A batch of one that is slower than the limit by less than this may still meet it: contexts differ from their mean. */
#define ALONE_SLACK_PERMILLE 150

/* The largest batch whose step is within the target and whose KV fits: all groups alike, contexts at their mean. */
static struct decode_bound largest_batch(struct device device, const struct pool *pool, uint32_t groups, uint64_t pages,
                                         const struct demand *demand, int64_t limit_ns)
{
    uint64_t context = demand_context(demand);
    uint64_t by_memory = pages * pool->page_tokens / max_u64(1, context);
    uint64_t high = min_u64(by_memory, pool->scheduler.batch_max);
    enum bound cap = by_memory < pool->scheduler.batch_max ? BOUND_KV_CAPACITY : BOUND_BATCH_LIMIT;
    struct step_time alone = decode_step(device, groups, 1, context);
    struct decode_bound bound = {.alone_ns = alone.total_ns, .by = BOUND_KV_CAPACITY};
    if (high == 0)
        return bound;
    struct step_time time = decode_step(device, groups, high, context);
    uint64_t low = high;
    if (time.total_ns > limit_ns) {
        low = alone.total_ns - alone.total_ns / 1000 * ALONE_SLACK_PERMILLE <= limit_ns ? 1 : 0;
        while (low > 0 && high - low > 1) {
            uint64_t middle = low + (high - low) / 2;
            if (decode_step(device, groups, middle, context).total_ns <= limit_ns)
                low = middle;
            else
                high = middle;
        }
        time = low == 0 ? alone : decode_step(device, groups, low, context);
        cap = step_bound_of(&time);
    }
    bound.batch = low;
    bound.step_ns = time.total_ns;
    bound.by = cap;
    return bound;
}

static void lower(struct candidate *candidate, uint64_t rate, enum bound by)
{
    if (rate < candidate->bound_micro_per_s) {
        candidate->bound_micro_per_s = rate;
        candidate->bound_by = by;
    }
}

/* What all NICs of a side carry together, were all of them always busy and no rank beside that of another instance. */
static void bound_by_nics(struct candidate *candidate, const struct deployment *deployment, const struct demand *demand)
{
    const struct scenario *scenario = candidate->scenario;
    uint64_t token_bytes = 0;
    uint64_t side_bytes_per_s[2] = {0, 0};
    for (uint32_t n = 1; n < deployment->node_count; n++) {
        const struct node_config *config = &deployment->configs[n];
        const struct nic *nic = &scenario->pools[deployment->instances[n].pool].hardware.nic;
        side_bytes_per_s[config->role == ROLE_DECODE] += nic->bytes_per_s * deployment->instances[n].ranks;
        if (config->role == ROLE_DECODE)
            token_bytes =
                kv_token_rank_bytes(&config->geometry, config->geometry.layers) * config->geometry.parallelism.tensor;
    }
    uint64_t cached_sum = 0;
    for (uint32_t i = 0; i < demand->count; i++)
        cached_sum += demand->cached_tokens[i];
    uint64_t carried = mul_u64(token_bytes, (demand->prompt_sum - cached_sum) / demand->count);
    uint64_t slower = min_u64(side_bytes_per_s[0], side_bytes_per_s[1]);
    if (candidate->paths.by_nvlink > 0)
        return;
    lower(candidate, mul_div_floor_u64(slower, 1000000, max_u64(1, carried)), BOUND_NIC_BANDWIDTH);
}

static void bound_pool(struct candidate *candidate, const struct deployment *deployment, uint32_t node,
                       uint64_t instances, const struct demand *demand)
{
    const struct scenario *scenario = candidate->scenario;
    uint32_t index = deployment->instances[node].pool;
    const struct pool *pool = &scenario->pools[index];
    struct scaled_device scaled = {.under = device_of(candidate->models.pool[index]), .scale = candidate->scale};
    struct device device = scaled_device_of(&scaled);
    uint32_t groups = deployment->configs[node].group_count;
    uint64_t prompts_ns = pool->role == ROLE_DECODE ? 0 : prefill_ns(device, pool, groups, demand);
    if (pool->role != ROLE_DECODE)
        candidate->prompt_ns = prompts_ns / demand->count;
    if (pool->role == ROLE_PREFILL && conditional_is_on(&scenario->conditional))
        return; /* decoders take what prefillers have no time for */
    uint64_t tokens_ns = 0;
    enum bound by = BOUND_PREFILL_COMPUTE;
    if (pool->role != ROLE_PREFILL) {
        uint32_t yield = token_clock_yield(pool->scheduler.draft_tokens, pool->scheduler.acceptance_permille,
                                           pool->scheduler.place_permille);
        struct decode_bound best = largest_batch(device, pool, groups, deployment->configs[node].pages_per_group,
                                                 demand, step_limit_ns(&scenario->targets, yield));
        candidate->token_ns = of_step(best.alone_ns, yield);
        if (best.batch == 0) {
            candidate->likely_micro_per_s = 0;
            lower(candidate, 0, best.by);
            return;
        }
        tokens_ns = mul_div_floor_u64(demand->output_sum, (uint64_t)of_step(best.step_ns, yield), best.batch * groups);
        if (tokens_ns > prompts_ns)
            by = best.by;
    }
    /* Mixed steps read the weights once for both kinds of work: what one kind takes is no more than a bound. */
    lower(candidate, mul_u64(rate_of(demand->count, max_u64(prompts_ns, tokens_ns)), instances), by);
    candidate->likely_micro_per_s =
        min_u64(candidate->likely_micro_per_s, mul_u64(rate_of(demand->count, prompts_ns + tokens_ns), instances));
}

/* The price of a machine that has none is not 0. */
static bool priced(const struct candidate *candidate)
{
    const struct scenario *scenario = candidate->scenario;
    for (uint32_t p = 0; p < scenario->pool_count; p++)
        if (candidate->choice.pool[p].count > 0 && scenario->pools[p].hardware.usd_micros_per_gpu_hour == 0)
            return false;
    return true;
}

void candidate_assess(struct candidate *candidate, const struct demand *demand, const struct deployment_sizes *sizes)
{
    struct user_error error = {.set = false};
    struct deployment *deployment = deployment_make(candidate->scenario, &candidate->choice, sizes, 1, &error);
    snprintf(candidate->refusal, sizeof candidate->refusal, "%.*s", (int)sizeof candidate->refusal - 1,
             error.set ? error.text : "");
    candidate->bound_micro_per_s = candidate->likely_micro_per_s = UINT64_MAX;
    if (deployment == NULL) {
        candidate->bound_micro_per_s = candidate->likely_micro_per_s = 0;
        candidate->bound_by = BOUND_DOES_NOT_FIT;
        return;
    }
    candidate->machines = deployment->machines;
    candidate->gpus = deployment->gpus;
    candidate->paths = deployment_paths(deployment, DEPLOYMENT_ANY_POOL, DEPLOYMENT_ANY_POOL);
    candidate->usd_micros_per_hour = priced(candidate) ? deployment->usd_micros_per_hour : 0;
    for (uint32_t n = 1; n < deployment->node_count; n++) {
        uint32_t pool = deployment->instances[n].pool;
        bool first = n == 1 || deployment->instances[n - 1].pool != pool;
        if (first)
            bound_pool(candidate, deployment, n, candidate->choice.pool[pool].count, demand);
    }
    if (!candidate->aggregated && !conditional_is_on(&candidate->scenario->conditional))
        bound_by_nics(candidate, deployment, demand);
    candidate->likely_micro_per_s = min_u64(candidate->likely_micro_per_s, candidate->bound_micro_per_s);
    deployment_free(deployment);
}
