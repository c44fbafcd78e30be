/* A model from the config.json that its makers publish beside the weights.
 *
 * Known are the families whose parts the cost model knows: Llama, Qwen2, Qwen3, Qwen3-MoE, Mixtral, DeepSeek V2 and V3
 * (R1), DeepSeek V3.2 and GLM-5 with sparse attention, Kimi-K2, GLM-4.5, gpt-oss and MiniMax-M2. Any other family, and
 * any feature of a known one that would change the arithmetic and is not modelled, is refused by name: a model that is
 * half understood would give wrong numbers without a sign.
 *
 * Formats: `quantization_config` decides (fp8, fp8 with 128 x 128 blocks, mxfp4, GPTQ and AWQ of 4 bits,
 * compressed-tensors, modelopt); without one the weights are bf16. Parts that the file exempts from quantization, by
 * naming the attention, stay bf16. The cache is bf16 unless the file says fp8. Layers for multi-token prediction give
 * the model a tail: the hidden state and the logits of the last position.
 */
#ifndef TANDEM_WORLD_SCENARIO_MODEL_CONFIG_H
#define TANDEM_WORLD_SCENARIO_MODEL_CONFIG_H

#include "host/user_error.h"
#include "model/architecture.h"

#include <stdbool.h>
#include <stddef.h>

/* Fills *architecture, its name excepted, from the text of a file that errors call `file`. False with *error set. Any
 * bytes are safe. */
bool model_config_read(const char *file, const char *text, size_t length, struct architecture *architecture,
                       struct user_error *error);

#endif
