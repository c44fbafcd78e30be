/* Reading the measured rows, as scripts/validation-rows left them: what each says, and its scenario. */
#include "sim/validate/serving.h"

#include "world/scenario/scenario_lua.h"
#include "host/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Scenarios -------------------------------------------------------------------------------------------------- */

enum number_format serving_format(const char *name)
{
    static const struct {
        const char *name;
        enum number_format format;
    } formats[] = {{"bf16", FORMAT_BF16},
                   {"fp8", FORMAT_FP8},
                   {"fp8_block", FORMAT_FP8_BLOCK},
                   {"fp4", FORMAT_FP4},
                   {"int4", FORMAT_INT4}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0)
            return formats[i].format;
    check_failed("a known format in validation/models.csv", __FILE__, __LINE__);
}

static const char *text_at(const struct serving *serving, uint32_t row, const char *column)
{
    return csv_text(&serving->table, row, csv_column(&serving->table, column));
}

static uint32_t number_at(const struct serving *serving, uint32_t row, const char *column)
{
    return (uint32_t)csv_integer(&serving->table, row, csv_column(&serving->table, column), 0);
}

struct scenario *serving_base_make(const struct csv_table *table, uint32_t row, const char *name, bool disaggregated,
                                   struct user_error *error)
{
    char values[3][128];
    snprintf(values[0], sizeof values[0], "require \"models.%s\"", csv_text(table, row, csv_column(table, "module")));
    snprintf(values[1], sizeof values[1], "require \"hardware.%s\"",
             csv_text(table, row, csv_column(table, "machine")));
    snprintf(values[2], sizeof values[2], "\"%s\"", csv_text(table, row, csv_column(table, "engine")));
    struct scenario_override sets[5] = {{.path = "model", .value = values[0]}};
    size_t count = 1;
    const char *paths[2][4] = {
        {"pools.mixed.machine", "pools.mixed.engine", NULL, NULL},
        {"pools.prefill.machine", "pools.prefill.engine", "pools.decode.machine", "pools.decode.engine"}};
    for (size_t i = 0; i < 4 && paths[disaggregated][i] != NULL; i++)
        sets[count++] = (struct scenario_override){paths[disaggregated][i], values[1 + i % 2]};
    char path[1200];
    snprintf(path, sizeof path, "%s/validation/serving%s.lua", scenario_library_root(),
             disaggregated ? "-disaggregated" : "");
    struct scenario *scenario = scenario_load(path, sets, count, error);
    if (scenario == NULL)
        return NULL;
    snprintf(scenario->name, sizeof scenario->name, "%s", name);
    scenario->model.weight_format = serving_format(csv_text(table, row, csv_column(table, "weights")));
    scenario->model.expert_weight_format = serving_format(csv_text(table, row, csv_column(table, "experts")));
    scenario->model.tail_bytes = scenario->model.tail_writes = 0;
    return scenario;
}

/* The scenario of a row's choices, made once. */
static bool find_base(struct serving *serving, uint32_t index, struct user_error *error)
{
    struct serving_row *row = &serving->rows[index];
    char name[64];
    snprintf(name, sizeof name, "%.20s %.10s %.10s %.8s %d", text_at(serving, index, "module"),
             text_at(serving, index, "machine"), row->engine_name, row->precision, row->disaggregated);
    for (row->base = 0; row->base < serving->base_count; row->base++)
        if (strcmp(serving->bases[row->base]->name, name) == 0)
            return true;
    struct scenario *scenario = serving_base_make(&serving->table, index, name, row->disaggregated, error);
    if (scenario == NULL)
        return false;
    serving->bases = realloc(serving->bases, (serving->base_count + 1) * sizeof *serving->bases);
    CHECK(serving->bases != NULL);
    serving->bases[serving->base_count++] = scenario;
    return true;
}

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

static struct serving_side side_at(const struct serving *serving, uint32_t row, const char *side)
{
    static const char *const columns[] = {"workers", "tensor", "pipeline", "data", "expert"};
    uint32_t value[5];
    for (size_t i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%s", side, columns[i]);
        value[i] = number_at(serving, row, name);
    }
    return (struct serving_side){.workers = value[0],
                                 .parallelism = {.tensor = (uint16_t)value[1],
                                                 .pipeline = (uint16_t)value[2],
                                                 .data = (uint16_t)value[3],
                                                 .expert = (uint16_t)value[4]}};
}

static enum engine_kind engine_of(const char *name)
{
    if (strcmp(name, "vllm") == 0)
        return ENGINE_VLLM;
    if (strcmp(name, "sglang") == 0)
        return ENGINE_SGLANG;
    return strcmp(name, "trtllm") == 0 ? ENGINE_TRTLLM : ENGINE_NEUTRAL;
}

uint8_t serving_rule(const struct csv_table *rules, const char *letter)
{
    uint32_t letters = csv_column(rules, "letter");
    if (letter[0] == '\0')
        return SERVING_KEPT;
    for (uint32_t i = 0; i < rules->row_count; i++)
        if (strcmp(csv_text(rules, i, letters), letter) == 0)
            return (uint8_t)(i + 1);
    check_failed("a rule of the table of rules", __FILE__, __LINE__);
}

void serving_excluded(struct validation *validation, const struct csv_table *rules, const uint32_t *rows)
{
    uint32_t letters = csv_column(rules, "letter");
    uint32_t texts = csv_column(rules, "text");
    for (uint32_t r = 0; r < rules->row_count; r++)
        validation_excluded(validation, csv_text(rules, r, letters), csv_text(rules, r, texts), rows[r + 1]);
}

static void read_row(const struct serving *serving, uint32_t i, struct serving_row *row)
{
    *row = (struct serving_row){
        .engine_name = text_at(serving, i, "engine"),
        .version = text_at(serving, i, "version"),
        .model = text_at(serving, i, "model"),
        .system = text_at(serving, i, "system"),
        .precision = text_at(serving, i, "precision"),
        .engine = engine_of(text_at(serving, i, "engine")),
        .private_series = number_at(serving, i, "private") != 0,
        .disaggregated = number_at(serving, i, "disaggregated") != 0,
        .prompt = number_at(serving, i, "prompt"),
        .output = number_at(serving, i, "output"),
        .concurrency = number_at(serving, i, "concurrency"),
        .mixed = side_at(serving, i, ""),
        .prefill = side_at(serving, i, "prefill_"),
        .decode = side_at(serving, i, "decode_"),
        .ttft_ns = (int64_t)number_at(serving, i, "ttft_us") * 1000,
        .tpot_ns = (int64_t)number_at(serving, i, "tpot_us") * 1000,
        .rule = serving_rule(&serving->rules, text_at(serving, i, "rule")),
        .ttft_rule = serving_rule(&serving->rules, text_at(serving, i, "ttft_rule")),
        .quoted = number_at(serving, i, "quoted") != 0,
        .base = UINT32_MAX,
        .deployment = number_at(serving, i, "deployment"),
        .budget = number_at(serving, i, "budget"),
        .batch_max = number_at(serving, i, "batch"),
        .memory_permille = number_at(serving, i, "memory"),
        .receive_steps = number_at(serving, i, "receive"),
        .gather_steps = number_at(serving, i, "gather"),
        .decode_batch_max = number_at(serving, i, "decode_batch"),
        .slots = number_at(serving, i, "slots"),
    };
    if (row->rule == SERVING_KEPT)
        row->kv = serving_format(text_at(serving, i, "kv"));
}

/* Deployments are numbered in the order of their first rows. */
static void count_row(struct serving *serving, uint32_t i)
{
    const struct serving_row *row = &serving->rows[i];
    CHECK(row->deployment <= serving->deployment_count);
    if (row->deployment == serving->deployment_count)
        serving->deployments[serving->deployment_count++].first = i;
    serving->deployments[row->deployment].fitted += !row->quoted;
}

bool serving_load(struct serving *serving, struct user_error *error)
{
    *serving = (struct serving){.row_count = 0};
    if (!csv_table_load("validation/serving.csv.xz", &serving->table, error) ||
        !csv_table_load("validation/rules.csv", &serving->rules, error))
        return false;
    serving->row_count = serving->table.row_count;
    serving->rows = calloc(serving->row_count, sizeof *serving->rows);
    serving->deployments = calloc(serving->row_count, sizeof *serving->deployments);
    CHECK(serving->rows != NULL && serving->deployments != NULL);
    for (uint32_t i = 0; i < serving->row_count; i++) {
        read_row(serving, i, &serving->rows[i]);
        if (serving->rows[i].rule != SERVING_KEPT)
            continue;
        if (!find_base(serving, i, error))
            return false;
        count_row(serving, i);
    }
    return true;
}

void serving_free(struct serving *serving)
{
    for (uint32_t i = 0; i < serving->base_count; i++)
        scenario_free(serving->bases[i]);
    csv_table_free(&serving->table);
    csv_table_free(&serving->rules);
    free(serving->rows);
    free(serving->bases);
    free(serving->deployments);
    *serving = (struct serving){0};
}
