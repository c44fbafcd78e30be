/* What the tables of all GPUs share: axes, the exchange among expert-parallel ranks on Hopper, and the imbalance of
 * routing. Source: ai-dynamo/aiconfigurator@095f58a (Apache-2.0), aic-core/src/aiconfigurator_core/systems/data.
 */
#include "sim/cost/efficiency_tables.h"

#include <string.h>

const struct grid_axis axis_gemm_m = {.count = 9, .nodes = {0, 4, 6, 7, 8, 9, 10, 12, 14}};
const struct grid_axis axis_gemm_n = {.count = 6, .nodes = {8, 10, 11, 12, 13, 14}};
const struct grid_axis axis_gemm_k = {.count = 6, .nodes = {8, 10, 11, 12, 13, 14}};
const struct grid_axis axis_moe_rows = {.count = 10, .nodes = {-5, -3, -2, -1, 0, 1, 3, 5, 7, 9}};
const struct grid_axis axis_moe_width = {.count = 6, .nodes = {7, 8, 9, 10, 11, 13}};
const struct grid_axis axis_moe_experts = {.count = 6, .nodes = {1, 3, 5, 7, 8, 9}};
const struct grid_axis axis_decode_heads = {.count = 6, .nodes = {0, 2, 4, 6, 8, 10}};
const struct grid_axis axis_decode_length = {.count = 6, .nodes = {6, 8, 10, 12, 14, 16}};
const struct grid_axis axis_mla_sequences = {.count = 5, .nodes = {0, 2, 4, 6, 8}};
const struct grid_axis axis_mla_length = {.count = 5, .nodes = {7, 10, 12, 14, 16}};
const struct grid_axis axis_mla_heads = {.count = 2, .nodes = {4, 7}};
const struct grid_axis axis_any = {.count = 1, .nodes = {0}};

/* DeepEP dispatch plus combine at 1, 4, 16, ... 2^16 tokens a rank, hidden 7168, top 8 of 256: the faster of the
 * low-latency and the normal kernels. One measurement on H100 and ConnectX-7 stands for all of Hopper; A100 borrows it.
 */
static const uint32_t deepep_hopper_1_values[DEEPEP_SIZES] = {
    28479, 29804, 35911, 68756, 186250, 464320, 1463750, 5444040, 21461110,
};
const struct latency_curve deepep_hopper_1 = {
    .source = "h100_sxm/wideep_deepep_ll_perf and _normal_perf, sglang-0.5.6.post2, nodes 1",
    .first_log2 = 0,
    .stride_log2 = 2,
    .count = DEEPEP_SIZES,
    .values = deepep_hopper_1_values,
};
static const uint32_t deepep_hopper_2_values[DEEPEP_SIZES] = {
    51730, 51730, 76030, 160240, 354500, 875100, 2632040, 9407840, 36402600,
};
const struct latency_curve deepep_hopper_2 = {
    .source = "h100_sxm/wideep_deepep_ll_perf and _normal_perf, sglang-0.5.6.post2, nodes 2",
    .first_log2 = 0,
    .stride_log2 = 2,
    .count = DEEPEP_SIZES,
    .values = deepep_hopper_2_values,
};
static const uint32_t deepep_hopper_4_values[DEEPEP_SIZES] = {
    61370, 61370, 96870, 234600, 604810, 1608270, 5493900, 20743000, 81571700,
};
const struct latency_curve deepep_hopper_4 = {
    .source = "h100_sxm/wideep_deepep_ll_perf and _normal_perf, sglang-0.5.6.post2, nodes 4",
    .first_log2 = 0,
    .stride_log2 = 2,
    .count = DEEPEP_SIZES,
    .values = deepep_hopper_4_values,
};
static const uint32_t deepep_hopper_8_values[DEEPEP_SIZES] = {
    65830, 65830, 105300, 254330, 880660, 4918400, 18548700, 73445200, 292692800,
};
const struct latency_curve deepep_hopper_8 = {
    .source = "h100_sxm/wideep_deepep_ll_perf and _normal_perf, sglang-0.5.6.post2, nodes 8",
    .first_log2 = 0,
    .stride_log2 = 2,
    .count = DEEPEP_SIZES,
    .values = deepep_hopper_8_values,
};

static const struct gpu_tables *const tables[] = {&gpu_a100, &gpu_b200, &gpu_h100, &gpu_h200};

const struct gpu_tables *gpu_tables_find(const char *gpu)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (strcmp(tables[i]->name, gpu) == 0)
            return tables[i];
    return NULL;
}

const struct gpu_tables *gpu_tables_nearest(const char *gpu)
{
    const struct gpu_tables *own = gpu_tables_find(gpu);
    if (own != NULL)
        return own;
    return strstr(gpu, "B200") != NULL ? &gpu_b200 : &gpu_h100;
}

const char *gpu_tables_names(void)
{
    return "A100, B200, GB200, H100, H200";
}

/* Latency under power-law routing over that under balanced routing, 16,384 tokens, at 1, 2, 4, ... 256 ranks: rounded
 * means over the shapes of DeepSeek-R1, Qwen3-Coder-480B and Qwen3-235B in h200_sxm/moe_perf, trtllm-1.3.0rc20. */
double expert_imbalance(double ranks)
{
    static const double factor[] = {1.0, 1.15, 1.35, 1.65, 2.0, 2.5, 3.0, 3.5, 4.5};
    double at = log2_linear(ranks);
    uint32_t last = (uint32_t)(sizeof factor / sizeof factor[0]) - 1;
    if (at >= (double)last)
        return factor[last];
    uint32_t i = (uint32_t)at;
    return factor[i] + (factor[i + 1] - factor[i]) * (at - (double)i);
}
