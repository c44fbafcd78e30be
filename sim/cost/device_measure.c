/* See device_model_internal.h: the measured tables of a model's operators, and the table of its prefill attention. */
#include "base/check.h"
#include "sim/cost/device_model_internal.h"
#include "host/memory.h"

#include <stdlib.h>

/* ---- Slices ------------------------------------------------------------------------------------------------------ */

/* The place of the next slice; kept only if the choice below fills it. */
static struct kernel_slice *slice_next(struct device_model *model)
{
    CHECK(model->slice_count < SLICES_MAX);
    return &model->slices[model->slice_count];
}

static const struct kernel_slice *keep(struct device_model *model, bool found)
{
    return found ? &model->slices[model->slice_count++] : NULL;
}

static void measure_attention(struct device_model *model, struct kernel_chooser *chooser, struct attention_shape *shape)
{
    shape->decode = keep(model, kernel_choose_decode_attention(chooser, shape, slice_next(model)));
    shape->prefill = keep(model, kernel_choose_prefill_attention(chooser, shape, slice_next(model)));
}

/* The latent tables are of DeepSeek's dimensions. */
static bool is_deepseek_latent(const struct attention_shape *shape)
{
    return shape->latent_dim == 512.0 && shape->rope_dim == 64.0 && shape->nope_dim == 128.0 &&
           shape->value_dim == 128.0;
}

static void measure_operator(struct device_model *model, struct kernel_chooser *chooser, struct device_operator *o)
{
    const struct attention_shape *shape = &o->part->full;
    switch (o->kind) {
    case OPERATOR_GEMM:
        if (o->absorbed != ABSORBED_NOT && is_deepseek_latent(shape))
            o->measured =
                keep(model, kernel_choose_absorbed(chooser, shape, o->absorbed == ABSORBED_OUTPUT, slice_next(model)));
        if (o->measured == NULL && !chooser->error.set)
            o->measured = keep(model, kernel_choose_gemm(chooser, o->n, o->k, o->format, slice_next(model)));
        return;
    case OPERATOR_ALL_REDUCE: {
        double ranks = o->n < model->device.nvlink_gpus ? o->n : model->device.nvlink_gpus;
        if (ranks <= 1.0)
            return;
        o->measured = keep(model, kernel_choose_all_reduce(chooser, ranks, slice_next(model)));
        o->nccl = keep(model, kernel_choose_nccl(chooser, "all_reduce", ranks, slice_next(model)));
        return;
    }
    case OPERATOR_GATHER_SCATTER:
        o->measured = keep(model, kernel_choose_nccl(chooser, "all_gather", o->n, slice_next(model)));
        o->nccl = keep(model, kernel_choose_nccl(chooser, "reduce_scatter", o->n, slice_next(model)));
        return;
    case OPERATOR_ELEMENTWISE:
    case OPERATOR_EXPERTS: /* by the part's one shape of experts */
    case OPERATOR_EXCHANGE:
    case OPERATOR_STAGE_HOP:
        return;
    }
    check_failed("operator kind", __FILE__, __LINE__);
}

/* TensorRT-LLM's exchange over NVLink where it was measured, which is where NVLink joins machines; else DeepEP's. */
static void measure_exchange(struct device_model *model, struct kernel_chooser *chooser, const struct architecture *a,
                             struct exchange_shape *shape, bool prefill)
{
    static const char *const nvlink[EXCHANGE_PHASES] = {"alltoall_prepare", "alltoall_dispatch", "alltoall_combine"};
    static const char *const deepep[2] = {"dispatch", "combine"};
    double nodes = shape->ranks / model->device.gpus_per_node;
    for (uint32_t i = 0; i < EXCHANGE_PHASES && !chooser->error.set; i++)
        shape->phases[i] = keep(model, kernel_choose_alltoall(chooser, shape, a->experts, a->expert_weight_format,
                                                              nvlink[i], slice_next(model)));
    shape->nvlink = shape->phases[0] != NULL;
    shape->inner = shape->nvlink ? shape->ranks : nodes;
    for (uint32_t i = 0; i < 2 && !shape->nvlink && !chooser->error.set; i++)
        shape->phases[i] =
            keep(model, kernel_choose_deepep(chooser, shape, a->experts, nodes, prefill, deepep[i], slice_next(model)));
}

static void measure_experts(struct device_model *model, struct kernel_chooser *chooser, const struct architecture *a,
                            struct model_part *part)
{
    double width = a->expert_intermediate;
    struct moe_shape *shapes[2] = {&part->moe_wide, &part->moe};
    for (uint32_t prefill = 0; model->wide && prefill < 2 && !chooser->error.set; prefill++) {
        shapes[prefill]->measured =
            keep(model, kernel_choose_wide_experts(chooser, shapes[prefill], width, a->experts_redundant, prefill == 1,
                                                   slice_next(model)));
        measure_exchange(model, chooser, a, &part->exchange[prefill], prefill == 1);
    }
    if (part->moe.measured == NULL && !chooser->error.set)
        part->moe.measured =
            keep(model, kernel_choose_experts(chooser, &part->moe, width, part->moe.tensor, slice_next(model)));
    if (model->wide && part->moe_wide.measured == NULL)
        part->moe_wide.measured = part->moe.measured;
}

/* Of sparse attention the whole block was measured; of latent attention too, beside experts on several machines. */
static bool wants_module(const struct device_model *model, const struct architecture *a)
{
    if (a->index_topk > 0)
        return true;
    return model->wide && model->engine.kernels == ENGINE_SGLANG && a->attention == ATTENTION_MLA &&
           is_deepseek_latent(&model->main.full) && a->kv_format == FORMAT_FP8;
}

/* One sequence's attention in a decode step, part by part: inside a CUDA graph its kernels take that, where a module
 * measured alone waits for each of them to be launched. */
static double attention_parts_ns(const struct device_model *model, struct kernel_chooser *chooser,
                                 const struct architecture *a, struct parallelism p, const struct model_part *part)
{
    struct device_model *alone = memory_zeroed(1, sizeof *alone);
    alone->device = model->device;
    alone->main = *part;
    alone->main.full.module = false;
    alone->main.full.decode = alone->main.full.prefill = NULL;
    device_attention_make(alone, a, p);
    if (is_deepseek_latent(&alone->main.full))
        measure_attention(alone, chooser, &alone->main.full);
    double ns = decode_attention_time(&alone->device, &alone->main.full, 1.0, 1.0).ns;
    for (uint32_t i = 0; i < alone->operator_count && !chooser->error.set; i++) {
        measure_operator(alone, chooser, &alone->operators[i]);
        ns += operator_evaluate(alone, &alone->operators[i], 1.0).ns;
    }
    device_model_free(alone);
    return ns;
}

static void measure_part(struct device_model *model, struct kernel_chooser *chooser,
                         const struct device_request *request, const struct architecture *a, struct model_part *part)
{
    struct attention_shape *full = &part->full;
    if (wants_module(model, a)) {
        const struct kernel_slice *decode = keep(
            model, kernel_choose_module(chooser, full, architecture_attention_format(a), false, slice_next(model)));
        const struct kernel_slice *prefill =
            keep(model, kernel_choose_module(chooser, full, architecture_attention_format(a), true, slice_next(model)));
        full->module = decode != NULL && prefill != NULL;
        if (full->module) {
            full->decode = decode;
            full->prefill = prefill;
        }
        /* Prefill is launched as it was measured, decode as a graph. */
        if (full->module && a->index_topk > 0 && !chooser->error.set) {
            enum estimate estimate;
            double launched = kernel_slice_ns(decode, 1.0, 1.0, &estimate);
            double parts = attention_parts_ns(model, chooser, a, request->parallelism, part);
            full->launches_ns = launched > parts ? launched - parts : 0.0;
        }
    }
    bool known = full->kind != ATTENTION_MLA || is_deepseek_latent(full);
    if (!full->module && known && !chooser->error.set)
        measure_attention(model, chooser, full);
    if (part->layers_windowed > 0 && !chooser->error.set)
        measure_attention(model, chooser, &part->windowed);
    if (a->experts > 0 && !chooser->error.set)
        measure_experts(model, chooser, a, part);
}

static void measure_draft(struct device_model *model, struct kernel_chooser *chooser,
                          const struct device_request *request)
{
    struct attention_shape *next = &model->drafting.next;
    uint32_t layers = model->draft.layers;
    if (request->draft_model != NULL) {
        measure_part(model, chooser, request, request->draft_model, &model->draft);
    } else {
        /* Layers like the model's own. */
        model->draft = model->main;
        model->draft.layers = model->draft.layers_full = layers;
        model->draft.layers_windowed = 0;
    }
    *next = model->draft.full;
    next->queries = 1.0;
    if (next->decode != NULL && !next->module && !chooser->error.set)
        next->decode = keep(model, kernel_choose_decode_attention(chooser, next, slice_next(model)));
}

bool device_model_measure(struct device_model *model, const struct device_request *request,
                          const struct hardware *hardware, struct user_error *error)
{
    struct kernel_chooser chooser;
    kernel_chooser_make(&chooser, &model->device, hardware, model->engine.kernels);
    model->altered = chooser.altered;
    measure_part(model, &chooser, request, request->architecture, &model->main);
    if (model->drafting.tokens > 0 && !chooser.error.set)
        measure_draft(model, &chooser, request);
    device_operators_make(model, request);
    for (uint32_t i = 0; i < model->operator_count && !chooser.error.set; i++)
        measure_operator(model, &chooser, &model->operators[i]);
    *error = chooser.error;
    return !error->set;
}

/* ---- Prefill attention ------------------------------------------------------------------------------------------- */

static double prefill_attention_ns(const struct device_model *model, double tokens, double pairs)
{
    const struct model_part *parts[2] = {&model->main, &model->draft};
    double ns = 0.0;
    for (uint32_t i = 0; i < 2; i++) {
        const struct model_part *part = parts[i];
        if (part->layers_full > 0)
            ns += part->layers_full * prefill_attention_time(&model->device, &part->full, tokens, pairs).ns;
        if (part->layers_windowed > 0)
            ns += part->layers_windowed * prefill_attention_time(&model->device, &part->windowed, tokens, pairs).ns;
    }
    return ns;
}

/* Measurements are noisy, and a difference of two of them more so: a longer step must not get shorter for that. The
 * largest value among steps with less work does not decrease, nor does the least among those with more; half of each
 * stays in the middle of the noise. */
void prefill_table_make(struct device_model *model)
{
    int64_t(*table)[PREFILL_COLUMNS] = model->prefill_ns;
    int64_t least[PREFILL_COLUMNS];
    int64_t most[PREFILL_ROWS][PREFILL_COLUMNS];
    for (uint32_t row = 1; row < PREFILL_ROWS; row++) {
        double tokens = (double)breakpoint_value(row, PREFILL_BITS);
        for (uint32_t column = 1; column < PREFILL_COLUMNS; column++) {
            /* A token sees itself at least. */
            double pairs = (double)breakpoint_value(column, PREFILL_BITS);
            table[row][column] = round_ns(prefill_attention_ns(model, tokens, pairs > tokens ? pairs : tokens));
        }
        table[row][0] = table[row][1];
    }
    for (uint32_t column = 0; column < PREFILL_COLUMNS; column++)
        table[0][column] = 0;
    for (uint32_t row = 0; row < PREFILL_ROWS; row++) {
        for (uint32_t column = 0; column < PREFILL_COLUMNS; column++) {
            most[row][column] = table[row][column];
            if (row > 0)
                most[row][column] = max_i64(most[row][column], most[row - 1][column]);
            if (column > 0)
                most[row][column] = max_i64(most[row][column], most[row][column - 1]);
        }
    }
    for (uint32_t column = 0; column < PREFILL_COLUMNS; column++)
        least[column] = INT64_MAX;
    for (uint32_t row = PREFILL_ROWS; row-- > 1;) {
        for (uint32_t column = PREFILL_COLUMNS; column-- > 0;) {
            least[column] = min_i64(least[column], table[row][column]);
            if (column + 1 < PREFILL_COLUMNS)
                least[column] = min_i64(least[column], least[column + 1]);
            table[row][column] = least[column] / 2 + most[row][column] / 2;
        }
    }
}

int64_t prefill_table_ns(const struct device_model *model, uint64_t tokens, uint64_t pairs)
{
    if (tokens == 0)
        return 0;
    struct breakpoint_position row = breakpoint_locate(tokens, PREFILL_BITS, PREFILL_TOKENS_OCTAVE_LAST);
    struct breakpoint_position column = breakpoint_locate(pairs, PREFILL_BITS, PREFILL_PAIRS_OCTAVE_LAST);
    const int64_t *low = model->prefill_ns[row.index];
    const int64_t *high = model->prefill_ns[row.index + 1];
    return breakpoint_between(&row, breakpoint_between(&column, low[column.index], low[column.index + 1]),
                              breakpoint_between(&column, high[column.index], high[column.index + 1]));
}
