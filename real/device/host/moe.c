/* Routed experts of the host device, spread over the ranks of a stage.
 *
 * Every rank sees the rows of all groups, routes all of them alike, and computes its experts' (or its slices of
 * experts') outputs; then all outputs are gathered, and each group adds up those of its own rows: slices of an expert
 * by bisection, experts in the order of their rank among the chosen. Rows go in tiles, which bounds the memory and
 * changes no sum.
 */
#include "real/device/host/host_device.h"

#include "base/arith.h"
#include "real/device/host/linear.h"
#include "real/device/kernels/topk.h"

#include <stdlib.h>
#include <string.h>

#define TILE_ROWS 32

/* One row's use of one expert: k-th choice of row r of the tile is pair r * active + k. */
struct pair {
    uint32_t expert;
    uint32_t index; /* among the pairs of its expert's set */
    float weight;
};

struct host_moe {
    struct pair *pairs;     /* [TILE_ROWS * active] */
    float *router;          /* [TILE_ROWS][experts] */
    float *inputs;          /* [TILE_ROWS][hidden]: rows of one expert */
    float *outputs;         /* [TILE_ROWS][hidden] */
    float *mine;            /* [TILE_ROWS * active][hidden]: outputs of this rank, by index in its set */
    float *gathered;        /* [TILE_ROWS * active * slices][hidden]: those of all ranks; NULL with one */
    uint32_t *chosen_pairs; /* [TILE_ROWS * active]: of one expert */
    size_t *starts;         /* [ranks of the stage]: where a rank's outputs begin in `gathered`, in floats */
};

/* The large ones: inputs, outputs, and outputs of all. */
uint64_t host_moe_bytes(const struct host_device *device)
{
    const struct architecture *a = &device->architecture;
    uint64_t pairs = (uint64_t)TILE_ROWS * a->experts_active;
    uint64_t gathered = device->shape.stage_ranks == 1 ? 0 : pairs * device->shape.expert_slices;
    return ((2 * (uint64_t)TILE_ROWS + pairs + gathered) * a->hidden + (uint64_t)TILE_ROWS * a->experts) *
           sizeof(float);
}

struct host_moe *host_moe_make(const struct host_device *device)
{
    const struct architecture *a = &device->architecture;
    const struct host_shape *shape = &device->shape;
    size_t pairs = (size_t)TILE_ROWS * a->experts_active;
    struct host_moe *moe = calloc(1, sizeof *moe);
    if (moe == NULL)
        return NULL;
    bool alone = shape->stage_ranks == 1;
    moe->pairs = calloc(pairs, sizeof *moe->pairs);
    moe->router = calloc((size_t)TILE_ROWS * a->experts, sizeof(float));
    moe->inputs = calloc((size_t)TILE_ROWS * a->hidden, sizeof(float));
    moe->outputs = calloc((size_t)TILE_ROWS * a->hidden, sizeof(float));
    moe->mine = calloc(pairs * a->hidden, sizeof(float));
    moe->gathered = alone ? NULL : calloc(pairs * shape->expert_slices * a->hidden, sizeof(float));
    moe->chosen_pairs = calloc(pairs, sizeof *moe->chosen_pairs);
    moe->starts = calloc(shape->stage_ranks, sizeof *moe->starts);
    if (moe->pairs == NULL || moe->router == NULL || moe->inputs == NULL || moe->outputs == NULL || moe->mine == NULL ||
        (moe->gathered == NULL && !alone) || moe->chosen_pairs == NULL || moe->starts == NULL) {
        host_moe_free(moe);
        return NULL;
    }
    return moe;
}

void host_moe_free(struct host_moe *moe)
{
    if (moe == NULL)
        return;
    free(moe->pairs);
    free(moe->router);
    free(moe->inputs);
    free(moe->outputs);
    free(moe->mine);
    free(moe->gathered);
    free(moe->chosen_pairs);
    free(moe->starts);
    free(moe);
}

/* The best experts of one row, and their weights among themselves. */
static void choose(const float *logits, uint32_t experts, uint32_t active, struct pair *pairs)
{
    float scores[KERNEL_TOPK_MAX] = {0};
    uint32_t ids[KERNEL_TOPK_MAX] = {0};
    uint32_t count = 0;
    for (uint32_t e = 0; e < experts; e++)
        kernel_topk_offer(scores, ids, &count, active, logits[e], e);
    kernel_topk_weights(scores, count);
    for (uint32_t k = 0; k < active; k++)
        pairs[k] = (struct pair){.expert = ids[k], .weight = scores[k]};
}

/* Routes a tile, and numbers each set's pairs. Leaves what every rank contributes, in floats, in device->counts. */
static void route(struct host_device *device, const struct host_layer *layer, const float *x, uint32_t rows)
{
    const struct architecture *a = &device->architecture;
    const struct host_shape *shape = &device->shape;
    struct host_moe *moe = device->moe;
    linear_product(&(struct product){.x = x,
                                     .x_stride = a->hidden,
                                     .weights = layer->router,
                                     .y = moe->router,
                                     .y_stride = a->experts,
                                     .rows = rows,
                                     .outputs = a->experts,
                                     .units = 1,
                                     .width = a->hidden});
    memset(device->counts, 0, shape->stage_ranks * sizeof *device->counts);
    for (uint32_t r = 0; r < rows; r++)
        choose(moe->router + (size_t)r * a->experts, a->experts, a->experts_active,
               moe->pairs + (size_t)r * a->experts_active);
    for (uint32_t p = 0; p < rows * a->experts_active; p++) {
        uint32_t set = moe->pairs[p].expert / shape->experts_per_set;
        size_t *count = &device->counts[set * shape->expert_slices];
        moe->pairs[p].index = (uint32_t)(*count)++;
    }
    size_t start = 0;
    for (uint32_t rank = 0; rank < shape->stage_ranks; rank++) {
        size_t pairs = device->counts[rank / shape->expert_slices * shape->expert_slices];
        if (rank % shape->expert_slices == 0)
            pairs *= a->hidden;
        device->counts[rank] = pairs;
        moe->starts[rank] = start;
        start += pairs;
    }
}

/* moe->mine <- this rank's outputs for the tile. */
static void compute(struct host_device *device, const struct host_layer *layer, const float *x, uint32_t rows)
{
    const struct architecture *a = &device->architecture;
    const struct host_shape *shape = &device->shape;
    struct host_moe *moe = device->moe;
    size_t bytes = a->hidden * sizeof(float);
    for (uint32_t e = 0; e < shape->expert_count; e++) {
        uint32_t count = 0;
        for (uint32_t p = 0; p < rows * a->experts_active; p++) {
            if (moe->pairs[p].expert != shape->expert_first + e)
                continue;
            memcpy(moe->inputs + (size_t)count * a->hidden, x + (size_t)(p / a->experts_active) * a->hidden, bytes);
            moe->chosen_pairs[count++] = p;
        }
        host_mlp_share(device, &layer->experts[e], moe->inputs, count, moe->outputs);
        for (uint32_t i = 0; i < count; i++)
            memcpy(moe->mine + (size_t)moe->pairs[moe->chosen_pairs[i]].index * a->hidden,
                   moe->outputs + (size_t)i * a->hidden, bytes);
    }
}

/* Element i of a pair's output: its expert's slices [slice, slice + count) by bisection. */
static float slices_sum(const struct host_moe *moe, const float *outputs, uint32_t rank, uint32_t count, size_t i)
{
    if (count == 1)
        return outputs[moe->starts[rank] + i];
    return slices_sum(moe, outputs, rank, count / 2, i) +
           slices_sum(moe, outputs, rank + count / 2, count - count / 2, i);
}

/* y[hidden] += the experts' outputs for row r of the tile. */
static void combine(const struct host_device *device, const float *outputs, uint32_t r, float *y)
{
    const struct architecture *a = &device->architecture;
    const struct host_shape *shape = &device->shape;
    const struct host_moe *moe = device->moe;
    for (uint32_t k = 0; k < a->experts_active; k++) {
        const struct pair *pair = &moe->pairs[r * a->experts_active + k];
        uint32_t rank = pair->expert / shape->experts_per_set * shape->expert_slices;
        size_t at = (size_t)pair->index * a->hidden;
        for (uint32_t i = 0; i < a->hidden; i++)
            y[i] += pair->weight * slices_sum(moe, outputs, rank, shape->expert_slices, at + i);
    }
}

bool host_moe(struct host_device *device, const struct host_layer *layer)
{
    const struct host_shape *shape = &device->shape;
    const struct host_batch *batch = &device->batch;
    uint32_t hidden = device->architecture.hidden;
    const float *x = device->normed;
    if (shape->data > 1) {
        for (uint32_t rank = 0; rank < shape->stage_ranks; rank++)
            device->counts[rank] =
                rank % shape->tensor == 0 ? (size_t)batch->group_rows[rank / shape->tensor] * hidden : 0;
        if (!collective_all_gather_counts(device->config.collective, shape->stage_first, shape->stage_ranks,
                                          device->normed, device->counts, device->rows_all))
            return false;
        x = device->rows_all;
    }
    for (uint32_t done = 0; done < batch->rows_all; done += TILE_ROWS) {
        uint32_t rows = min_u32(TILE_ROWS, batch->rows_all - done);
        const float *outputs = device->moe->mine;
        route(device, layer, x + (size_t)done * hidden, rows);
        compute(device, layer, x + (size_t)done * hidden, rows);
        if (shape->stage_ranks > 1) {
            if (!collective_all_gather_counts(device->config.collective, shape->stage_first, shape->stage_ranks,
                                              device->moe->mine, device->counts, device->moe->gathered))
                return false;
            outputs = device->moe->gathered;
        }
        for (uint32_t r = 0; r < rows; r++)
            if (done + r >= batch->row_before && done + r < batch->row_before + batch->rows)
                combine(device, outputs, r, device->partial + (size_t)(done + r - batch->row_before) * hidden);
    }
    return true;
}
