/* Published config.json files give the models that are written by hand from the same files; what is not modelled is
 * refused by name. tests/support/configs holds the keys that matter of each file, from the models' own pages.
 */
#define _XOPEN_SOURCE 700

#include "world/scenario/model_config.h"
#include "support/scenario_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CONFIGS TANDEM_SOURCE_DIR "/tests/support/configs/"

/* The good scenario with another model; the caller frees it. */
static struct scenario *load_with(const char *model, struct user_error *error)
{
    char override[512];
    snprintf(override, sizeof override, "%s", model);
    struct scenario_override sets[] = {{"model", override}};
    return scenario_text_load(scenario_text_good, sets, 1, error);
}

static struct scenario *must_load(const char *model)
{
    struct user_error error = {.set = false};
    struct scenario *scenario = load_with(model, &error);
    if (scenario == NULL)
        fail_msg("%s: %s", model, error.text);
    return scenario;
}

static void assert_same(const struct architecture *a, const struct architecture *b)
{
    assert_int_equal(a->attention, b->attention);
    assert_int_equal(a->layers, b->layers);
    assert_int_equal(a->dense_layers, b->dense_layers);
    assert_int_equal(a->hidden, b->hidden);
    assert_int_equal(a->heads, b->heads);
    assert_int_equal(a->kv_heads, b->kv_heads);
    assert_int_equal(a->head_dim, b->head_dim);
    assert_int_equal(a->vocab, b->vocab);
    assert_int_equal(a->latent_dim, b->latent_dim);
    assert_int_equal(a->rope_dim, b->rope_dim);
    assert_int_equal(a->nope_dim, b->nope_dim);
    assert_int_equal(a->value_dim, b->value_dim);
    assert_int_equal(a->q_latent_dim, b->q_latent_dim);
    assert_int_equal(a->intermediate, b->intermediate);
    assert_int_equal(a->experts, b->experts);
    assert_int_equal(a->experts_active, b->experts_active);
    assert_int_equal(a->expert_intermediate, b->expert_intermediate);
    assert_int_equal(a->shared_experts, b->shared_experts);
    assert_int_equal(a->window, b->window);
    assert_int_equal(a->full_layers, b->full_layers);
    assert_int_equal(a->index_topk, b->index_topk);
    assert_int_equal(a->weight_format, b->weight_format);
    assert_int_equal(a->expert_weight_format, b->expert_weight_format);
    assert_int_equal(a->fp4_block, b->fp4_block);
    assert_int_equal(a->kv_format, b->kv_format);
    assert_int_equal(a->tied_embeddings, b->tied_embeddings);
    assert_int_equal(a->tail_bytes, b->tail_bytes);
    assert_int_equal(a->tail_writes, b->tail_writes);
}

/* The shipped models were written by hand, value by value. */
static void test_as_written_by_hand(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        const char *shipped;
    } pairs[] = {
        {"DeepSeek-R1", "deepseek-r1"},       {"Qwen3-Coder-480B-A35B-Instruct", "qwen3-coder-480b-bf16"},
        {"Qwen3-235B-A22B", "qwen3-235b"},    {"Qwen3-235B-A22B-FP8", "qwen3-235b-fp8"},
        {"gpt-oss-120b", "gpt-oss-120b"},     {"Kimi-K2-Instruct", "kimi-k2"},
        {"Llama-3.1-8B", "llama-3.1-8b"},     {"Llama-3.1-70B", "llama-3.1-70b"},
        {"Llama-3.1-405B", "llama-3.1-405b"}, {"Mixtral-8x7B-v0.1", "mixtral-8x7b"},
    };
    for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++) {
        char model[512];
        snprintf(model, sizeof model, "hf(\"" CONFIGS "%s/config.json\")", pairs[k].config);
        struct scenario *read = must_load(model);
        snprintf(model, sizeof model, "require \"models.%s\"", pairs[k].shipped);
        struct scenario *written = must_load(model);
        print_message("%s\n", pairs[k].config);
        assert_same(&read->model, &written->model);
        assert_string_equal(read->model.name, pairs[k].config);
        scenario_free(read);
        scenario_free(written);
    }
}

static void test_other_families(void **state)
{
    (void)state;
    struct scenario *s = must_load("hf(\"" CONFIGS "DeepSeek-V3.2/config.json\")");
    assert_int_equal(s->model.index_topk, 2048);
    assert_int_equal(s->model.index_heads, 64);
    assert_int_equal(s->model.index_dim, 128);
    assert_int_equal(s->model.weight_format, FORMAT_FP8_BLOCK);
    scenario_free(s);
    s = must_load("hf(\"" CONFIGS "GLM-5/config.json\")");
    assert_int_equal(s->model.value_dim, 256);
    assert_int_equal(s->model.index_heads, 32);
    assert_int_equal(s->model.weight_format, FORMAT_BF16);
    scenario_free(s);
    s = must_load("hf(\"" CONFIGS "MiniMax-M2.5/config.json\")");
    assert_int_equal(s->model.experts, 256);
    assert_int_equal(s->model.expert_intermediate, 1536);
    assert_int_equal(s->model.weight_format, FORMAT_FP8_BLOCK);
    scenario_free(s);
    s = must_load("hf(\"" CONFIGS "Qwen2.5-72B/config.json\")");
    assert_int_equal(s->model.intermediate, 29568);
    assert_int_equal(s->model.window, 0);
    scenario_free(s);
    s = must_load("with(hf(\"" CONFIGS "Qwen3-32B/config.json\"), { kv = \"fp8\", name = \"mine\" })");
    assert_int_equal(s->model.kv_format, FORMAT_FP8);
    assert_string_equal(s->model.name, "mine");
    scenario_free(s);
}

/* A model with eyes: the language model is in text_config, its experts alone are of 4 bits. */
static void test_nested_and_int4(void **state)
{
    (void)state;
    struct scenario *s = must_load("hf(\"" CONFIGS "Kimi-K2.5/config.json\")");
    assert_int_equal(s->model.experts, 384);
    assert_int_equal(s->model.expert_weight_format, FORMAT_INT4);
    assert_int_equal(s->model.weight_format, FORMAT_BF16);
    scenario_free(s);
}

static void assert_refused(const char *text, const char *expected)
{
    struct architecture model;
    struct user_error error = {.set = false};
    struct model_file file = {"config.json", text, strlen(text)};
    assert_false(model_config_read("model", &file, NULL, &model, &error));
    assert_string_equal(error.text, expected);
}

#define LLAMA "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, \"num_attention_heads\": 4,\n"

static void test_refusals(void **state)
{
    (void)state;
    assert_refused("[]", "config.json:1: expected an object, the config.json of a model");
    assert_refused("{", "config.json:1: string or '}' expected near end of file");
    assert_refused("root:x:0:0", "config.json:1: '[' or '{' expected");
    assert_refused("{}", "config.json: model_type: missing, and so is the first of architectures");
    assert_refused("{\n\"model_type\": \"phi9\"}",
                   "config.json:2: model_type: 'phi9' is not modelled; expected one of llama, mistral, qwen2, qwen3, "
                   "qwen3_vl_text, qwen3_moe, qwen3_vl_moe_text, mimo, mixtral, deepseek_v2, deepseek_v3, "
                   "deepseek_v32, kimi_k2, glm4_moe, glm_moe_dsa, gpt_oss, llama4_text, step3p7, minimax_m2");
    assert_refused("{\n\"model_type\": \"qwen3_next\"}",
                   "config.json:2: model_type: 'qwen3_next': most of its layers are gated linear attention, whose "
                   "state of a request is not modelled");
    assert_refused("{\n\"model_type\": [\"llama\"], \"architectures\": [\"LlamaForCausalLM\"]}",
                   "config.json:2: model_type: expected a text");
    assert_refused(LLAMA "\"intermediate_size\": 8}", "config.json: vocab_size: missing, expected a whole number");
    assert_refused(LLAMA "\"vocab_size\": 0, \"intermediate_size\": 8}",
                   "config.json:2: vocab_size: 0, expected 1 to 16777216");
    assert_refused(LLAMA "\"vocab_size\": 9,\n\"num_key_value_heads\": 3, \"intermediate_size\": 8}",
                   "config.json:3: num_key_value_heads: 3 does not divide num_attention_heads (4)");
    assert_refused(LLAMA "\"vocab_size\": 9, \"intermediate_size\": 8,\n\"quantization_config\": {\"quant_method\": "
                         "\"hqq\"}}",
                   "config.json:3: quant_method: 'hqq' is not modelled; expected fp8, fbgemm_fp8, mxfp4, gptq, awq, "
                   "compressed-tensors or modelopt");
    assert_refused(LLAMA "\"vocab_size\": 9, \"intermediate_size\": 8, \"quantization_config\": {\"quant_method\": "
                         "\"fp8\",\n\"weight_block_size\": [64, 64]}}",
                   "config.json:3: weight_block_size: only blocks of 128 x 128 are modelled");
}

static void test_refused_models(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    assert_null(load_with("hf(\"" CONFIGS "Qwen3.5-397B-A17B/config.json\")", &error));
    assert_non_null(strstr(error.text, "model_type: 'qwen3_5_moe_text': most of its layers are gated"));
    error.set = false;
    assert_null(load_with("hf(\"" CONFIGS "GLM-5.2/config.json\")", &error));
    assert_non_null(strstr(error.text, "index_topk_freq: only 1 is modelled"));
    error.set = false;
    assert_null(load_with("hf(\"nowhere/config.json\")", &error));
    assert_non_null(strstr(error.text, "hf(\"nowhere/config.json\"): there is no such file beside the scenario"));
}

#define SMALL                                                                                                          \
    "\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, \"num_attention_heads\": 4, "           \
    "\"vocab_size\": 9, \"intermediate_size\": 8"
#define PLAIN SMALL ", \"torch_dtype\": \"bfloat16\""

static bool read_text(const char *name, const char *text, const char *beside, struct architecture *model,
                      struct user_error *error)
{
    struct model_file file = {"config.json", text, strlen(text)};
    struct model_file other = {"hf_quant_config.json", beside, beside == NULL ? 0 : strlen(beside)};
    *error = (struct user_error){.set = false};
    return model_config_read(name, &file, beside == NULL ? NULL : &other, model, error);
}

static void assert_formats(const char *text, const char *beside, enum number_format weights,
                           enum number_format attention, enum number_format cache)
{
    struct architecture model;
    struct user_error error;
    if (!read_text("model", text, beside, &model, &error))
        fail_msg("%s: %s", text, error.text);
    assert_int_equal(model.weight_format, weights);
    assert_int_equal(architecture_attention_format(&model), attention);
    assert_int_equal(model.kv_format, cache);
}

static void assert_format_refused(const char *name, const char *text, const char *beside, const char *expected)
{
    struct architecture model;
    struct user_error error;
    assert_false(read_text(name, text, beside, &model, &error));
    if (strstr(error.text, expected) == NULL)
        fail_msg("%s: '%s' does not say '%s'", text, error.text, expected);
}

/* What Python writes and JSON does not know, in places that do not matter. */
static void test_python_json(void **state)
{
    (void)state;
    assert_formats("\xef\xbb\xbf{" PLAIN "}", NULL, FORMAT_BF16, FORMAT_BF16, FORMAT_BF16);
    assert_formats("{" PLAIN ", \"limits\": [0.0, Infinity, -Infinity, NaN], \"odd\": \"NaN \\\" Infinity\"}", NULL,
                   FORMAT_BF16, FORMAT_BF16, FORMAT_BF16);
    assert_format_refused("model", "{" PLAIN ", \"head_dim\": Infinity}", NULL, "head_dim: expected a whole number");
    assert_format_refused("model", "{" PLAIN ", \"head_dim\": NaN}", NULL, "head_dim: expected a whole number");
}

#define QUANTIZED(text) "{" SMALL ", \"quantization_config\": {" text "}}"
#define GROUP(text) "\"config_groups\": {\"group_0\": {\"weights\": {" text "}}}"

static void test_formats(void **state)
{
    (void)state;
    assert_formats(QUANTIZED("\"quant_algo\": \"FP8\", \"kv_cache_scheme\": \"FP8\""), NULL, FORMAT_FP8, FORMAT_FP8,
                   FORMAT_FP8);
    assert_formats(QUANTIZED("\"quant_algo\": \"NVFP4\", \"kv_cache_scheme\": {\"num_bits\": 8, \"type\": \"float\"}, "
                             "\"ignore\": [\"lm_head\", \"model.layers.0.self_attn*\", \"model.layers.1.self_attn*\"]"),
                   NULL, FORMAT_FP4, FORMAT_BF16, FORMAT_FP8);
    assert_formats(
        QUANTIZED("\"quant_method\": \"compressed-tensors\", \"ignore\": [\"re:.*self_attn.*\"], " GROUP(
            "\"type\": \"float\", \"num_bits\": 8, \"strategy\": \"block\", \"block_structure\": [128, 128]")),
        NULL, FORMAT_FP8_BLOCK, FORMAT_BF16, FORMAT_BF16);
    assert_formats(QUANTIZED("\"quant_method\": \"awq\", \"bits\": 4"), NULL, FORMAT_INT4, FORMAT_INT4, FORMAT_BF16);
    assert_formats(
        "{" PLAIN "}",
        "{\"quantization\": {\"quant_algo\": \"NVFP4\", \"kv_cache_quant_algo\": \"FP8\", \"exclude_modules\": "
        "[\"lm_head\"]}}",
        FORMAT_FP4, FORMAT_FP4, FORMAT_FP8);
}

/* Nothing is taken for bf16 that says something else. */
static void test_formats_refused(void **state)
{
    (void)state;
    assert_format_refused("model", "{" SMALL "}", NULL, "torch_dtype: missing, and there is no quantization_config");
    assert_format_refused("model", "{" SMALL ", \"torch_dtype\": \"float8_e4m3fn\"}", NULL,
                          "torch_dtype: 'float8_e4m3fn' without a quantization_config is not modelled");
    assert_format_refused("Llama-NVFP4", "{" PLAIN "}", NULL, "the model's name says NVFP4");
    assert_format_refused("llama-w4a16-g128", "{" PLAIN "}", NULL, "the model's name says W4A16");
    assert_format_refused("model", "{" PLAIN "}", "{}", "hf_quant_config.json: quantization: missing");
    assert_format_refused("model", QUANTIZED("\"bits\": 4"), NULL, "has neither quant_method nor quant_algo");
    assert_format_refused("model", QUANTIZED("\"quant_algo\": \"MIXED_PRECISION\""), NULL, "a format for each layer");
    assert_format_refused("model", QUANTIZED("\"quant_algo\": \"W4A8_AWQ\""), NULL, "'W4A8_AWQ' is not modelled");
    assert_format_refused("model", QUANTIZED("\"quant_algo\": \"FP8\", \"kv_cache_quant_algo\": \"NVFP4\""), NULL,
                          "kv_cache_quant_algo: 'NVFP4' is not modelled");
    assert_format_refused("model",
                          QUANTIZED("\"quant_algo\": \"FP8\", \"kv_cache_scheme\": {\"type\": \"int\", "
                                    "\"num_bits\": 8}"),
                          NULL, "kv_cache_scheme: 'another scheme' is not modelled");
    assert_format_refused("model", QUANTIZED("\"quant_method\": \"gptq\", \"bits\": 8"), NULL, "only 4 bits");
    assert_format_refused("model", QUANTIZED("\"quant_method\": \"compressed-tensors\""), NULL,
                          "config_groups: missing");
    assert_format_refused("model", QUANTIZED("\"quant_algo\": \"FP8\", \"ignore\": [\"model.layers.0.self_attn*\"]"),
                          NULL, "exempts the attention projections of 1 of 2 layers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_written_by_hand),
        cmocka_unit_test(test_other_families),
        cmocka_unit_test(test_nested_and_int4),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refused_models),
        cmocka_unit_test(test_python_json),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_formats_refused),
    };
    return cmocka_run_group_tests(tests, scenario_text_setup, scenario_text_teardown);
}
