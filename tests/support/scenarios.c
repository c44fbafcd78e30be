/* See scenarios.h. The values are those of the shipped model and hardware files, rounded; nothing here is a claim. */
#include "support/scenarios.h"

#include "base/arith.h"

#include <stdio.h>
#include <string.h>

static struct hardware h100(void)
{
    return (struct hardware){
        .name = "h100-sxm",
        .gpu = "H100",
        .gpus_per_node = 8,
        .memory_bytes = UINT64_C(85899345920),
        .memory_bytes_per_s = UINT64_C(3350000000000),
        .bf16_flops = UINT64_C(989000000000000),
        .fp8_flops = UINT64_C(1979000000000000),
        .nvlink_bytes_per_s = UINT64_C(450000000000),
        .nic = {.name = "cx7",
                .base_ns = 11200,
                .bytes_per_s = UINT64_C(46800000000),
                .gap_ps = 86000,
                .knee_permille = 1750,
                .posting_ps = 86000,
                .queue_depth = 1024},
        .watcher_ns = 6200,
        .poll_ns = 1000,
        .message_ns = 30000,
        .usd_micros_per_gpu_hour = 2500000,
    };
}

static struct architecture llama_70b(void)
{
    return (struct architecture){
        .name = "Llama-3.1-70B",
        .attention = ATTENTION_GQA,
        .layers = 80,
        .dense_layers = 80,
        .hidden = 8192,
        .heads = 64,
        .kv_heads = 8,
        .head_dim = 128,
        .vocab = 128256,
        .intermediate = 28672,
        .weight_format = FORMAT_FP8,
        .expert_weight_format = FORMAT_FP8,
        .kv_format = FORMAT_BF16,
        .tail_bytes = 16384,
        .tail_writes = 1,
    };
}

static struct pool pool(const char *name, enum node_role role, uint32_t count)
{
    struct pool made = {
        .role = role,
        .count = count,
        .count_min = count,
        .count_max = count,
        .hardware = h100(),
        .sharding_count = 1,
        .shardings = {{.tensor = 4, .data = 1, .expert = 1, .pipeline = 1}},
        .page_tokens = 64,
        .layout = LAYOUT_HND,
        .memory_utilization_permille = 900,
        .engine = engine_neutral(),
        .scheduler =
            {.queue = QUEUE_FCFS, .token_budget = 8192, .batch_max = 256, .headroom_tokens = 256, .repeat_max = 1024},
    };
    snprintf(made.name, sizeof made.name, "%s", name);
    return made;
}

static void common(struct scenario *scenario, uint32_t rate, uint32_t requests)
{
    memset(scenario, 0, sizeof *scenario);
    snprintf(scenario->name, sizeof scenario->name, "test");
    scenario->model = llama_70b();
    scenario->load = (struct load){
        .arrivals = ARRIVAL_POISSON,
        .rate_micro_per_s = (uint64_t)rate * 1000000,
        .requests = requests,
        .prompt = {.kind = LENGTH_UNIFORM, .low = 512, .high = 2048},
        .output = {.kind = LENGTH_UNIFORM, .low = 128, .high = 256},
    };
    scenario->decode_router = ROUTER_LEAST_KV;
    scenario->prefill_router = ROUTER_LEAST_QUEUED_TOKENS;
    scenario->messenger =
        (struct messenger_policy){.deadline_ns = 120 * NS_PER_S, .attempts_max = 3, .handoffs_max = 64};
    scenario->targets = (struct targets){
        .count = 2,
        .item = {{.metric = TARGET_TTFT, .percentile_permille = 950, .limit_ns = 2 * NS_PER_S},
                 {.metric = TARGET_TPOT, .percentile_permille = 950, .limit_ns = 25 * NS_PER_MS}},
        .attainment_permille = 900,
    };
    scenario->seed = 1;
}

void scenario_llama_70b(struct scenario *scenario, uint32_t prefill, uint32_t decode, uint32_t rate, uint32_t requests)
{
    common(scenario, rate, requests);
    scenario->pool_count = 2;
    scenario->pools[0] = pool("prefill", ROLE_PREFILL, prefill);
    scenario->pools[1] = pool("decode", ROLE_DECODE, decode);
}

void scenario_llama_70b_mixed(struct scenario *scenario, uint32_t mixed, uint32_t rate, uint32_t requests)
{
    common(scenario, rate, requests);
    scenario->pool_count = 1;
    scenario->pools[0] = pool("mixed", ROLE_MIXED, mixed);
}
