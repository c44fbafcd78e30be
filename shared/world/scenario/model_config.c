/* See model_config.h. */
#include "world/scenario/model_config.h"

#include "base/limits.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdint.h>
#include <string.h>

#define LENGTH(list) (sizeof(list) / sizeof((list)[0]))

/* A file being read: the object that holds the language model, and where errors go. */
struct config {
    const char *file;
    const char *text; /* ends with 0 */
    const json_t *object;
    struct architecture *model;
    struct user_error *error;
};

/* The line where the key first stands in quotes; 0: nowhere. */
static int line_of(const struct config *config, const char *key)
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

#define FAIL(config, key, ...)                                                                                         \
    (user_error_set((config)->error, (config)->file, line_of(config, key), key, __VA_ARGS__), false)

static bool is_absent(const json_t *value)
{
    return value == NULL || json_is_null(value);
}

/* A whole number in [min, max]. */
static bool read_number(const struct config *config, const char *key, uint32_t min, uint32_t max, uint32_t *number)
{
    const json_t *value = json_object_get(config->object, key);
    if (is_absent(value))
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
    return is_absent(json_object_get(config->object, key)) || read_number(config, key, 0, max, number);
}

/* Fails unless the key is absent or has the value that the model's parts assume. */
static bool expect_number(const struct config *config, const char *key, json_int_t expected, const char *why)
{
    const json_t *value = json_object_get(config->object, key);
    if (is_absent(value) || (json_is_integer(value) && json_integer_value(value) == expected))
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
    model->tied_embeddings = json_is_true(json_object_get(config->object, "tie_word_embeddings"));
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
    if (is_absent(list))
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

static bool read_mixtral(const struct config *config)
{
    if (!is_absent(json_object_get(config->object, "sliding_window")))
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

struct family {
    const char *type;  /* model_type */
    const char *class; /* of `architectures`, for files without a type */
    bool (*read)(const struct config *config);
};

static const struct family families[] = {
    {"llama", "LlamaForCausalLM", read_dense},
    {"qwen2", "Qwen2ForCausalLM", read_dense},
    {"qwen3", "Qwen3ForCausalLM", read_dense},
    {"qwen3_moe", "Qwen3MoeForCausalLM", read_qwen3_moe},
    {"mixtral", "MixtralForCausalLM", read_mixtral},
    {"deepseek_v2", "DeepseekV2ForCausalLM", read_deepseek},
    {"deepseek_v3", "DeepseekV3ForCausalLM", read_deepseek},
    {"deepseek_v32", "DeepseekV32ForCausalLM", read_deepseek_sparse},
    {"kimi_k2", "KimiK2ForCausalLM", read_deepseek},
    {"glm4_moe", "Glm4MoeForCausalLM", read_glm4_moe},
    {"glm_moe_dsa", "GlmMoeDsaForCausalLM", read_deepseek_sparse},
    {"gpt_oss", "GptOssForCausalLM", read_gpt_oss},
    {"minimax_m2", "MiniMaxM2ForCausalLM", read_minimax},
};

static const struct family *find_family(const struct config *config)
{
    const char *types[LENGTH(families)];
    const char *type = json_string_value(json_object_get(config->object, "model_type"));
    const char *class = json_string_value(json_array_get(json_object_get(config->object, "architectures"), 0));
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
    const char *nearest = type == NULL ? NULL : nearest_name(type, types, LENGTH(families));
    (void)FAIL(config, key,
               "'%s' is not modelled; expected one of llama, qwen2, qwen3, qwen3_moe, mixtral, deepseek_v2, "
               "deepseek_v3, deepseek_v32, kimi_k2, glm4_moe, glm_moe_dsa, gpt_oss, minimax_m2%s%s",
               name, nearest == NULL ? "" : "; nearest: ", nearest == NULL ? "" : nearest);
    return NULL;
}

/* ---- Formats ----------------------------------------------------------------------------------------------------- */

/* Whether a list of module names, which may be patterns, speaks of `part`. */
static bool list_names(const json_t *list, const char *part)
{
    for (size_t k = 0; k < json_array_size(list); k++) {
        const char *name = json_string_value(json_array_get(list, k));
        if (name != NULL && strstr(name, part) != NULL)
            return true;
    }
    return false;
}

/* Attention that the file exempts from quantization stays bf16; then so do the dense MLPs of the same kind. */
static void set_formats(const struct config *config, const json_t *quantization, enum number_format format)
{
    static const char *const exempt_keys[] = {"modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers"};
    struct architecture *model = config->model;
    model->expert_weight_format = format;
    model->weight_format = format;
    for (size_t k = 0; k < LENGTH(exempt_keys); k++) {
        const json_t *list = json_object_get(quantization, exempt_keys[k]);
        if (list_names(list, "self_attn.q_proj") || list_names(list, "self_attn.o_proj") ||
            list_names(list, "self_attn.*") || list_names(list, "self_attn*") ||
            (list_names(list, "self_attn") && !list_names(list, "self_attn.")))
            model->weight_format = FORMAT_BF16;
    }
}

static bool read_fp8(const struct config *config, const json_t *quantization)
{
    const json_t *block = json_object_get(quantization, "weight_block_size");
    if (is_absent(block)) {
        set_formats(config, quantization, FORMAT_FP8);
        return true;
    }
    if (json_array_size(block) != 2 || json_integer_value(json_array_get(block, 0)) != 128 ||
        json_integer_value(json_array_get(block, 1)) != 128)
        return FAIL(config, "weight_block_size", "only blocks of 128 x 128 are modelled");
    set_formats(config, quantization, FORMAT_FP8_BLOCK);
    return true;
}

static bool read_int4(const struct config *config, const json_t *quantization)
{
    const json_t *bits = json_object_get(quantization, "bits");
    if (json_integer_value(bits) != 4)
        return FAIL(config, "bits", "only 4 bits are modelled");
    set_formats(config, quantization, FORMAT_INT4);
    return true;
}

/* compressed-tensors: the weights of the first group. */
static bool read_groups(const struct config *config, const json_t *quantization)
{
    const json_t *group = json_object_get(json_object_get(quantization, "config_groups"), "group_0");
    const json_t *weights = json_object_get(group, "weights");
    const json_t *type_text = json_object_get(weights, "type");
    const char *type = json_is_string(type_text) ? json_string_value(type_text) : "";
    json_int_t bits = json_integer_value(json_object_get(weights, "num_bits"));
    if (strcmp(type, "int") == 0 && bits == 4)
        set_formats(config, quantization, FORMAT_INT4);
    else if (strcmp(type, "float") == 0 && bits == 8)
        set_formats(config, quantization, FORMAT_FP8);
    else if (strcmp(type, "float") == 0 && bits == 4)
        set_formats(config, quantization, FORMAT_FP4);
    else
        return FAIL(config, "config_groups", "weights of type '%s' with %" JSON_INTEGER_FORMAT " bits are not modelled",
                    type, bits);
    if (json_integer_value(json_object_get(json_object_get(quantization, "kv_cache_scheme"), "num_bits")) == 8)
        config->model->kv_format = FORMAT_FP8;
    return true;
}

static bool read_modelopt(const struct config *config, const json_t *quantization)
{
    const json_t *algorithm_text = json_object_get(quantization, "quant_algo");
    const char *algorithm = json_is_string(algorithm_text) ? json_string_value(algorithm_text) : "";
    const char *cache = json_string_value(json_object_get(quantization, "kv_cache_quant_algo"));
    if (strcmp(algorithm, "NVFP4") == 0)
        set_formats(config, quantization, FORMAT_FP4);
    else if (strcmp(algorithm, "FP8") == 0)
        set_formats(config, quantization, FORMAT_FP8);
    else
        return FAIL(config, "quant_algo", "'%s' is not modelled, expected NVFP4 or FP8", algorithm);
    if (cache != NULL && strcmp(cache, "FP8") == 0)
        config->model->kv_format = FORMAT_FP8;
    return true;
}

static bool read_formats(const struct config *config, const json_t *root)
{
    struct architecture *model = config->model;
    const json_t *quantization = json_object_get(config->object, "quantization_config");
    if (is_absent(quantization))
        quantization = json_object_get(root, "quantization_config");
    model->weight_format = FORMAT_BF16;
    model->expert_weight_format = FORMAT_BF16;
    model->kv_format = FORMAT_BF16;
    if (is_absent(quantization))
        return true;
    const char *method = json_string_value(json_object_get(quantization, "quant_method"));
    if (method == NULL)
        return FAIL(config, "quantization_config", "has no quant_method");
    if (strcmp(method, "fp8") == 0 || strcmp(method, "fbgemm_fp8") == 0)
        return read_fp8(config, quantization);
    if (strcmp(method, "mxfp4") == 0) {
        set_formats(config, quantization, FORMAT_FP4);
        return true;
    }
    if (strcmp(method, "gptq") == 0 || strcmp(method, "awq") == 0)
        return read_int4(config, quantization);
    if (strcmp(method, "compressed-tensors") == 0)
        return read_groups(config, quantization);
    if (strcmp(method, "modelopt") == 0)
        return read_modelopt(config, quantization);
    return FAIL(config, "quant_method",
                "'%s' is not modelled; expected fp8, mxfp4, gptq, awq, compressed-tensors or modelopt", method);
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static bool read_root(struct config *config, const json_t *root)
{
    config->object = root;
    if (!json_is_object(root)) {
        user_error_set(config->error, config->file, 1, NULL, "expected an object, the config.json of a model");
        return false;
    }
    /* Models with eyes keep the language model in an object of its own. */
    if (json_is_object(json_object_get(root, "text_config")))
        config->object = json_object_get(root, "text_config");
    const struct family *family = find_family(config);
    return family != NULL && family->read(config) && read_formats(config, root);
}

bool model_config_read(const char *file, const char *text, size_t length, struct architecture *architecture,
                       struct user_error *error)
{
    json_error_t where;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &where);
    memset(architecture, 0, sizeof *architecture);
    if (root == NULL) {
        user_error_set(error, file, where.line, NULL, "%s", where.text);
        return false;
    }
    struct config config = {.file = file, .text = text, .model = architecture, .error = error};
    bool good = read_root(&config, root);
    json_decref(root);
    return good;
}
