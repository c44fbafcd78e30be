/* See device_model.h: what a served model is made of.
 *
 * Layers run in passes: those of the model over the tokens of a step; where tokens are drafted, the draft layers over
 * the same tokens, and then again over one token a sequence for each further one. The passes list the same operators
 * and differ in what drives them.
 */
#include "base/arith.h"
#include "base/check.h"
#include "sim/cost/device_model_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- Shapes ------------------------------------------------------------------------------------------------------ */

static struct attention_shape attention_of(const struct architecture *a, struct parallelism p, double queries)
{
    return (struct attention_shape){
        .kind = a->attention,
        .heads = (double)a->heads / p.tensor,
        .kv_heads = a->kv_heads > p.tensor ? a->kv_heads / p.tensor : 1.0,
        .head_dim = a->head_dim,
        .latent_dim = a->latent_dim,
        .rope_dim = a->rope_dim,
        .nope_dim = a->nope_dim,
        .value_dim = a->value_dim,
        .kv_fp8 = a->kv_format != FORMAT_BF16,
        .queries = queries,
        .topk = a->index_topk,
        .index_heads = a->index_heads,
        .index_dim = a->index_dim,
    };
}

static void part_make(struct model_part *part, const struct architecture *a, struct parallelism p, uint32_t layers,
                      uint32_t windowed, double queries)
{
    double ranks = (double)p.tensor * p.data;
    part->layers = ceil_div_u32(layers, p.pipeline) * p.pipeline;
    part->layers_windowed = windowed;
    part->layers_full = part->layers - windowed;
    part->full = attention_of(a, p, queries);
    part->windowed = part->full;
    part->windowed.window = a->window;
    part->moe = (struct moe_shape){
        .hidden = a->hidden,
        .width = ceil_div_u32(a->expert_intermediate, (uint32_t)p.tensor * p.data / p.expert),
        .experts = a->experts,
        .active = a->experts_active,
        .expert_ranks = p.expert,
        .shared_width = (double)a->shared_experts * ceil_div_u32(a->expert_intermediate, p.tensor),
        .groups = p.data,
        .format = a->expert_weight_format,
        .tensor = ranks / p.expert,
    };
    part->exchange[0] =
        (struct exchange_shape){.ranks = ranks, .hidden = a->hidden, .active = a->experts_active, .inner = 1.0};
    part->exchange[1] = part->exchange[0];
}

/* Of a draft model without experts nothing is spread over expert-parallel ranks. */
static struct parallelism draft_parallelism(const struct device_request *request)
{
    struct parallelism p = request->parallelism;
    if (request->draft_model != NULL && request->draft_model->experts == 0)
        p.expert = 1;
    return p;
}

void device_shapes_make(struct device_model *model, const struct device_request *request)
{
    const struct architecture *a = request->architecture;
    const struct architecture *draft = request->draft_model;
    struct parallelism p = request->parallelism;
    uint32_t tokens = request->draft_tokens;
    uint32_t ranks = (uint32_t)p.tensor * p.data;
    model->queries = 1 + tokens;
    model->stages = p.pipeline;
    model->experts_shared = a->experts > 0 && p.data > 1;
    model->wide = model->experts_shared && p.expert == ranks && ranks > model->device.gpus_per_node;
    model->drafting.tokens = tokens;
    uint32_t own = a->layers - a->layers_drafting;
    part_make(&model->main, a, p, own, a->window > 0 ? a->layers - a->full_layers : 0, model->queries);
    if (model->wide) {
        /* Shared experts are operators of their own: they work on the rank's own tokens. */
        model->main.moe.shared_width = 0.0;
        model->main.moe_wide = model->main.moe;
    }
    model->layers_real = own;
    if (tokens > 0 && draft != NULL) {
        part_make(&model->draft, draft, draft_parallelism(request), draft->layers,
                  draft->window > 0 ? draft->layers - draft->full_layers : 0, model->queries);
        model->drafting.next_layers = draft->layers * (tokens - 1);
    } else if (tokens > 0) {
        model->draft = model->main;
        model->draft.layers = model->draft.layers_full = min_u32(tokens, a->layers_drafting);
        model->draft.layers_windowed = 0;
        model->layers_real = a->layers;
        model->drafting.next_layers = tokens - model->draft.layers;
    }
    model->drafting.next = model->draft.full;
    model->drafting.next.queries = 1.0;

    const struct device *device = &model->device;
    double latent = (double)a->latent_dim + a->rope_dim;
    double heads = model->main.full.heads * model->queries;
    double compute = 2.0 * heads * (latent + a->latent_dim) / device->flops_per_ns[FORMAT_BF16];
    double memory = latent * (model->main.full.kv_fp8 ? 1.0 : 2.0) / device->bytes_per_ns;
    model->decode_attention_bound = a->attention == ATTENTION_MLA && compute > memory ? BOUND_COMPUTE : BOUND_BANDWIDTH;
}

/* ---- Operators --------------------------------------------------------------------------------------------------- */

struct pass {
    struct device_model *model;
    const char *prefix; /* of the operators' names */
    const struct architecture *a;
    const struct model_part *part;
    struct parallelism p;
    uint32_t layers;
    uint32_t dense; /* of these, without experts */
    bool again;     /* over one drafted token a sequence alone */
    enum driver tokens;
    enum driver decode;
};

static void add(const struct pass *pass, const char *name, struct device_operator one)
{
    struct device_model *model = pass->model;
    if (one.count == 0)
        return;
    CHECK(model->operator_count < OPERATORS_MAX - ATTENTIONS_MAX);
    struct device_operator *place = &model->operators[model->operator_count++];
    *place = one;
    place->part = pass->part;
    snprintf(place->name, sizeof place->name, "%s%s", pass->prefix, name);
}

static void add_gemm(const struct pass *pass, const char *name, enum driver driver, uint32_t count, double n, double k,
                     enum number_format format)
{
    add(pass, name,
        (struct device_operator){
            .kind = OPERATOR_GEMM, .driver = driver, .format = format, .count = count, .n = n, .k = k});
}

static void add_absorbed(const struct pass *pass, const char *name, double n, double k, enum absorbed absorbed)
{
    add(pass, name,
        (struct device_operator){.kind = OPERATOR_GEMM,
                                 .driver = pass->decode,
                                 .format = FORMAT_BF16,
                                 .count = pass->layers,
                                 .n = n,
                                 .k = k,
                                 .absorbed = absorbed});
}

static void add_pass(const struct pass *pass, const char *name, uint32_t count, double bytes, double kernels)
{
    add(pass, name,
        (struct device_operator){
            .kind = OPERATOR_ELEMENTWISE, .driver = pass->tokens, .count = count, .n = bytes, .k = kernels});
}

/* A residual norm reads the row and the residual and writes both, in bf16. */
static double norm_bytes(const struct architecture *a)
{
    return 8.0 * a->hidden;
}

/* Launches of `kernels` elementwise kernels, `norms` of which may follow an all-reduce. TensorRT-LLM's attention
 * rotates keys and writes the cache itself, and its all-reduce adds the residual and norms. */
static double launches(const struct pass *pass, double kernels, double norms)
{
    if (pass->model->engine.kernels != ENGINE_TRTLLM)
        return kernels;
    return pass->p.tensor > 1 ? 0.0 : norms;
}

/* The attention kernels come here. */
static void attention_here(const struct pass *pass)
{
    struct device_model *model = pass->model;
    uint32_t place = pass->again ? 2 : pass->part == &model->draft ? 1 : 0;
    model->attention_place[place] = model->operator_count;
}

static void add_attention_gqa(const struct pass *pass)
{
    const struct architecture *a = pass->a;
    uint32_t count = pass->layers;
    double heads = pass->part->full.heads * a->head_dim;
    double kv = pass->part->full.kv_heads * a->head_dim;
    add_gemm(pass, "qkv projection", pass->tokens, count, heads + 2.0 * kv, a->hidden,
             architecture_attention_format(a));
    add_pass(pass, "norm, rope, cache write", count, norm_bytes(a) + 4.0 * (heads + 2.0 * kv),
             launches(pass, 2.0, 1.0));
    attention_here(pass);
    add_gemm(pass, "attention output projection", pass->tokens, count, a->hidden, heads, architecture_output_format(a));
}

/* Sparse attention: the indexer's queries, its key and a weight a head, on every rank. */
static void add_indexer(const struct pass *pass)
{
    const struct architecture *a = pass->a;
    double queries = (double)a->index_heads * a->index_dim;
    double width = a->q_latent_dim > 0 ? a->q_latent_dim : a->hidden;
    if (a->index_topk == 0)
        return;
    add_gemm(pass, "indexer queries", pass->tokens, pass->layers, queries, width, architecture_attention_format(a));
    add_gemm(pass, "indexer key and weights", pass->tokens, pass->layers, (double)a->index_dim + a->index_heads,
             a->hidden, architecture_attention_format(a));
    /* Norm, rope, rotation and quantization of both, the scaling of the weights, the scores and the choice. */
    add_pass(pass, "indexer norms, rope, rotation, scores", pass->layers, 4.0 * queries, 8.0);
}

/* The latent projections are whole on every rank; heads are split. Prefill decompresses every token that it reads,
 * cached ones too; decode multiplies queries and outputs by the absorbed halves of the same matrix, in bf16. Sparse
 * prefill does as decode does: each query reads latents of its own. */
static void add_attention_mla(const struct pass *pass)
{
    const struct architecture *a = pass->a;
    uint32_t count = pass->layers;
    double heads = pass->part->full.heads;
    double query = heads * (a->nope_dim + a->rope_dim);
    double latent = (double)a->latent_dim + a->rope_dim;
    double down = latent + a->q_latent_dim;
    if (a->q_latent_dim > 0) {
        add_gemm(pass, "latent projections", pass->tokens, count, down, a->hidden, architecture_attention_format(a));
        add_gemm(pass, "query up-projection", pass->tokens, count, query, a->q_latent_dim,
                 architecture_attention_format(a));
    } else {
        add_gemm(pass, "latent projections", pass->tokens, count, latent + query, a->hidden,
                 architecture_attention_format(a));
    }
    add_pass(pass, "norms, rope, cache write", count, norm_bytes(a) + 4.0 * down + 4.0 * query, 3.0);
    add_indexer(pass);
    struct pass absorbing = *pass;
    if (a->index_topk > 0)
        absorbing.decode = pass->tokens;
    else if (!pass->again)
        add_gemm(pass, "decompression", DRIVER_DECOMPRESS, count, heads * (a->nope_dim + a->value_dim), a->latent_dim,
                 architecture_attention_format(a));
    add_absorbed(&absorbing, "absorbed query", heads * a->nope_dim, a->latent_dim, ABSORBED_QUERY);
    add_absorbed(&absorbing, "absorbed output", heads * a->value_dim, a->latent_dim, ABSORBED_OUTPUT);
    attention_here(pass);
    add_gemm(pass, "attention output projection", pass->tokens, count, a->hidden, heads * a->value_dim,
             architecture_output_format(a));
}

static void add_mlp(const struct pass *pass, const char *up, const char *down, uint32_t count, double width)
{
    const struct architecture *a = pass->a;
    add_gemm(pass, up, pass->tokens, count, 2.0 * width, a->hidden, a->weight_format);
    add_pass(pass, "activation", count, 6.0 * width, 1.0);
    add_gemm(pass, down, pass->tokens, count, a->hidden, width, a->weight_format);
}

static void add_all_reduce(const struct pass *pass, const char *name)
{
    if (pass->p.tensor > 1)
        add(pass, name,
            (struct device_operator){.kind = OPERATOR_ALL_REDUCE,
                                     .driver = pass->tokens,
                                     .count = pass->layers,
                                     .n = pass->p.tensor,
                                     .k = pass->a->hidden});
}

/* Prompts take the exchange that is made for many tokens and decoding ones that for few, and experts run on what either
 * brings. A step with both goes the way of the prompts. */
static void add_wide_experts(const struct pass *pass, uint32_t count)
{
    const struct architecture *a = pass->a;
    bool hidden = pass->model->engine.overlap_permille > 0;
    static const enum driver drivers[2][2] = {{DRIVER_WIDE_DECODE, DRIVER_WIDE_DECODE_ALL},
                                              {DRIVER_WIDE_PREFILL, DRIVER_WIDE_PREFILL_ALL}};
    if (a->shared_experts > 0)
        add_mlp(pass, "shared expert, gate and up", "shared expert, down", count,
                (double)a->shared_experts * ceil_div_u32(a->expert_intermediate, pass->p.tensor));
    for (uint32_t way = 0; way < (pass->again ? 1u : 2u); way++) {
        enum driver own = pass->again ? DRIVER_DRAFT : drivers[way][0];
        enum driver all = pass->again ? DRIVER_DRAFT_ALL : drivers[way][1];
        add(pass, hidden ? "expert dispatch and combine, not hidden" : "expert dispatch and combine",
            (struct device_operator){.kind = OPERATOR_EXCHANGE,
                                     .driver = own,
                                     .count = count,
                                     .k = 1.0 / pass->p.tensor,
                                     .prefill = way == 1});
        add(pass, "experts",
            (struct device_operator){.kind = OPERATOR_EXPERTS, .driver = all, .count = count, .prefill = way == 1});
    }
}

static void add_experts(const struct pass *pass, uint32_t count)
{
    const struct device_model *model = pass->model;
    const struct architecture *a = pass->a;
    struct parallelism p = pass->p;
    double ranks = (double)p.tensor * p.data;
    enum driver all = p.data == 1 ? pass->tokens : pass->again ? DRIVER_DRAFT_ALL : DRIVER_SHARED;
    add_gemm(pass, "router", pass->tokens, count, a->experts, a->hidden, FORMAT_BF16);
    if (model->wide) {
        add_wide_experts(pass, count);
        return;
    }
    /* Inside a node engines gather all tokens and scatter the sums; DeepEP, which sends a token only where its experts
     * are, is what they use across nodes. */
    if (p.data > 1)
        add(pass, "expert gather and scatter",
            (struct device_operator){.kind = ranks <= model->device.nvlink_gpus ? OPERATOR_GATHER_SCATTER
                                                                                : OPERATOR_ALL_REDUCE,
                                     .driver = all,
                                     .count = count,
                                     .n = ranks,
                                     .k = a->hidden});
    add(pass, "experts",
        (struct device_operator){.kind = OPERATOR_EXPERTS, .driver = all, .count = count, .prefill = true});
}

/* Marks what was added since `first` as preceding a layer's transfer. */
static void mark_before_transfer(struct device_model *model, uint32_t first)
{
    for (uint32_t i = first; i < model->operator_count; i++)
        model->operators[i].before_transfer = true;
}

void device_attention_make(struct device_model *model, const struct architecture *architecture,
                           struct parallelism parallelism)
{
    const struct pass pass = {.model = model,
                              .prefix = "",
                              .a = architecture,
                              .part = &model->main,
                              .p = parallelism,
                              .layers = 1,
                              .tokens = DRIVER_TOKENS,
                              .decode = DRIVER_DECODE};
    add_attention_mla(&pass);
}

static void add_layers(const struct pass *pass)
{
    struct device_model *model = pass->model;
    const struct architecture *a = pass->a;
    uint32_t first = model->operator_count;
    if (pass->layers == 0)
        return;
    if (pass->part->full.module)
        attention_here(pass);
    else if (a->attention == ATTENTION_MLA)
        add_attention_mla(pass);
    else
        add_attention_gqa(pass);
    add_all_reduce(pass, "all-reduce after attention");
    if (!pass->again)
        mark_before_transfer(model, first);
    add_pass(pass, "norm", pass->layers, norm_bytes(a), launches(pass, 1.0, 1.0));
    if (pass->dense > 0)
        add_mlp(pass, "gate and up", "down", pass->dense, ceil_div_u32(a->intermediate, pass->p.tensor));
    if (pass->layers > pass->dense)
        add_experts(pass, pass->layers - pass->dense);
    add_all_reduce(pass, "all-reduce after MLP");
}

static void add_draft(struct device_model *model, const struct device_request *request)
{
    const struct architecture *draft = request->draft_model;
    const struct architecture *a = draft != NULL ? draft : request->architecture;
    struct pass pass = {.model = model,
                        .prefix = "draft: ",
                        .a = a,
                        .part = &model->draft,
                        .p = draft_parallelism(request),
                        .tokens = DRIVER_TOKENS,
                        .decode = DRIVER_DECODE};
    for (uint32_t again = 0; again < 2; again++) {
        pass.layers = again == 0 ? model->draft.layers : model->drafting.next_layers;
        if (again == 1) {
            pass.prefix = "draft again: ";
            pass.again = true;
            pass.tokens = pass.decode = DRIVER_DRAFT;
        }
        if (draft != NULL)
            pass.dense = a->experts > 0 ? a->dense_layers * (again == 0 ? 1 : model->drafting.tokens - 1) : pass.layers;
        else
            pass.dense = a->experts > 0 ? 0 : pass.layers;
        /* Joins the hidden state and the embedding of the token after it. */
        if (draft == NULL && pass.layers > 0)
            add_gemm(&pass, "join", pass.tokens, pass.layers, a->hidden, 2.0 * a->hidden, FORMAT_BF16);
        add_layers(&pass);
    }
    pass.prefix = "draft: ";
    add_gemm(&pass, "LM head", DRIVER_DRAFT, model->drafting.tokens, (double)a->vocab / pass.p.tensor, a->hidden,
             FORMAT_BF16);
}

/* Hand-overs from stage to stage: each rank's part of the hidden states goes to the rank of the next stage that has the
 * same place there. It crosses NVLink where that joins all of these pairs, else the NICs. */
static void add_hops(struct pass *pass)
{
    uint32_t stage_ranks = (uint32_t)pass->p.tensor * pass->p.data;
    uint32_t domain = pass->model->device.nvlink_gpus;
    uint32_t by_nic = 0;
    for (uint32_t stage = 0; stage + 1u < pass->p.pipeline; stage++) {
        bool joined = true;
        for (uint32_t r = stage * stage_ranks; r < (stage + 1) * stage_ranks; r++)
            joined = joined && r / domain == (r + stage_ranks) / domain;
        by_nic += !joined;
    }
    const uint32_t count[2] = {by_nic, pass->p.pipeline - 1u - by_nic};
    for (uint32_t nvlink = 0; nvlink < 2; nvlink++)
        if (count[nvlink] > 0)
            add(pass, nvlink ? "hand-over to the next stage" : "hand-over to the next stage, NIC",
                (struct device_operator){.kind = OPERATOR_STAGE_HOP,
                                         .driver = DRIVER_TOKENS,
                                         .count = count[nvlink],
                                         .n = nvlink,
                                         .k = 2.0 * pass->a->hidden / pass->p.tensor});
}

void device_operators_make(struct device_model *model, const struct device_request *request)
{
    const struct architecture *a = request->architecture;
    struct parallelism p = request->parallelism;
    struct pass pass = {.model = model,
                        .prefix = "",
                        .a = a,
                        .part = &model->main,
                        .p = p,
                        .layers = model->main.layers,
                        .dense = architecture_dense_before(a, model->main.layers),
                        .tokens = DRIVER_TOKENS,
                        .decode = DRIVER_DECODE};
    add_layers(&pass);
    add_hops(&pass);
    add_gemm(&pass, "LM head", DRIVER_SEQUENCES, 1, (double)a->vocab / p.tensor, a->hidden, FORMAT_BF16);
    if (model->drafting.tokens > 0)
        add_draft(model, request);
}

struct operator_time operator_evaluate(const struct device_model *model, const struct device_operator *o, double tokens)
{
    const struct device *device = &model->device;
    switch (o->kind) {
    case OPERATOR_GEMM:
        return gemm_time(device, o->measured, tokens, o->n, o->k, o->format);
    case OPERATOR_ELEMENTWISE:
        return elementwise_time(device, tokens, o->n, o->k);
    case OPERATOR_EXPERTS:
        return moe_time(device, tokens, o->prefill ? &o->part->moe : &o->part->moe_wide);
    case OPERATOR_ALL_REDUCE:
        return all_reduce_time(device, o->measured, o->nccl, o->n, tokens * o->k);
    case OPERATOR_GATHER_SCATTER:
        return gather_scatter_time(device, o->measured, o->nccl, o->n, tokens * o->k);
    case OPERATOR_EXCHANGE: {
        struct operator_time time = exchange_time(device, &o->part->exchange[o->prefill], tokens * o->k);
        time.ns = time.ns * (1000.0 - model->engine.overlap_permille) / 1000.0;
        return time;
    }
    case OPERATOR_STAGE_HOP:
        return stage_hop_time(device, tokens, o->k, o->n > 0);
    }
    check_failed("operator kind", __FILE__, __LINE__);
}
