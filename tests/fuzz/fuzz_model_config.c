/* config.json from anyone, behind a zero byte the hf_quant_config.json beside it: whatever the bytes, the reader gives
 * a model within its limits or says what is wrong. */
#include "world/scenario/model_config.h"

#include "base/check.h"
#include "base/limits.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = malloc(size + 1);
    CHECK(text != NULL);
    if (size > 0)
        memcpy(text, bytes, size);
    text[size] = '\0';

    struct architecture model;
    struct user_error error = {.set = false};
    const struct model_file file = {"config.json", text, strlen(text)};
    bool two = file.length < size;
    const struct model_file beside = {"hf_quant_config.json", text + file.length + 1, two ? size - file.length - 1 : 0};
    bool good = model_config_read("fuzzed", &file, two ? &beside : NULL, &model, &error);
    CHECK(good != error.set);
    if (good) {
        CHECK(model.layers >= 1 && model.layers <= LAYERS_MAX && model.kv_heads >= 1);
        CHECK(model.attention == ATTENTION_MLA || model.heads % model.kv_heads == 0);
        CHECK(model.experts_active <= model.experts && model.dense_layers <= model.layers);
        CHECK((model.window > 0) == (model.full_layers > 0) || model.full_layers == 0);
        CHECK(model.weight_format != 0 && model.expert_weight_format != 0 && model.kv_format != 0);
        CHECK(architecture_dense_before(&model, model.layers) <= model.layers);
        CHECK((model.tail_bytes == 0) == (model.tail_writes == 0));
    }
    free(text);
    return 0;
}
