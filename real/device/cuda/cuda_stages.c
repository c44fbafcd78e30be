/* Pipeline stages on GPUs: the residual stream goes from stage to stage, and the tokens to all, through pinned memory
 * and the host's collective. Stages of a step follow one another; the scheduler keeps them busy with steps of other
 * groups no more than the host device does.
 */
#include "real/device/cuda/cuda_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cuda_stages_make(struct device *device, struct user_error *error)
{
    const struct cuda_shape *shape = &device->shape;
    size_t floats = (size_t)device->rows_max * device->architecture.hidden;
    if (shape->stages == 1)
        return true;
    cudaError_t status = cudaHostAlloc((void **)&device->stage_x, floats * sizeof(float), cudaHostAllocDefault);
    device->stage_all = malloc(shape->data * floats * sizeof(float));
    device->stage_counts = calloc(shape->ranks, 2 * sizeof(float));
    device->gather = calloc(shape->ranks, sizeof *device->gather);
    if (status == cudaSuccess && device->stage_all != NULL && device->stage_counts != NULL && device->gather != NULL)
        return true;
    user_error_set(error, NULL, 0, NULL, "no memory for what pipeline stages hand on");
    return false;
}

void cuda_stages_free(struct device *device)
{
    cudaFreeHost(device->stage_x);
    free(device->stage_all);
    free(device->stage_counts);
    free(device->gather);
}

/* Counts are below 2^24: exact as floats. */
bool cuda_stages_count(struct device *device, const struct cuda_step *step)
{
    const struct cuda_shape *shape = &device->shape;
    const float mine[2] = {(float)step->rows, (float)step->samples};
    return collective_all_gather(device->config.collective, 0, shape->ranks, mine, 2, device->stage_counts);
}

/* What the leads of `stage` contribute: `each` floats for every row (0) or sample (1) of their groups. Returns where
 * this rank's group begins. */
static size_t lead_counts(struct device *device, uint32_t stage, uint32_t which, size_t each)
{
    const struct cuda_shape *shape = &device->shape;
    size_t before = 0;
    for (uint32_t rank = 0; rank < shape->ranks; rank++) {
        bool lead = rank / (shape->data * shape->tensor) == stage && rank % shape->tensor == 0;
        device->gather[rank] = lead ? (size_t)device->stage_counts[2 * rank + which] * each : 0;
        if (lead && rank / shape->tensor % shape->data < shape->group)
            before += device->gather[rank];
    }
    return before;
}

static size_t own_count(const struct device *device, uint32_t which)
{
    return (size_t)device->stage_counts[2 * device->config.rank + which];
}

bool cuda_stages_hand_over(struct device *device, uint32_t stage)
{
    const struct cuda_shape *shape = &device->shape;
    size_t hidden = device->architecture.hidden;
    size_t before = lead_counts(device, stage, 0, hidden);
    if (!collective_all_gather_counts(device->config.collective, 0, shape->ranks, device->stage_x, device->gather,
                                      device->stage_all))
        return false;
    if (stage + 1 == shape->stage)
        memcpy(device->stage_x, device->stage_all + before, own_count(device, 0) * hidden * sizeof(float));
    return true;
}

/* Tokens travel as floats of the same bits. */
bool cuda_stages_samples(struct device *device)
{
    const struct cuda_shape *shape = &device->shape;
    size_t before = lead_counts(device, shape->stages - 1, 1, 1);
    const float *mine = (const float *)(const void *)device->sampled_host;
    if (!collective_all_gather_counts(device->config.collective, 0, shape->ranks, mine, device->gather,
                                      device->stage_all))
        return false;
    memcpy(device->sampled_host, device->stage_all + before, own_count(device, 1) * sizeof(float));
    return true;
}
