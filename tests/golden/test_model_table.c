/* Every public config of tests/data/model-configs.jsonl is read or refused by name and reason; docs/models.md says
 * which, and is made here. What is read has the parameters and the weights that its makers publish.
 */
#define _XOPEN_SOURCE 700

#include "host/user_error.h"
#include "model/footprint.h"
#include "support/golden.h"
#include "world/scenario/model_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#define CONFIGS TANDEM_SOURCE_DIR "/tests/data/model-configs.jsonl"
#define TABLE TANDEM_SOURCE_DIR "/docs/models.md"
#define LINE_MAX_BYTES (1 << 20)

struct entry {
    char name[128];
    bool good;
    struct architecture model;
    struct user_error error;
};

static bool read_entry(const json_t *line, struct entry *entry)
{
    const json_t *beside = json_object_get(line, "hf_quant_config");
    const char *name = json_string_value(json_object_get(line, "name"));
    const char *short_name = strrchr(name, '/');
    char *text = json_dumps(json_object_get(line, "config"), JSON_INDENT(1));
    char *other = beside == NULL ? NULL : json_dumps(beside, 0);
    struct model_file file = {"config.json", text, strlen(text)};
    struct model_file quantization = {"hf_quant_config.json", other, other == NULL ? 0 : strlen(other)};
    memset(entry, 0, sizeof *entry);
    snprintf(entry->name, sizeof entry->name, "%s%s", name, beside == NULL ? "" : " with hf_quant_config.json");
    entry->good = model_config_read(short_name == NULL ? name : short_name + 1, &file,
                                    beside == NULL ? NULL : &quantization, &entry->model, &entry->error);
    free(text);
    free(other);
    return entry->good;
}

/* Calls `visit` for each line of the file. */
static void each_entry(void (*visit)(const struct entry *entry, void *context), void *context)
{
    FILE *file = fopen(CONFIGS, "r");
    char *line = malloc(LINE_MAX_BYTES);
    assert_non_null(file);
    assert_non_null(line);
    while (fgets(line, LINE_MAX_BYTES, file) != NULL) {
        struct entry entry;
        json_t *json = json_loads(line, 0, NULL);
        assert_non_null(json);
        (void)read_entry(json, &entry);
        visit(&entry, context);
        json_decref(json);
    }
    free(line);
    fclose(file);
}

static struct kv_geometry alone(const struct architecture *model)
{
    struct kv_geometry geometry;
    struct parallelism one = {1, 1, 1, 1};
    assert_int_equal(kv_geometry_make(model, one, 16, LAYOUT_HND, &geometry), GEOMETRY_OK);
    return geometry;
}

static double weights_gb(const struct architecture *model)
{
    struct kv_geometry geometry = alone(model);
    struct footprint_weights weights;
    assert_int_equal(footprint_weights(model, &geometry, 0, &weights), FOOTPRINT_FITS);
    return (double)weights.total / 1e9;
}

static const char *format_text(enum number_format format)
{
    static const char *const names[] = {"", "bf16", "fp8", "fp8 blocks", "fp4", "int4"};
    return names[format];
}

static void formats_of(const struct architecture *model, char *text, size_t size)
{
    int n = snprintf(text, size, "%s", format_text(model->weight_format));
    if (model->attention_weight_format != 0)
        n += snprintf(text + n, size - (size_t)n, ", attention %s", format_text(model->attention_weight_format));
    if (model->output_weight_format != 0)
        n += snprintf(text + n, size - (size_t)n, ", its output %s", format_text(model->output_weight_format));
    if (model->experts > 0 && model->expert_weight_format != model->weight_format)
        n += snprintf(text + n, size - (size_t)n, ", experts %s", format_text(model->expert_weight_format));
    (void)n;
}

struct lists {
    char *read;
    char *refused;
    size_t read_length;
    size_t refused_length;
    FILE *read_file;
    FILE *refused_file;
    uint32_t read_count;
    uint32_t refused_count;
};

static void list_entry(const struct entry *entry, void *context)
{
    struct lists *lists = context;
    if (!entry->good) {
        const char *reason = strstr(entry->error.text, ": ");
        fprintf(lists->refused_file, "| %s | %s |\n", entry->name, reason == NULL ? entry->error.text : reason + 2);
        lists->refused_count++;
        return;
    }
    struct footprint_parameters p;
    struct kv_geometry geometry = alone(&entry->model);
    char formats[128];
    footprint_parameters(&entry->model, &p);
    formats_of(&entry->model, formats, sizeof formats);
    fprintf(lists->read_file, "| %s | %.1f | %.1f | %.1f | %llu | %s | %s |\n", entry->name, (double)p.total / 1e9,
            (double)p.active / 1e9, weights_gb(&entry->model),
            (unsigned long long)kv_token_rank_bytes(&geometry, geometry.layers), formats,
            format_text(entry->model.kv_format));
    lists->read_count++;
}

static void test_table(void **state)
{
    (void)state;
    struct lists lists = {.read = NULL};
    lists.read_file = open_memstream(&lists.read, &lists.read_length);
    lists.refused_file = open_memstream(&lists.refused, &lists.refused_length);
    each_entry(list_entry, &lists);
    fclose(lists.read_file);
    fclose(lists.refused_file);

    char *text;
    size_t length;
    FILE *table = open_memstream(&text, &length);
    fprintf(
        table,
        "# Models that `hf(\"config.json\")` reads\n\n"
        "Made by `scripts/model-table` from tests/data/model-configs.jsonl: %u public configurations, of which %u are "
        "read and\n%u refused, each with its reason. Parameters and weights are those of the language model as it is "
        "served: without\ntowers that see or hear, without draft layers, MLA's decompression also in its absorbed "
        "halves. KV bytes are of a\ntoken in all layers, copies of replicated heads left out.\n\n"
        "## Read\n\n"
        "| model | parameters, 10^9 | active, 10^9 | weights, GB | KV bytes a token | weights are | KV is |\n"
        "|---|---|---|---|---|---|---|\n%s\n"
        "## Refused\n\n| model | because |\n|---|---|\n%s",
        lists.read_count + lists.refused_count, lists.read_count, lists.refused_count, lists.read, lists.refused);
    fclose(table);
    char message[1024];
    const char *bless = getenv("TANDEM_BLESS");
    if (!golden_equal(TABLE, text, bless != NULL && bless[0] != '\0', message, sizeof message))
        fail_msg("%s", message);
    free(text);
    free(lists.read);
    free(lists.refused);
}

/* Published: 10^9 parameters in all and active on a token by the model cards, 0 where a card says none; bytes of the
 * checkpoint's weights in 10^9, from the index of its tensors, without those that are not served (draft layers). */
static const struct published {
    const char *name;
    double parameters;
    double active;
    double gigabytes;
} published[] = {
    {"meta-llama/Meta-Llama-3.1-8B", 8.03, 0, 16.06},
    {"meta-llama/Meta-Llama-3.1-70B", 70.55, 0, 141.1},
    {"meta-llama/Meta-Llama-3.1-405B", 405.85, 0, 811.7},
    {"mistralai/Mixtral-8x7B-v0.1", 46.7, 12.9, 93.4},
    {"mistralai/Mixtral-8x22B-v0.1", 140.6, 39.1, 281.2},
    {"mistral", 7.25, 0, 14.5},
    {"Qwen/Qwen3-8B", 8.19, 0, 16.4},
    {"Qwen/Qwen3-32B", 32.8, 0, 65.5},
    {"Qwen/Qwen3-30B-A3B", 30.5, 3.3, 61.1},
    {"Qwen/Qwen3-235B-A22B", 235, 22, 470.2},
    {"Qwen/Qwen3-Coder-480B-A35B-Instruct", 480, 35, 960.3},
    {"openai/gpt-oss-120b", 116.8, 5.1, 65.2},
    {"openai/gpt-oss-20b", 20.9, 3.6, 13.8},
    {"deepseek-ai/DeepSeek-R1", 671, 37, 0},
    {"deepseek-ai/DeepSeek-V3.2", 671, 37, 0},
    {"moonshotai/Kimi-K2-Instruct", 1026, 32, 0},
    {"MiniMaxAI/MiniMax-M2.7", 228.7, 10, 0},
    {"zai-org/GLM-5", 744, 40, 0},
    {"meta-llama/Llama-4-Scout-17B-16E-Instruct", 108, 17, 0},
    {"meta-llama/Llama-4-Maverick-17B-128E-Instruct", 400, 17, 0},
    {"XiaomiMiMo/MiMo-7B-Base", 7.6, 0, 0},
};

static void assert_within(const char *name, const char *what, double value, double expected, double share)
{
    if (expected > 0 && (value > expected * (1 + share) || value < expected * (1 - share)))
        fail_msg("%s: %.2f %s, published are %.2f", name, value, what, expected);
}

static void compare_entry(const struct entry *entry, void *context)
{
    uint32_t *found = context;
    for (size_t k = 0; k < sizeof published / sizeof published[0]; k++) {
        if (strcmp(entry->name, published[k].name) != 0)
            continue;
        struct footprint_parameters p;
        assert_true(entry->good);
        footprint_parameters(&entry->model, &p);
        assert_within(entry->name, "parameters", (double)p.total / 1e9, published[k].parameters, 0.03);
        /* Cards round to whole 10^9, and some count the embedding. */
        assert_within(entry->name, "active", (double)p.active / 1e9, published[k].active, 0.09);
        assert_within(entry->name, "GB", weights_gb(&entry->model), published[k].gigabytes, 0.03);
        *found += 1;
    }
}

static void test_published(void **state)
{
    (void)state;
    uint32_t found = 0;
    each_entry(compare_entry, &found);
    assert_int_equal(found, sizeof published / sizeof published[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table), cmocka_unit_test(test_published)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
