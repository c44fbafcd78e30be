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
#include "sim/cost/measured_steps.h"
#include "sim/cost/operators.h"
#include "sim/cost/token_curve.h"

#include <stdio.h>
#include <stdlib.h>

/* Scheduling, launch of the step's graph, sampling, and the way of the token to the next step's input, as far as an
 * engine does not hide them: the one constant that no kernel table holds, and the only one chosen by end-to-end rows.
 * Of 0, 0.5 and 1.0 ms, the one with the smallest error: against 750 decode rows of InferenceX, as carried by
 * ai-dynamo/aiconfigurator@095f58a's silicon sample, the median absolute error is 9.5, 8.5 and 10.7 %. An engine's time
 * a sequence (vLLM: 36 to 54 us) is not in it. */
#define HOST_NS INT64_C(500000)

enum driver {
    DRIVER_TOKENS = 0,     /* new tokens of a group, decode and prefill */
    DRIVER_SEQUENCES = 1,  /* sequences of a group: each gets logits once */
    DRIVER_DECODE = 2,     /* decoding sequences of a group */
    DRIVER_DECOMPRESS = 3, /* tokens of prefilling sequences, cached and new */
    DRIVER_SHARED = 4,     /* tokens of all groups, where they share the routed experts */
    DRIVERS = 5,
};

enum operator_kind {
    OPERATOR_GEMM = 1,
    OPERATOR_ELEMENTWISE = 2,
    OPERATOR_EXPERTS = 3,
    OPERATOR_ALL_REDUCE = 4,
    OPERATOR_ALL_TO_ALL = 5,
    OPERATOR_STAGE_HOP = 6,
};

struct operator
{
    const char *name;
    enum operator_kind kind;
    enum driver driver;
    enum number_format format;
    uint32_t count;       /* times in a step */
    bool before_transfer; /* done when the layer's KV is complete and its attention output reduced */
    double n;             /* columns of a product, bytes a token of a pass, ranks of a collective */
    double k;             /* rows of a product, kernels of a pass, elements a token of a collective */
};

/* Sequences of the decode table: 8 knots an octave up to 2^15. Contexts: none, then powers of two from 64 to 64 Mi. */
#define LINE_BITS 3
#define LINE_OCTAVE_LAST 14
#define LINE_ROWS KNOT_COUNT(LINE_BITS, LINE_OCTAVE_LAST)
#define LINE_CONTEXT_LOG2 6
#define LINE_COLUMNS 22

#define SHARES (BOUND_OVERHEAD + 1) /* arrays indexed by enum step_bound */

struct device_model {
    bool is_measured; /* then `measured` stands for everything below it */
    struct measured_steps measured;
    struct device device;
    struct attention_shape full;
    struct attention_shape windowed;
    struct moe_shape moe;
    uint32_t layers; /* as counted in a step: ceil(layers / P) * P */
    uint32_t layers_real;
    uint32_t layers_full; /* of `layers`, those without a window */
    uint32_t layers_windowed;
    bool experts_shared; /* the routed experts are spread over the ranks of several groups */
    double stages;
    enum step_bound decode_attention_bound;
    uint32_t operator_count;
    uint32_t attention_place; /* the operator that the attention kernels precede */
    struct operator operators[OPERATORS_MAX];

    struct token_curve curves[DRIVERS];
    struct token_curve before; /* of curves[DRIVER_TOKENS], the part before a layer's transfer may start */
    struct token_curve bounds[DRIVERS][SHARES];
    int64_t line_ns[LINE_ROWS][LINE_COLUMNS];
};

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

static void add_attention_gqa(struct device_model *model, const struct architecture *a, uint32_t count)
{
    double heads = model->full.heads * a->head_dim;
    double kv = model->full.kv_heads * a->head_dim;
    add_gemm(model, "qkv projection", DRIVER_TOKENS, count, heads + 2.0 * kv, a->hidden, a->weight_format);
    add_pass(model, "norm, rope, cache write", count, norm_bytes(a) + 4.0 * (heads + 2.0 * kv), 2.0);
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
    add_gemm(model, "absorbed output", DRIVER_DECODE, count, heads * a->value_dim, a->latent_dim, FORMAT_BF16);
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
    if (p.data > 1 && p.expert == ranks)
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
    uint32_t dense = a->experts > 0 ? a->dense_layers : all;
    uint32_t sparse = all - dense;
    if (a->attention == ATTENTION_MLA)
        add_attention_mla(model, a, all);
    else
        add_attention_gqa(model, a, all);
    add_all_reduce(model, "all-reduce after attention", all, p.tensor, a->hidden);
    mark_before_transfer(model, 0);
    add_pass(model, "norm", all, norm_bytes(a), 1.0);
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

static struct operator_time operator_evaluate(const struct device_model *model, const struct operator* o, double tokens)
{
    const struct device *device = &model->device;
    switch (o->kind) {
    case OPERATOR_GEMM:
        return gemm_time(device, tokens, o->n, o->k, o->format);
    case OPERATOR_ELEMENTWISE:
        return elementwise_time(device, tokens, o->n, o->k);
    case OPERATOR_EXPERTS:
        return moe_time(device, tokens, &model->moe);
    case OPERATOR_ALL_REDUCE:
        return all_reduce_time(device, o->n, tokens * o->k);
    case OPERATOR_ALL_TO_ALL:
        return all_to_all_time(device, o->n, tokens * o->k, model->moe.hidden, model->moe.active);
    case OPERATOR_STAGE_HOP:
        return stage_hop_time(device, tokens, o->k, o->n > 0);
    }
    check_failed("operator kind", __FILE__, __LINE__);
}

/* ---- Making ------------------------------------------------------------------------------------------------------ */

static int64_t round_ns(double ns)
{
    return (int64_t)(ns + 0.5);
}

static void curve_smooth(struct token_curve *curve)
{
    for (uint32_t i = 1; i < TOKEN_CURVE_KNOTS; i++)
        curve->ns[i] = max_i64(curve->ns[i], curve->ns[i - 1]);
}

/* Measured efficiencies are noisy: a curve is made to never decrease by carrying the largest value so far. */
static void curves_make(struct device_model *model)
{
    for (uint32_t knot = 1; knot < TOKEN_CURVE_KNOTS; knot++) {
        double tokens = (double)knot_value(knot, TOKEN_CURVE_BITS) / model->stages;
        double sum[DRIVERS] = {0};
        double share[DRIVERS][SHARES] = {{0}};
        double before = 0.0;
        for (uint32_t i = 0; i < model->operator_count; i++) {
            const struct operator* o = & model->operators[i];
            struct operator_time time = operator_evaluate(model, o, tokens);
            double ns = time.ns * o->count;
            sum[o->driver] += ns;
            share[o->driver][time.bound] += ns - time.launch_ns * o->count;
            share[o->driver][BOUND_OVERHEAD] += time.launch_ns * o->count;
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
    for (uint32_t d = 0; d < DRIVERS; d++)
        curve_smooth(&model->curves[d]);
    curve_smooth(&model->before);
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
                                       const struct hardware *hardware, char *error, size_t error_size)
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
    if (!device_init(&model->device, hardware)) {
        refuse_device(architecture, parallelism, hardware, error, error_size);
        free(model);
        return NULL;
    }
    shapes_make(model, architecture, parallelism);
    add_operators(model, architecture, parallelism);
    curves_make(model);
    lines_make(model);
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
    free(model);
}

/* ---- Decode ------------------------------------------------------------------------------------------------------ */

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
    int64_t ns = HOST_NS + token_curve_ns(&model->curves[DRIVER_TOKENS], most) +
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

/* The counts that drive a step's operators, the largest over its groups, and the attention of the slowest group. */
struct step_counts {
    uint64_t driver[DRIVERS];
    int64_t decode_attention_ns;
    int64_t prefill_attention_ns; /* of the group whose attention is slowest */
    bool prefill;
};

static int64_t prefill_attention_ns(const struct device_model *model, const struct step_group *group)
{
    if (group->prefill_tokens == 0)
        return 0;
    double tokens = (double)group->prefill_tokens / model->stages;
    double pairs = (double)group->prefill_pairs / model->stages;
    double ns = 0.0;
    if (model->layers_full > 0)
        ns += model->layers_full * prefill_attention_time(&model->device, &model->full, tokens, pairs).ns;
    if (model->layers_windowed > 0)
        ns += model->layers_windowed * prefill_attention_time(&model->device, &model->windowed, tokens, pairs).ns;
    return round_ns(ns);
}

static void step_count(const struct device_model *model, const struct step_group *groups, uint32_t group_count,
                       struct step_counts *counts)
{
    *counts = (struct step_counts){.prefill = false};
    int64_t slowest = -1;
    for (uint32_t g = 0; g < group_count; g++) {
        const struct step_group *group = &groups[g];
        uint64_t decode = group->decode_sequences;
        uint64_t tokens = decode + group->prefill_tokens;
        uint64_t *most = counts->driver;
        most[DRIVER_TOKENS] = max_u64(most[DRIVER_TOKENS], tokens);
        most[DRIVER_SEQUENCES] = max_u64(most[DRIVER_SEQUENCES], decode + group->prefill_sequences);
        most[DRIVER_DECODE] = max_u64(most[DRIVER_DECODE], decode);
        most[DRIVER_DECOMPRESS] = max_u64(most[DRIVER_DECOMPRESS], group->prefill_tokens + group->prefill_context);
        most[DRIVER_SHARED] += model->experts_shared ? tokens : 0;
        struct decode_line line;
        device_decode_line(model, group->decode_sequences, group->decode_context, &line);
        int64_t decode_ns = decode_line_ns(&line, group->decode_context);
        int64_t prefill_ns = prefill_attention_ns(model, group);
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
    share[BOUND_OVERHEAD] += HOST_NS;
    enum step_bound largest = BOUND_COMPUTE;
    for (uint32_t s = BOUND_COMPUTE; s < SHARES; s++)
        if (share[s] > share[largest])
            largest = (enum step_bound)s;
    return largest;
}

void device_step(const struct device_model *model, const struct step_group *groups, uint32_t group_count,
                 struct step_time *time)
{
    if (model->is_measured) {
        measured_step(&model->measured, groups, group_count, time);
        return;
    }
    struct step_counts counts;
    step_count(model, groups, group_count, &counts);
    int64_t attention = counts.decode_attention_ns + counts.prefill_attention_ns;
    int64_t logits = token_curve_ns(&model->curves[DRIVER_SEQUENCES], counts.driver[DRIVER_SEQUENCES]);
    int64_t decompress = token_curve_ns(&model->curves[DRIVER_DECOMPRESS], counts.driver[DRIVER_DECOMPRESS]);
    int64_t absorb = token_curve_ns(&model->curves[DRIVER_DECODE], counts.driver[DRIVER_DECODE]);
    if (!counts.prefill)
        time->total_ns = device_decode_fixed_ns(model, groups, group_count) + attention;
    else
        time->total_ns = HOST_NS + token_curve_ns(&model->curves[DRIVER_TOKENS], counts.driver[DRIVER_TOKENS]) +
                         logits + absorb + decompress +
                         token_curve_ns(&model->curves[DRIVER_SHARED], counts.driver[DRIVER_SHARED]) + attention;
    /* The host's part comes before the first layer, the logits after the last; layers are alike. */
    int64_t layers = model->layers_real;
    time->layer_ns = (time->total_ns - HOST_NS - logits) / layers;
    int64_t before = token_curve_ns(&model->before, counts.driver[DRIVER_TOKENS]) + absorb + decompress + attention;
    time->first_layer_ns = HOST_NS + min_i64(before / layers, time->layer_ns);
    time->bound = step_bound(model, &counts);
}

/* ---- What a step is made of, for people ------------------------------------------------------------------------ */

static void share_add(struct operator_share *shares, uint32_t *count, const char *name, uint32_t times,
                      struct operator_time time)
{
    if (times == 0)
        return;
    CHECK(*count < OPERATORS_MAX);
    bool launch = time.launch_ns * 2.0 > time.ns;
    shares[(*count)++] = (struct operator_share){
        .name = name,
        .source = time.source,
        .ns = round_ns(time.ns * times),
        .count = times,
        .bound = launch ? BOUND_OVERHEAD : time.bound,
    };
}

static void share_add_attention(const struct device_model *model, const struct step_group *group,
                                struct operator_share *shares, uint32_t *count)
{
    const struct attention_shape *shapes[2] = {&model->full, &model->windowed};
    const uint32_t layers[2] = {model->layers_full, model->layers_windowed};
    double stages = model->stages;
    for (uint32_t i = 0; i < 2; i++) {
        if (group->decode_sequences > 0)
            share_add(shares, count, i == 0 ? "decode attention" : "decode attention, windowed", layers[i],
                      decode_attention_time(&model->device, shapes[i], group->decode_sequences / stages,
                                            (double)(group->decode_context + group->decode_sequences) / stages));
        if (group->prefill_tokens > 0)
            share_add(shares, count, i == 0 ? "prefill attention" : "prefill attention, windowed", layers[i],
                      prefill_attention_time(&model->device, shapes[i], (double)group->prefill_tokens / stages,
                                             (double)group->prefill_pairs / stages));
    }
}

uint32_t device_model_breakdown(const struct device_model *model, const struct step_group *groups, uint32_t group_count,
                                struct operator_share *shares)
{
    if (model->is_measured) {
        struct step_time time;
        measured_step(&model->measured, groups, group_count, &time);
        shares[0] = (struct operator_share){.name = "whole step",
                                            .source = "measured by tandem calibrate",
                                            .ns = time.total_ns,
                                            .count = 1,
                                            .bound = time.bound};
        return 1;
    }
    struct step_counts counts;
    step_count(model, groups, group_count, &counts);
    uint32_t slowest = 0;
    int64_t slowest_ns = -1;
    for (uint32_t g = 0; g < group_count; g++) {
        struct decode_line line;
        device_decode_line(model, groups[g].decode_sequences, groups[g].decode_context, &line);
        int64_t ns = decode_line_ns(&line, groups[g].decode_context) + prefill_attention_ns(model, &groups[g]);
        if (ns > slowest_ns) {
            slowest = g;
            slowest_ns = ns;
        }
    }
    uint32_t count = 0;
    share_add(shares, &count, "host", 1,
              (struct operator_time){.ns = (double)HOST_NS, .bound = BOUND_OVERHEAD, .source = "one constant a step"});
    for (uint32_t i = 0; i < model->operator_count; i++) {
        const struct operator* o = & model->operators[i];
        if (group_count > 0 && i == model->attention_place)
            share_add_attention(model, &groups[slowest], shares, &count);
        if (counts.driver[o->driver] == 0)
            continue;
        share_add(shares, &count, o->name, o->count,
                  operator_evaluate(model, o, (double)counts.driver[o->driver] / model->stages));
    }
    return count;
}
