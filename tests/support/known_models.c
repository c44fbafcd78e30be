/* See known_models.h. Each row repeats the model's published config.json. Weights are bf16 unless the checkpoint is
 * quantized, KV is bf16. */
#include "known_models.h"

#include "base/check.h"

#include <stddef.h>
#include <string.h>

#define BF16_ALL .weight_format = FORMAT_BF16, .expert_weight_format = FORMAT_BF16, .kv_format = FORMAT_BF16
#define FP8_BLOCK_ALL                                                                                                  \
    .weight_format = FORMAT_FP8_BLOCK, .expert_weight_format = FORMAT_FP8_BLOCK, .kv_format = FORMAT_BF16
#define DEEPSEEK_MLA                                                                                                   \
    .attention = ATTENTION_MLA, .layers = 61, .hidden = 7168, .kv_heads = 1, .latent_dim = 512, .rope_dim = 64,        \
    .nope_dim = 128, .value_dim = 128, .q_latent_dim = 1536, .intermediate = 18432, .expert_intermediate = 2048,       \
    .experts_active = 8, .shared_experts = 1

static const struct architecture models[] = {
    {.name = "DeepSeek-R1",
     DEEPSEEK_MLA,
     FP8_BLOCK_ALL,
     .dense_layers = 3,
     .heads = 128,
     .vocab = 129280,
     .experts = 256},
    {.name = "Kimi-K2-Instruct",
     DEEPSEEK_MLA,
     FP8_BLOCK_ALL,
     .dense_layers = 1,
     .heads = 64,
     .vocab = 163840,
     .experts = 384},
    {.name = "Qwen3-Coder-480B-A35B",
     BF16_ALL,
     .attention = ATTENTION_GQA,
     .layers = 62,
     .hidden = 6144,
     .heads = 96,
     .kv_heads = 8,
     .head_dim = 128,
     .vocab = 151936,
     .intermediate = 8192,
     .experts = 160,
     .experts_active = 8,
     .expert_intermediate = 2560},
    {.name = "Qwen3-235B-A22B",
     BF16_ALL,
     .attention = ATTENTION_GQA,
     .layers = 94,
     .hidden = 4096,
     .heads = 64,
     .kv_heads = 4,
     .head_dim = 128,
     .vocab = 151936,
     .intermediate = 12288,
     .experts = 128,
     .experts_active = 8,
     .expert_intermediate = 1536},
    {.name = "Mixtral-8x7B",
     BF16_ALL,
     .attention = ATTENTION_GQA,
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .vocab = 32000,
     .intermediate = 14336,
     .experts = 8,
     .experts_active = 2,
     .expert_intermediate = 14336},
    {.name = "gpt-oss-120b",
     .attention = ATTENTION_GQA,
     .layers = 36,
     .hidden = 2880,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 64,
     .vocab = 201088,
     .intermediate = 2880,
     .experts = 128,
     .experts_active = 4,
     .expert_intermediate = 2880,
     .window = 128,
     .full_layers = 18,
     .weight_format = FORMAT_BF16,
     .expert_weight_format = FORMAT_FP4,
     .kv_format = FORMAT_BF16},
    {.name = "Llama-3.1-8B",
     BF16_ALL,
     .attention = ATTENTION_GQA,
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .vocab = 128256,
     .intermediate = 14336},
    {.name = "Llama-3.1-70B",
     BF16_ALL,
     .attention = ATTENTION_GQA,
     .layers = 80,
     .hidden = 8192,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 128,
     .vocab = 128256,
     .intermediate = 28672},
    {.name = "Llama-3.1-405B",
     BF16_ALL,
     .attention = ATTENTION_GQA,
     .layers = 126,
     .hidden = 16384,
     .heads = 128,
     .kv_heads = 8,
     .head_dim = 128,
     .vocab = 128256,
     .intermediate = 53248},
    {.name = "Llama-2-70B",
     BF16_ALL,
     .attention = ATTENTION_GQA,
     .layers = 80,
     .hidden = 8192,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 128,
     .vocab = 32000,
     .intermediate = 28672},
};

const struct architecture *known_model(const char *name)
{
    const struct architecture *found = NULL;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (strcmp(models[i].name, name) == 0)
            found = &models[i];
    CHECK(found != NULL);
    return found;
}
