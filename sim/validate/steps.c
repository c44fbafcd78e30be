/* Measured steps of one instance beside the device model alone: no scheduler, no load. */
#include "sim/validate/validate.h"

#include "base/arith.h"
#include "host/csv_table.h"
#include "host/scenario_lua.h"
#include "sim/cost/device_model.h"

#include <stdio.h>
#include <string.h>

static struct scenario *scenario_of(const char *machine, struct user_error *error)
{
    char path[1200];
    char value[64];
    snprintf(path, sizeof path, "%s/validation/serving.lua", csv_table_root());
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

static bool one_machine(struct validation *prompts, struct validation *tokens, const struct csv_table *table,
                        const char *hardware, const char *machine, struct user_error *error)
{
    struct scenario *scenario = scenario_of(machine, error);
    for (uint32_t tensor = 2; scenario != NULL && tensor <= 8; tensor *= 2) {
        char why[1024];
        struct device_model *model =
            device_model_make(&scenario->model, (struct parallelism){(uint16_t)tensor, 1, 1, 1},
                              &scenario->pools[0].hardware, NULL, why, sizeof why);
        CHECK(model != NULL);
        for (uint32_t i = 0; i < table->row_count; i++) {
            int64_t value[6];
            static const char *const columns[] = {"tensor", "prompt", "batch", "output", "prompt_us", "token_us"};
            for (size_t c = 0; c < 6; c++)
                value[c] = csv_integer(table, i, csv_column(table, columns[c]), 0);
            if (strcmp(csv_text(table, i, csv_column(table, "hardware")), hardware) != 0 || value[0] != tensor)
                continue;
            uint64_t prompt = (uint64_t)value[1];
            uint32_t batch = (uint32_t)value[2];
            if (value[3] == 128) /* a prompt is measured once for each length of the answer */
                validation_case(prompts, value[4] * 1000, prefill_ns(model, prompt, batch), "%s TP%u, %u x %u tokens",
                                hardware, tensor, batch, (uint32_t)prompt);
            validation_case(tokens, value[5] * 1000, decode_ns(model, prompt, (uint64_t)value[3], batch),
                            "%s TP%u, %u x (%u + %u) tokens", hardware, tensor, batch, (uint32_t)prompt,
                            (uint32_t)value[3]);
        }
        device_model_free(model);
    }
    scenario_free(scenario);
    return !error->set;
}

bool validate_steps(struct validation_set *set, uint32_t threads, bool quick, struct user_error *error)
{
    (void)threads;
    (void)quick;
    struct csv_table table;
    if (!csv_table_load("validation/splitwise.csv.xz", &table, error))
        return false;
    validation_add(set, "splitwise-prompt", "Splitwise, Llama-2-70B on A100 and H100: prompt phase, no fitted constant",
                   0, 0);
    validation_add(set, "splitwise-token", "Splitwise, Llama-2-70B on A100 and H100: one token, no fitted constant", 0,
                   0);
    struct validation *prompts = &set->items[set->count - 2];
    struct validation *tokens = &set->items[set->count - 1];
    bool read = one_machine(prompts, tokens, &table, "a100-80gb", "a100-80g", error) &&
                one_machine(prompts, tokens, &table, "h100-80gb", "h100", error);
    uint32_t capped = 0;
    for (uint32_t i = 0; i < table.row_count; i++)
        capped += strcmp(csv_text(&table, i, 0), "h100-80gb-pcap") == 0;
    validation_excluded(prompts, "C", "power-capped GPUs", capped);
    validation_excluded(tokens, "C", "power-capped GPUs", capped);
    validation_finish(prompts);
    validation_finish(tokens);
    csv_table_free(&table);
    return read;
}
