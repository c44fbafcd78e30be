/* See model_config.h. */
#include "world/scenario/model_config.h"

#include "base/limits.h"
#include "world/scenario/model_config_internal.h"
#include "host/python_json.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The line where the key first stands in quotes; 0: nowhere. */
int config_line(const struct config *config, const char *key)
{
    size_t length = strlen(key);
    int line = 1;
    for (const char *at = config->text; *at != '\0'; at++) {
        if (*at == '\n')
            line++;
        if (*at == '"' && strncmp(at + 1, key, length) == 0 && at[1 + length] == '"')
            return line;
    }
    return 0;
}

/* A whole number in [min, max]. */
static bool read_number(const struct config *config, const char *key, uint32_t min, uint32_t max, uint32_t *number)
{
    const json_t *value = json_object_get(config->object, key);
    if (config_absent(value))
        return FAIL(config, key, "missing, expected a whole number");
    if (!json_is_integer(value))
        return FAIL(config, key, "expected a whole number");
    json_int_t n = json_integer_value(value);
    if (n < min || n > max)
        return FAIL(config, key, "%" JSON_INTEGER_FORMAT ", expected %u to %u", n, min, max);
    *number = (uint32_t)n;
    return true;
}

static bool read_number_or(const struct config *config, const char *key, uint32_t otherwise, uint32_t max,
                           uint32_t *number)
{
    *number = otherwise;
    return config_absent(json_object_get(config->object, key)) || read_number(config, key, 0, max, number);
}

/* Fails unless the key is absent or has the value that the model's parts assume. */
static bool expect_number(const struct config *config, const char *key, json_int_t expected, const char *why)
{
    const json_t *value = json_object_get(config->object, key);
    if (config_absent(value) || (json_is_integer(value) && json_integer_value(value) == expected))
        return true;
    return FAIL(config, key, "only %" JSON_INTEGER_FORMAT " is modelled: %s", expected, why);
}

/* ---- Parts ------------------------------------------------------------------------------------------------------- */

#define WIDTH_MAX (1u << 20)

static bool read_common(const struct config *config)
{
    struct architecture *model = config->model;
    if (!read_number(config, "num_hidden_layers", 1, LAYERS_MAX, &model->layers) ||
        !read_number(config, "hidden_size", 1, WIDTH_MAX, &model->hidden) ||
        !read_number(config, "num_attention_heads", 1, 1 << 12, &model->heads) ||
        !read_number(config, "vocab_size", 1, 1 << 24, &model->vocab))
        return false;
    model->tied_embeddings = json_is_true(config_find(config, "tie_word_embeddings"));
    return true;
}

static bool read_gqa(const struct config *config)
{
    struct architecture *model = config->model;
    model->attention = ATTENTION_GQA;
    if (!read_number_or(config, "num_key_value_heads", model->heads, KV_HEADS_MAX, &model->kv_heads) ||
        !read_number_or(config, "head_dim", model->hidden / model->heads, 1 << 12, &model->head_dim))
        return false;
    if (model->kv_heads == 0 || model->heads % model->kv_heads != 0)
        return FAIL(config, "num_key_value_heads", "%u does not divide num_attention_heads (%u)", model->kv_heads,
                    model->heads);
    if (model->head_dim == 0)
        return FAIL(config, "head_dim", "expected at least 1");
    return true;
}

static bool read_mla(const struct config *config)
{
    struct architecture *model = config->model;
    model->attention = ATTENTION_MLA;
    model->kv_heads = 1;
    return read_number(config, "kv_lora_rank", 1, 1 << 16, &model->latent_dim) &&
           read_number(config, "qk_rope_head_dim", 1, 1 << 12, &model->rope_dim) &&
           read_number(config, "qk_nope_head_dim", 1, 1 << 12, &model->nope_dim) &&
           read_number(config, "v_head_dim", 1, 1 << 12, &model->value_dim) &&
           read_number_or(config, "q_lora_rank", 0, 1 << 16, &model->q_latent_dim);
}

static bool read_indexer(const struct config *config)
{
    struct architecture *model = config->model;
    return expect_number(config, "index_topk_freq", 1, "here layers share the tokens that one of them chose") &&
           read_number(config, "index_topk", 1, REQUEST_TOKENS_MAX, &model->index_topk) &&
           read_number(config, "index_n_heads", 1, 1 << 10, &model->index_heads) &&
           read_number(config, "index_head_dim", 1, 1 << 12, &model->index_dim);
}

static bool read_experts(const struct config *config, const char *count_key, const char *width_key)
{
    struct architecture *model = config->model;
    if (!read_number(config, count_key, 1, 1 << 14, &model->experts) ||
        !read_number(config, "num_experts_per_tok", 1, 1 << 10, &model->experts_active) ||
        !read_number(config, width_key, 1, WIDTH_MAX, &model->expert_intermediate) ||
        !read_number_or(config, "n_shared_experts", 0, 64, &model->shared_experts) ||
        !read_number_or(config, "first_k_dense_replace", 0, model->layers, &model->dense_layers))
        return false;
    if (model->experts_active > model->experts)
        return FAIL(config, "num_experts_per_tok", "%u, more than the %u experts", model->experts_active,
                    model->experts);
    if (model->dense_layers > 0 && !read_number(config, "intermediate_size", 1, 1 << 22, &model->intermediate))
        return false;
    return expect_number(config, "moe_layer_freq", 1, "experts in every layer after the dense ones") &&
           expect_number(config, "decoder_sparse_step", 1, "experts in every layer") &&
           expect_number(config, "shared_intermediate_size", 0, "shared experts as wide as the others") &&
           expect_number(config, "shared_expert_intermediate_size", 0, "shared experts as wide as the others");
}

/* Layers that the file lists as dense: the first ones, or none. */
static bool read_listed_dense_layers(const struct config *config)
{
    struct architecture *model = config->model;
    const char *key = "mlp_only_layers";
    const json_t *list = json_object_get(config->object, key);
    if (config_absent(list))
        return true;
    if (!json_is_array(list) || json_array_size(list) > model->layers)
        return FAIL(config, key, "expected a list of layers");
    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *layer = json_array_get(list, k);
        if (!json_is_integer(layer) || json_integer_value(layer) != (json_int_t)k)
            return FAIL(config, key, "dense layers are modelled where they are the first ones, as in [0, 1]");
    }
    model->dense_layers = (uint32_t)json_array_size(list);
    return model->dense_layers == 0 || read_number(config, "intermediate_size", 1, 1 << 22, &model->intermediate);
}

/* Qwen2 and Qwen3: the first max_window_layers attend to everything, if there is a window at all. */
static bool read_window_switch(const struct config *config)
{
    struct architecture *model = config->model;
    if (!json_is_true(json_object_get(config->object, "use_sliding_window")))
        return true;
    if (!read_number(config, "sliding_window", 1, REQUEST_TOKENS_MAX, &model->window) ||
        !read_number(config, "max_window_layers", 0, model->layers, &model->full_layers))
        return false;
    if (model->full_layers == model->layers)
        model->window = model->full_layers = 0;
    return true;
}

/* The list of what each layer attends to. */
static bool read_layer_types(const struct config *config)
{
    struct architecture *model = config->model;
    const char *key = "layer_types";
    const json_t *list = json_object_get(config->object, key);
    if (!json_is_array(list) || json_array_size(list) != model->layers)
        return FAIL(config, key, "expected a list of num_hidden_layers (%u) texts", model->layers);
    for (size_t k = 0; k < json_array_size(list); k++) {
        const char *type = json_string_value(json_array_get(list, k));
        if (type != NULL && strcmp(type, "full_attention") == 0)
            model->full_layers++;
        else if (type == NULL || strcmp(type, "sliding_attention") != 0)
            return FAIL(config, key, "layer %zu: '%s' is not modelled, expected full_attention or sliding_attention", k,
                        type == NULL ? "not a text" : type);
    }
    if (model->full_layers == model->layers) {
        model->full_layers = 0;
        return true;
    }
    return read_number(config, "sliding_window", 1, REQUEST_TOKENS_MAX, &model->window);
}

/* What a draft layer starts from follows the KV of a prompt. */
static bool read_draft_layers(const struct config *config, const char *key)
{
    struct architecture *model = config->model;
    if (!read_number_or(config, key, 0, 16, &model->draft_layers))
        return false;
    if (model->draft_layers > 0) {
        model->tail_bytes = model->hidden * 2 + model->vocab * 4;
        model->tail_writes = 2;
    }
    return true;
}

/* ---- Families ---------------------------------------------------------------------------------------------------- */

static bool read_dense(const struct config *config)
{
    return read_common(config) && read_gqa(config) &&
           read_number(config, "intermediate_size", 1, 1 << 22, &config->model->intermediate) &&
           read_window_switch(config);
}

/* A window, where there is one, is of every layer. */
static bool read_mistral(const struct config *config)
{
    const json_t *window = json_object_get(config->object, "sliding_window");
    return read_common(config) && read_gqa(config) &&
           read_number(config, "intermediate_size", 1, 1 << 22, &config->model->intermediate) &&
           (config_absent(window) ||
            read_number(config, "sliding_window", 1, REQUEST_TOKENS_MAX, &config->model->window));
}

static bool read_mimo(const struct config *config)
{
    return read_dense(config) && read_draft_layers(config, "num_nextn_predict_layers");
}

static bool read_mixtral(const struct config *config)
{
    if (!config_absent(json_object_get(config->object, "sliding_window")))
        return FAIL(config, "sliding_window", "a window in every layer is not modelled for this family");
    return read_common(config) && read_gqa(config) && read_experts(config, "num_local_experts", "intermediate_size");
}

static bool read_qwen3_moe(const struct config *config)
{
    return read_common(config) && read_gqa(config) && read_experts(config, "num_experts", "moe_intermediate_size") &&
           read_listed_dense_layers(config) && read_window_switch(config);
}

static bool read_deepseek(const struct config *config)
{
    return read_common(config) && read_mla(config) &&
           read_experts(config, "n_routed_experts", "moe_intermediate_size") &&
           read_draft_layers(config, "num_nextn_predict_layers");
}

static bool read_deepseek_sparse(const struct config *config)
{
    return read_deepseek(config) && read_indexer(config);
}

static bool read_glm4_moe(const struct config *config)
{
    return read_common(config) && read_gqa(config) &&
           read_experts(config, "n_routed_experts", "moe_intermediate_size") &&
           read_draft_layers(config, "num_nextn_predict_layers");
}

static bool read_gpt_oss(const struct config *config)
{
    return read_common(config) && read_gqa(config) && read_experts(config, "num_local_experts", "intermediate_size") &&
           read_layer_types(config);
}

static bool read_minimax(const struct config *config)
{
    const json_t *kinds = json_object_get(config->object, "attn_type_list");
    for (size_t k = 0; k < json_array_size(kinds); k++)
        if (json_integer_value(json_array_get(kinds, k)) != 1)
            return FAIL(config, "attn_type_list", "layer %zu: only full attention (1) is modelled", k);
    return read_common(config) && read_gqa(config) && read_experts(config, "num_local_experts", "intermediate_size") &&
           read_draft_layers(config, "num_mtp_modules");
}

/* Three of four layers attend within chunks, the fourth (without rotary embedding) to everything. A chunk is read and
 * kept as a window of its size: at its end it is one. Maverick has experts in every second layer. */
static bool read_llama4(const struct config *config)
{
    struct architecture *model = config->model;
    if (!config_absent(json_object_get(config->object, "no_rope_layers")) &&
        json_array_size(json_object_get(config->object, "no_rope_layers")) != 0)
        return FAIL(config, "no_rope_layers", "only the default, every fourth layer, is modelled");
    if (!read_common(config) || !read_gqa(config) || !read_experts(config, "num_local_experts", "intermediate_size") ||
        !read_number(config, "attention_chunk_size", 1, REQUEST_TOKENS_MAX, &model->window) ||
        !read_number_or(config, "interleave_moe_layer_step", 1, model->layers, &model->moe_interval))
        return false;
    model->full_layers = model->layers / 4;
    model->shared_experts = 1;
    if (model->moe_interval < 2)
        model->moe_interval = 0;
    return model->moe_interval == 0 || read_number(config, "intermediate_size_mlp", 1, 1 << 22, &model->intermediate);
}

static bool read_step(const struct config *config)
{
    struct architecture *model = config->model;
    return read_common(config) && read_gqa(config) && read_experts(config, "num_experts", "moe_intermediate_size") &&
           expect_number(config, "share_expert_dim", model->expert_intermediate, "shared experts as the others") &&
           read_layer_types(config) && read_draft_layers(config, "num_nextn_predict_layers");
}

struct family {
    const char *type;  /* model_type */
    const char *class; /* of `architectures`, for files without a type */
    bool (*read)(const struct config *config);
};

static const struct family families[] = {
    {"llama", "LlamaForCausalLM", read_dense},
    {"mistral", "MistralForCausalLM", read_mistral},
    {"qwen2", "Qwen2ForCausalLM", read_dense},
    {"qwen3", "Qwen3ForCausalLM", read_dense},
    {"qwen3_vl_text", "Qwen3VLForConditionalGeneration", read_dense},
    {"qwen3_moe", "Qwen3MoeForCausalLM", read_qwen3_moe},
    {"qwen3_vl_moe_text", "Qwen3VLMoeForConditionalGeneration", read_qwen3_moe},
    {"mimo", "MiMoForCausalLM", read_mimo},
    {"mixtral", "MixtralForCausalLM", read_mixtral},
    {"deepseek_v2", "DeepseekV2ForCausalLM", read_deepseek},
    {"deepseek_v3", "DeepseekV3ForCausalLM", read_deepseek},
    {"deepseek_v32", "DeepseekV32ForCausalLM", read_deepseek_sparse},
    {"kimi_k2", "KimiK2ForCausalLM", read_deepseek},
    {"glm4_moe", "Glm4MoeForCausalLM", read_glm4_moe},
    {"glm_moe_dsa", "GlmMoeDsaForCausalLM", read_deepseek_sparse},
    {"gpt_oss", "GptOssForCausalLM", read_gpt_oss},
    {"llama4_text", "Llama4ForConditionalGeneration", read_llama4},
    {"step3p7", "Step3p7FlashForCausalLM", read_step},
    {"minimax_m2", "MiniMaxM2ForCausalLM", read_minimax},
};

/* Families that are known and have parts that no part of the cost model stands for. */
static const struct refusal {
    const char *type;  /* model_type, or how it begins where it ends with '*' */
    const char *class; /* of `architectures`, for files that name their type otherwise */
    const char *reason;
} refusals[] = {
    {"qwen3_5*", NULL, "most of its layers are gated linear attention, whose state of a request is not modelled"},
    {"qwen3_next", NULL, "most of its layers are gated linear attention, whose state of a request is not modelled"},
    {"kimi_linear", NULL, "most of its layers are linear attention, whose state of a request is not modelled"},
    {"nemotron_h*", NULL, "most of its layers are state-space layers, whose state of a request is not modelled"},
    {"minimax_m3*", NULL, "its attention chooses blocks of tokens by an index of GQA keys, which is not modelled"},
    {"deepseek_v4", NULL, "its layers cache tokens in compressed groups of unlike sizes, which is not modelled"},
    {"deepseek_ref", "DeepseekV4ForCausalLM",
     "its layers cache tokens in compressed groups of unlike sizes, which is not modelled"},
    {"gemma4*", NULL, "its full layers have other KV heads than its windowed ones, which is not modelled"},
    {"mimo_v2_flash", NULL, "its windowed layers have other KV heads than its full ones, which is not modelled"},
    {"nemotron-nas", NULL, "its layers are unlike each other, some without attention, which is not modelled"},
};

static bool matches(const char *name, const char *pattern)
{
    size_t length = strlen(pattern);
    if (pattern[length - 1] == '*')
        return strncmp(name, pattern, length - 1) == 0;
    return strcmp(name, pattern) == 0;
}

static const struct family *find_family(const struct config *config)
{
    const char *types[LENGTH(families)];
    const json_t *type_value = config_find(config, "model_type");
    const char *type = json_string_value(type_value);
    const char *class = json_string_value(json_array_get(config_find(config, "architectures"), 0));
    if (type_value != NULL && type == NULL) {
        (void)FAIL(config, "model_type", "expected a text");
        return NULL;
    }
    for (size_t k = 0; k < LENGTH(families); k++) {
        types[k] = families[k].type;
        if (type != NULL ? strcmp(type, families[k].type) == 0 : class != NULL && strcmp(class, families[k].class) == 0)
            return &families[k];
    }
    const char *key = type != NULL ? "model_type" : "architectures";
    const char *name = type != NULL ? type : class;
    if (name == NULL) {
        (void)FAIL(config, "model_type", "missing, and so is the first of architectures");
        return NULL;
    }
    for (size_t k = 0; k < LENGTH(refusals); k++) {
        if (matches(name, refusals[k].type) ||
            (class != NULL && refusals[k].class != NULL && strcmp(class, refusals[k].class) == 0)) {
            (void)FAIL(config, key, "'%.64s': %s", name, refusals[k].reason);
            return NULL;
        }
    }
    const char *nearest = type == NULL ? NULL : nearest_name(type, types, LENGTH(families));
    char known[512] = "";
    for (size_t k = 0; k < LENGTH(families); k++) {
        strcat(known, k == 0 ? "" : ", ");
        strcat(known, families[k].type);
    }
    (void)FAIL(config, key, "'%.64s' is not modelled; expected one of %s%s%s", name, known,
               nearest == NULL ? "" : "; nearest: ", nearest == NULL ? "" : nearest);
    return NULL;
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

/* Reads a file into *config, whose text and root the caller frees. */
static bool load_file(const struct model_file *file, struct config *config)
{
    size_t length = file->length;
    json_error_t where;
    char *text = python_json(file->text, &length);
    config->file = file->path;
    config->text = text;
    config->root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &where);
    config->object = config->root;
    if (config->root == NULL) {
        /* A word of the file is no part of the message: any file may be named. */
        const char *near = strstr(where.text, " near '");
        user_error_set(config->error, file->path, where.line, NULL, "%.*s",
                       near == NULL ? (int)strlen(where.text) : (int)(near - where.text), where.text);
        return false;
    }
    if (!json_is_object(config->root)) {
        user_error_set(config->error, file->path, 1, NULL, "expected an object, the %s of a model",
                       config->model == NULL ? "hf_quant_config.json" : "config.json");
        return false;
    }
    return true;
}

static void free_file(struct config *config)
{
    json_decref(config->root);
    free(config->text);
}

bool model_config_read(const char *name, const struct model_file *file, const struct model_file *quantization,
                       struct architecture *architecture, struct user_error *error)
{
    struct config config = {.model = architecture, .error = error};
    struct config beside = {.error = error};
    memset(architecture, 0, sizeof *architecture);
    bool good = load_file(file, &config) && (quantization == NULL || load_file(quantization, &beside));
    beside.model = architecture;
    if (good) {
        /* Models with eyes keep the language model in an object of its own. */
        if (json_is_object(json_object_get(config.root, "text_config")))
            config.object = json_object_get(config.root, "text_config");
        const struct family *family = find_family(&config);
        good = family != NULL && family->read(&config) &&
               model_formats_read(&config, name, quantization == NULL ? NULL : &beside);
    }
    free_file(&config);
    free_file(&beside);
    return good;
}
