/* A model from the config.json that its makers publish beside the weights.
 *
 * Known are the families of the table in model_config.c, whose parts the cost model knows, as language models also
 * where they see. Any other family, and any feature of a known one that would change the arithmetic and is not
 * modelled, is refused by name and reason: a model that is half understood would give wrong numbers without a sign.
 *
 * Formats: `quantization_config` decides (fp8, fp8 with 128 x 128 blocks, mxfp4, GPTQ and AWQ of 4 bits,
 * compressed-tensors, modelopt with or without a method), or hf_quant_config.json beside the file; without either the
 * weights are what torch_dtype says, which must be bfloat16 or float16, and the model's name must not say otherwise.
 * Parts that the file exempts from quantization stay bf16, where that is the same in all layers. The cache is bf16
 * unless kv_cache_scheme or kv_cache_quant_algo says fp8. Layers for multi-token prediction give the model a tail: the
 * hidden state and the logits of the last position.
 *
 * Files are what Python's json writes: Infinity and NaN, which no key that is read may be, and a byte order mark.
 */
#ifndef TANDEM_WORLD_SCENARIO_MODEL_CONFIG_H
#define TANDEM_WORLD_SCENARIO_MODEL_CONFIG_H

#include "host/user_error.h"
#include "model/architecture.h"

#include <stdbool.h>
#include <stddef.h>

struct model_file {
    const char *path; /* as errors call it */
    const char *text; /* ends with 0 */
    size_t length;
};

/* Fills *architecture, its name excepted, from a config.json and the hf_quant_config.json beside it (NULL: there is
 * none) of a model that people call `name`. False with *error set. Any bytes are safe. */
bool model_config_read(const char *name, const struct model_file *file, const struct model_file *quantization,
                       struct architecture *architecture, struct user_error *error);

#endif
