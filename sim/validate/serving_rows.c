/* Reading the measured rows: what their columns mean, and the scenario and the server's settings of each. */
#include "world/kernels/csv_table.h"
#include "sim/validate/serving.h"

#include "base/arith.h"
#include "world/scenario/scenario_lua.h"
#include "host/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_ROWS, TABLE_MODELS, TABLE_DEPLOYMENTS, TABLE_RECIPES, TABLES };

static const char *const table_files[TABLES] = {"validation/serving.csv.xz", "validation/models.csv",
                                                "validation/deployments.csv", "validation/recipes.csv"};

/* ---- Shardings -------------------------------------------------------------------------------------------------- */

static struct parallelism parallelism_of(int64_t tensor, int64_t pipeline, int64_t data, int64_t expert)
{
    return (struct parallelism){.tensor = (uint16_t)max_i64(1, tensor),
                                .data = (uint16_t)max_i64(1, data),
                                .expert = (uint16_t)max_i64(1, expert),
                                .pipeline = (uint16_t)max_i64(1, pipeline)};
}

/* On one node some rows name products: tensor 64 or 16 are 8 or 4 GPUs with as many expert ranks, data 64 or 16
 * likewise with attention by data parallelism, and tensor = data > 1 is data parallelism on that many GPUs. */
static struct parallelism one_node(struct parallelism p)
{
    uint16_t gpus = p.tensor == 64 || p.data == 64 ? 8 : p.tensor == 16 || p.data == 16 ? 4 : 0;
    if (gpus > 0 && p.tensor > 8)
        return (struct parallelism){gpus, 1, gpus, p.pipeline};
    if (gpus > 0)
        return (struct parallelism){1, gpus, gpus, p.pipeline};
    if (p.data > 1 && p.tensor == p.data)
        return (struct parallelism){1, p.data, p.data, p.pipeline};
    uint32_t ranks = (uint32_t)p.tensor * p.data;
    if (p.expert > ranks)
        p.expert = (uint16_t)ranks;
    return p;
}

/* With attention by data parallelism, tensor ranks and data groups are the same GPUs: named 1 x n or n x n. */
static struct parallelism one_side(struct parallelism p)
{
    if (p.data > 1 && p.tensor == p.data)
        p.tensor = 1;
    uint32_t ranks = (uint32_t)p.tensor * p.data;
    if (p.expert > ranks)
        p.expert = (uint16_t)ranks;
    return p;
}

static struct serving_side side_of(const struct csv_table *table, uint32_t row, const char *side)
{
    static const char *const columns[] = {"workers", "tensor", "pipeline", "data", "expert"};
    int64_t value[5];
    for (size_t i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s_%s", side, columns[i]);
        value[i] = csv_integer(table, row, csv_column(table, name), 0);
    }
    return (struct serving_side){.workers = (uint32_t)value[0],
                                 .parallelism = one_side(parallelism_of(value[1], value[2], value[3], value[4]))};
}

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

static enum engine_kind engine_of(const char *name)
{
    if (strcmp(name, "vllm") == 0)
        return ENGINE_VLLM;
    if (strcmp(name, "sglang") == 0)
        return ENGINE_SGLANG;
    return strcmp(name, "trtllm") == 0 ? ENGINE_TRTLLM : ENGINE_NEUTRAL;
}

static bool is_r1(const char *model)
{
    return strncmp(model, "DeepSeek-R1", 11) == 0 || strncmp(model, "DeepSeek-V3", 11) == 0;
}

/* Labels of SGLang 0.5.5 name one expert rank whatever there was. Its recipes (NVIDIA/srt-slurm, recipes/gb200-fp4 and
 * gb200-fp8) spread experts over all ranks of data parallelism; instances beside decoders of four are tensor parallel.
 */
static void spread_experts(struct serving_row *row)
{
    struct parallelism *const sides[2] = {&row->prefill.parallelism, &row->decode.parallelism};
    bool low_latency = row->decode.parallelism.data == 4;
    if (row->engine != ENGINE_SGLANG || strncmp(row->version, "0.5.5", 5) != 0)
        return;
    for (int i = 0; i < 2; i++) {
        uint16_t data = sides[i]->data;
        if (data > 1 && sides[i]->expert == 1)
            *sides[i] = low_latency ? parallelism_of(data, 1, 1, 1) : parallelism_of(1, 1, data, data);
    }
}

static void read_row(const struct csv_table *table, uint32_t i, struct serving_row *row)
{
    const char *const texts[] = {"origin", "engine", "version", "model", "system", "precision", "mode"};
    const char *text[7];
    for (size_t t = 0; t < 7; t++)
        text[t] = csv_text(table, i, csv_column(table, texts[t]));
    static const char *const numbers[] = {"date",     "prompt", "output", "concurrency", "tensor",
                                          "pipeline", "data",   "expert", "ttft_us",     "tpot_us"};
    int64_t number[10];
    for (size_t n = 0; n < 10; n++)
        number[n] = csv_integer(table, i, csv_column(table, numbers[n]), 0);
    *row = (struct serving_row){
        .origin = text[0],
        .engine_name = text[1],
        .version = text[2],
        .model = text[3],
        .system = text[4],
        .precision = text[5],
        .date = (uint32_t)number[0],
        .engine = engine_of(text[1]),
        .private_series = strcmp(text[0], "private") == 0,
        .disaggregated = strcmp(text[6], "disagg") == 0,
        .prompt = (uint32_t)number[1],
        .output = (uint32_t)number[2],
        .concurrency = (uint32_t)number[3],
        .ttft_ns = number[8] * 1000,
        .tpot_ns = number[9] * 1000,
        .base = UINT32_MAX,
    };
    if (row->disaggregated) {
        row->prefill = side_of(table, i, "prefill");
        row->decode = side_of(table, i, "decode");
        spread_experts(row);
        return;
    }
    row->ranks_named = (uint32_t)(number[4] * number[6]);
    struct parallelism p = one_node(parallelism_of(number[4], number[5], number[6], number[7]));
    /* Rows of TensorRT-LLM of that month that name one expert rank behave as if experts were spread. */
    if (is_r1(row->model) && row->engine == ENGINE_TRTLLM && row->date / 100 == 202511 && p.expert == 1)
        p.expert = (uint16_t)(p.tensor * p.data);
    row->mixed = (struct serving_side){.workers = 1, .parallelism = p};
}

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

bool serving_machine(const char *system, char *machine, size_t size)
{
    char path[1200];
    snprintf(machine, size, "%.*s", (int)strcspn(system, "_"), system);
    snprintf(path, sizeof path, "%s/hardware/%s.lua", scenario_library_root(), machine);
    FILE *file = fopen(path, "r");
    if (file != NULL)
        fclose(file);
    return file != NULL;
}

bool serving_model(const struct csv_table *models, const char *name, const char *precision, uint32_t *index)
{
    uint32_t names = csv_column(models, "name");
    uint32_t precisions = csv_column(models, "precision");
    for (*index = 0; *index < models->row_count; ++*index)
        if (strcmp(csv_text(models, *index, names), name) == 0 &&
            strcmp(csv_text(models, *index, precisions), precision) == 0)
            return true;
    return false;
}

/* The settings of the first row that matches: an empty cell matches everything, a version what begins with it. */
static void set_settings(const struct csv_table *table, const char *module, struct serving_row *row)
{
    char date[16];
    snprintf(date, sizeof date, "%u", row->date);
    const char *const wanted[] = {row->engine_name, row->system, module, row->precision, row->version, date};
    for (uint32_t i = 0; i < table->row_count; i++) {
        bool matches = true;
        for (uint32_t c = 0; c < sizeof wanted / sizeof *wanted; c++) {
            const char *cell = csv_text(table, i, c);
            size_t length = strlen(cell);
            bool whole = c != 4 && length > 0;
            matches = matches && strncmp(cell, wanted[c], whole ? length + 1 : length) == 0;
        }
        if (!matches)
            continue;
        int64_t budget = csv_integer(table, i, csv_column(table, "budget"), 0);
        int64_t batch = csv_integer(table, i, csv_column(table, "batch"), 0);
        row->kv = serving_format(csv_text(table, i, csv_column(table, "kv")));
        row->batch_max = (uint32_t)(batch > 0 ? batch : max_i64(1, row->concurrency));
        row->budget = (uint32_t)(budget > 0   ? budget
                                 : budget < 0 ? -budget * row->prompt
                                              : (int64_t)row->prompt + row->output);
        row->budget = max_u32(row->budget, row->batch_max);
        row->memory_permille = (uint32_t)csv_integer(table, i, csv_column(table, "memory"), 900);
        const char *receive = row->concurrency < 16 ? "few" : "receive";
        row->receive_steps = (uint32_t)csv_integer(table, i, csv_column(table, receive), 0);
        row->gather_steps = (uint32_t)csv_integer(table, i, csv_column(table, "gather"), 0);
        row->speculative = csv_integer(table, i, csv_column(table, "draft"), 0) != 0;
        return;
    }
    row->batch_max = 512;
    row->budget = 8192;
    row->kv = FORMAT_BF16;
    row->memory_permille = 900;
}

/* What a disaggregated server was started with for so many clients. */
static void set_recipe(const struct csv_table *table, struct serving_row *row)
{
    static const char *const columns[] = {"prompt",         "output",       "prefill_workers",
                                          "decode_workers", "decode_ranks", "concurrency"};
    const struct parallelism *decode = &row->decode.parallelism;
    const uint32_t wanted[] = {row->prompt,
                               row->output,
                               row->prefill.workers,
                               row->decode.workers,
                               (uint32_t)decode->tensor * decode->data,
                               row->concurrency};
    for (uint32_t i = 0; i < table->row_count; i++) {
        const char *version = csv_text(table, i, csv_column(table, "version"));
        bool matches = row->engine == ENGINE_TRTLLM && strncmp(row->version, version, strlen(version)) == 0 &&
                       strcmp(row->system, csv_text(table, i, csv_column(table, "system"))) == 0 &&
                       strcmp(row->precision, csv_text(table, i, csv_column(table, "precision"))) == 0;
        for (size_t c = 0; c < sizeof columns / sizeof *columns && matches; c++)
            matches = csv_integer(table, i, csv_column(table, columns[c]), 0) == wanted[c];
        if (!matches)
            continue;
        row->decode_batch_max = (uint32_t)csv_integer(table, i, csv_column(table, "batch"), 0);
        row->slots = (uint32_t)csv_integer(table, i, csv_column(table, "slots"), 0);
        row->speculative = csv_integer(table, i, csv_column(table, "draft"), 0) != 0;
        return;
    }
}

/* The scenario of these choices, made once. */
static bool find_base(struct serving *serving, const struct csv_table *models, uint32_t model, const char *machine,
                      struct serving_row *row, struct user_error *error)
{
    char values[4][128];
    const char *module = csv_text(models, model, csv_column(models, "module"));
    snprintf(values[0], sizeof values[0], "require \"models.%s\"", module);
    snprintf(values[1], sizeof values[1], "require \"hardware.%s\"", machine);
    snprintf(values[2], sizeof values[2], "\"%s\"", row->engine_name);
    char name[64];
    snprintf(name, sizeof name, "%.20s %.10s %.10s %.8s %d", module, machine, row->engine_name, row->precision,
             row->disaggregated);
    for (row->base = 0; row->base < serving->base_count; row->base++)
        if (strcmp(serving->bases[row->base]->name, name) == 0)
            return true;
    struct scenario_override sets[5] = {{.path = "model", .value = values[0]}};
    size_t count = 1;
    const char *paths[2][4] = {
        {"pools.mixed.machine", "pools.mixed.engine", NULL, NULL},
        {"pools.prefill.machine", "pools.prefill.engine", "pools.decode.machine", "pools.decode.engine"}};
    for (size_t i = 0; i < 4 && paths[row->disaggregated][i] != NULL; i++)
        sets[count++] = (struct scenario_override){paths[row->disaggregated][i], values[1 + i % 2]};
    char path[1200];
    snprintf(path, sizeof path, "%s/validation/serving%s.lua", scenario_library_root(),
             row->disaggregated ? "-disaggregated" : "");
    struct scenario *scenario = scenario_load(path, sets, count, error);
    if (scenario == NULL)
        return false;
    snprintf(scenario->name, sizeof scenario->name, "%s", name);
    scenario->model.weight_format = serving_format(csv_text(models, model, csv_column(models, "weights")));
    scenario->model.expert_weight_format = serving_format(csv_text(models, model, csv_column(models, "experts")));
    scenario->model.tail_bytes = scenario->model.tail_writes = 0;
    serving->bases = memory_resized(serving->bases, (serving->base_count + 1) * sizeof *serving->bases);
    serving->bases[serving->base_count++] = scenario;
    return true;
}

static bool resolve(struct serving *serving, struct serving_row *row, struct user_error *error)
{
    const struct csv_table *models = &serving->tables[TABLE_MODELS];
    uint32_t model;
    char machine[32];
    if (!serving_model(models, row->model, row->precision, &model)) {
        row->rule = SERVING_MODEL;
        return true;
    }
    if (!serving_machine(row->system, machine, sizeof machine)) {
        row->rule = SERVING_SYSTEM;
        return true;
    }
    if (row->concurrency == 0 || (row->disaggregated && (row->prefill.workers == 0 || row->decode.workers == 0))) {
        row->rule = SERVING_WORKERS;
        return true;
    }
    row->draft = csv_integer(models, model, csv_column(models, "draft"), 0) != 0;
    set_settings(&serving->tables[TABLE_DEPLOYMENTS], csv_text(models, model, csv_column(models, "module")), row);
    if (row->disaggregated)
        set_recipe(&serving->tables[TABLE_RECIPES], row);
    return find_base(serving, models, model, machine, row, error);
}

bool serving_load(struct serving *serving, struct user_error *error)
{
    *serving = (struct serving){.tables = memory_zeroed(TABLES, sizeof *serving->tables)};
    CHECK(serving->tables != NULL);
    for (size_t i = 0; i < TABLES; i++)
        if (!csv_table_load(table_files[i], &serving->tables[i], error))
            return false;
    const struct csv_table *table = &serving->tables[TABLE_ROWS];
    serving->row_count = table->row_count;
    serving->rows = memory_zeroed(serving->row_count, sizeof *serving->rows);
    for (uint32_t i = 0; i < serving->row_count; i++) {
        read_row(table, i, &serving->rows[i]);
        if (!resolve(serving, &serving->rows[i], error))
            return false;
    }
    return true;
}

void serving_free(struct serving *serving)
{
    for (uint32_t i = 0; i < serving->base_count; i++)
        scenario_free(serving->bases[i]);
    for (size_t i = 0; serving->tables != NULL && i < TABLES; i++)
        csv_table_free(&serving->tables[i]);
    free(serving->tables);
    free(serving->rows);
    free(serving->bases);
    free(serving->deployments);
    *serving = (struct serving){0};
}
