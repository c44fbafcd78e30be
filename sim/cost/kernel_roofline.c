/* See kernel_roofline.h. Shapes of DeepSeek-V3, which the latent tables are of: models with others scale from them. */
#include "sim/cost/kernel_roofline.h"

#include "base/check.h"
#include "sim/cost/operators.h"

#include <string.h>

#define MLA_HIDDEN 7168.0
#define MLA_Q_LATENT 1536.0
#define MLA_LATENT 512.0
#define MLA_ROPE 64.0
#define MLA_NOPE 128.0
#define MLA_VALUE 128.0

/* The indexer of sparse attention: 64 heads of 128 on every cached token choose 2048 (DeepSeek-V3.2). */
#define DSA_INDEX_HEADS 64.0
#define DSA_INDEX_DIM 128.0
#define DSA_KEYS 2048.0

static double larger(double a, double b)
{
    return a > b ? a : b;
}

double attention_pairs(double tokens, double cached, double window)
{
    if (window <= 0.0)
        return tokens * (cached + (tokens + 1.0) * 0.5);
    /* Of the tokens, those that see less than a whole window. */
    double growing = window - cached;
    growing = growing < 0.0 ? 0.0 : growing > tokens ? tokens : growing;
    return growing * (cached + (growing + 1.0) * 0.5) + (tokens - growing) * window;
}

/* ---- Parameters ------------------------------------------------------------------------------------------------- */

/* Weights with their scales, and the arithmetic they run in: "nvfp4", "w4a16_mxfp4", "int4_wo", "fp8_block", ... */
static void roofline_format(struct kernel_roofline *roofline, const char *name, const struct kernel_rates *rates)
{
    bool four = strstr(name, "fp4") != NULL || strstr(name, "int4") != NULL;
    bool eight = !four && (strstr(name, "fp8") != NULL || strstr(name, "int8") != NULL);
    bool wide_input = strstr(name, "a16") != NULL || strstr(name, "_wo") != NULL;
    roofline->weight_bytes = four ? 0.5625 : eight ? 1.0 : 2.0;
    roofline->activation_bytes = wide_input ? 2.0 : roofline->weight_bytes;
    roofline->flops = rates->bf16_flops;
    if (!wide_input && four && rates->fp4_flops > 0.0)
        roofline->flops = rates->fp4_flops;
    else if (!wide_input && (four || eight) && rates->fp8_flops > 0.0)
        roofline->flops = rates->fp8_flops;
}

static bool has_column(const struct kernel_kind *kind, const char *name, uint32_t *column)
{
    for (*column = 0; *column < kind->column_count; (*column)++)
        if (strcmp(kind->columns[*column].name, name) == 0)
            return true;
    return false;
}

static double number_of(const struct kernel_table *table, uint32_t series, const char *name, double otherwise)
{
    uint32_t column;
    return has_column(table->kind, name, &column) ? (double)kernel_key(table, series, column) : otherwise;
}

static const char *text_of(const struct kernel_table *table, uint32_t series, const char *name, const char *otherwise)
{
    uint32_t column;
    if (!has_column(table->kind, name, &column))
        return otherwise;
    return table->texts[column][kernel_key(table, series, column)];
}

void kernel_roofline_make(struct kernel_roofline *roofline, const struct kernel_table *table, uint32_t series,
                          const struct kernel_rates *rates)
{
    static const char *const formats[] = {"gemm_dtype", "gemm_type", "moe_dtype", "bmm_dtype", "nccl_dtype"};
    const char *format = "bfloat16";
    for (uint32_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        format = text_of(table, series, formats[i], format);
    bool wide = table->kind->id == KERNEL_WIDEEP_CONTEXT_MLA || table->kind->id == KERNEL_WIDEEP_GENERATION_MLA;
    const char *kv = text_of(table, series, "kv_cache_dtype", wide ? "fp8" : "bfloat16");
    const char *attention = text_of(table, series, "attn_dtype", "bfloat16");
    *roofline = (struct kernel_roofline){
        .kind = table->kind->id,
        .memory_bytes = rates->memory_bytes,
        .link_bytes = rates->link_bytes,
        .attention_flops =
            strcmp(attention, "fp8") == 0 && rates->fp8_flops > 0.0 ? rates->fp8_flops : rates->bf16_flops,
        .kv_bytes = strcmp(kv, "fp8") == 0 ? 1.0 : 2.0,
        .head_dim = number_of(table, series, "head_dim", 0.0),
        .kv_heads = number_of(table, series, "num_key_value_heads", 0.0),
        .window = number_of(table, series, "window_size", 0.0),
        .hidden = number_of(table, series, "hidden_size", 0.0),
        .width = number_of(table, series, "inter_size", 0.0),
        .active = number_of(table, series, "topk", number_of(table, series, "num_topk", 0.0)),
        .experts = number_of(table, series, "num_experts", 0.0),
    };
    roofline_format(roofline, wide ? "fp8_block" : format, rates);
    roofline->nodes_bytes = table->kind->id == KERNEL_NCCL && strcmp(format, "int8") == 0 ? 1.0 : 2.0;
}

/* ---- Times ------------------------------------------------------------------------------------------------------ */

static double products_ns(const struct kernel_roofline *i, double m, double parameters)
{
    return larger(2.0 * m * parameters / i->flops, parameters * i->weight_bytes / i->memory_bytes);
}

/* The projections of latent attention; prefill decompresses, decode multiplies by the absorbed halves. */
static double mla_projections_ns(const struct kernel_roofline *i, double m, double heads)
{
    double parameters = MLA_HIDDEN * (MLA_Q_LATENT + MLA_LATENT + MLA_ROPE) +
                        MLA_Q_LATENT * heads * (MLA_NOPE + MLA_ROPE) + MLA_LATENT * heads * (MLA_NOPE + MLA_VALUE) +
                        heads * MLA_VALUE * MLA_HIDDEN;
    return products_ns(i, m, parameters);
}

static double mla_context_ns(const struct kernel_roofline *i, double heads, double batch, double length)
{
    double pairs = batch * attention_pairs(length, 0.0, 0.0);
    double bytes = batch * length * heads * (2.0 * (MLA_NOPE + MLA_ROPE) + 2.0 * MLA_VALUE) * 2.0;
    return pairs * heads * 2.0 * (MLA_NOPE + MLA_ROPE + MLA_VALUE) / i->attention_flops + bytes / i->memory_bytes;
}

static double mla_generation_ns(const struct kernel_roofline *i, double heads, double batch, double read)
{
    double latent = MLA_LATENT + MLA_ROPE;
    double memory = batch * read * latent * i->kv_bytes / i->memory_bytes;
    return larger(memory, 2.0 * batch * read * heads * (latent + MLA_LATENT) / i->attention_flops);
}

static double attention_context_ns(const struct kernel_roofline *i, double heads, double batch, double length)
{
    double pairs = batch * attention_pairs(length, 0.0, i->window);
    double bytes = batch * length * i->head_dim * (4.0 * heads + 4.0 * i->kv_heads + 2.0 * i->kv_heads * i->kv_bytes);
    return 4.0 * pairs * heads * i->head_dim / i->attention_flops + bytes / i->memory_bytes;
}

static double attention_generation_ns(const struct kernel_roofline *i, double heads, double batch, double read)
{
    if (i->window > 0.0 && read > i->window)
        read = i->window;
    double memory = 2.0 * batch * read * i->kv_heads * i->head_dim * i->kv_bytes / i->memory_bytes;
    return larger(memory, 4.0 * batch * read * heads * i->head_dim / i->attention_flops);
}

/* Of all pairs the indexer makes a score in fp8; of at most 2048 a query the latents are read. */
static double dsa_context_ns(const struct kernel_roofline *i, double heads, double batch, double length)
{
    double scored = batch * attention_pairs(length, 0.0, 0.0);
    double attended = batch * attention_pairs(length, 0.0, DSA_KEYS);
    double latent = 2.0 * MLA_LATENT + MLA_ROPE;
    return mla_projections_ns(i, batch * length, heads) + scored * 2.0 * DSA_INDEX_HEADS * DSA_INDEX_DIM / i->flops +
           attended * 2.0 * heads * latent / i->attention_flops;
}

static double dsa_generation_ns(const struct kernel_roofline *i, double heads, double batch, double read)
{
    double attended = read < DSA_KEYS ? read : DSA_KEYS;
    return mla_projections_ns(i, batch, heads) + batch * read * DSA_INDEX_DIM / i->memory_bytes +
           mla_generation_ns(i, heads, batch, attended);
}

/* Rows are gathered, and scattered back in bf16. */
static double experts_ns(const struct kernel_roofline *i, double tensor, double ranks, double tokens,
                         double shared_width, double shared_tokens)
{
    double rows = tokens * i->active / ranks;
    double width = i->width / tensor;
    double touched = distinct_experts(i->experts, i->active, tokens) / ranks;
    double weights = 3.0 * i->hidden * (touched * width + shared_width);
    double compute = 6.0 * i->hidden * (rows * width + shared_tokens * shared_width) / i->flops;
    return larger(compute, weights * i->weight_bytes / i->memory_bytes) + 6.0 * rows * i->hidden / i->memory_bytes;
}

double kernel_experts_ns(const struct kernel_roofline *roofline, double tensor, double ranks, double tokens,
                         double shared_width, double shared_tokens)
{
    return roofline->floor_ns + experts_ns(roofline, tensor, ranks, tokens, shared_width, shared_tokens);
}

static double bmm_ns(const struct kernel_roofline *i, double heads, double tokens)
{
    double bytes = heads * MLA_NOPE * MLA_LATENT * i->weight_bytes +
                   tokens * heads * (MLA_NOPE * i->activation_bytes + MLA_LATENT * 2.0);
    return larger(2.0 * tokens * heads * MLA_NOPE * MLA_LATENT / i->flops, bytes / i->memory_bytes);
}

static double work_ns(const struct kernel_roofline *i, double outer, double inner, double x)
{
    switch (i->kind) {
    case KERNEL_GEMM: {
        double bytes = outer * inner * i->weight_bytes + x * inner * i->activation_bytes + x * outer * 2.0;
        return larger(2.0 * x * outer * inner / i->flops, bytes / i->memory_bytes);
    }
    case KERNEL_CONTEXT_ATTENTION:
        return attention_context_ns(i, outer, inner, x);
    case KERNEL_GENERATION_ATTENTION:
        return attention_generation_ns(i, outer, inner, x + 1.0);
    case KERNEL_CONTEXT_MLA:
        return mla_context_ns(i, outer, inner, x);
    case KERNEL_GENERATION_MLA:
        return mla_generation_ns(i, outer, inner, x + 1.0);
    case KERNEL_MLA_BMM:
        return bmm_ns(i, inner, x);
    case KERNEL_MLA_CONTEXT_MODULE:
    case KERNEL_WIDEEP_CONTEXT_MLA:
        return mla_projections_ns(i, inner * x, outer) + mla_context_ns(i, outer, inner, x);
    case KERNEL_MLA_GENERATION_MODULE:
    case KERNEL_WIDEEP_GENERATION_MLA:
        return mla_projections_ns(i, inner, outer) + mla_generation_ns(i, outer, inner, x);
    case KERNEL_DSA_CONTEXT_MODULE:
        return dsa_context_ns(i, outer, inner, x);
    case KERNEL_DSA_GENERATION_MODULE:
        return dsa_generation_ns(i, outer, inner, x);
    case KERNEL_MOE:
    case KERNEL_WIDEEP_CONTEXT_MOE:
    case KERNEL_WIDEEP_GENERATION_MOE:
        return experts_ns(i, outer, inner, x, 0.0, 0.0);
    case KERNEL_WIDEEP_MOE:
        return experts_ns(i, 1.0, inner, x, 0.0, 0.0);
    case KERNEL_DEEPEP_LL:
    case KERNEL_DEEPEP_NORMAL:
    case KERNEL_ALLTOALL:
        return x * i->active * i->hidden * i->nodes_bytes / i->link_bytes;
    case KERNEL_ALL_REDUCE:
    case KERNEL_NCCL:
        return x * i->nodes_bytes * 2.0 * (inner - 1.0) / inner / i->link_bytes;
    }
    check_failed("a kind of table", __FILE__, __LINE__);
}

double kernel_roofline_ns(const struct kernel_roofline *roofline, double outer, double inner, double x)
{
    return roofline->floor_ns + work_ns(roofline, outer, inner, x);
}
