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
struct wish_key {
    const char *column;
    const char *texts[TEXTS_MAX];
    double number;
    bool exact;
    bool any_order; /* the texts are as good as each other, but where nothing else decides */
};

struct wish {
    enum kernel_kind_id kind;
    const char *engines[ENGINES_MAX]; /* in the order of trust; NULL ends it, and then any engine is tried */
    bool engines_only;                /* no other engine */
    struct wish_key keys[KEYS_MAX];
    double outer;
    double inner;              /* 0: a curve for every one */
    double inner_least;        /* tables that reach so far; 0: any */
    double floor_ns_max;       /* 0: any */
    const char *second_source; /* part of the name of a kernel that comes after others; NULL: none */
};

void kernel_chooser_make(struct kernel_chooser *chooser, const struct device *device, const struct hardware *hardware,
                         enum engine_kind engine)
{
    const struct gpu_tables *known = gpu_tables_find(hardware->gpu);
    *chooser = (struct kernel_chooser){
        .shelf = kernel_shelf_open(hardware->kernel_folder, hardware->gpu),
        .device = device,
        .engine = engine,
        .measured =
            {
                .bf16_flops = known != NULL ? known->bf16_flops * 1e-9 : (double)hardware->bf16_flops * 1e-9,
                .fp8_flops = known != NULL ? known->fp8_flops * 1e-9 : (double)hardware->fp8_flops * 1e-9,
                .fp4_flops = known != NULL ? known->fp4_flops * 1e-9 : (double)hardware->fp4_flops * 1e-9,
                .memory_bytes = known != NULL ? known->bytes_per_s * 1e-9 : device->bytes_per_ns,
                .link_bytes = device->nvlink_bytes_per_ns,
            },
    };
}

/* ---- Choosing a category ---------------------------------------------------------------------------------------- */

/* Kernels for other models: they stand where nothing else does. */
static bool is_odd_kernel(const char *source)
{
    return strstr(source, "situ") != NULL || strstr(source, "nongated") != NULL;
}

/* How far a column's value is from a wish; negative: it cannot stand for it. */
static double key_distance(const struct kernel_table *table, uint32_t series, uint32_t column,
                           const struct wish_key *key)
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

/* Lower is better; negative: the category cannot stand for the wish. A text further down its list costs as much as an
 * octave of a number; a category without the very series wanted comes after equals that have it. */
static double category_distance(const struct kernel_table *table, uint32_t first, uint32_t count,
                                const struct wish *wish, double *octaves)
{
    const struct kernel_kind *kind = table->kind;
    double distance = 0.0;
    *octaves = 0.0;
    for (uint32_t c = 0; c + kind->dimension_count < kind->column_count; c++) {
        for (uint32_t i = 0; i < KEYS_MAX && wish->keys[i].column != NULL; i++) {
            if (strcmp(wish->keys[i].column, kind->columns[c].name) != 0)
                continue;
            double one = key_distance(table, first, c, &wish->keys[i]);
            if (one < 0.0)
                return -1.0;
            distance += one;
            if (wish->keys[i].texts[0] == NULL)
                *octaves += one;
        }
        if (strcmp(kind->columns[c].name, "kernel_source") == 0 &&
            is_odd_kernel(table->texts[c][kernel_key(table, first, c)]))
            distance += 0.5;
    }
    if (wish->second_source != NULL)
        for (uint32_t c = 0; c + kind->dimension_count < kind->column_count; c++)
            if (strcmp(kind->columns[c].name, "kernel_source") == 0 &&
                strstr(table->texts[c][kernel_key(table, first, c)], wish->second_source) != NULL)
                distance += 0.125;
    if (wish->inner > 0.0) {
        bool present = false;
        for (uint32_t s = first; s < first + count && !present; s++)
            present =
                (double)kernel_key(table, s, kind->column_count - 1) == wish->inner &&
                (kind->dimension_count == 1 || (double)kernel_key(table, s, kind->column_count - 2) == wish->outer);
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

static bool choose_in(struct kernel_chooser *chooser, const struct kernel_table *table, const struct wish *wish,
                      struct kernel_sheet *sheet)
{
    double best = -1.0;
    uint32_t chosen = 0;
    uint32_t count;
    for (uint32_t s = 0; s < table->series_count; s += count) {
        double octaves;
        count = kernel_category_length(table, s);
        double distance = category_distance(table, s, count, wish, &octaves);
        if (distance < 0.0 || octaves > DISTANCE_MAX || (best >= 0.0 && distance >= best))
            continue;
        if (wish->inner_least > 0.0 && !reaches(table, s, count, wish->inner_least))
            continue;
        if (wish->floor_ns_max > 0.0 && kernel_lattice_floor_ns(table, s, count) > wish->floor_ns_max)
            continue;
        best = distance;
        chosen = s;
    }
    if (best < 0.0)
        return false;
    struct kernel_lattice lattice;
    CHECK(kernel_lattice_make(&lattice, table, chosen, &chooser->measured));
    CHECK(kernel_sheet_make(sheet, &lattice, wish->outer, wish->inner));
    kernel_lattice_free(&lattice);
    return true;
}

static bool choose_engine(struct kernel_chooser *chooser, const char *engine, const struct wish *wish,
                          struct kernel_sheet *sheet)
{
    const struct kernel_kind *kind = kernel_kind_of(wish->kind);
    uint32_t count = kernel_shelf_count(chooser->shelf, kind, engine);
    for (uint32_t i = 0; i < count; i++) {
        const struct kernel_table *table = kernel_shelf_table(chooser->shelf, kind, engine, i, &chooser->error);
        if (table == NULL)
            return false;
        if (choose_in(chooser, table, wish, sheet))
            return true;
    }
    return false;
}

static bool choose(struct kernel_chooser *chooser, const struct wish *wish, struct kernel_sheet *sheet)
{
    for (uint32_t i = 0; i < ENGINES_MAX && wish->engines[i] != NULL; i++)
        if (choose_engine(chooser, wish->engines[i], wish, sheet))
            return true;
        else if (chooser->error.set)
            return false;
    return !wish->engines_only && choose_engine(chooser, NULL, wish, sheet);
}

/* The engine asked for, then the others; the neutral one in an order of its own. */
static void wish_engines(struct wish *wish, enum engine_kind engine, const char *const neutral[3])
{
    uint32_t count = 0;
    if (engine == ENGINE_VLLM)
        wish->engines[count++] = "vllm";
    else if (engine == ENGINE_SGLANG)
        wish->engines[count++] = "sglang";
    else if (engine == ENGINE_TRTLLM)
        wish->engines[count++] = "trtllm";
    for (uint32_t i = 0; i < 3; i++)
        if (count == 0 || strcmp(wish->engines[0], neutral[i]) != 0)
            wish->engines[count++] = neutral[i];
}

/* TensorRT-LLM's kernels are timed with the least noise, SGLang's products with the most. */
static const char *const order_usual[3] = {"trtllm", "vllm", "sglang"};
static const char *const order_sglang[3] = {"sglang", "trtllm", "vllm"};
static const char *const order_vllm[3] = {"vllm", "trtllm", "sglang"};

/* Looks up with the rates of the scenario's machine what was measured at those of the GPU's data sheet. */
static void sheet_scale(const struct kernel_chooser *chooser, struct kernel_sheet *sheet)
{
    const struct kernel_rates *measured = &chooser->measured;
    const struct device *device = chooser->device;
    double bf16 = device->flops_per_ns[FORMAT_BF16] / measured->bf16_flops;
    sheet->ideal.flops *= bf16;
    sheet->ideal.attention_flops *= bf16;
    sheet->ideal.memory_bytes *= device->bytes_per_ns / measured->memory_bytes;
}

/* ---- Operators -------------------------------------------------------------------------------------------------- */

/* Engines share their libraries of matrix products. Where another engine's table has the same product so much faster
 * for a few tokens, what is slow is not the kernel: its launch was measured, or the way to it. */
#define GEMM_SLOWER_MAX 1.5
#define GEMM_FEW_TOKENS 8.0

static void choose_faster_gemm(struct kernel_chooser *chooser, const struct wish *wish, struct kernel_sheet *sheet)
{
    enum estimate estimate;
    double least = kernel_sheet_ns(sheet, wish->inner, GEMM_FEW_TOKENS, &estimate) / GEMM_SLOWER_MAX;
    for (uint32_t i = 1; i < ENGINES_MAX && wish->engines[i] != NULL && !chooser->error.set; i++) {
        struct kernel_sheet other;
        if (!choose_engine(chooser, wish->engines[i], wish, &other))
            continue;
        double ns = kernel_sheet_ns(&other, wish->inner, GEMM_FEW_TOKENS, &estimate);
        struct kernel_sheet *slower = ns < least ? sheet : &other;
        kernel_sheet_free(slower);
        if (slower == sheet) {
            least = ns;
            *sheet = other;
        }
    }
}

bool kernel_choose_gemm(struct kernel_chooser *chooser, double n, double k, enum number_format format,
                        struct kernel_sheet *sheet)
{
    static const char *const names[FORMATS] = {
        [FORMAT_BF16] = "bfloat16", [FORMAT_FP8] = "fp8", [FORMAT_FP8_BLOCK] = "fp8_block", [FORMAT_FP4] = "nvfp4"};
    struct wish wish = {.kind = KERNEL_GEMM, .outer = n, .inner = k, .floor_ns_max = GEMM_FLOOR_NS_MAX};
    const struct device *device = chooser->device;
    wish_engines(&wish, chooser->engine, order_usual);
    if (names[format] != NULL) {
        wish.keys[0] = (struct wish_key){.column = "gemm_dtype", .texts = {names[format]}};
        if (choose(chooser, &wish, sheet)) {
            choose_faster_gemm(chooser, &wish, sheet);
            sheet_scale(chooser, sheet);
            return !chooser->error.set;
        }
        if (chooser->error.set)
            return false;
    }
    /* A format without kernels is unpacked and computed in bf16: the same products on narrower weights. */
    wish.keys[0] = (struct wish_key){.column = "gemm_dtype", .texts = {"bfloat16"}};
    if (device->activation_bytes[format] < 2.0 || !choose(chooser, &wish, sheet))
        return false;
    sheet_scale(chooser, sheet);
    sheet->ideal.weight_bytes = device->weight_bytes[format];
    return true;
}

static void wish_attention(struct wish *wish, const struct attention_shape *shape)
{
    bool fp8 = shape->kv_fp8 != 0;
    wish->keys[0] =
        (struct wish_key){.column = "kv_cache_dtype", .texts = {fp8 ? "fp8" : "bfloat16", fp8 ? "bfloat16" : "fp8"}};
    if (shape->kind == ATTENTION_MLA)
        return;
    wish->keys[1] = (struct wish_key){.column = "attn_dtype", .texts = {fp8 ? "fp8" : "bfloat16", "bfloat16"}};
    wish->keys[2] = (struct wish_key){.column = "window_size", .number = shape->window};
    wish->keys[3] = (struct wish_key){.column = "head_dim", .number = shape->head_dim};
    wish->keys[4] = (struct wish_key){.column = "num_key_value_heads", .number = shape->kv_heads};
}

/* Makes a sheet of a near shape one of the shape itself. */
static void sheet_attention(const struct kernel_chooser *chooser, const struct attention_shape *shape,
                            struct kernel_sheet *sheet)
{
    struct kernel_ideal *ideal = &sheet->ideal;
    sheet_scale(chooser, sheet);
    double kv_bytes = shape->kv_fp8 ? 1.0 : 2.0;
    bool same = ideal->kv_bytes == kv_bytes;
    if (shape->kind != ATTENTION_MLA) {
        same = same && ideal->head_dim == shape->head_dim && ideal->kv_heads == shape->kv_heads &&
               ideal->window == shape->window;
        ideal->head_dim = shape->head_dim;
        ideal->kv_heads = shape->kv_heads;
        ideal->window = shape->window;
    }
    ideal->kv_bytes = kv_bytes;
    sheet->borrowed = !same;
}

static bool choose_attention(struct kernel_chooser *chooser, const struct attention_shape *shape, double heads,
                             struct wish *wish, struct kernel_sheet *sheet)
{
    wish->outer = heads;
    wish_attention(wish, shape);
    bool found = choose(chooser, wish, sheet);
    if (!found && !chooser->error.set && shape->window > 0.0 && shape->kind != ATTENTION_MLA) {
        /* No window of this size was measured: the kernel without one, on what the window leaves. */
        wish->keys[2].number = 0.0;
        found = choose(chooser, wish, sheet);
    }
    if (found)
        sheet_attention(chooser, shape, sheet);
    return found;
}

bool kernel_choose_decode_attention(struct kernel_chooser *chooser, const struct attention_shape *shape,
                                    struct kernel_sheet *sheet)
{
    struct wish wish = {.kind = shape->kind == ATTENTION_MLA ? KERNEL_GENERATION_MLA : KERNEL_GENERATION_ATTENTION};
    wish_engines(&wish, chooser->engine, order_usual);
    /* The queries of one sequence read one cache, as heads do. */
    double heads = shape->topk > 0.0 ? shape->heads : shape->heads * shape->queries;
    return choose_attention(chooser, shape, heads, &wish, sheet);
}

bool kernel_choose_prefill_attention(struct kernel_chooser *chooser, const struct attention_shape *shape,
                                     struct kernel_sheet *sheet)
{
    struct wish wish = {.kind = shape->kind == ATTENTION_MLA ? KERNEL_CONTEXT_MLA : KERNEL_CONTEXT_ATTENTION};
    wish_engines(&wish, chooser->engine, order_usual);
    if (shape->kind == ATTENTION_MLA) {
        /* SGLang's table is of the absorbed form, which prefill does not run. */
        wish.engines[0] = "trtllm";
        wish.engines[1] = "vllm";
        wish.engines[2] = NULL;
        wish.engines_only = true;
    }
    return choose_attention(chooser, shape, shape->heads, &wish, sheet);
}

bool kernel_choose_module(struct kernel_chooser *chooser, const struct attention_shape *shape,
                          enum number_format format, bool prefill, struct kernel_sheet *sheet)
{
    struct wish wish = {.outer = shape->heads, .engines_only = true, .engines = {"sglang"}};
    if (shape->topk > 0.0) {
        /* The indexer tells the two measured models apart: 64 heads of DeepSeek-V3.2, 32 of GLM-5. */
        bool deepseek = shape->index_heads >= 64.0;
        bool fp8 = shape->kv_fp8 != 0;
        bool narrow = format != FORMAT_BF16;
        wish.kind = prefill ? KERNEL_DSA_CONTEXT_MODULE : KERNEL_DSA_GENERATION_MODULE;
        wish.engines_only = false;
        wish.engines[0] = NULL;
        wish.keys[0] =
            (struct wish_key){.column = "model", .texts = {deepseek ? "deepseek-ai/DeepSeek-V3.2" : "zai-org/GLM-5"}};
        wish.keys[1] = (struct wish_key){.column = "kv_cache_dtype",
                                         .texts = {fp8 ? "fp8" : "bfloat16", fp8 ? "bfloat16" : "fp8"}};
        wish.keys[2] = (struct wish_key){.column = "gemm_type", .texts = {narrow ? "fp8_block" : "bfloat16"}};
        if (prefill)
            wish.keys[3] = (struct wish_key){.column = "step", .number = 0.0};
    } else {
        wish.kind = prefill ? KERNEL_WIDEEP_CONTEXT_MLA : KERNEL_WIDEEP_GENERATION_MLA;
        wish.keys[0] = (struct wish_key){.column = "kernel_source", .texts = {"fa3", "trtllm_mla", "flashinfer"}};
    }
    if (!choose(chooser, &wish, sheet))
        return false;
    sheet_scale(chooser, sheet);
    return true;
}

bool kernel_choose_absorbed(struct kernel_chooser *chooser, const struct attention_shape *shape, bool output,
                            struct kernel_sheet *sheet)
{
    struct wish wish = {
        .kind = KERNEL_MLA_BMM,
        .inner = shape->heads,
        .keys = {{.column = "op_name", .texts = {output ? "mla_gen_post" : "mla_gen_pre"}},
                 {.column = "bmm_dtype", .texts = {"bfloat16"}}},
    };
    wish_engines(&wish, chooser->engine, order_usual);
    if (!choose(chooser, &wish, sheet))
        return false;
    sheet_scale(chooser, sheet);
    return true;
}

bool kernel_choose_experts(struct kernel_chooser *chooser, const struct moe_shape *shape, double width, double tensor,
                           struct kernel_sheet *sheet)
{
    static const char *const formats[FORMATS][TEXTS_MAX] = {
        [FORMAT_BF16] = {"bfloat16"},
        [FORMAT_FP8] = {"fp8", "fp8_block"},
        [FORMAT_FP8_BLOCK] = {"fp8_block", "fp8"},
        [FORMAT_FP4] = {"nvfp4", "w4a8_mxfp4_mxfp8", "w4a16_mxfp4"},
        [FORMAT_INT4] = {"int4_wo", "w4a16_mxfp4"},
    };
    struct wish wish = {
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
    memcpy(wish.keys[5].texts, formats[shape->format], sizeof wish.keys[5].texts);
    /* As the engines serve DeepSeek-R1: TensorRT-LLM with experts on ranks of their own, SGLang with experts split. */
    const char *const *neutral = order_usual;
    if (shape->format == FORMAT_FP8_BLOCK && shape->expert_ranks <= 1.0)
        neutral = order_sglang;
    else if (shape->format == FORMAT_FP4 || shape->format == FORMAT_INT4)
        neutral = order_vllm;
    wish_engines(&wish, chooser->engine, neutral);
    bool blackwell = chooser->measured.fp4_flops > 0.0;
    if (blackwell && chooser->engine == ENGINE_TRTLLM && shape->format == FORMAT_FP8_BLOCK && shape->groups <= 1.0) {
        /* Its own table is DeepGEMM's, which it takes where attention is data-parallel. Else it runs the generated
         * kernels, which vLLM runs too. */
        wish.engines[0] = "vllm";
        wish.engines[1] = "trtllm";
    }
    bool found = false;
    if (shape->format == FORMAT_FP4) {
        /* A format of four bits stands for three, of which a model's shape says the one. On Blackwell engines multiply
         * mxfp4 weights with activations in eight bits. */
        wish.keys[5].any_order = true;
        struct wish whole = wish;
        for (uint32_t k = 1; k < 5; k++)
            whole.keys[k].exact = true;
        memset(whole.keys[5].texts, 0, sizeof whole.keys[5].texts);
        whole.keys[5].texts[0] = "w4a8_mxfp4_mxfp8";
        found = blackwell && choose(chooser, &whole, sheet);
    }
    if (!found && (chooser->error.set || !choose(chooser, &wish, sheet)))
        return false;
    sheet_scale(chooser, sheet);
    struct kernel_ideal *ideal = &sheet->ideal;
    sheet->borrowed = ideal->hidden != shape->hidden || ideal->width != width || ideal->active != shape->active ||
                      ideal->experts != shape->experts;
    ideal->hidden = shape->hidden;
    ideal->width = width;
    ideal->active = shape->active;
    ideal->experts = shape->experts;
    return true;
}

bool kernel_choose_wide_experts(struct kernel_chooser *chooser, const struct moe_shape *shape, double width,
                                double redundant, bool prefill, struct kernel_sheet *sheet)
{
    static const char *const formats[FORMATS][TEXTS_MAX] = {
        [FORMAT_BF16] = {"bfloat16"}, [FORMAT_FP8] = {"fp8_block", "fp8"}, [FORMAT_FP8_BLOCK] = {"fp8_block", "fp8"},
        [FORMAT_FP4] = {"nvfp4"},     [FORMAT_INT4] = {"int4_wo"},
    };
    /* TensorRT-LLM's experts in fp4 and where it is the engine, else those behind DeepEP. Copies of what most tokens
     * choose balance the ranks: SGLang's table has no balancer, but even routing. */
    bool trtllm = chooser->engine == ENGINE_TRTLLM || shape->format == FORMAT_FP4;
    bool balanced = redundant > 0.0;
    struct wish wish = {
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
    memcpy(wish.keys[5].texts, formats[shape->format], sizeof wish.keys[5].texts);
    if (balanced)
        wish.keys[0].texts[0] = "uniform";
    if (trtllm) {
        wish.kind = KERNEL_WIDEEP_MOE;
        wish.engines[0] = "trtllm";
        wish.keys[0].texts[0] = balanced ? "power_law_1.2_eplb" : "power_law_1.2";
        wish.keys[0].texts[1] = balanced ? "power_law_1.01_eplb" : "power_law_1.01";
        wish.keys[0].texts[2] = NULL;
        wish.keys[6] = (struct wish_key){.column = "num_slots", .number = shape->experts + redundant};
    }
    if (!choose(chooser, &wish, sheet))
        return false;
    sheet_scale(chooser, sheet);
    struct kernel_ideal *ideal = &sheet->ideal;
    sheet->borrowed = ideal->hidden != shape->hidden || ideal->width != width || ideal->active != shape->active ||
                      ideal->experts != shape->experts;
    ideal->hidden = shape->hidden;
    ideal->width = width;
    ideal->active = shape->active;
    ideal->experts = shape->experts;
    return true;
}

/* Makes a sheet of an exchange one of the model's own: its bytes grow as its tokens do. */
static void sheet_exchange(const struct exchange_shape *shape, struct kernel_sheet *sheet)
{
    sheet->borrowed = sheet->ideal.hidden != shape->hidden || sheet->ideal.active != shape->active;
    sheet->ideal.hidden = shape->hidden;
    sheet->ideal.active = shape->active;
}

bool kernel_choose_deepep(struct kernel_chooser *chooser, const struct exchange_shape *shape, double experts,
                          double nodes, bool prefill, const char *phase, struct kernel_sheet *sheet)
{
    struct wish wish = {
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
        wish.keys[4].column = NULL;
    if (!choose(chooser, &wish, sheet))
        return false;
    sheet_exchange(shape, sheet);
    return true;
}

bool kernel_choose_alltoall(struct kernel_chooser *chooser, const struct exchange_shape *shape, double experts,
                            enum number_format format, const char *phase, struct kernel_sheet *sheet)
{
    static const char *const formats[FORMATS] = {[FORMAT_BF16] = "bfloat16",
                                                 [FORMAT_FP8] = "fp8",
                                                 [FORMAT_FP8_BLOCK] = "fp8",
                                                 [FORMAT_FP4] = "nvfp4",
                                                 [FORMAT_INT4] = "bfloat16"};
    struct wish wish = {
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
    if (!choose(chooser, &wish, sheet))
        return false;
    sheet_exchange(shape, sheet);
    return true;
}

bool kernel_choose_all_reduce(struct kernel_chooser *chooser, double ranks, struct kernel_sheet *sheet)
{
    struct wish wish = {.kind = KERNEL_ALL_REDUCE, .inner = ranks};
    wish_engines(&wish, chooser->engine, order_sglang);
    return choose(chooser, &wish, sheet);
}

bool kernel_choose_nccl(struct kernel_chooser *chooser, const char *collective, double ranks,
                        struct kernel_sheet *sheet)
{
    struct wish wish = {
        .kind = KERNEL_NCCL,
        .inner = ranks,
        .engines = {"nccl"},
        .keys = {{.column = "op_name", .texts = {collective}}, {.column = "nccl_dtype", .texts = {"half"}}},
    };
    return choose(chooser, &wish, sheet);
}
