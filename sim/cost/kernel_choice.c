/* See kernel_choice.h. */
#include "sim/cost/kernel_choice.h"

#include "base/check.h"
#include "base/log2.h"

#include <stdio.h>
#include <string.h>

/* Matrix products faster than this at their smallest are bound by the kernel and not by its launch. */
#define GEMM_FLOOR_NS_MAX 6200.0

#define KEYS_MAX 7
#define TEXTS_MAX 5
#define ENGINES_MAX 5

/* How far a table's shape may be from the model's, in octaves summed over what differs; beyond it, distilled
 * efficiencies know better. */
#define DISTANCE_MAX 3.0

/* Of the numbers of streaming multiprocessors that DeepEP's normal exchange was measured with over several nodes, the
 * one that its own tests use. */
#define DEEPEP_SMS 24.0

/* What a key column should hold: one of some texts, the earlier the better, or a number, the nearer the better. */
struct query_key {
    const char *column;
    const char *texts[TEXTS_MAX];
    double number;
    bool exact;
    bool any_order; /* the texts are as good as each other, but where nothing else decides */
};

struct query {
    enum kernel_kind_id kind;
    const char *engines[ENGINES_MAX]; /* in the order of trust; NULL ends it, and then any engine is tried */
    bool engines_only;                /* no other engine */
    struct query_key keys[KEYS_MAX];
    double outer;
    double inner;              /* 0: a curve for every one */
    double inner_least;        /* tables that reach so far; 0: any */
    double floor_ns_max;       /* 0: any */
    const char *second_source; /* part of the name of a kernel that comes after others; NULL: none */
};

/* What the GPU's tables were measured at, per nanosecond: what the efficiencies of the GPU refer to, and for what they
 * do not say, scenarios/hardware. False: a GPU of the user's own, measured on the machine as it is described. */
static bool rates_measured(const struct hardware *hardware, struct kernel_rates *rates)
{
    static const struct {
        const char *gpu;
        double link; /* GB/s of NVLink, one direction */
    } links[] = {{"A100", 300.0}, {"H100", 450.0}, {"H200", 450.0}, {"B200", 900.0}, {"GB200", 900.0}};
    const struct gpu_tables *known = gpu_tables_find(hardware->gpu);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        if (strcmp(links[i].gpu, hardware->gpu) != 0)
            continue;
        *rates = (struct kernel_rates){
            .bf16_flops = (known != NULL ? known->bf16_flops : 2500e12) * 1e-9,
            .fp8_flops = (known != NULL ? known->fp8_flops : 5000e12) * 1e-9,
            .fp4_flops = (known != NULL ? known->fp4_flops : 10000e12) * 1e-9,
            .memory_bytes = (known != NULL ? known->bytes_per_s : 8e12) * 1e-9,
            .link_bytes = links[i].link,
        };
        return true;
    }
    return false;
}

static bool differs(double rate, double measured)
{
    return rate < measured * (1.0 - 1e-9) || rate > measured * (1.0 + 1e-9);
}

void kernel_chooser_make(struct kernel_chooser *chooser, const struct device *device, const struct hardware *hardware,
                         enum engine_kind engine)
{
    struct kernel_rates rates = {
        .bf16_flops = (double)hardware->bf16_flops * 1e-9,
        .fp8_flops = (double)hardware->fp8_flops * 1e-9,
        .fp4_flops = (double)hardware->fp4_flops * 1e-9,
        .memory_bytes = device->bytes_per_ns,
        .link_bytes = device->nvlink_bytes_per_ns,
    };
    *chooser = (struct kernel_chooser){
        .store = kernel_store_open(hardware->kernel_folder, hardware->gpu),
        .device = device,
        .engine = engine,
        .measured = rates,
    };
    if (!rates_measured(hardware, &chooser->measured))
        return;
    chooser->altered = differs(rates.bf16_flops, chooser->measured.bf16_flops) ||
                       differs(rates.fp8_flops, chooser->measured.fp8_flops) ||
                       differs(rates.fp4_flops, chooser->measured.fp4_flops) ||
                       differs(rates.memory_bytes, chooser->measured.memory_bytes) ||
                       differs(rates.link_bytes, chooser->measured.link_bytes);
    chooser->measured.link_bytes = rates.link_bytes;
}

/* ---- Choosing a category ---------------------------------------------------------------------------------------- */

/* Kernels for other models: they stand where nothing else does. */
static bool is_odd_kernel(const char *source)
{
    return strstr(source, "situ") != NULL || strstr(source, "nongated") != NULL;
}

/* How far a column's value is from a query; negative: it cannot stand for it. */
static double key_distance(const struct kernel_table *table, uint32_t series, uint32_t column,
                           const struct query_key *key)
{
    uint32_t value = kernel_key(table, series, column);
    if (key->texts[0] == NULL) {
        if (key->number <= 0.0 || value == 0)
            return (double)value == key->number ? 0.0 : -1.0;
        double octaves = log2_of((double)value / key->number);
        octaves = octaves < 0.0 ? -octaves : octaves;
        return key->exact && octaves > 0.0 ? -1.0 : octaves;
    }
    for (uint32_t i = 0; i < TEXTS_MAX && key->texts[i] != NULL; i++)
        if (strcmp(key->texts[i], table->texts[column][value]) == 0)
            return key->any_order ? (double)i / 16.0 : (double)i;
    return -1.0;
}

/* Lower is better; negative: the category cannot stand for the query. A text further down its list costs as much as an
 * octave of a number; a category without the very series wanted comes after equals that have it. */
static double category_distance(const struct kernel_table *table, uint32_t first, uint32_t count,
                                const struct query *query, double *octaves)
{
    const struct kernel_kind *kind = table->kind;
    double distance = 0.0;
    *octaves = 0.0;
    for (uint32_t c = 0; c + kind->dimension_count < kind->column_count; c++) {
        for (uint32_t i = 0; i < KEYS_MAX && query->keys[i].column != NULL; i++) {
            if (strcmp(query->keys[i].column, kind->columns[c].name) != 0)
                continue;
            double one = key_distance(table, first, c, &query->keys[i]);
            if (one < 0.0)
                return -1.0;
            distance += one;
            if (query->keys[i].texts[0] == NULL)
                *octaves += one;
        }
        if (strcmp(kind->columns[c].name, "kernel_source") == 0 &&
            is_odd_kernel(table->texts[c][kernel_key(table, first, c)]))
            distance += 0.5;
    }
    if (query->second_source != NULL)
        for (uint32_t c = 0; c + kind->dimension_count < kind->column_count; c++)
            if (strcmp(kind->columns[c].name, "kernel_source") == 0 &&
                strstr(table->texts[c][kernel_key(table, first, c)], query->second_source) != NULL)
                distance += 0.125;
    if (query->inner > 0.0) {
        bool present = false;
        for (uint32_t s = first; s < first + count && !present; s++)
            present =
                (double)kernel_key(table, s, kind->column_count - 1) == query->inner &&
                (kind->dimension_count == 1 || (double)kernel_key(table, s, kind->column_count - 2) == query->outer);
        distance += present ? 0.0 : 0.25;
    }
    return distance;
}

static bool reaches(const struct kernel_table *table, uint32_t first, uint32_t count, double least)
{
    uint32_t inner = table->kind->column_count - 1;
    for (uint32_t s = first; s < first + count; s++)
        if ((double)kernel_key(table, s, inner) >= least)
            return true;
    return false;
}

static bool choose_in(struct kernel_chooser *chooser, const struct kernel_table *table, const struct query *query,
                      struct kernel_slice *slice)
{
    double best = -1.0;
    uint32_t chosen = 0;
    uint32_t count;
    for (uint32_t s = 0; s < table->series_count; s += count) {
        double octaves;
        count = kernel_category_length(table, s);
        double distance = category_distance(table, s, count, query, &octaves);
        if (distance < 0.0 || octaves > DISTANCE_MAX || (best >= 0.0 && distance >= best))
            continue;
        if (query->inner_least > 0.0 && !reaches(table, s, count, query->inner_least))
            continue;
        if (query->floor_ns_max > 0.0 && kernel_grid_floor_ns(table, s, count) > query->floor_ns_max)
            continue;
        best = distance;
        chosen = s;
    }
    if (best < 0.0)
        return false;
    struct kernel_grid grid;
    CHECK(kernel_grid_make(&grid, table, chosen, &chooser->measured));
    CHECK(kernel_slice_make(slice, &grid, query->outer, query->inner));
    kernel_grid_free(&grid);
    return true;
}

static bool choose_engine(struct kernel_chooser *chooser, const char *engine, const struct query *query,
                          struct kernel_slice *slice)
{
    const struct kernel_kind *kind = kernel_kind_of(query->kind);
    uint32_t count = kernel_store_count(chooser->store, kind, engine);
    for (uint32_t i = 0; i < count; i++) {
        const struct kernel_table *table = kernel_store_table(chooser->store, kind, engine, i, &chooser->error);
        if (table == NULL)
            return false;
        if (choose_in(chooser, table, query, slice))
            return true;
    }
    return false;
}

static bool choose(struct kernel_chooser *chooser, const struct query *query, struct kernel_slice *slice)
{
    for (uint32_t i = 0; i < ENGINES_MAX && query->engines[i] != NULL; i++)
        if (choose_engine(chooser, query->engines[i], query, slice))
            return true;
        else if (chooser->error.set)
            return false;
    return !query->engines_only && choose_engine(chooser, NULL, query, slice);
}

/* The engine asked for, then the others; the neutral one in an order of its own. */
static void query_engines(struct query *query, enum engine_kind engine, const char *const neutral[3])
{
    uint32_t count = 0;
    if (engine == ENGINE_VLLM)
        query->engines[count++] = "vllm";
    else if (engine == ENGINE_SGLANG)
        query->engines[count++] = "sglang";
    else if (engine == ENGINE_TRTLLM)
        query->engines[count++] = "trtllm";
    for (uint32_t i = 0; i < 3; i++)
        if (count == 0 || strcmp(query->engines[0], neutral[i]) != 0)
            query->engines[count++] = neutral[i];
}

/* TensorRT-LLM's kernels are timed with the least noise, SGLang's products with the most. */
static const char *const order_usual[3] = {"trtllm", "vllm", "sglang"};
static const char *const order_sglang[3] = {"sglang", "trtllm", "vllm"};
static const char *const order_vllm[3] = {"vllm", "trtllm", "sglang"};

/* Looks up with the rates of the scenario's machine what was measured at those of the GPU's data sheet. */
static void slice_scale(const struct kernel_chooser *chooser, struct kernel_slice *slice)
{
    const struct kernel_rates *measured = &chooser->measured;
    const struct device *device = chooser->device;
    double bf16 = device->flops_per_ns[FORMAT_BF16] / measured->bf16_flops;
    slice->roofline.flops *= bf16;
    slice->roofline.attention_flops *= bf16;
    slice->roofline.memory_bytes *= device->bytes_per_ns / measured->memory_bytes;
}

/* ---- Operators -------------------------------------------------------------------------------------------------- */

/* Engines share their libraries of matrix products. Where another engine's table has the same product so much faster
 * for a few tokens, what is slow is not the kernel: its launch was measured, or the way to it. */
#define GEMM_SLOWER_MAX 1.5
#define GEMM_FEW_TOKENS 8.0

static void choose_faster_gemm(struct kernel_chooser *chooser, const struct query *query, struct kernel_slice *slice)
{
    enum estimate estimate;
    double least = kernel_slice_ns(slice, query->inner, GEMM_FEW_TOKENS, &estimate) / GEMM_SLOWER_MAX;
    for (uint32_t i = 1; i < ENGINES_MAX && query->engines[i] != NULL && !chooser->error.set; i++) {
        struct kernel_slice other;
        if (!choose_engine(chooser, query->engines[i], query, &other))
            continue;
        double ns = kernel_slice_ns(&other, query->inner, GEMM_FEW_TOKENS, &estimate);
        struct kernel_slice *slower = ns < least ? slice : &other;
        kernel_slice_free(slower);
        if (slower == slice) {
            least = ns;
            *slice = other;
        }
    }
}

bool kernel_choose_gemm(struct kernel_chooser *chooser, double n, double k, enum number_format format,
                        struct kernel_slice *slice)
{
    static const char *const names[FORMATS] = {
        [FORMAT_BF16] = "bfloat16", [FORMAT_FP8] = "fp8", [FORMAT_FP8_BLOCK] = "fp8_block", [FORMAT_FP4] = "nvfp4"};
    struct query query = {.kind = KERNEL_GEMM, .outer = n, .inner = k, .floor_ns_max = GEMM_FLOOR_NS_MAX};
    const struct device *device = chooser->device;
    query_engines(&query, chooser->engine, order_usual);
    if (names[format] != NULL) {
        query.keys[0] = (struct query_key){.column = "gemm_dtype", .texts = {names[format]}};
        if (choose(chooser, &query, slice)) {
            choose_faster_gemm(chooser, &query, slice);
            slice_scale(chooser, slice);
            return !chooser->error.set;
        }
        if (chooser->error.set)
            return false;
    }
    /* A format without kernels is unpacked and computed in bf16: the same products on narrower weights. */
    query.keys[0] = (struct query_key){.column = "gemm_dtype", .texts = {"bfloat16"}};
    if (device->activation_bytes[format] < 2.0 || !choose(chooser, &query, slice))
        return false;
    slice_scale(chooser, slice);
    slice->roofline.weight_bytes = device->weight_bytes[format];
    return true;
}

static void query_attention(struct query *query, const struct attention_shape *shape)
{
    bool fp8 = shape->kv_fp8 != 0;
    query->keys[0] =
        (struct query_key){.column = "kv_cache_dtype", .texts = {fp8 ? "fp8" : "bfloat16", fp8 ? "bfloat16" : "fp8"}};
    if (shape->kind == ATTENTION_MLA)
        return;
    query->keys[1] = (struct query_key){.column = "attn_dtype", .texts = {fp8 ? "fp8" : "bfloat16", "bfloat16"}};
    query->keys[2] = (struct query_key){.column = "window_size", .number = shape->window};
    query->keys[3] = (struct query_key){.column = "head_dim", .number = shape->head_dim};
    query->keys[4] = (struct query_key){.column = "num_key_value_heads", .number = shape->kv_heads};
}

/* Makes a slice of a near shape one of the shape itself. */
static void slice_attention(const struct kernel_chooser *chooser, const struct attention_shape *shape,
                            struct kernel_slice *slice)
{
    struct kernel_roofline *roofline = &slice->roofline;
    slice_scale(chooser, slice);
    double kv_bytes = shape->kv_fp8 ? 1.0 : 2.0;
    bool same = roofline->kv_bytes == kv_bytes;
    if (shape->kind != ATTENTION_MLA) {
        same = same && roofline->head_dim == shape->head_dim && roofline->kv_heads == shape->kv_heads &&
               roofline->window == shape->window;
        roofline->head_dim = shape->head_dim;
        roofline->kv_heads = shape->kv_heads;
        roofline->window = shape->window;
    }
    roofline->kv_bytes = kv_bytes;
    slice->borrowed = !same;
}

static bool choose_attention(struct kernel_chooser *chooser, const struct attention_shape *shape, double heads,
                             struct query *query, struct kernel_slice *slice)
{
    query->outer = heads;
    query_attention(query, shape);
    bool found = choose(chooser, query, slice);
    if (!found && !chooser->error.set && shape->window > 0.0 && shape->kind != ATTENTION_MLA) {
        /* No window of this size was measured: the kernel without one, on what the window leaves. */
        query->keys[2].number = 0.0;
        found = choose(chooser, query, slice);
    }
    if (found)
        slice_attention(chooser, shape, slice);
    return found;
}

bool kernel_choose_decode_attention(struct kernel_chooser *chooser, const struct attention_shape *shape,
                                    struct kernel_slice *slice)
{
    struct query query = {.kind = shape->kind == ATTENTION_MLA ? KERNEL_GENERATION_MLA : KERNEL_GENERATION_ATTENTION};
    query_engines(&query, chooser->engine, order_usual);
    /* The queries of one sequence read one cache, as heads do. */
    double heads = shape->topk > 0.0 ? shape->heads : shape->heads * shape->queries;
    return choose_attention(chooser, shape, heads, &query, slice);
}

bool kernel_choose_prefill_attention(struct kernel_chooser *chooser, const struct attention_shape *shape,
                                     struct kernel_slice *slice)
{
    struct query query = {.kind = shape->kind == ATTENTION_MLA ? KERNEL_CONTEXT_MLA : KERNEL_CONTEXT_ATTENTION};
    query_engines(&query, chooser->engine, order_usual);
    if (shape->kind == ATTENTION_MLA) {
        /* SGLang's table is of the absorbed form, which prefill does not run. */
        query.engines[0] = "trtllm";
        query.engines[1] = "vllm";
        query.engines[2] = NULL;
        query.engines_only = true;
    }
    return choose_attention(chooser, shape, shape->heads, &query, slice);
}

bool kernel_choose_module(struct kernel_chooser *chooser, const struct attention_shape *shape,
                          enum number_format format, bool prefill, struct kernel_slice *slice)
{
    struct query query = {.outer = shape->heads, .engines_only = true, .engines = {"sglang"}};
    if (shape->topk > 0.0) {
        /* The indexer tells the two measured models apart: 64 heads of DeepSeek-V3.2, 32 of GLM-5. */
        bool deepseek = shape->index_heads >= 64.0;
        bool fp8 = shape->kv_fp8 != 0;
        bool narrow = format != FORMAT_BF16;
        query.kind = prefill ? KERNEL_DSA_CONTEXT_MODULE : KERNEL_DSA_GENERATION_MODULE;
        query.engines_only = false;
        query.engines[0] = NULL;
        query.keys[0] =
            (struct query_key){.column = "model", .texts = {deepseek ? "deepseek-ai/DeepSeek-V3.2" : "zai-org/GLM-5"}};
        query.keys[1] = (struct query_key){.column = "kv_cache_dtype",
                                           .texts = {fp8 ? "fp8" : "bfloat16", fp8 ? "bfloat16" : "fp8"}};
        query.keys[2] = (struct query_key){.column = "gemm_type", .texts = {narrow ? "fp8_block" : "bfloat16"}};
        if (prefill)
            query.keys[3] = (struct query_key){.column = "step", .number = 0.0};
    } else {
        query.kind = prefill ? KERNEL_WIDEEP_CONTEXT_MLA : KERNEL_WIDEEP_GENERATION_MLA;
        query.keys[0] = (struct query_key){.column = "kernel_source", .texts = {"fa3", "trtllm_mla", "flashinfer"}};
    }
    if (!choose(chooser, &query, slice))
        return false;
    slice_scale(chooser, slice);
    return true;
}

bool kernel_choose_absorbed(struct kernel_chooser *chooser, const struct attention_shape *shape, bool output,
                            struct kernel_slice *slice)
{
    struct query query = {
        .kind = KERNEL_MLA_BMM,
        .inner = shape->heads,
        .keys = {{.column = "op_name", .texts = {output ? "mla_gen_post" : "mla_gen_pre"}},
                 {.column = "bmm_dtype", .texts = {"bfloat16"}}},
    };
    query_engines(&query, chooser->engine, order_usual);
    if (!choose(chooser, &query, slice))
        return false;
    slice_scale(chooser, slice);
    return true;
}

bool kernel_choose_experts(struct kernel_chooser *chooser, const struct moe_shape *shape, double width, double tensor,
                           struct kernel_slice *slice)
{
    static const char *const formats[FORMATS][TEXTS_MAX] = {
        [FORMAT_BF16] = {"bfloat16"},
        [FORMAT_FP8] = {"fp8", "fp8_block"},
        [FORMAT_FP8_BLOCK] = {"fp8_block", "fp8"},
        [FORMAT_FP4] = {"nvfp4", "w4a8_mxfp4_mxfp8", "w4a16_mxfp4"},
        [FORMAT_INT4] = {"int4_wo", "w4a16_mxfp4"},
    };
    struct query query = {
        .kind = KERNEL_MOE,
        .outer = tensor,
        .inner = shape->expert_ranks,
        .second_source = "cutlass", /* TensorRT-LLM's fp4 on Blackwell: its own generated kernels before CUTLASS's */
        .keys =
            {
                {.column = "distribution", .texts = {"power_law_1.2", "power_law_1.01", "balanced"}},
                {.column = "hidden_size", .number = shape->hidden},
                {.column = "inter_size", .number = width},
                {.column = "topk", .number = shape->active},
                {.column = "num_experts", .number = shape->experts},
                {.column = "moe_dtype"},
            },
    };
    memcpy(query.keys[5].texts, formats[shape->format], sizeof query.keys[5].texts);
    /* As the engines serve DeepSeek-R1: TensorRT-LLM with experts on ranks of their own, SGLang with experts split. */
    const char *const *neutral = order_usual;
    if (shape->format == FORMAT_FP8_BLOCK && shape->expert_ranks <= 1.0)
        neutral = order_sglang;
    else if (shape->format == FORMAT_FP4 || shape->format == FORMAT_INT4)
        neutral = order_vllm;
    query_engines(&query, chooser->engine, neutral);
    bool blackwell = chooser->measured.fp4_flops > 0.0;
    if (blackwell && chooser->engine == ENGINE_TRTLLM && shape->format == FORMAT_FP8_BLOCK && shape->groups <= 1.0) {
        /* Its own table is DeepGEMM's, which it takes where attention is data-parallel. Else it runs the generated
         * kernels, which vLLM runs too. */
        query.engines[0] = "vllm";
        query.engines[1] = "trtllm";
    }
    bool found = false;
    if (shape->format == FORMAT_FP4) {
        /* A format of four bits stands for three, of which a model's shape says the one. On Blackwell engines multiply
         * mxfp4 weights with activations in eight bits. */
        query.keys[5].any_order = true;
        struct query whole = query;
        for (uint32_t k = 1; k < 5; k++)
            whole.keys[k].exact = true;
        memset(whole.keys[5].texts, 0, sizeof whole.keys[5].texts);
        whole.keys[5].texts[0] = "w4a8_mxfp4_mxfp8";
        found = blackwell && choose(chooser, &whole, slice);
    }
    if (!found && (chooser->error.set || !choose(chooser, &query, slice)))
        return false;
    slice_scale(chooser, slice);
    struct kernel_roofline *roofline = &slice->roofline;
    slice->borrowed = roofline->hidden != shape->hidden || roofline->width != width ||
                      roofline->active != shape->active || roofline->experts != shape->experts;
    roofline->hidden = shape->hidden;
    roofline->width = width;
    roofline->active = shape->active;
    roofline->experts = shape->experts;
    return true;
}

bool kernel_choose_wide_experts(struct kernel_chooser *chooser, const struct moe_shape *shape, double width,
                                double redundant, bool prefill, struct kernel_slice *slice)
{
    static const char *const formats[FORMATS][TEXTS_MAX] = {
        [FORMAT_BF16] = {"bfloat16"}, [FORMAT_FP8] = {"fp8_block", "fp8"}, [FORMAT_FP8_BLOCK] = {"fp8_block", "fp8"},
        [FORMAT_FP4] = {"nvfp4"},     [FORMAT_INT4] = {"int4_wo"},
    };
    /* TensorRT-LLM's experts in fp4 and where it is the engine, else those behind DeepEP. Copies of what most tokens
     * choose balance the ranks: SGLang's table has no balancer, but even routing. */
    bool trtllm = chooser->engine == ENGINE_TRTLLM || shape->format == FORMAT_FP4;
    bool balanced = redundant > 0.0;
    struct query query = {
        .kind = prefill ? KERNEL_WIDEEP_CONTEXT_MOE : KERNEL_WIDEEP_GENERATION_MOE,
        .outer = 1.0,
        .inner = shape->expert_ranks,
        .engines = {"sglang"},
        .engines_only = true,
        .keys =
            {
                {.column = "distribution", .texts = {"power_law_1.2", "power_law_1.01", "uniform"}},
                {.column = "hidden_size", .number = shape->hidden},
                {.column = "inter_size", .number = width},
                {.column = "topk", .number = shape->active},
                {.column = "num_experts", .number = shape->experts},
                {.column = "moe_dtype"},
            },
    };
    memcpy(query.keys[5].texts, formats[shape->format], sizeof query.keys[5].texts);
    if (balanced)
        query.keys[0].texts[0] = "uniform";
    if (trtllm) {
        query.kind = KERNEL_WIDEEP_MOE;
        query.engines[0] = "trtllm";
        query.keys[0].texts[0] = balanced ? "power_law_1.2_eplb" : "power_law_1.2";
        query.keys[0].texts[1] = balanced ? "power_law_1.01_eplb" : "power_law_1.01";
        query.keys[0].texts[2] = NULL;
        query.keys[6] = (struct query_key){.column = "num_slots", .number = shape->experts + redundant};
    }
    if (!choose(chooser, &query, slice))
        return false;
    slice_scale(chooser, slice);
    struct kernel_roofline *roofline = &slice->roofline;
    slice->borrowed = roofline->hidden != shape->hidden || roofline->width != width ||
                      roofline->active != shape->active || roofline->experts != shape->experts;
    roofline->hidden = shape->hidden;
    roofline->width = width;
    roofline->active = shape->active;
    roofline->experts = shape->experts;
    return true;
}

/* Makes a slice of an exchange one of the model's own: its bytes grow as its tokens do. */
static void slice_exchange(const struct exchange_shape *shape, struct kernel_slice *slice)
{
    slice->borrowed = slice->roofline.hidden != shape->hidden || slice->roofline.active != shape->active;
    slice->roofline.hidden = shape->hidden;
    slice->roofline.active = shape->active;
}

bool kernel_choose_deepep(struct kernel_chooser *chooser, const struct exchange_shape *shape, double experts,
                          double nodes, bool prefill, const char *phase, struct kernel_slice *slice)
{
    struct query query = {
        .kind = prefill ? KERNEL_DEEPEP_NORMAL : KERNEL_DEEPEP_LL,
        .inner = nodes,
        .inner_least = nodes > 1.0 ? 2.0 : 0.0,
        .engines = {"sglang"},
        .keys =
            {
                {.column = "phase", .texts = {phase}},
                {.column = "hidden_size", .number = shape->hidden},
                {.column = "num_topk", .number = shape->active},
                {.column = "num_experts", .number = experts},
                {.column = "dispatch_sms", .number = DEEPEP_SMS},
            },
    };
    if (!prefill)
        query.keys[4].column = NULL;
    if (!choose(chooser, &query, slice))
        return false;
    slice_exchange(shape, slice);
    return true;
}

bool kernel_choose_alltoall(struct kernel_chooser *chooser, const struct exchange_shape *shape, double experts,
                            enum number_format format, const char *phase, struct kernel_slice *slice)
{
    static const char *const formats[FORMATS] = {[FORMAT_BF16] = "bfloat16",
                                                 [FORMAT_FP8] = "fp8",
                                                 [FORMAT_FP8_BLOCK] = "fp8",
                                                 [FORMAT_FP4] = "nvfp4",
                                                 [FORMAT_INT4] = "bfloat16"};
    struct query query = {
        .kind = KERNEL_ALLTOALL,
        .inner = shape->ranks,
        .engines = {"trtllm"},
        .keys =
            {
                {.column = "op_name", .texts = {phase}},
                {.column = "kernel_source", .texts = {"NVLinkTwoSided"}},
                {.column = "moe_dtype", .texts = {formats[format]}},
                {.column = "hidden_size", .number = shape->hidden},
                {.column = "topk", .number = shape->active},
                {.column = "num_experts", .number = experts},
            },
    };
    if (!choose(chooser, &query, slice))
        return false;
    slice_exchange(shape, slice);
    return true;
}

bool kernel_choose_all_reduce(struct kernel_chooser *chooser, double ranks, struct kernel_slice *slice)
{
    struct query query = {.kind = KERNEL_ALL_REDUCE, .inner = ranks};
    query_engines(&query, chooser->engine, order_sglang);
    return choose(chooser, &query, slice);
}

bool kernel_choose_nccl(struct kernel_chooser *chooser, const char *collective, double ranks,
                        struct kernel_slice *slice)
{
    struct query query = {
        .kind = KERNEL_NCCL,
        .inner = ranks,
        .engines = {"nccl"},
        .keys = {{.column = "op_name", .texts = {collective}}, {.column = "nccl_dtype", .texts = {"half"}}},
    };
    return choose(chooser, &query, slice);
}
