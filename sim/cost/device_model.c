/* See device_model.h.
 *
 * A model is served as a list of operators; each is driven by one count of the step (a group's tokens, its sequences,
 * its decoding sequences, the tokens whose latents are decompressed, the tokens of all groups that share experts) and
 * runs once a layer, or once a step. At make time the operators of one driver are summed into one curve over that
 * count, rounded once per knot; a step is then a few look-ups.
 *
 * Pipeline stages: with P stages the step's batch is cut into P microbatches that follow each other through the stages,
 * and the next step's first microbatch follows the last one of this step without a bubble. Per step every stage works
 * on P microbatches of 1/P of the tokens through its layers, which is the time of all layers at 1/P of the tokens;
 * stages that hold one layer less wait for the others, so ceil(layers / P) * P layers count. P hops are added.
 */
#include "sim/cost/device_model.h"

#include "base/check.h"
#include "host/deployment.h"
#include "sim/cost/device_model_internal.h"

#include <stdio.h>
#include <stdlib.h>

const char *device_gpu_names(void)
{
    return gpu_tables_names();
}

/* ---- What a model is made of --------------------------------------------------------------------------------- */

static void add(struct device_model *model, struct operator operator)
{
    if (operator.count == 0)
        return;
    CHECK(model->operator_count < OPERATORS_MAX - 2); /* breakdown adds both kinds of attention */
    model->operators[model->operator_count++] = operator;
}

static void add_gemm(struct device_model *model, const char *name, enum driver driver, uint32_t count, double n,
                     double k, enum number_format format)
{
    add(model,
        (struct operator){
            .name = name, .kind = OPERATOR_GEMM, .driver = driver, .format = format, .count = count, .n = n, .k = k});
}

static void add_pass(struct device_model *model, const char *name, uint32_t count, double bytes, double kernels)
{
    add(model, (struct operator){.name = name,
                                 .kind = OPERATOR_ELEMENTWISE,
                                 .driver = DRIVER_TOKENS,
                                 .count = count,
                                 .n = bytes,
                                 .k = kernels});
}

/* Marks what was added since `first` as preceding a layer's transfer. */
static void mark_before_transfer(struct device_model *model, uint32_t first)
{
    for (uint32_t i = first; i < model->operator_count; i++)
        model->operators[i].before_transfer = true;
}

/* A residual norm reads the row and the residual and writes both, in bf16. */
static double norm_bytes(const struct architecture *a)
{
    return 8.0 * a->hidden;
}

/* Launches of `kernels` elementwise kernels, `norms` of which may follow an all-reduce. TensorRT-LLM's attention
 * rotates keys and writes the cache itself, and its all-reduce adds the residual and norms. */
static double launches(const struct device_model *model, double kernels, double norms)
{
    if (model->engine.kernels != ENGINE_TRTLLM)
        return kernels;
    return model->reduces ? 0.0 : norms;
}

static void add_attention_gqa(struct device_model *model, const struct architecture *a, uint32_t count)
{
    double heads = model->full.heads * a->head_dim;
    double kv = model->full.kv_heads * a->head_dim;
    add_gemm(model, "qkv projection", DRIVER_TOKENS, count, heads + 2.0 * kv, a->hidden, a->weight_format);
    add_pass(model, "norm, rope, cache write", count, norm_bytes(a) + 4.0 * (heads + 2.0 * kv),
             launches(model, 2.0, 1.0));
    model->attention_place = model->operator_count;
    add_gemm(model, "attention output projection", DRIVER_TOKENS, count, a->hidden, heads, a->weight_format);
}

/* The latent projections are whole on every rank; heads are split. Prefill decompresses every token that it reads,
 * cached ones too; decode multiplies queries and outputs by the absorbed halves of the same matrix, in bf16. */
static void add_attention_mla(struct device_model *model, const struct architecture *a, uint32_t count)
{
    double heads = model->full.heads;
    double query = heads * (a->nope_dim + a->rope_dim);
    double latent = (double)a->latent_dim + a->rope_dim;
    double down = latent + a->q_latent_dim;
    if (a->q_latent_dim > 0) {
        add_gemm(model, "latent projections", DRIVER_TOKENS, count, down, a->hidden, a->weight_format);
        add_gemm(model, "query up-projection", DRIVER_TOKENS, count, query, a->q_latent_dim, a->weight_format);
    } else {
        add_gemm(model, "latent projections", DRIVER_TOKENS, count, latent + query, a->hidden, a->weight_format);
    }
    add_pass(model, "norms, rope, cache write", count, norm_bytes(a) + 4.0 * down + 4.0 * query, 3.0);
    add_gemm(model, "decompression", DRIVER_DECOMPRESS, count, heads * (a->nope_dim + a->value_dim), a->latent_dim,
             a->weight_format);
    add_gemm(model, "absorbed query", DRIVER_DECODE, count, heads * a->nope_dim, a->latent_dim, FORMAT_BF16);
    model->operators[model->operator_count - 1].absorbed = ABSORBED_QUERY;
    add_gemm(model, "absorbed output", DRIVER_DECODE, count, heads * a->value_dim, a->latent_dim, FORMAT_BF16);
    model->operators[model->operator_count - 1].absorbed = ABSORBED_OUTPUT;
    model->attention_place = model->operator_count;
    add_gemm(model, "attention output projection", DRIVER_TOKENS, count, a->hidden, heads * a->value_dim,
             a->weight_format);
}

static void add_mlp(struct device_model *model, const struct architecture *a, uint32_t count, double width)
{
    add_gemm(model, "gate and up", DRIVER_TOKENS, count, 2.0 * width, a->hidden, a->weight_format);
    add_pass(model, "activation", count, 6.0 * width, 1.0);
    add_gemm(model, "down", DRIVER_TOKENS, count, a->hidden, width, a->weight_format);
}

static void add_all_reduce(struct device_model *model, const char *name, uint32_t count, double ranks, double hidden)
{
    if (ranks > 1.0)
        add(model, (struct operator){.name = name,
                                     .kind = OPERATOR_ALL_REDUCE,
                                     .driver = DRIVER_TOKENS,
                                     .count = count,
                                     .n = ranks,
                                     .k = hidden});
}

static void add_experts(struct device_model *model, const struct architecture *a, struct parallelism p, uint32_t count)
{
    double ranks = (double)p.tensor * p.data;
    enum driver driver = p.data > 1 ? DRIVER_SHARED : DRIVER_TOKENS;
    add_gemm(model, "router", DRIVER_TOKENS, count, a->experts, a->hidden, FORMAT_BF16);
    /* Inside a node engines gather all tokens and scatter the sums; DeepEP, which sends a token only where its experts
     * are, is what they use across nodes. */
    if (p.data > 1 && ranks <= model->device.gpus_per_node)
        add(model, (struct operator){.name = "expert gather and scatter",
                                     .kind = OPERATOR_GATHER_SCATTER,
                                     .driver = driver,
                                     .count = count,
                                     .n = ranks,
                                     .k = a->hidden});
    else if (p.data > 1 && p.expert == ranks)
        add(model, (struct operator){.name = "expert dispatch and combine",
                                     .kind = OPERATOR_ALL_TO_ALL,
                                     .driver = DRIVER_TOKENS,
                                     .count = count,
                                     .n = ranks,
                                     .k = 1.0 / p.tensor});
    else if (p.data > 1)
        add(model, (struct operator){.name = "expert gather and scatter",
                                     .kind = OPERATOR_ALL_REDUCE,
                                     .driver = driver,
                                     .count = count,
                                     .n = ranks,
                                     .k = a->hidden});
    add(model, (struct operator){.name = "experts", .kind = OPERATOR_EXPERTS, .driver = driver, .count = count});
}

static void add_operators(struct device_model *model, const struct architecture *a, struct parallelism p)
{
    uint32_t all = model->layers;
    model->reduces = p.tensor > 1;
    uint32_t dense = a->experts > 0 ? a->dense_layers : all;
    uint32_t sparse = all - dense;
    if (a->attention == ATTENTION_MLA)
        add_attention_mla(model, a, all);
    else
        add_attention_gqa(model, a, all);
    add_all_reduce(model, "all-reduce after attention", all, p.tensor, a->hidden);
    mark_before_transfer(model, 0);
    add_pass(model, "norm", all, norm_bytes(a), launches(model, 1.0, 1.0));
    if (dense > 0)
        add_mlp(model, a, dense, ceil_div_u32(a->intermediate, p.tensor));
    if (sparse > 0)
        add_experts(model, a, p, sparse);
    add_all_reduce(model, "all-reduce after MLP", all, p.tensor, a->hidden);
    if (p.pipeline > 1)
        add(model, (struct operator){.name = "hand-over to the next stage",
                                     .kind = OPERATOR_STAGE_HOP,
                                     .driver = DRIVER_TOKENS,
                                     .count = p.pipeline,
                                     .n = kv_ranks(&p) <= model->device.gpus_per_node ? 1.0 : 0.0,
                                     .k = 2.0 * a->hidden / p.tensor});
    add_gemm(model, "LM head", DRIVER_SEQUENCES, p.pipeline, (double)a->vocab / p.tensor, a->hidden, FORMAT_BF16);
}

struct operator_time operator_evaluate(const struct device_model *model, const struct operator* o, double tokens)
{
    const struct device *device = &model->device;
    switch (o->kind) {
    case OPERATOR_GEMM:
        return gemm_time(device, o->measured, tokens, o->n, o->k, o->format);
    case OPERATOR_ELEMENTWISE:
        return elementwise_time(device, tokens, o->n, o->k);
    case OPERATOR_EXPERTS:
        return moe_time(device, tokens, &model->moe);
    case OPERATOR_ALL_REDUCE:
        return all_reduce_time(device, o->measured, o->nccl, o->n, tokens * o->k);
    case OPERATOR_GATHER_SCATTER:
        return gather_scatter_time(device, o->measured, o->nccl, o->n, tokens * o->k);
    case OPERATOR_ALL_TO_ALL:
        return all_to_all_time(device, o->n, tokens * o->k, model->moe.hidden, model->moe.active);
    case OPERATOR_STAGE_HOP:
        return stage_hop_time(device, tokens, o->k, o->n > 0);
    }
    check_failed("operator kind", __FILE__, __LINE__);
}

/* ---- Making ------------------------------------------------------------------------------------------------------ */

/* Much makes a measurement longer than the kernel, nothing makes it shorter: where a larger count was measured to take
 * less, the smaller one was disturbed, and takes the least that any larger one does. So no curve ever falls. */
static void curves_make(struct device_model *model)
{
    double least[OPERATORS_MAX];
    for (uint32_t knot = TOKEN_CURVE_KNOTS - 1; knot > 0; knot--) {
        double tokens = (double)knot_value(knot, TOKEN_CURVE_BITS) / model->stages;
        double sum[DRIVERS] = {0};
        double share[DRIVERS][SHARES] = {{0}};
        double before = 0.0;
        for (uint32_t i = 0; i < model->operator_count; i++) {
            const struct operator* o = & model->operators[i];
            struct operator_time time = operator_evaluate(model, o, tokens);
            if (knot == TOKEN_CURVE_KNOTS - 1 || time.ns < least[i])
                least[i] = time.ns;
            double ns = least[i] * o->count;
            double launch = time.launch_ns < least[i] ? time.launch_ns * o->count : ns;
            sum[o->driver] += ns;
            share[o->driver][time.bound] += ns - launch;
            share[o->driver][BOUND_OVERHEAD] += launch;
            if (o->before_transfer && o->driver == DRIVER_TOKENS)
                before += ns;
        }
        for (uint32_t d = 0; d < DRIVERS; d++) {
            model->curves[d].ns[knot] = round_ns(sum[d]);
            for (uint32_t s = BOUND_COMPUTE; s < SHARES; s++)
                model->bounds[d][s].ns[knot] = round_ns(share[d][s]);
        }
        model->before.ns[knot] = round_ns(before);
    }
}

static uint64_t line_context(uint32_t column)
{
    return column == 0 ? 0 : UINT64_C(1) << (LINE_CONTEXT_LOG2 + column - 1);
}

/* All layers' decode attention of `sequences` that have `context` tokens cached: the step reads one more each. */
static double decode_attention_ns(const struct device_model *model, double sequences, double context)
{
    double batch = sequences / model->stages;
    double read = (context + sequences) / model->stages;
    double ns = 0.0;
    if (model->layers_full > 0)
        ns += model->layers_full * decode_attention_time(&model->device, &model->full, batch, read).ns;
    if (model->layers_windowed > 0)
        ns += model->layers_windowed * decode_attention_time(&model->device, &model->windowed, batch, read).ns;
    return ns;
}

/* No longer sequence is measured than this, nor served. */
#define LENGTH_MAX 131072

/* Long sequences are read less efficiently than many short ones of the same sum, so measured times may fall as the
 * batch grows at the same context. Among batches that are served the longest time so far is carried on; batches whose
 * sequences would be longer than any take the time of the smallest batch that is served. */
static void lines_smooth(struct device_model *model, uint32_t column)
{
    uint32_t served = 1;
    while (served + 1 < LINE_ROWS && knot_value(served, LINE_BITS) * LENGTH_MAX < line_context(column))
        served++;
    for (uint32_t row = served + 1; row < LINE_ROWS; row++)
        model->line_ns[row][column] = max_i64(model->line_ns[row][column], model->line_ns[row - 1][column]);
    for (uint32_t row = served; row-- > 1;)
        model->line_ns[row][column] = min_i64(model->line_ns[row][column], model->line_ns[row + 1][column]);
}

static void lines_make(struct device_model *model)
{
    for (uint32_t column = 0; column < LINE_COLUMNS; column++) {
        for (uint32_t row = 1; row < LINE_ROWS; row++) {
            double sequences = (double)knot_value(row, LINE_BITS);
            model->line_ns[row][column] = round_ns(decode_attention_ns(model, sequences, (double)line_context(column)));
        }
        lines_smooth(model, column);
        /* A maximum of two columns that do not decrease over rows does not either. */
        for (uint32_t row = 1; column > 0 && row < LINE_ROWS; row++)
            model->line_ns[row][column] = max_i64(model->line_ns[row][column], model->line_ns[row][column - 1]);
    }
}

static void shapes_make(struct device_model *model, const struct architecture *a, struct parallelism p)
{
    model->full = (struct attention_shape){
        .kind = a->attention,
        .heads = (double)a->heads / p.tensor,
        .kv_heads = a->kv_heads > p.tensor ? a->kv_heads / p.tensor : 1.0,
        .head_dim = a->head_dim,
        .latent_dim = a->latent_dim,
        .rope_dim = a->rope_dim,
        .nope_dim = a->nope_dim,
        .value_dim = a->value_dim,
        .kv_fp8 = a->kv_format != FORMAT_BF16,
    };
    model->windowed = model->full;
    model->windowed.window = a->window;
    model->layers_real = a->layers;
    model->layers = ceil_div_u32(a->layers, p.pipeline) * p.pipeline;
    model->layers_windowed = a->window > 0 ? a->layers - a->full_layers : 0;
    model->layers_full = model->layers - model->layers_windowed;
    model->stages = p.pipeline;
    model->experts_shared = a->experts > 0 && p.data > 1;
    model->moe = (struct moe_shape){
        .hidden = a->hidden,
        .width = ceil_div_u32(a->expert_intermediate, (uint32_t)p.tensor * p.data / p.expert),
        .experts = a->experts,
        .active = a->experts_active,
        .expert_ranks = p.expert,
        .shared_width = (double)a->shared_experts * ceil_div_u32(a->expert_intermediate, p.tensor),
        .groups = p.data,
        .format = a->expert_weight_format,
        .tensor = (double)p.tensor * p.data / p.expert,
    };
    const struct device *device = &model->device;
    double latent = (double)a->latent_dim + a->rope_dim;
    double compute = 2.0 * model->full.heads * (latent + a->latent_dim) / device->flops_per_ns[FORMAT_BF16];
    double memory = latent * (model->full.kv_fp8 ? 1.0 : 2.0) / device->bytes_per_ns;
    model->decode_attention_bound = a->attention == ATTENTION_MLA && compute > memory ? BOUND_COMPUTE : BOUND_BANDWIDTH;
}

/* False, with a sentence in `error`, when the ranks cannot share the model. */
static bool ranks_fit(const struct architecture *a, struct parallelism p, char *error, size_t size)
{
    uint32_t t = p.tensor;
    if (p.tensor == 0 || p.data == 0 || p.expert == 0 || p.pipeline == 0)
        snprintf(error, size, "%s: every parallelism is at least 1", a->name);
    else if (a->heads % t != 0)
        snprintf(error, size, "%s: %u query heads do not divide over %u tensor-parallel ranks", a->name, a->heads, t);
    else if (a->attention == ATTENTION_GQA && a->kv_heads % t != 0 && t % a->kv_heads != 0)
        snprintf(error, size, "%s: neither %u KV heads nor %u tensor-parallel ranks divide the other", a->name,
                 a->kv_heads, t);
    else if (p.pipeline > a->layers)
        snprintf(error, size, "%s: %u pipeline stages for %u layers", a->name, p.pipeline, a->layers);
    else if (p.expert > 1 && a->experts == 0)
        snprintf(error, size, "%s: expert parallelism %u for a model without experts", a->name, p.expert);
    else if (p.expert > a->experts && a->experts > 0)
        snprintf(error, size, "%s: %u experts for %u expert-parallel ranks", a->name, a->experts, p.expert);
    else if (a->experts > 0 && t * p.data % p.expert != 0)
        snprintf(error, size, "%s: %u expert-parallel ranks do not divide the %u ranks of a stage", a->name, p.expert,
                 t * p.data);
    else
        return true;
    return false;
}

static void refuse_device(const struct architecture *architecture, struct parallelism parallelism,
                          const struct hardware *hardware, char *error, size_t error_size)
{
    char sharding[64];
    parallelism_text(&parallelism, sharding, sizeof sharding);
    if (hardware->gpu[0] == '\0')
        snprintf(
            error, error_size,
            "%s: no steps of %s with %s were measured on it; `tandem calibrate SCENARIO --out FILE` measures those "
            "that a scenario needs",
            hardware->name, architecture->name, sharding);
    else
        snprintf(error, error_size, "%s: no measured efficiencies of GPU \"%s\"; known: %s", hardware->name,
                 hardware->gpu, gpu_tables_names());
}

struct device_model *device_model_make(const struct architecture *architecture, struct parallelism parallelism,
                                       const struct hardware *hardware, const struct engine *engine, char *error,
                                       size_t error_size)
{
    if (!ranks_fit(architecture, parallelism, error, error_size))
        return NULL;
    if (architecture->index_topk > 0) {
        snprintf(error, error_size,
                 "%s: its memory and its transfers are modelled, but not the time of sparse attention",
                 architecture->name);
        return NULL;
    }
    struct device_model *model = calloc(1, sizeof *model);
    if (model == NULL) {
        snprintf(error, error_size, "%s: out of memory for the cost model", architecture->name);
        return NULL;
    }
    model->is_measured = measured_steps_find(hardware, architecture, parallelism, &model->measured);
    if (model->is_measured)
        return model;
    bool packed = kernel_shelf_size(kernel_shelf_open(hardware->kernel_folder, hardware->gpu)) > 0;
    if (!packed && gpu_tables_find(hardware->gpu) == NULL) {
        refuse_device(architecture, parallelism, hardware, error, error_size);
        free(model);
        return NULL;
    }
    device_init(&model->device, hardware);
    model->engine = engine != NULL && engine->kernels != 0 ? *engine : engine_neutral();
    model->engine.prefill_permille = engine_prefill_permille(&model->engine, architecture->experts);
    shapes_make(model, architecture, parallelism);
    add_operators(model, architecture, parallelism);
    struct user_error damaged = {.set = false};
    if (!device_model_measure(model, architecture, hardware, &damaged)) {
        snprintf(error, error_size, "%s", damaged.text);
        device_model_free(model);
        return NULL;
    }
    curves_make(model);
    lines_make(model);
    prefill_table_make(model);
    return model;
}

bool device_model_serves(const struct device_model *model, enum node_role role, char *error, size_t error_size)
{
    bool prefills = !model->is_measured || model->measured.prefill.row_count > 0;
    bool decodes = !model->is_measured || model->measured.decode.row_count > 0;
    if ((role == ROLE_DECODE || prefills) && (role == ROLE_PREFILL || decodes))
        return true;
    char sharding[64];
    parallelism_text(&model->measured.parallelism, sharding, sizeof sharding);
    snprintf(error, error_size,
             "no %s steps of %s with %s were measured on the machine; `tandem calibrate SCENARIO --out FILE` measures "
             "those that a scenario needs",
             prefills ? "decode" : "prefill", model->measured.model, sharding);
    return false;
}

void device_model_free(struct device_model *model)
{
    if (model == NULL)
        return;
    for (uint32_t i = 0; i < model->sheet_count; i++)
        kernel_sheet_free(&model->sheets[i]);
    free(model);
}

/* ---- Decode ------------------------------------------------------------------------------------------------------ */

/* Every group runs the same graph: all are padded to the largest one's. */
int64_t device_decode_fixed_ns(const struct device_model *model, const struct step_group *groups, uint32_t group_count)
{
    if (model->is_measured)
        return 0;
    uint64_t most = 0;
    uint64_t shared = 0;
    for (uint32_t g = 0; g < group_count; g++) {
        most = max_u64(most, groups[g].decode_sequences);
        shared += groups[g].decode_sequences;
    }
    uint64_t batch = engine_batch(&model->engine, most);
    int64_t host = host_ns(model, most);
    if (batch > most) {
        most = batch;
        shared = batch * group_count;
    }
    int64_t ns = host + token_curve_ns(&model->curves[DRIVER_TOKENS], most) +
                 token_curve_ns(&model->curves[DRIVER_SEQUENCES], most) +
                 token_curve_ns(&model->curves[DRIVER_DECODE], most);
    if (model->experts_shared)
        ns += token_curve_ns(&model->curves[DRIVER_SHARED], shared);
    return ns;
}

/* Attention time at a column of the table, between its rows. */
static int64_t line_column_ns(const struct device_model *model, const struct knot_position *row, uint32_t column)
{
    int64_t low = model->line_ns[row->index][column];
    int64_t high = model->line_ns[row->index + 1][column];
    return knot_between(row, low, high);
}

void device_decode_line(const struct device_model *model, uint32_t decode_sequences, uint64_t decode_context,
                        struct decode_line *line)
{
    if (model->is_measured) {
        measured_decode_line(&model->measured, decode_sequences, decode_context, line);
        return;
    }
    if (decode_sequences == 0) {
        *line = (struct decode_line){.context_max = UINT64_MAX};
        return;
    }
    struct knot_position row = knot_locate(decode_sequences, LINE_BITS, LINE_OCTAVE_LAST);
    uint32_t column = 0;
    if (decode_context >= line_context(1)) {
        column = 63u - (uint32_t)__builtin_clzll(decode_context) - LINE_CONTEXT_LOG2 + 1;
        column = min_u32(column, LINE_COLUMNS - 2);
    }
    uint64_t first = line_context(column);
    uint64_t last = line_context(column + 1);
    int64_t low = line_column_ns(model, &row, column);
    int64_t high = line_column_ns(model, &row, column + 1);
    uint64_t slope = ((uint64_t)(high - low) << 32) / (last - first);
    *line = (struct decode_line){
        .context_min = first,
        .context_max = column == LINE_COLUMNS - 2 ? UINT64_MAX : last,
        .base_ns = low - (int64_t)((uint128)first * slope >> 32),
        .slope_q32 = slope,
    };
}

/* ---- Any step ------------------------------------------------------------------------------------------------------
 */

/* The largest counts over the groups, and the attention of the slowest group. */
void step_count(const struct device_model *model, const struct step_group *groups, uint32_t group_count,
                bool decode_too, struct step_counts *counts)
{
    *counts = (struct step_counts){.prefill = false};
    int64_t slowest = -1;
    for (uint32_t g = 0; g < group_count; g++) {
        const struct step_group *group = &groups[g];
        uint32_t decode = decode_too ? group->decode_sequences : 0;
        uint64_t context = decode_too ? group->decode_context : 0;
        uint64_t tokens = decode + group->prefill_tokens;
        uint64_t *most = counts->driver;
        most[DRIVER_TOKENS] = max_u64(most[DRIVER_TOKENS], tokens);
        most[DRIVER_SEQUENCES] = max_u64(most[DRIVER_SEQUENCES], decode + group->prefill_sequences);
        most[DRIVER_DECODE] = max_u64(most[DRIVER_DECODE], decode);
        most[DRIVER_DECOMPRESS] = max_u64(most[DRIVER_DECOMPRESS], group->prefill_tokens + group->prefill_context);
        most[DRIVER_SHARED] += model->experts_shared ? tokens : 0;
        struct decode_line line;
        device_decode_line(model, decode, context, &line);
        int64_t decode_ns = decode_line_ns(&line, context);
        int64_t prefill_ns = prefill_table_ns(model, group->prefill_tokens, group->prefill_pairs);
        counts->prefill = counts->prefill || group->prefill_tokens > 0;
        if (decode_ns + prefill_ns > slowest) {
            slowest = decode_ns + prefill_ns;
            counts->decode_attention_ns = decode_ns;
            counts->prefill_attention_ns = prefill_ns;
        }
    }
}

static enum step_bound step_bound(const struct device_model *model, const struct step_counts *counts)
{
    int64_t share[SHARES] = {0};
    for (uint32_t d = 0; d < DRIVERS; d++)
        for (uint32_t s = BOUND_COMPUTE; s < SHARES; s++)
            share[s] +=
                model->bounds[d][s].ns[knot_locate(counts->driver[d], TOKEN_CURVE_BITS, TOKEN_CURVE_OCTAVE_LAST).index];
    share[model->decode_attention_bound] += counts->decode_attention_ns;
    share[BOUND_COMPUTE] += counts->prefill_attention_ns;
    share[BOUND_OVERHEAD] += host_ns(model, counts->driver[DRIVER_SEQUENCES]);
    enum step_bound largest = BOUND_COMPUTE;
    for (uint32_t s = BOUND_COMPUTE; s < SHARES; s++)
        if (share[s] > share[largest])
            largest = (enum step_bound)s;
    return largest;
}

/* The device's part of the step, with or without its decoding sequences. */
static int64_t prefill_step_ns(const struct device_model *model, const struct step_counts *counts)
{
    int64_t ns = 0;
    for (uint32_t d = 0; d < DRIVERS; d++)
        ns += token_curve_ns(&model->curves[d], counts->driver[d]);
    return ns + counts->decode_attention_ns + counts->prefill_attention_ns;
}

/* What the prompt tokens add to a step, scaled as the engine's prefill is; and what they add it to. */
static int64_t mixed_step_ns(const struct device_model *model, const struct step_group *groups, uint32_t group_count,
                             const struct step_counts *counts)
{
    int64_t host = host_ns(model, counts->driver[DRIVER_SEQUENCES]);
    int64_t decode = 0;
    if (counts->driver[DRIVER_DECODE] > 0)
        decode = device_decode_fixed_ns(model, groups, group_count) - host_ns(model, counts->driver[DRIVER_DECODE]) +
                 counts->decode_attention_ns;
    int64_t more;
    if (model->engine.mixes) {
        more = max_i64(0, prefill_step_ns(model, counts) - decode);
    } else {
        struct step_counts alone;
        step_count(model, groups, group_count, false, &alone);
        more = prefill_step_ns(model, &alone) + (decode > 0 ? host : 0);
    }
    return host + decode + more * model->engine.prefill_permille / 1000;
}

void device_step(const struct device_model *model, const struct step_group *groups, uint32_t group_count,
                 struct step_time *time)
{
    if (model->is_measured) {
        measured_step(&model->measured, groups, group_count, time);
        return;
    }
    struct step_counts counts;
    step_count(model, groups, group_count, true, &counts);
    int64_t attention = counts.decode_attention_ns + counts.prefill_attention_ns;
    int64_t logits = token_curve_ns(&model->curves[DRIVER_SEQUENCES], counts.driver[DRIVER_SEQUENCES]);
    int64_t decompress = token_curve_ns(&model->curves[DRIVER_DECOMPRESS], counts.driver[DRIVER_DECOMPRESS]);
    int64_t absorb = token_curve_ns(&model->curves[DRIVER_DECODE], counts.driver[DRIVER_DECODE]);
    if (!counts.prefill)
        time->total_ns = device_decode_fixed_ns(model, groups, group_count) + attention;
    else
        time->total_ns = mixed_step_ns(model, groups, group_count, &counts);
    /* The host's part comes before the first layer, the logits after the last; layers are alike. */
    int64_t layers = model->layers_real;
    int64_t host = host_ns(model, counts.driver[DRIVER_SEQUENCES]);
    time->layer_ns = max_i64(0, time->total_ns - host - logits) / layers;
    int64_t before = token_curve_ns(&model->before, counts.driver[DRIVER_TOKENS]) + absorb + decompress + attention;
    time->first_layer_ns = host + min_i64(before / layers, time->layer_ns);
    time->bound = step_bound(model, &counts);
}
