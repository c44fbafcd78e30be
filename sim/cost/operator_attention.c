/* Attention kernels. Decode reads the cache once and is bound by bandwidth for grouped-query attention; with one latent
 * shared by all heads it has tens of operations a byte and is bound by compute at many heads a rank. */
#include "sim/cost/operators.h"

static struct operator_time of_slice(const struct kernel_slice *slice, double ns, enum step_bound bound,
                                     enum estimate estimate)
{
    double floor = slice->roofline.floor_ns;
    return (struct operator_time){
        .ns = ns, .launch_ns = ns < floor ? ns : floor, .bound = bound, .estimate = estimate, .source = slice->source};
}

/* Work that no table knows: of sparse attention, the indexer's products, in fp8, and its reading of one key a token. */
static double index_ns(const struct device *device, const struct attention_shape *shape, double pairs, double read)
{
    double fp8 = device->flops_per_ns[FORMAT_FP8];
    double compute = 2.0 * pairs * shape->index_heads * shape->index_dim / fp8;
    double memory = read * shape->index_dim / device->bytes_per_ns;
    return compute > memory ? compute : memory;
}

/* A step reads the cached tokens and the new one: the axis counts the former. */
static struct operator_time decode_measured(const struct kernel_slice *slice, double sequences, double length,
                                            enum step_bound bound)
{
    enum estimate estimate;
    double ns = kernel_slice_ns(slice, sequences, length > 2.0 ? length - 1.0 : 1.0, &estimate);
    return of_slice(slice, ns, bound, estimate);
}

/* Kernels work on tiles of queries: sequences shorter than one cost as much as a whole one each, which is more than
 * the pairs of their tokens say. Steps of nothing but such prompts are not served. */
#define TILE 128.0

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static struct operator_time prefill_measured(const struct kernel_slice *slice, double tokens, double pairs)
{
    enum estimate estimate;
    double keys = pairs / tokens; /* a token sees on average */
    double alone = (tokens + 1.0) * 0.5;
    if (keys < alone) {
        double length = larger(2.0 * keys - 1.0, tokens < TILE ? tokens : TILE);
        double ns = kernel_slice_ns(slice, tokens / length, length, &estimate);
        return of_slice(slice, ns, BOUND_COMPUTE, estimate);
    }
    double cached = keys - alone;
    double ns = kernel_slice_ns(slice, 1.0, cached + tokens, &estimate);
    if (cached >= 1.0) {
        enum estimate before;
        double floor = slice->roofline.floor_ns;
        double more = ns - kernel_slice_ns(slice, 1.0, cached, &before);
        ns = more > 0.0 ? floor + more : floor;
        estimate = estimate == ESTIMATE_MODELLED ? estimate : ESTIMATE_INTERPOLATED;
    }
    return of_slice(slice, ns, BOUND_COMPUTE, estimate);
}

struct operator_time decode_attention_time(const struct device *device, const struct attention_shape *shape,
                                           double sequences, double context)
{
    double element_bytes = shape->kv_fp8 ? 1.0 : 2.0;
    double bf16 = device->flops_per_ns[FORMAT_BF16];
    double length = context / sequences;
    double heads = shape->heads * shape->queries;
    double index = 0.0;
    if (shape->module) {
        struct operator_time time = decode_measured(shape->decode, sequences * shape->queries, length, BOUND_BANDWIDTH);
        time.ns -= shape->launches_ns < time.ns ? shape->launches_ns : 0.0;
        time.launch_ns = 0.0;
        return time;
    }
    if (shape->window > 0 && length > shape->window)
        length = shape->window;
    if (shape->topk > 0.0) {
        /* Every query reads tokens of its own choice. */
        index = index_ns(device, shape, context * shape->queries, context);
        length = length > shape->topk ? shape->topk : length;
        heads = shape->heads;
        sequences *= shape->queries;
    }
    double read = length * sequences;
    const struct efficiency_grid *grid;
    double memory;
    double compute;
    double efficiency;
    if (shape->kind == ATTENTION_MLA) {
        double latent = shape->latent_dim + shape->rope_dim;
        grid = device->tables->mla_decode[shape->kv_fp8];
        memory = read * latent * element_bytes / device->bytes_per_ns;
        compute = 2.0 * read * heads * (latent + shape->latent_dim) / bf16;
        efficiency = grid_efficiency(grid, sequences, length, heads);
    } else {
        grid = device->tables->decode_attention[shape->kv_fp8];
        memory = 2.0 * read * shape->kv_heads * shape->head_dim * element_bytes / device->bytes_per_ns;
        compute = 4.0 * read * heads * shape->head_dim / bf16;
        efficiency = grid_efficiency(grid, sequences * shape->kv_heads, length, 1.0);
    }
    bool compute_bound = compute > memory;
    if (shape->decode != NULL) {
        bool cut = shape->decode->borrowed || shape->topk > 0.0;
        struct operator_time time = decode_measured(shape->decode, sequences, cut ? length : context / sequences,
                                                    compute_bound ? BOUND_COMPUTE : BOUND_BANDWIDTH);
        time.ns += index;
        return time;
    }
    return (struct operator_time){
        .ns = (double)grid->launch_ns + index + (compute_bound ? compute : memory) / efficiency,
        .launch_ns = (double)grid->launch_ns,
        .bound = compute_bound ? BOUND_COMPUTE : BOUND_BANDWIDTH,
        .estimate = ESTIMATE_MODELLED,
        .source = grid->source,
    };
}

struct operator_time prefill_attention_time(const struct device *device, const struct attention_shape *shape,
                                            double tokens, double pairs)
{
    if (shape->prefill != NULL) /* of a module: as measured, projections and all */
        return prefill_measured(shape->prefill, tokens, pairs);
    bool latent = shape->kind == ATTENTION_MLA;
    const struct prefill_fit *fit =
        latent ? device->tables->mla_prefill[shape->kv_fp8] : device->tables->prefill_attention[shape->kv_fp8];
    double per_pair = latent ? 2.0 * shape->heads * (shape->nope_dim + shape->rope_dim + shape->value_dim)
                             : 4.0 * shape->heads * shape->head_dim;
    double index = 0.0;
    if (shape->topk > 0.0) {
        index = index_ns(device, shape, pairs, 0.0);
        per_pair = 2.0 * shape->heads * (2.0 * shape->latent_dim + shape->rope_dim);
        pairs = pairs > tokens * shape->topk ? tokens * shape->topk : pairs;
    }
    if (shape->window > 0 && pairs > tokens * shape->window)
        pairs = tokens * shape->window;
    double work = (pairs * fit->pair + tokens * fit->token) * per_pair;
    return (struct operator_time){
        .ns = (double)fit->launch_ns + index + work / device->flops_per_ns[FORMAT_BF16],
        .launch_ns = (double)fit->launch_ns,
        .bound = BOUND_COMPUTE,
        .estimate = ESTIMATE_MODELLED,
        .source = fit->source,
    };
}
