/* See model_error.h. */
#include "sim/plan/model_error.h"

#include "base/arith.h"
#include "world/kernels/csv_table.h"
#include "host/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANY "*"
#define MILLION INT64_C(1000000)

struct model_errors {
    struct csv_table table;
};

struct model_errors *model_errors_load(const char *path, struct user_error *error)
{
    struct model_errors *errors = memory_zeroed(1, sizeof *errors);
    bool read = path != NULL ? csv_table_read(path, &errors->table, error)
                             : csv_table_load("validation/errors.csv", &errors->table, error);
    if (read)
        return errors;
    free(errors);
    return NULL;
}

void model_errors_free(struct model_errors *errors)
{
    if (errors == NULL)
        return;
    csv_table_free(&errors->table);
    free(errors);
}

/* 1 / (1 + error), in permille and within bounds. */
static uint32_t truly_permille(int64_t error_ppm)
{
    int64_t least_ppm = MILLION / MODEL_ERROR_FACTOR_MAX;
    int64_t predicted_ppm = max_i64(least_ppm, MILLION + error_ppm);
    return (uint32_t)max_i64(1000 / MODEL_ERROR_FACTOR_MAX, (1000 * MILLION + predicted_ppm / 2) / predicted_ppm);
}

void step_error_span(int64_t bias_ppm, int64_t p90_ppm, struct step_error *error)
{
    int64_t scatter_ppm = max_i64(0, p90_ppm - (bias_ppm < 0 ? -bias_ppm : bias_ppm));
    int64_t unbiased_ppm = max_i64(MILLION / MODEL_ERROR_FACTOR_MAX, MILLION + bias_ppm);
    error->fast_permille = truly_permille(bias_ppm + scatter_ppm);
    error->slow_permille = truly_permille(bias_ppm - scatter_ppm);
    /* The root of two in thousandths. */
    error->relative_permille = truly_permille(scatter_ppm * 1414 / 1000 * MILLION / unbiased_ppm);
    error->bias_permille = (int32_t)(bias_ppm / 1000);
    error->p90_permille = (uint32_t)(p90_ppm / 1000);
}

static const char *family_of(const struct architecture *model)
{
    if (model->attention == ATTENTION_MLA)
        return model->experts > 0 ? "mla-moe" : "mla-dense";
    return model->experts > 0 ? "gqa-moe" : "gqa-dense";
}

static const char *engine_of(enum engine_kind engine)
{
    switch (engine) {
    case ENGINE_VLLM:
        return "vllm";
    case ENGINE_SGLANG:
        return "sglang";
    case ENGINE_TRTLLM:
        return "trtllm";
    case ENGINE_NEUTRAL: /* kernels of whoever has them */
        break;
    }
    return ANY;
}

static bool look_up(const struct csv_table *table, const char *metric, const char *const subject[3],
                    struct step_error *found)
{
    static const char *const columns[3] = {"engine", "system", "family"};
    static const char *const any[3] = {"any engine", "any GPU", "any model"};
    for (uint32_t row = 0; row < table->row_count; row++) {
        bool same = strcmp(csv_text(table, row, csv_column(table, "metric")), metric) == 0;
        for (uint32_t k = 0; k < 3; k++)
            same = same && strcmp(csv_text(table, row, csv_column(table, columns[k])), subject[k]) == 0;
        uint32_t rows = same ? (uint32_t)csv_integer(table, row, csv_column(table, "rows"), 0) : 0;
        if (rows < MODEL_ERROR_ROWS_MIN)
            continue;
        step_error_span(csv_integer(table, row, csv_column(table, "bias_ppm"), 0),
                        csv_integer(table, row, csv_column(table, "p90_ppm"), 0), found);
        found->rows = rows;
        const char *name[3];
        for (uint32_t k = 0; k < 3; k++)
            name[k] = strcmp(subject[k], ANY) == 0 ? any[k] : subject[k];
        snprintf(found->class_name, sizeof found->class_name, "%s, %s, %s", name[0], name[1], name[2]);
        return true;
    }
    return false;
}

bool model_error_find(const struct model_errors *errors, enum step_kind kind, enum engine_kind engine, const char *gpu,
                      const struct architecture *model, struct step_error *found)
{
    const char *metric = kind == STEP_PREFILL ? "ttft-colocated" : "tpot-colocated";
    /* Bit 0 pools over engines, bit 1 over models, bit 2 over GPUs. */
    static const unsigned pooled[] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (size_t i = 0; i < sizeof pooled / sizeof *pooled; i++) {
        const char *const subject[3] = {(pooled[i] & 1) != 0 ? ANY : engine_of(engine),
                                        (pooled[i] & 4) != 0 ? ANY : gpu,
                                        (pooled[i] & 2) != 0 ? ANY : family_of(model)};
        if (look_up(&errors->table, metric, subject, found))
            return true;
    }
    return false;
}
