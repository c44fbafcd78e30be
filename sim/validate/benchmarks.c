/* Published benchmark runs of whole servers: the throughput of flooded ones, and the times of requests that came all at
 * once, from so many clients, or at a rate. Each row says how its server was started; what it leaves open is an empty
 * cell, and a rule leaves the row out. No constant is chosen on any of them.
 */
#include "sim/validate/validate.h"

#include "base/arith.h"
#include "world/kernels/csv_table.h"
#include "world/scenario/scenario_lua.h"
#include "sim/sim_run.h"
#include "sim/validate/serving.h"
#include "host/thread_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED 1

/* Why a row is left out; the first that applies. */
enum rule {
    RULE_KEPT,
    RULE_MODEL,
    RULE_SYSTEM,
    RULE_NODES,
    RULE_COMMAND,
    RULE_LOAD,
    RULE_LAYOUT,
    RULE_DRAFT,
    RULE_COPY,
    RULE_FIT,
    RULES,
};

static const struct {
    const char *letter;
    const char *text;
} rules[RULES] = {
    [RULE_MODEL] = {"A", "architecture or format that is not modelled, or no file of the model"},
    [RULE_SYSTEM] = {"S", "no machine file or measured kernels of the GPU"},
    [RULE_NODES] = {"N", "over several nodes, with a layout that is not given"},
    [RULE_COMMAND] = {"C", "engine not modelled, or not said which command the result is of"},
    [RULE_LOAD] = {"W", "lengths of prompts or answers, clients or rate not given"},
    [RULE_LAYOUT] = {"L", "layout not given"},
    [RULE_DRAFT] = {"M", "speculative decoding with an acceptance that is not given"},
    [RULE_COPY] = {"D", "the same figures as another row of the model and GPU"},
    [RULE_FIT] = {"F", "the run as described does not fit or does not end"},
};

struct row {
    const char *run;
    const char *model;
    const char *precision;
    const char *system;
    const char *engine;
    const char *version;
    struct parallelism parallelism;
    uint32_t copies; /* instances on the node, each with its share of the load */
    bool mean;       /* of lengths the mean is known */
    uint32_t prompt;
    uint32_t output;
    uint32_t clients;  /* of a closed loop; 0: requests come by themselves */
    uint32_t rate_mhz; /* requests in 1000 s, to one instance */
    uint32_t requests;
    enum number_format kv;
    uint32_t budget;
    uint32_t batch_max;
    uint32_t memory_permille;
    uint32_t graph_max; /* 0: the engine's */
    int64_t tokens_uhz; /* output tokens in 1e6 s, of the node; 0: not measured, as are the times */
    int64_t ttft_ns;
    int64_t tpot_ns;

    uint8_t rule; /* enum rule */
    const struct scenario *base;
};

/* What the simulator says: tokens of one instance, times as the source states them. */
struct outcome_of_row {
    int64_t tokens_uhz;
    int64_t ttft_ns;
    int64_t tpot_ns;
};

struct benchmark {
    struct csv_table table;
    struct csv_table models;
    struct row *rows;
    uint32_t row_count;
    struct scenario **bases;
    uint32_t base_count;
    bool medians; /* the source states medians, not means */
    struct outcome_of_row *outcomes;
};

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

static uint32_t count_at(const struct csv_table *table, uint32_t row, const char *column)
{
    return (uint32_t)csv_integer(table, row, csv_column(table, column), 0);
}

static void read_row(const struct csv_table *table, uint32_t i, struct row *row)
{
    const char *text[6];
    static const char *const texts[6] = {"run", "model", "precision", "system", "engine", "version"};
    for (size_t t = 0; t < 6; t++)
        text[t] = csv_text(table, i, csv_column(table, texts[t]));
    *row = (struct row){
        .run = text[0],
        .model = text[1],
        .precision = text[2],
        .system = text[3],
        .engine = text[4],
        .version = text[5],
        .parallelism = {.tensor = (uint16_t)count_at(table, i, "tensor"),
                        .data = (uint16_t)count_at(table, i, "data"),
                        .expert = (uint16_t)count_at(table, i, "expert"),
                        .pipeline = (uint16_t)count_at(table, i, "pipeline")},
        .copies = count_at(table, i, "copies"),
        .mean = strcmp(csv_text(table, i, csv_column(table, "spread")), "mean") == 0,
        .prompt = count_at(table, i, "prompt"),
        .output = count_at(table, i, "output"),
        .clients = count_at(table, i, "clients"),
        .rate_mhz = count_at(table, i, "rate_mhz"),
        .requests = count_at(table, i, "requests"),
        .kv = serving_format(csv_text(table, i, csv_column(table, "kv"))),
        .budget = count_at(table, i, "budget"),
        .batch_max = count_at(table, i, "batch"),
        .memory_permille = count_at(table, i, "memory"),
        .graph_max = count_at(table, i, "graph"),
        .tokens_uhz = csv_integer(table, i, csv_column(table, "tokens_mhz"), 0) * 1000,
        .ttft_ns = csv_integer(table, i, csv_column(table, "ttft_us"), 0) * 1000,
        .tpot_ns = csv_integer(table, i, csv_column(table, "tpot_us"), 0) * 1000,
    };
}

static bool engine_known(const char *engine)
{
    return strcmp(engine, "vllm") == 0 || strcmp(engine, "sglang") == 0 || strcmp(engine, "trtllm") == 0;
}

/* The scenario of the row's model, machine and engine, made once. */
static const struct scenario *base_of(struct benchmark *benchmark, const struct row *row, uint32_t model,
                                      const char *machine, struct user_error *error)
{
    const struct csv_table *models = &benchmark->models;
    char values[3][128];
    char name[64];
    char path[1200];
    snprintf(name, sizeof name, "%.30s %.8s %.10s %.8s", row->model, row->precision, machine, row->engine);
    for (uint32_t i = 0; i < benchmark->base_count; i++)
        if (strcmp(benchmark->bases[i]->name, name) == 0)
            return benchmark->bases[i];
    snprintf(values[0], sizeof values[0], "require \"models.%s\"",
             csv_text(models, model, csv_column(models, "module")));
    snprintf(values[1], sizeof values[1], "require \"hardware.%s\"", machine);
    snprintf(values[2], sizeof values[2], "\"%s\"", row->engine);
    const struct scenario_override sets[] = {
        {"model", values[0]}, {"pools.mixed.machine", values[1]}, {"pools.mixed.engine", values[2]}};
    snprintf(path, sizeof path, "%s/validation/serving.lua", scenario_library_root());
    struct scenario *scenario = scenario_load(path, sets, 3, error);
    if (scenario == NULL)
        return NULL;
    snprintf(scenario->name, sizeof scenario->name, "%s", name);
    scenario->model.weight_format = serving_format(csv_text(models, model, csv_column(models, "weights")));
    scenario->model.expert_weight_format = serving_format(csv_text(models, model, csv_column(models, "experts")));
    scenario->model.tail_bytes = scenario->model.tail_writes = 0;
    benchmark->bases = realloc(benchmark->bases, (benchmark->base_count + 1) * sizeof(struct scenario *));
    CHECK(benchmark->bases != NULL);
    benchmark->bases[benchmark->base_count++] = scenario;
    return scenario;
}

/* ---- Rules ------------------------------------------------------------------------------------------------------ */

static bool same_figures(const struct row *a, const struct row *b)
{
    return strcmp(a->model, b->model) == 0 && strcmp(a->system, b->system) == 0 && a->tokens_uhz == b->tokens_uhz &&
           a->ttft_ns == b->ttft_ns && a->tpot_ns == b->tpot_ns;
}

static bool is_copy(const struct benchmark *benchmark, uint32_t row)
{
    for (uint32_t i = 0; i < row; i++)
        if (benchmark->rows[i].rule == RULE_KEPT && same_figures(&benchmark->rows[i], &benchmark->rows[row]))
            return true;
    return false;
}

static bool choose(struct benchmark *benchmark, uint32_t i, struct user_error *error)
{
    struct row *row = &benchmark->rows[i];
    uint32_t model;
    char machine[32];
    if (!serving_model(&benchmark->models, row->model, row->precision, &model))
        row->rule = RULE_MODEL;
    else if (!serving_machine(row->system, machine, sizeof machine))
        row->rule = RULE_SYSTEM;
    else if (count_at(&benchmark->table, i, "nodes") != 1)
        row->rule = RULE_NODES;
    else if (!engine_known(row->engine))
        row->rule = RULE_COMMAND;
    else if (row->prompt == 0 || row->output == 0 || row->requests == 0 || (row->clients == 0 && row->rate_mhz == 0))
        row->rule = RULE_LOAD;
    else if (row->parallelism.tensor == 0)
        row->rule = RULE_LAYOUT;
    else if (count_at(&benchmark->table, i, "draft") != 0)
        row->rule = RULE_DRAFT;
    if (row->rule != RULE_KEPT)
        return true;
    row->base = base_of(benchmark, row, model, machine, error);
    if (row->base == NULL)
        return false;
    if (is_copy(benchmark, i))
        row->rule = RULE_COPY;
    return true;
}

/* ---- Running a row ---------------------------------------------------------------------------------------------- */

/* Texts of which only the mean length is known: exponentially distributed, cut at 4.8 times the mean. */
static struct length_distribution spread_about(uint32_t mean)
{
    static const struct {
        uint32_t permille;
        uint32_t of_mean; /* permille */
    } points[] = {{0, 0},      {100, 105},  {200, 223},  {300, 357},  {400, 511},  {500, 693},  {600, 916},
                  {700, 1204}, {800, 1609}, {900, 2303}, {950, 2996}, {990, 4400}, {1000, 4800}};
    struct length_distribution lengths = {.kind = LENGTH_QUANTILES};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        lengths.quantile_permille[lengths.quantile_count] = points[i].permille;
        lengths.quantile_tokens[lengths.quantile_count++] = max_u32(1, mean * points[i].of_mean / 1000);
    }
    return lengths;
}

static struct length_distribution lengths_of(const struct row *row, uint32_t tokens)
{
    if (row->mean)
        return spread_about(tokens);
    return (struct length_distribution){.kind = LENGTH_CONSTANT, .low = tokens, .high = tokens};
}

static struct scenario *scenario_of(const struct row *row)
{
    struct scenario *scenario = malloc(sizeof *scenario);
    CHECK(scenario != NULL);
    memcpy(scenario, row->base, sizeof *scenario);
    scenario->model.kv_format = row->kv;
    struct pool *pool = &scenario->pools[0];
    pool->sharding_count = 1;
    pool->shardings[0] = row->parallelism;
    pool->memory_utilization_permille = row->memory_permille;
    pool->queue_max = row->requests;
    pool->scheduler.token_budget = row->budget;
    pool->scheduler.batch_max = row->batch_max;
    /* TensorRT-LLM admits what cannot run out of pages (GUARANTEED_NO_EVICT). */
    pool->scheduler.reserve_output = strcmp(row->engine, "trtllm") == 0;
    if (row->graph_max > 0)
        pool->engine.graph_max = row->graph_max;
    scenario->load.requests = row->requests;
    scenario->load.prompt = lengths_of(row, row->prompt);
    scenario->load.output = lengths_of(row, row->output);
    if (row->clients > 0) {
        scenario->load.concurrency = min_u32(row->clients, row->requests);
    } else {
        scenario->load.arrivals = ARRIVAL_POISSON;
        scenario->load.concurrency = 0;
        scenario->load.rate_micro_per_s = row->rate_mhz * UINT64_C(1000);
    }
    return scenario;
}

struct seen {
    int64_t *ttft_ns;
    int64_t *tpot_ns;
    uint32_t count;
    uint32_t with_tpot;
    uint64_t output_tokens;
    int64_t last_ns;
};

static bool on_row(void *self, const struct request_row *row, bool met)
{
    (void)met;
    struct seen *seen = self;
    if (row->outcome != OUTCOME_COMPLETED)
        return true;
    int64_t first_ns = row->boundary_ns[BOUNDARY_FIRST_TOKEN];
    int64_t end_ns = row->boundary_ns[BOUNDARY_FINISHED];
    seen->ttft_ns[seen->count++] = first_ns - row->boundary_ns[BOUNDARY_ARRIVED];
    if (row->output_tokens > 1)
        seen->tpot_ns[seen->with_tpot++] = (end_ns - first_ns) / (int64_t)(row->output_tokens - 1);
    seen->output_tokens += row->output_tokens;
    seen->last_ns = max_i64(seen->last_ns, end_ns);
    return true;
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static int64_t mean_or_median(int64_t *times, uint32_t count, bool median)
{
    if (count == 0)
        return 0;
    if (median) {
        qsort(times, count, sizeof *times, compare_times);
        return count % 2 == 1 ? times[count / 2] : (times[count / 2 - 1] + times[count / 2]) / 2;
    }
    int64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += times[i];
    return sum / (int64_t)count;
}

static void run_row(void *context, uint32_t index)
{
    struct benchmark *benchmark = context;
    struct row *row = &benchmark->rows[index];
    if (row->rule != RULE_KEPT)
        return;
    struct scenario *scenario = scenario_of(row);
    struct deployment_choice choice = deployment_default(scenario);
    struct seen seen = {.ttft_ns = calloc(row->requests, sizeof(int64_t)),
                        .tpot_ns = calloc(row->requests, sizeof(int64_t))};
    CHECK(seen.ttft_ns != NULL && seen.tpot_ns != NULL);
    struct run_config config = {
        .scenario = scenario, .choice = &choice, .seed = SEED, .listener = {.self = &seen, .row = on_row}};
    struct run_result result;
    run_play(&sim_backend, &config, &result);
    if (result.status == RUN_COMPLETE && seen.count == row->requests && seen.last_ns > 0) {
        struct outcome_of_row *outcome = &benchmark->outcomes[index];
        double tokens = (double)seen.output_tokens * 1e15 * (double)row->copies;
        outcome->tokens_uhz = (int64_t)(tokens / (double)seen.last_ns);
        outcome->ttft_ns = mean_or_median(seen.ttft_ns, seen.count, benchmark->medians);
        outcome->tpot_ns = mean_or_median(seen.tpot_ns, seen.with_tpot, benchmark->medians);
    } else {
        row->rule = RULE_FIT;
    }
    run_result_free(&result);
    free(seen.ttft_ns);
    free(seen.tpot_ns);
    free(scenario);
}

/* ---- Tables ----------------------------------------------------------------------------------------------------- */

enum quantity { TOKENS, TTFT, TPOT };

struct view {
    enum quantity quantity;
    const char *key;
    const char *source;
};

struct benchmark_source {
    const char *file;
    bool medians;
    struct view views[3]; /* up to the first without a key */
};

static int64_t figure(enum quantity quantity, int64_t tokens_uhz, int64_t ttft_ns, int64_t tpot_ns)
{
    return quantity == TOKENS ? tokens_uhz : quantity == TTFT ? ttft_ns : tpot_ns;
}

static void label_of(const struct row *row, char *label, size_t size)
{
    char sharding[48];
    char load[48];
    parallelism_text(&row->parallelism, sharding, sizeof sharding);
    if (row->clients > 0)
        snprintf(load, sizeof load, "c%u", row->clients);
    else
        snprintf(load, sizeof load, "%u.%03u/s", row->rate_mhz / 1000, row->rate_mhz % 1000);
    snprintf(label, size, "%.32s %.5s %.*s %.8s %.12s %s %u/%u %s (%.26s)", row->model, row->precision,
             (int)strcspn(row->system, "_"), row->system, row->engine, row->version, sharding, row->prompt, row->output,
             load, row->run);
}

static void add_view(struct validation_set *set, const struct benchmark *benchmark, const struct view *view)
{
    struct validation *v = validation_add(set, view->key, view->source, 0, 0);
    if (view->quantity == TOKENS)
        v->unit = "tokens/s";
    uint32_t left_out[RULES] = {0};
    for (uint32_t i = 0; i < benchmark->row_count; i++) {
        const struct row *row = &benchmark->rows[i];
        const struct outcome_of_row *outcome = &benchmark->outcomes[i];
        int64_t measured = figure(view->quantity, row->tokens_uhz, row->ttft_ns, row->tpot_ns);
        if (measured == 0)
            continue;
        left_out[row->rule]++;
        if (row->rule != RULE_KEPT)
            continue;
        char label[2 * VALIDATION_LABEL_SIZE];
        label_of(row, label, sizeof label);
        validation_case(v, measured, figure(view->quantity, outcome->tokens_uhz, outcome->ttft_ns, outcome->tpot_ns),
                        "%s", label);
    }
    for (uint32_t r = 1; r < RULES; r++)
        validation_excluded(v, rules[r].letter, rules[r].text, left_out[r]);
    validation_finish(v);
}

static bool load(struct benchmark *benchmark, const char *file, struct user_error *error)
{
    if (!csv_table_load(file, &benchmark->table, error) ||
        !csv_table_load("validation/models.csv", &benchmark->models, error))
        return false;
    benchmark->row_count = benchmark->table.row_count;
    benchmark->rows = calloc(benchmark->row_count + 1, sizeof *benchmark->rows);
    benchmark->outcomes = calloc(benchmark->row_count + 1, sizeof *benchmark->outcomes);
    CHECK(benchmark->rows != NULL && benchmark->outcomes != NULL);
    for (uint32_t i = 0; i < benchmark->row_count; i++) {
        read_row(&benchmark->table, i, &benchmark->rows[i]);
        if (!choose(benchmark, i, error))
            return false;
    }
    return true;
}

static bool validate_one(struct validation_set *set, const struct benchmark_source *source,
                         const struct validation_options *options, struct user_error *error)
{
    struct benchmark benchmark = {.medians = source->medians};
    bool whole = load(&benchmark, source->file, error) &&
                 workers_run(options->threads, benchmark.row_count, run_row, &benchmark);
    for (size_t i = 0; whole && i < 3 && source->views[i].key != NULL; i++)
        add_view(set, &benchmark, &source->views[i]);
    for (uint32_t i = 0; i < benchmark.base_count; i++)
        scenario_free(benchmark.bases[i]);
    free(benchmark.bases);
    free(benchmark.rows);
    free(benchmark.outcomes);
    csv_table_free(&benchmark.table);
    csv_table_free(&benchmark.models);
    return whole;
}

bool validate_benchmarks(struct validation_set *set, const struct validation_options *options, struct user_error *error)
{
    static const struct benchmark_source sources[] = {
        {"validation/bench-trtllm.csv.xz",
         false,
         {{TOKENS, "trtllm-bench-tokens", "trtllm-bench, flooded: output tokens/s, no fitted constant"}}},
        {"validation/bench-gpustack.csv.xz",
         false,
         {{TOKENS, "gpustack-tokens", "GPUStack performance lab: output tokens/s, no fitted constant"},
          {TTFT, "gpustack-ttft", "the same: mean TTFT, most requests sent at once"},
          {TPOT, "gpustack-tpot", "the same: mean TPOT"}}},
        {"validation/bench-token-position.csv.xz",
         true,
         {{TOKENS, "token-position-tokens", "InferenceX by prompt length, H200: output tokens/s, no fitted constant"},
          {TTFT, "token-position-ttft", "the same: median TTFT"},
          {TPOT, "token-position-tpot", "the same: median TPOT"}}},
        {"validation/bench-mlperf.csv.xz",
         false,
         {{TOKENS, "mlperf-tokens", "MLPerf Inference 5.1, Offline: tokens/s, layout assumed, no fitted constant"},
          {TTFT, "mlperf-ttft", "the same, Server and Interactive at the rate offered: mean TTFT"},
          {TPOT, "mlperf-tpot", "the same: mean TPOT"}}},
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        if (!validate_one(set, &sources[i], options, error))
            return false;
    return true;
}
