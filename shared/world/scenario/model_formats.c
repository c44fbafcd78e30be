/* Number formats of a published checkpoint. See model_config.h for what is read; whatever else a file says of
 * quantization is refused by name, because a format that is guessed makes every size wrong without a sign. */
#include "world/scenario/model_config_internal.h"

#include "base/limits.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- What a list exempts ------------------------------------------------------------------------------------------
 */

/* The parts of a layer that a checkpoint may leave in bf16. */
enum part { PART_ATTENTION, PART_OUTPUT, PART_MLP, PART_SHARED, PART_EXPERTS, PARTS };

static const char *const part_names[PARTS] = {"attention projections", "attention output projections", "dense MLPs",
                                              "shared experts", "routed experts"};

struct exemptions {
    bool layers[PARTS][LAYERS_MAX];
};

static bool starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Whether what follows a module's name ends it: the module as a whole, in the dialects of patterns. */
static bool whole(const char *rest)
{
    return *rest == '\0' || strcmp(rest, "*") == 0 || strcmp(rest, ".*") == 0 || strcmp(rest, ".") == 0;
}

static const char *after(const char *name, const char *part)
{
    const char *at = strstr(name, part);
    return at == NULL ? NULL : at + strlen(part);
}

static void parts_of_attention(const char *rest, bool parts[PARTS])
{
    if (whole(rest)) {
        parts[PART_ATTENTION] = parts[PART_OUTPUT] = true;
        return;
    }
    rest += *rest == '.';
    if (starts(rest, "o_proj"))
        parts[PART_OUTPUT] = true;
    if (starts(rest, "q_proj") || starts(rest, "q_a_proj") || starts(rest, "q_b_proj") || starts(rest, "qkv_proj"))
        parts[PART_ATTENTION] = true;
}

/* What a name or pattern says of the parts of a layer: "model.layers.3.self_attn*" of its attention. Norms, routers and
 * towers of other senses are in bf16 anyway. */
static void parts_of_name(const char *name, bool parts[PARTS])
{
    const char *rest = after(name, "self_attn");
    if (rest != NULL) {
        parts_of_attention(rest, parts);
        return;
    }
    rest = after(name, "shared_expert");
    if (rest != NULL) {
        parts[PART_SHARED] = !starts(rest, "_gate");
        return;
    }
    rest = after(name, ".experts");
    if (rest != NULL) {
        parts[PART_EXPERTS] = true;
        return;
    }
    rest = after(name, "mlp");
    if (rest != NULL && !whole(rest))
        rest += *rest == '\\';
    if (rest != NULL)
        parts[PART_MLP] = whole(rest) || starts(rest, ".(gate") || starts(rest, ".gate_proj") ||
                          starts(rest, ".gate_up_proj") || starts(rest, ".down_proj");
}

/* The layer that a name speaks of; -1: of all, and *rest is what follows. */
static long layer_of(const char *name, const char **rest)
{
    const char *at = after(name, "layers.");
    char *end;
    *rest = name;
    if (at == NULL || !isdigit((unsigned char)*at))
        return -1;
    long layer = strtol(at, &end, 10);
    *rest = end;
    return layer;
}

static void exempt_name(const char *name, uint32_t layers, struct exemptions *exempt)
{
    bool parts[PARTS] = {false};
    const char *rest;
    long layer = layer_of(name, &rest);
    if (layer >= (long)layers)
        return; /* a draft layer's */
    if (layer >= 0 && whole(rest))
        for (uint32_t part = 0; part < PARTS; part++)
            parts[part] = true;
    else
        parts_of_name(rest, parts);
    for (uint32_t part = 0; part < PARTS; part++)
        for (uint32_t at = layer < 0 ? 0 : (uint32_t)layer; parts[part] && at < layers; at++) {
            exempt->layers[part][at] = true;
            if (layer >= 0)
                break;
        }
}

/* Whether a part of the layers [first, end) is exempt: of all, or of none. */
static bool part_exempt(const struct config *config, const char *key, const struct exemptions *exempt, enum part part,
                        uint32_t first, uint32_t end, bool *answer)
{
    uint32_t count = 0;
    for (uint32_t layer = first; layer < end; layer++)
        count += exempt->layers[part][layer];
    *answer = count > 0;
    if (count == 0 || count == end - first)
        return true;
    return FAIL(config, key, "exempts the %s of %u of %u layers; modelled are all or none", part_names[part], count,
                end - first);
}

/* ---- Formats ------------------------------------------------------------------------------------------------------
 */

/* `format` for every part but those that the file exempts. */
static bool set_formats(const struct config *config, const json_t *quantization, enum number_format format)
{
    static const char *const keys[] = {"modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers"};
    struct architecture *model = config->model;
    struct exemptions exempt;
    const char *key = keys[0];
    uint32_t layers = model->layers;
    uint32_t dense = model->experts == 0 ? layers : model->dense_layers;
    bool attention;
    bool output;
    bool mlp;
    bool shared;
    bool experts;

    memset(&exempt, 0, sizeof exempt);
    for (size_t k = 0; k < LENGTH(keys); k++) {
        const json_t *list = json_object_get(quantization, keys[k]);
        if (!config_absent(list) && !json_is_array(list))
            return FAIL(config, keys[k], "expected a list of modules");
        if (json_array_size(list) > 0)
            key = keys[k];
        for (size_t n = 0; n < json_array_size(list); n++)
            if (json_is_string(json_array_get(list, n)))
                exempt_name(json_string_value(json_array_get(list, n)), layers, &exempt);
    }
    if (!part_exempt(config, key, &exempt, PART_ATTENTION, 0, layers, &attention) ||
        !part_exempt(config, key, &exempt, PART_OUTPUT, 0, layers, &output) ||
        !part_exempt(config, key, &exempt, PART_MLP, 0, dense, &mlp) ||
        !part_exempt(config, key, &exempt, PART_SHARED, dense, layers, &shared) ||
        !part_exempt(config, key, &exempt, PART_EXPERTS, dense, layers, &experts))
        return false;
    if (experts)
        return FAIL(config, key, "exempts the routed experts, which are modelled in the format of the checkpoint");
    if (dense > 0 && model->shared_experts > 0 && mlp != shared)
        return FAIL(config, key, "exempts the dense MLPs or the shared experts; modelled are both or none");

    bool any = dense > 0 || model->shared_experts > 0;
    model->expert_weight_format = format;
    model->attention_weight_format = attention ? FORMAT_BF16 : format;
    model->output_weight_format = output ? FORMAT_BF16 : format;
    model->weight_format = (any ? (dense > 0 ? mlp : shared) : attention) ? FORMAT_BF16 : format;
    return true;
}

static bool is(const char *text, const char *word)
{
    return text != NULL && strcmp(text, word) == 0;
}

static const char *text_at(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* The format that a kind of cache is kept in: bf16 where nothing is said. */
static bool read_cache(const struct config *config, const json_t *quantization)
{
    static const char *const keys[] = {"kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_dtype"};
    for (size_t k = 0; k < LENGTH(keys); k++) {
        const json_t *cache = json_object_get(quantization, keys[k]);
        const char *text = json_string_value(cache);
        if (config_absent(cache) || is(text, "auto"))
            continue;
        bool eight = json_is_object(cache) && is(text_at(cache, "type"), "float") &&
                     json_integer_value(json_object_get(cache, "num_bits")) == 8;
        if (!eight && !is(text, "FP8") && !is(text, "fp8") && !is(text, "fp8_e4m3"))
            return FAIL(config, keys[k], "'%.40s' is not modelled; expected FP8, or floats of 8 bits",
                        text == NULL ? "another scheme" : text);
        config->model->kv_format = FORMAT_FP8;
    }
    return true;
}

static bool is_block_128(const json_t *block)
{
    return json_array_size(block) == 2 && json_integer_value(json_array_get(block, 0)) == 128 &&
           json_integer_value(json_array_get(block, 1)) == 128;
}

static bool read_fp8(const struct config *config, const json_t *quantization)
{
    const char *key = "weight_block_size";
    const json_t *block = json_object_get(quantization, key);
    if (config_absent(block))
        return set_formats(config, quantization, FORMAT_FP8);
    if (!is_block_128(block))
        return FAIL(config, key, "only blocks of 128 x 128 are modelled");
    return set_formats(config, quantization, FORMAT_FP8_BLOCK);
}

static bool read_int4(const struct config *config, const json_t *quantization)
{
    const char *key = config_absent(json_object_get(quantization, "w_bit")) ? "bits" : "w_bit";
    if (json_integer_value(json_object_get(quantization, key)) != 4)
        return FAIL(config, key, "only 4 bits are modelled");
    return set_formats(config, quantization, FORMAT_INT4);
}

/* The format of a group's weights; 0: not modelled. */
static enum number_format group_format(const json_t *weights)
{
    const char *type = text_at(weights, "type");
    json_int_t bits = json_integer_value(json_object_get(weights, "num_bits"));
    if (is(type, "int") && bits == 4)
        return FORMAT_INT4;
    if (is(type, "float") && bits == 4)
        return FORMAT_FP4;
    if (!is(type, "float") || bits != 8)
        return 0;
    if (!is(text_at(weights, "strategy"), "block"))
        return FORMAT_FP8;
    return is_block_128(json_object_get(weights, "block_structure")) ? FORMAT_FP8_BLOCK : 0;
}

/* compressed-tensors: groups of modules, all of one format. */
static bool read_groups(const struct config *config, const json_t *quantization)
{
    const char *key = "config_groups";
    json_t *groups = json_object_get(quantization, key);
    const char *name;
    json_t *group;
    enum number_format format = 0;
    json_int_t block = 0;
    if (json_object_size(groups) == 0)
        return FAIL(config, key, "missing, expected groups of weights");
    json_object_foreach(groups, name, group)
    {
        const json_t *weights = json_object_get(group, "weights");
        enum number_format here = group_format(weights);
        const char *type = text_at(weights, "type");
        if (here == 0)
            return FAIL(config, key,
                        "%.40s: weights of type '%.40s' with %" JSON_INTEGER_FORMAT " bits are not modelled", name,
                        type == NULL ? "" : type, json_integer_value(json_object_get(weights, "num_bits")));
        if (format != 0 && here != format)
            return FAIL(config, key, "groups of unlike formats are not modelled");
        format = here;
        block = json_integer_value(json_object_get(weights, "group_size"));
    }
    config->model->fp4_block = format == FORMAT_FP4 && block == 32 ? 32 : 16;
    return set_formats(config, quantization, format);
}

static bool read_modelopt(const struct config *config, const json_t *quantization)
{
    static const struct {
        const char *algorithm;
        enum number_format format;
    } known[] = {{"NVFP4", FORMAT_FP4},
                 {"MXFP4", FORMAT_FP4},
                 {"FP8", FORMAT_FP8},
                 {"FP8_PER_CHANNEL_PER_TOKEN", FORMAT_FP8},
                 {"FP8_PB_WO", FORMAT_FP8_BLOCK},
                 {"W4A16_AWQ", FORMAT_INT4},
                 {"INT4_AWQ", FORMAT_INT4}};
    const char *algorithm = text_at(quantization, "quant_algo");
    for (size_t k = 0; k < LENGTH(known); k++)
        if (is(algorithm, known[k].algorithm))
            return set_formats(config, quantization, known[k].format);
    if (is(algorithm, "MIXED_PRECISION"))
        return FAIL(config, "quant_algo", "'MIXED_PRECISION', a format for each layer, is not modelled");
    return FAIL(config, "quant_algo",
                "'%.40s' is not modelled; expected NVFP4, MXFP4, FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, W4A16_AWQ "
                "or INT4_AWQ",
                algorithm == NULL ? "not a text" : algorithm);
}

static bool read_quantization(const struct config *config, const json_t *quantization)
{
    static const struct {
        const char *method;
        bool (*read)(const struct config *config, const json_t *quantization);
    } known[] = {{"fp8", read_fp8},
                 {"fbgemm_fp8", read_fp8},
                 {"gptq", read_int4},
                 {"awq", read_int4},
                 {"compressed-tensors", read_groups},
                 {"modelopt", read_modelopt},
                 {"modelopt_fp4", read_modelopt}};
    const char *method = text_at(quantization, "quant_method");
    if (!json_is_object(quantization))
        return FAIL(config, "quantization_config", "expected an object");
    if (!read_cache(config, quantization))
        return false;
    /* ModelOpt writes its algorithm without a method, and once beside another's. */
    if (!config_absent(json_object_get(quantization, "quant_algo")))
        return read_modelopt(config, quantization);
    if (is(method, "mxfp4")) {
        config->model->fp4_block = 32;
        return set_formats(config, quantization, FORMAT_FP4);
    }
    for (size_t k = 0; k < LENGTH(known); k++)
        if (is(method, known[k].method))
            return known[k].read(config, quantization);
    if (method == NULL)
        return FAIL(config, "quantization_config", "has neither quant_method nor quant_algo");
    return FAIL(config, "quant_method",
                "'%.40s' is not modelled; expected fp8, fbgemm_fp8, mxfp4, gptq, awq, compressed-tensors or modelopt",
                method);
}

/* ---- Without quantization -----------------------------------------------------------------------------------------
 */

/* A format that stands as a word in a model's name; NULL: none. */
static const char *format_in_name(const char *name)
{
    static const char *const words[] = {"NVFP4", "MXFP4", "MXFP8", "FP4",  "FP8",  "AWQ",  "GPTQ",
                                        "INT4",  "INT8",  "W4A16", "W4A8", "W8A8", "W8A16"};
    for (const char *at = name; *at != '\0'; at++) {
        if (at > name && isalnum((unsigned char)at[-1]))
            continue;
        for (size_t k = 0; k < LENGTH(words); k++) {
            size_t n = 0;
            while (words[k][n] != '\0' && toupper((unsigned char)at[n]) == words[k][n])
                n++;
            if (words[k][n] == '\0' && !isalnum((unsigned char)at[n]))
                return words[k];
        }
    }
    return NULL;
}

static bool read_plain(const struct config *config, const char *name)
{
    const char *key = config_find(config, "torch_dtype") != NULL ? "torch_dtype" : "dtype";
    const json_t *type = config_find(config, key);
    const char *text = json_string_value(type);
    const char *word = format_in_name(name);
    if (word != NULL)
        return FAIL(config, "quantization_config",
                    "missing, though the model's name says %s; ModelOpt writes it to hf_quant_config.json, to be put "
                    "beside this file",
                    word);
    if (type == NULL)
        return FAIL(config, "torch_dtype",
                    "missing, and there is no quantization_config: expected bfloat16 or float16");
    if (!is(text, "bfloat16") && !is(text, "float16"))
        return FAIL(config, key, "'%.40s' without a quantization_config is not modelled; expected bfloat16 or float16",
                    text == NULL ? "not a text" : text);
    return true;
}

bool model_formats_read(const struct config *config, const char *name, const struct config *beside)
{
    struct architecture *model = config->model;
    const json_t *inside = config_find(config, "quantization_config");
    model->weight_format = model->attention_weight_format = model->output_weight_format = FORMAT_BF16;
    model->expert_weight_format = model->kv_format = FORMAT_BF16;
    model->fp4_block = 16;
    if (inside == NULL && beside == NULL && !read_plain(config, name))
        return false;
    if (inside != NULL && !read_quantization(config, inside))
        return false;
    if (beside != NULL) {
        const json_t *quantization = json_object_get(beside->root, "quantization");
        if (!json_is_object(quantization))
            return FAIL(beside, "quantization", "missing, expected what ModelOpt writes of a checkpoint");
        if (inside == NULL ? !read_quantization(beside, quantization) : !read_cache(beside, quantization))
            return false;
    }
    /* One word where it says all. */
    if (model->attention_weight_format == model->weight_format)
        model->attention_weight_format = 0;
    if (model->output_weight_format ==
        (model->attention_weight_format != 0 ? model->attention_weight_format : model->weight_format))
        model->output_weight_format = 0;
    return true;
}
