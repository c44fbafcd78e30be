/* Measured steps of one instance beside the device model alone: no scheduler, no load. */
#include "sim/validate/validate.h"

#include "base/arith.h"
#include "world/kernels/csv_table.h"
#include "world/scenario/scenario_lua.h"
#include "sim/cost/device_model.h"
#include "host/stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct scenario *scenario_of(const char *machine, struct user_error *error)
{
    char path[1200];
    char value[64];
    snprintf(path, sizeof path, "%s/validation/serving.lua", scenario_library_root());
    snprintf(value, sizeof value, "require \"hardware.%s\"", machine);
    const struct scenario_override sets[] = {{"model", "require \"models.llama-2-70b\""},
                                             {"pools.mixed.machine", value}};
    return scenario_load(path, sets, 2, error);
}

static int64_t prefill_ns(const struct device_model *model, uint64_t prompt, uint32_t batch)
{
    struct step_group group = {.prefill_sequences = batch,
                               .prefill_tokens = prompt * batch,
                               .prefill_pairs = batch * (prompt * (prompt + 1) / 2)};
    struct step_time time;
    device_step(model, &group, 1, &time);
    return time.total_ns;
}

/* The mean step of a generation: half of its tokens are cached. */
static int64_t decode_ns(const struct device_model *model, uint64_t prompt, uint64_t output, uint32_t batch)
{
    struct step_group group = {.decode_sequences = batch, .decode_context = batch * (prompt + output / 2)};
    struct step_time time;
    device_step(model, &group, 1, &time);
    return time.total_ns;
}

/* What the engine of the measurements adds to a step: one constant for each GPU and number of ranks, the median of what
 * is missing on every other length of answer. Those of 128 tokens, and every fourth power after them, are chosen on. */
static bool chosen_on(int64_t output)
{
    return output == 256 || output == 1024 || output == 4096;
}

struct measured_step {
    uint32_t tensor;
    uint32_t batch;
    uint64_t prompt;
    int64_t output;
    int64_t prompt_ns;
    int64_t token_ns;
};

/* False: a row of other GPUs. */
static bool read_row(const struct csv_table *table, uint32_t i, const char *hardware, uint32_t tensor,
                     struct measured_step *row)
{
    static const char *const columns[] = {"tensor", "prompt", "batch", "output", "prompt_us", "token_us"};
    int64_t value[6];
    for (size_t c = 0; c < 6; c++)
        value[c] = csv_integer(table, i, csv_column(table, columns[c]), 0);
    *row = (struct measured_step){.tensor = (uint32_t)value[0],
                                  .prompt = (uint64_t)value[1],
                                  .batch = (uint32_t)value[2],
                                  .output = value[3],
                                  .prompt_ns = value[4] * 1000,
                                  .token_ns = value[5] * 1000};
    return strcmp(csv_text(table, i, csv_column(table, "hardware")), hardware) == 0 && row->tensor == tensor;
}

/* Prompts in less time than the arithmetic of their weights takes at the data sheet's rate: not the whole batch. */
static bool beyond_peak(const struct scenario *scenario, const struct measured_step *row)
{
    static const double parameters = 69e9;
    double flops = 2.0 * parameters * (double)row->prompt * row->batch;
    return flops / (double)scenario->pools[0].hardware.bf16_flops / row->tensor * 1e9 > (double)row->prompt_ns;
}

struct step_views {
    struct validation_set *set;
    uint32_t prompts; /* index of the validation */
    uint32_t tokens;
    uint32_t tokens_host;
    uint32_t beyond;
};

static int64_t host_constant(const struct csv_table *table, const struct device_model *model, const char *hardware,
                             uint32_t tensor, struct validation *v)
{
    int64_t missing[64];
    uint32_t count = 0;
    struct measured_step row;
    for (uint32_t i = 0; i < table->row_count && count < 64; i++)
        if (read_row(table, i, hardware, tensor, &row) && chosen_on(row.output))
            missing[count++] = row.token_ns - decode_ns(model, row.prompt, (uint64_t)row.output, row.batch);
    CHECK(count > 0);
    stats_sort(missing, count);
    v->fitted += count;
    v->constants++;
    return stats_percentile(missing, count, 500);
}

static void one_model(struct step_views *tables, const struct csv_table *table, const struct scenario *scenario,
                      const struct device_model *model, const char *hardware, uint32_t tensor)
{
    struct validation *prompts = &tables->set->items[tables->prompts];
    struct validation *tokens = &tables->set->items[tables->tokens];
    struct validation *with_host = &tables->set->items[tables->tokens_host];
    int64_t host = host_constant(table, model, hardware, tensor, with_host);
    struct measured_step row;
    for (uint32_t i = 0; i < table->row_count; i++) {
        if (!read_row(table, i, hardware, tensor, &row))
            continue;
        char label[64];
        snprintf(label, sizeof label, "%s TP%u, %u x (%u + %d) tokens", hardware, tensor, row.batch,
                 (uint32_t)row.prompt, (int)row.output);
        if (row.output == 128 && beyond_peak(scenario, &row)) /* a prompt is measured once for each length of answer */
            tables->beyond++;
        else if (row.output == 128)
            validation_case(prompts, row.prompt_ns, prefill_ns(model, row.prompt, row.batch), "%s", label);
        int64_t ours = decode_ns(model, row.prompt, (uint64_t)row.output, row.batch);
        validation_case(tokens, row.token_ns, ours, "%s", label);
        if (!chosen_on(row.output))
            validation_case(with_host, row.token_ns, ours + host, "%s", label);
    }
}

static bool one_machine(struct step_views *tables, const struct csv_table *table, const char *hardware,
                        const char *machine, struct user_error *error)
{
    struct scenario *scenario = scenario_of(machine, error);
    for (uint32_t tensor = 2; scenario != NULL && tensor <= 8; tensor *= 2) {
        struct user_error why = {.set = false};
        struct device_model *model =
            device_model_make(&scenario->model, (struct parallelism){(uint16_t)tensor, 1, 1, 1},
                              &scenario->pools[0].hardware, NULL, &why);
        CHECK(model != NULL);
        one_model(tables, table, scenario, model, hardware, tensor);
        device_model_free(model);
    }
    scenario_free(scenario);
    return !error->set;
}

bool validate_steps(struct validation_set *set, const struct validation_options *options, struct user_error *error)
{
    (void)options;
    struct csv_table table;
    if (!csv_table_load("validation/splitwise.csv.xz", &table, error))
        return false;
    struct step_views tables = {
        .set = set, .prompts = set->count, .tokens = set->count + 1, .tokens_host = set->count + 2};
    validation_add(set, "splitwise-prompt", "Splitwise, Llama-2-70B on A100 and H100: prompt phase, no fitted constant",
                   0, 0);
    validation_add(set, "splitwise-token", "Splitwise, Llama-2-70B on A100 and H100: one token, no fitted constant", 0,
                   0);
    validation_add(set, "splitwise-token-host", "Splitwise, the same: one host constant a GPU and number of ranks", 0,
                   0);
    bool read = one_machine(&tables, &table, "a100-80gb", "a100-80g", error) &&
                one_machine(&tables, &table, "h100-80gb", "h100", error);
    uint32_t capped = 0;
    for (uint32_t i = 0; i < table.row_count; i++)
        capped += strcmp(csv_text(&table, i, 0), "h100-80gb-pcap") == 0;
    validation_excluded(&set->items[tables.prompts], "R", "faster than the peak arithmetic: not the whole batch",
                        tables.beyond);
    for (uint32_t k = tables.prompts; k <= tables.tokens_host; k++) {
        validation_excluded(&set->items[k], "C", "power-capped GPUs", capped);
        validation_finish(&set->items[k]);
    }
    csv_table_free(&table);
    return read;
}
