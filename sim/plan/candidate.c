/* See candidate.h. */
#include "sim/plan/candidate.h"

#include "base/arith.h"
#include "host/workload.h"

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

bool demand_make(struct demand *demand, const struct scenario *scenario, const struct trace_file *recorded,
                 uint32_t count, char *error, size_t error_size)
{
    struct user_error reason = {.set = false};
    struct load load = scenario->load;
    *demand = (struct demand){.count = 0};
    if (recorded == NULL) {
        load.requests = count;
        load.duration_ns = 0;
        if (load.rate_micro_per_s == 0)
            load.rate_micro_per_s = 1000000;
    }
    struct workload *workload = workload_create(&load, 1, recorded, &reason);
    if (workload == NULL) {
        snprintf(error, error_size, "%s", reason.text);
        return false;
    }
    struct workload_summary summary;
    workload_describe(workload, &summary);
    uint64_t stride = recorded == NULL ? 1 : max_u64(1, summary.requests / count);
    demand->prompt_tokens = calloc(count, sizeof *demand->prompt_tokens);
    demand->output_tokens = calloc(count, sizeof *demand->output_tokens);
    CHECK(demand->prompt_tokens != NULL && demand->output_tokens != NULL);
    struct workload_item item;
    for (uint64_t i = 0; demand->count < count && workload_next(workload, &item); i++) {
        if (item.is_abort || i % stride != 0)
            continue;
        demand->prompt_tokens[demand->count] = item.spec.prompt_tokens;
        demand->output_tokens[demand->count] = item.spec.output_tokens;
        demand->prompt_sum += item.spec.prompt_tokens;
        demand->output_sum += item.spec.output_tokens;
        demand->count++;
    }
    workload_free(workload);
    if (demand->count == 0)
        snprintf(error, error_size, "the load has no requests");
    return demand->count > 0;
}

void demand_free(struct demand *demand)
{
    free(demand->prompt_tokens);
    free(demand->output_tokens);
}

/* ---- Bounds ------------------------------------------------------------------------------------------------------ */

/* Requests per 1e6 s that something serves which takes total_ns for `count` of them. */
static uint64_t rate_of(uint64_t count, uint64_t total_ns)
{
    return total_ns == 0 ? UINT64_MAX : mul_div_floor_u64(count * 1000000, (uint64_t)NS_PER_S, total_ns);
}

/* One instance, prompts back to back in full steps: prompts fill the groups' budgets in turn. */
static uint64_t prefill_ns(const struct device_model *model, const struct pool *pool, uint32_t groups,
                           const struct demand *demand)
{
    struct step_group sums[GROUPS_MAX];
    uint64_t total_ns = 0;
    uint32_t group = 0;
    memset(sums, 0, groups * sizeof *sums);
    for (uint32_t i = 0; i < demand->count; i++) {
        uint64_t left = demand->prompt_tokens[i];
        uint64_t done = 0;
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
                device_step(model, sums, groups, &time);
                total_ns += (uint64_t)time.total_ns;
                memset(sums, 0, groups * sizeof *sums);
                group = 0;
            }
        }
    }
    return total_ns;
}

static int64_t tpot_limit_ns(const struct targets *targets)
{
    int64_t limit_ns = TIME_NEVER;
    for (uint32_t t = 0; t < targets->count; t++)
        if (targets->item[t].metric == TARGET_TPOT || targets->item[t].metric == TARGET_ITL)
            limit_ns = min_i64(limit_ns, targets->item[t].limit_ns);
    return limit_ns;
}

static int64_t decode_step_ns(const struct device_model *model, uint32_t groups, uint64_t batch, uint64_t context)
{
    struct step_group sums[GROUPS_MAX];
    for (uint32_t g = 0; g < groups; g++)
        sums[g] = (struct step_group){.decode_sequences = (uint32_t)batch, .decode_context = batch * context};
    struct step_time time;
    device_step(model, sums, groups, &time);
    return time.total_ns;
}

struct decode_bound {
    uint64_t batch; /* per group; 0: not even one sequence is fast enough */
    int64_t step_ns;
    enum bound by;
};

/* The largest batch whose step is within the target and whose KV fits: all groups alike, contexts at their mean. */
static struct decode_bound largest_batch(const struct device_model *model, const struct pool *pool, uint32_t groups,
                                         uint64_t pages, const struct demand *demand, int64_t limit_ns)
{
    /* A token is produced at a context of the prompt and half the output, in the mean over tokens. */
    uint64_t weighted = 0;
    for (uint32_t i = 0; i < demand->count; i++)
        weighted += (uint64_t)demand->output_tokens[i] * (demand->prompt_tokens[i] + demand->output_tokens[i] / 2);
    uint64_t context = weighted / demand->output_sum;
    uint64_t by_memory = pages * pool->page_tokens / max_u64(1, context);
    uint64_t high = min_u64(by_memory, pool->scheduler.batch_max);
    enum bound cap = by_memory < pool->scheduler.batch_max ? BOUND_KV_CAPACITY : BOUND_BATCH_LIMIT;
    if (high == 0)
        return (struct decode_bound){.by = BOUND_KV_CAPACITY};
    int64_t high_ns = decode_step_ns(model, groups, high, context);
    if (high_ns <= limit_ns)
        return (struct decode_bound){.batch = high, .step_ns = high_ns, .by = cap};
    uint64_t low = 0;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (decode_step_ns(model, groups, middle, context) <= limit_ns)
            low = middle;
        else
            high = middle;
    }
    if (low == 0)
        return (struct decode_bound){.by = BOUND_DECODE_BANDWIDTH};
    return (struct decode_bound){
        .batch = low, .step_ns = decode_step_ns(model, groups, low, context), .by = BOUND_DECODE_BANDWIDTH};
}

static void lower(struct candidate *candidate, uint64_t rate, enum bound by)
{
    if (rate < candidate->bound_micro_per_s) {
        candidate->bound_micro_per_s = rate;
        candidate->bound_by = by;
    }
}

/* What all NICs of a side carry together, were all of them always busy. */
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
    uint64_t carried = mul_u64(token_bytes, demand->prompt_sum / demand->count + 1);
    uint64_t slower = min_u64(side_bytes_per_s[0], side_bytes_per_s[1]);
    lower(candidate, mul_div_floor_u64(slower, 1000000, max_u64(1, carried)), BOUND_NIC_BANDWIDTH);
}

static void bound_pool(struct candidate *candidate, const struct deployment *deployment, uint32_t node,
                       uint64_t instances, const struct demand *demand)
{
    const struct scenario *scenario = candidate->scenario;
    uint32_t index = deployment->instances[node].pool;
    const struct pool *pool = &scenario->pools[index];
    const struct device_model *model = candidate->models.pool[index];
    uint32_t groups = deployment->configs[node].group_count;
    uint64_t prompts_ns = pool->role == ROLE_DECODE ? 0 : prefill_ns(model, pool, groups, demand);
    if (pool->role != ROLE_DECODE)
        candidate->prompt_ns = prompts_ns / demand->count;
    uint64_t tokens_ns = 0;
    enum bound by = BOUND_PREFILL_COMPUTE;
    if (pool->role != ROLE_PREFILL) {
        struct decode_bound best = largest_batch(model, pool, groups, deployment->configs[node].pages_per_group, demand,
                                                 tpot_limit_ns(&scenario->targets));
        if (best.batch == 0) {
            lower(candidate, 0, best.by);
            return;
        }
        tokens_ns = mul_div_floor_u64(demand->output_sum, (uint64_t)best.step_ns, best.batch * groups);
        if (tokens_ns > prompts_ns)
            by = best.by;
    }
    lower(candidate, mul_u64(rate_of(demand->count, prompts_ns + tokens_ns), instances), by);
}

void candidate_assess(struct candidate *candidate, const struct demand *demand, const struct deployment_sizes *sizes)
{
    struct deployment *deployment = deployment_make(candidate->scenario, &candidate->choice, sizes, 1,
                                                    candidate->refusal, sizeof candidate->refusal);
    candidate->bound_micro_per_s = UINT64_MAX;
    if (deployment == NULL) {
        candidate->bound_micro_per_s = 0;
        candidate->bound_by = BOUND_DOES_NOT_FIT;
        return;
    }
    candidate->machines = deployment->machines;
    candidate->gpus = deployment->gpus;
    candidate->usd_micros_per_hour = deployment->usd_micros_per_hour;
    for (uint32_t n = 1; n < deployment->node_count; n++) {
        uint32_t pool = deployment->instances[n].pool;
        bool first = n == 1 || deployment->instances[n - 1].pool != pool;
        if (first)
            bound_pool(candidate, deployment, n, candidate->choice.pool[pool].count, demand);
    }
    if (!candidate->mixed)
        bound_by_nics(candidate, deployment, demand);
    deployment_free(deployment);
}
