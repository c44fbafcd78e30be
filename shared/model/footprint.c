/* See footprint.h. */
#include "model/footprint.h"

#include "base/arith.h"

#include <string.h>

#define BF16_BYTES 2
#define FP32_BYTES 4
#define MXFP4_BLOCK 32
#define MLP_MATRICES 3 /* gate, up, down */

/* Widths of the projections of one rank that holds `heads` query heads and `kv_heads` KV heads. */
struct attention_shape {
    uint64_t query;  /* elements of q */
    uint64_t key;    /* of k; MLA: decompressed */
    uint64_t value;  /* of v; MLA: decompressed */
    uint64_t output; /* of the attention output that o takes */
};

static struct attention_shape attention_shape(const struct architecture *a, uint64_t heads, uint64_t kv_heads)
{
    if (a->attention == ATTENTION_MLA)
        return (struct attention_shape){
            .query = heads * ((uint64_t)a->nope_dim + a->rope_dim),
            .key = heads * ((uint64_t)a->nope_dim + a->rope_dim),
            .value = heads * a->value_dim,
            .output = heads * a->value_dim,
        };
    return (struct attention_shape){
        .query = heads * a->head_dim,
        .key = kv_heads * a->head_dim,
        .value = kv_heads * a->head_dim,
        .output = heads * a->head_dim,
    };
}

uint64_t footprint_matrix_bytes(enum number_format format, uint64_t rows, uint64_t columns)
{
    uint64_t elements = mul_u64(rows, columns);
    switch (format) {
    case FORMAT_BF16:
        return mul_u64(elements, BF16_BYTES);
    case FORMAT_FP8:
        return elements + rows * FP32_BYTES;
    case FORMAT_FP8_BLOCK:
        return elements + ceil_div_u64(rows, 128) * ceil_div_u64(columns, 128) * FP32_BYTES;
    case FORMAT_FP4:
        return rows * (ceil_div_u64(columns, 2) + ceil_div_u64(columns, 16));
    case FORMAT_INT4:
        break;
    }
    CHECK(format == FORMAT_INT4);
    return rows * (ceil_div_u64(columns, 2) + 2 * ceil_div_u64(columns, 32));
}

/* What a matrix counts as: its parameters, or its bytes. Counting and weighing go through the same lists of matrices
 * below, so that they agree on what there is. */
typedef uint64_t matrix_measure(enum number_format format, uint64_t rows, uint64_t columns);

static uint64_t measure_parameters(enum number_format format, uint64_t rows, uint64_t columns)
{
    (void)format;
    return mul_u64(rows, columns);
}

static uint64_t measure_bytes_mxfp4(enum number_format format, uint64_t rows, uint64_t columns)
{
    if (format != FORMAT_FP4)
        return footprint_matrix_bytes(format, rows, columns);
    return rows * (ceil_div_u64(columns, 2) + ceil_div_u64(columns, MXFP4_BLOCK));
}

static matrix_measure *measure_bytes(const struct architecture *a)
{
    return a->fp4_block == MXFP4_BLOCK ? measure_bytes_mxfp4 : footprint_matrix_bytes;
}

static uint64_t attention_measure(const struct architecture *a, uint64_t heads, uint64_t kv_heads,
                                  matrix_measure *measure)
{
    struct attention_shape shape = attention_shape(a, heads, kv_heads);
    enum number_format format = architecture_attention_format(a);
    uint64_t output = measure(architecture_output_format(a), a->hidden, shape.output);

    if (a->attention != ATTENTION_MLA)
        return output + measure(format, shape.query, a->hidden) + measure(format, shape.key, a->hidden) +
               measure(format, shape.value, a->hidden);

    uint64_t query = a->q_latent_dim == 0
                         ? measure(format, shape.query, a->hidden)
                         : measure(format, a->q_latent_dim, a->hidden) + measure(format, shape.query, a->q_latent_dim);
    uint64_t latent = measure(format, (uint64_t)a->latent_dim + a->rope_dim, a->hidden);
    uint64_t decompress = measure(format, heads * ((uint64_t)a->nope_dim + a->value_dim), a->latent_dim);
    return output + query + latent + decompress;
}

/* An indexer's projections of the query latent, of the hidden state to the one key, and to a weight per head. Every
 * rank has all of them: each scores all tokens. */
static uint64_t indexer_measure(const struct architecture *a, matrix_measure *measure)
{
    if (a->index_topk == 0)
        return 0;
    uint64_t width = a->q_latent_dim > 0 ? a->q_latent_dim : a->hidden;
    enum number_format format = architecture_attention_format(a);
    return measure(format, (uint64_t)a->index_heads * a->index_dim, width) + measure(format, a->index_dim, a->hidden) +
           measure(FORMAT_BF16, a->index_heads, a->hidden);
}

static uint64_t mlp_measure(enum number_format format, uint64_t hidden, uint64_t intermediate, matrix_measure *measure)
{
    return 2 * measure(format, intermediate, hidden) + measure(format, hidden, intermediate);
}

/* What joins the hidden state and the embedding of the next token; every rank has all of it. */
static uint64_t draft_measure(const struct architecture *a, matrix_measure *measure)
{
    return measure(FORMAT_BF16, a->hidden, 2 * (uint64_t)a->hidden);
}

static uint64_t norm_parameters_per_layer(const struct architecture *a)
{
    uint64_t latents = a->attention == ATTENTION_MLA ? (uint64_t)a->latent_dim + a->q_latent_dim : 0;
    return 2 * (uint64_t)a->hidden + latents;
}

void footprint_parameters(const struct architecture *a, struct footprint_parameters *p)
{
    uint64_t dense = architecture_dense_before(a, a->layers);
    uint64_t sparse = a->layers - dense;
    uint64_t drafting = mul_u64(a->layers_drafting, draft_measure(a, measure_parameters));
    uint64_t expert = mlp_measure(a->expert_weight_format, a->hidden, a->expert_intermediate, measure_parameters);
    uint64_t table = mul_u64(a->vocab, a->hidden);

    memset(p, 0, sizeof *p);
    p->embedding = table;
    p->lm_head = a->tied_embeddings ? 0 : table;
    p->attention = a->layers * (attention_measure(a, a->heads, a->kv_heads, measure_parameters) +
                                indexer_measure(a, measure_parameters)) +
                   drafting;
    p->norms = a->layers * norm_parameters_per_layer(a) + a->hidden;
    p->dense_mlp = dense * mlp_measure(a->weight_format, a->hidden, a->intermediate, measure_parameters);
    p->router = sparse * a->experts * a->hidden;
    p->routed_experts = sparse * a->experts * expert;
    p->shared_experts = sparse * a->shared_experts * expert;

    uint64_t always = p->attention + p->norms + p->dense_mlp + p->router + p->shared_experts;
    p->total = p->embedding + p->lm_head + always + p->routed_experts;
    p->active = table + always + sparse * a->experts_active * expert;
}

/* Ranks of a stage over which each expert is split. */
static uint32_t expert_split(const struct parallelism *p)
{
    return (uint32_t)p->tensor * p->data / p->expert;
}

static enum footprint_verdict layout_check(const struct architecture *a, const struct kv_geometry *g)
{
    const struct parallelism *p = &g->parallelism;
    if (kv_geometry_check(g) != GEOMETRY_OK || g->layers != a->layers)
        return FOOTPRINT_GEOMETRY;
    if (g->kv_heads != (a->attention == ATTENTION_MLA ? 1 : a->kv_heads))
        return FOOTPRINT_GEOMETRY;
    if (a->heads % p->tensor != 0)
        return FOOTPRINT_HEADS;
    if (p->expert == 0)
        return FOOTPRINT_EXPERTS;
    if (p->expert > 1 &&
        (p->expert > a->experts + a->experts_redundant || (uint32_t)p->tensor * p->data % p->expert != 0))
        return FOOTPRINT_EXPERTS;
    return FOOTPRINT_FITS;
}

/* Bytes of the embedding, the LM head and the final norm that stage `stage` keeps on a rank. */
static uint64_t ends_bytes(const struct architecture *a, const struct parallelism *p, uint32_t stage)
{
    uint64_t table = ceil_div_u32(a->vocab, p->tensor) * (uint64_t)a->hidden * BF16_BYTES;
    bool first = stage == 0;
    bool last = stage + 1 == p->pipeline;
    uint64_t bytes = first ? table : 0;
    if (last)
        bytes += (a->tied_embeddings && first ? 0 : table) + (uint64_t)a->hidden * BF16_BYTES;
    return bytes;
}

static uint64_t attention_layer_bytes(const struct architecture *a, const struct kv_geometry *g)
{
    uint64_t heads = a->heads / g->parallelism.tensor;
    uint64_t bytes =
        attention_measure(a, heads, kv_rank_heads(g), measure_bytes(a)) + indexer_measure(a, measure_bytes(a));
    if (a->attention == ATTENTION_MLA)
        bytes += heads * ((uint64_t)a->nope_dim + a->value_dim) * a->latent_dim * BF16_BYTES;
    return bytes;
}

enum footprint_verdict footprint_weights(const struct architecture *a, const struct kv_geometry *g, uint32_t stage,
                                         struct footprint_weights *w)
{
    const struct parallelism *p = &g->parallelism;
    enum footprint_verdict verdict = layout_check(a, g);
    memset(w, 0, sizeof *w);
    if (verdict != FOOTPRINT_FITS)
        return verdict;
    CHECK(stage < p->pipeline);

    uint32_t layer_first = g->stage_layer_first[stage];
    uint64_t layers = (uint64_t)g->stage_layer_first[stage + 1] - layer_first;
    uint64_t dense =
        architecture_dense_before(a, g->stage_layer_first[stage + 1]) - architecture_dense_before(a, layer_first);
    uint64_t sparse = layers - dense;

    w->attention = layers * attention_layer_bytes(a, g);
    w->dense_mlp =
        dense * mlp_measure(a->weight_format, a->hidden, ceil_div_u32(a->intermediate, p->tensor), measure_bytes(a));
    if (sparse > 0) {
        uint64_t share = ceil_div_u32(a->expert_intermediate, expert_split(p));
        uint64_t shared_share = ceil_div_u32(a->expert_intermediate, p->tensor);
        w->routed_experts = sparse * ceil_div_u32(a->experts + a->experts_redundant, p->expert) *
                            mlp_measure(a->expert_weight_format, a->hidden, share, measure_bytes(a));
        w->shared_experts =
            sparse * a->shared_experts * mlp_measure(a->weight_format, a->hidden, shared_share, measure_bytes(a));
        w->other = sparse * a->experts * a->hidden * BF16_BYTES;
    }
    w->other += layers * norm_parameters_per_layer(a) * BF16_BYTES + ends_bytes(a, p, stage);
    if (stage + 1 == p->pipeline)
        w->other += a->layers_drafting * draft_measure(a, footprint_matrix_bytes);
    w->total = w->attention + w->dense_mlp + w->routed_experts + w->shared_experts + w->other;
    return FOOTPRINT_FITS;
}

uint64_t footprint_activation_bytes(const struct architecture *a, const struct kv_geometry *g, uint32_t token_budget,
                                    uint32_t sequences)
{
    const struct parallelism *p = &g->parallelism;
    CHECK(layout_check(a, g) == FOOTPRINT_FITS);

    uint64_t tokens = token_budget;
    struct attention_shape shape = attention_shape(a, a->heads / p->tensor, kv_rank_heads(g));
    uint64_t attention = tokens * (shape.query + shape.key + shape.value + shape.output);
    uint64_t mlp = 0;
    if (architecture_dense_before(a, a->layers) > 0)
        mlp = tokens * MLP_MATRICES * ceil_div_u32(a->intermediate, p->tensor);
    if (a->experts > 0) {
        uint64_t copies = ceil_div_u64(tokens * p->data * a->experts_active, p->expert);
        uint64_t share = ceil_div_u32(a->expert_intermediate, expert_split(p));
        mlp = max_u64(mlp, copies * (2 * (uint64_t)a->hidden + MLP_MATRICES * share));
    }
    uint64_t elements = tokens * 2 * a->hidden + max_u64(attention, mlp);
    return elements * BF16_BYTES + (uint64_t)sequences * ceil_div_u32(a->vocab, p->tensor) * FP32_BYTES;
}

/* Pages that fit on a rank of one stage, and why none do. */
static enum footprint_verdict stage_pages(struct footprint *f, uint64_t memory_bytes, enum memory_share share,
                                          uint32_t share_permille)
{
    uint64_t taken = add_u64(f->weight_bytes, f->activation_bytes);
    uint64_t part = mul_div_floor_u64(memory_bytes, share_permille, 1000);
    f->usable_bytes = share == MEMORY_SHARE_FREE ? memory_bytes : part;
    f->kv_bytes = f->pages = 0;
    if (share == MEMORY_SHARE_STATIC) {
        /* The share holds no activations, but the GPU does. */
        part = f->activation_bytes > memory_bytes ? 0 : min_u64(part, memory_bytes - f->activation_bytes);
        if (f->weight_bytes > part)
            return FOOTPRINT_WEIGHTS;
        f->kv_bytes = part - f->weight_bytes;
    } else {
        if (taken > f->usable_bytes)
            return FOOTPRINT_WEIGHTS;
        f->kv_bytes = f->usable_bytes - taken;
        if (share == MEMORY_SHARE_FREE)
            f->kv_bytes = mul_div_floor_u64(f->kv_bytes, share_permille, 1000);
    }
    f->pages = f->kv_bytes / f->page_bytes;
    return f->pages == 0 ? FOOTPRINT_PAGES : FOOTPRINT_FITS;
}

enum footprint_verdict footprint_kv_pages(const struct architecture *a, const struct kv_geometry *g,
                                          uint64_t memory_bytes, enum memory_share share, uint32_t share_permille,
                                          uint64_t activation_bytes, struct footprint *footprint)
{
    struct footprint_weights weights;
    enum footprint_verdict tightest = layout_check(a, g);
    memset(footprint, 0, sizeof *footprint);
    if (tightest != FOOTPRINT_FITS)
        return tightest;

    uint64_t overrun_max = 0; /* of the stages whose weights do not fit, the one that is furthest from it is reported */
    for (uint32_t stage = 0; stage < g->parallelism.pipeline; stage++) {
        uint32_t layers = (uint32_t)g->stage_layer_first[stage + 1] - g->stage_layer_first[stage];
        struct footprint here = {.stage = stage, .activation_bytes = activation_bytes};
        CHECK(footprint_weights(a, g, stage, &weights) == FOOTPRINT_FITS);
        here.weight_bytes = weights.total;
        here.page_bytes = kv_token_rank_bytes(g, layers) * g->page_tokens;

        enum footprint_verdict verdict = stage_pages(&here, memory_bytes, share, share_permille);
        uint64_t overrun = verdict == FOOTPRINT_WEIGHTS ? weights.total : 0;
        if (stage == 0 || overrun > overrun_max || (overrun == overrun_max && here.pages < footprint->pages)) {
            *footprint = here;
            overrun_max = overrun;
            tightest = verdict;
        }
    }
    return tightest;
}

const char *footprint_verdict_text(enum footprint_verdict verdict)
{
    switch (verdict) {
    case FOOTPRINT_FITS:
        return "the model fits";
    case FOOTPRINT_HEADS:
        return "query heads cannot be split evenly over the tensor-parallel ranks";
    case FOOTPRINT_EXPERTS:
        return "experts cannot be spread: the expert-parallel ranks must divide tensor * data and be no more than the "
               "experts";
    case FOOTPRINT_WEIGHTS:
        return "weights and activations of a rank exceed the memory it may use";
    case FOOTPRINT_PAGES:
        return "not one KV page fits beside the weights and activations of a rank";
    case FOOTPRINT_GEOMETRY:
        return "the KV layout is not one of this model";
    }
    return "unknown verdict";
}
