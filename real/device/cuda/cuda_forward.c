/* What a stage of a step computes, queued on the device's stream; the same calls run at once or are captured into a
 * graph. Stages after the first find the residual stream in x. */
#include "real/device/cuda/cuda_internal.h"

static void norm(struct device *device, const struct cuda_step *step, const float *add, const float *gain)
{
    struct cuda_norm arguments = {.x = device->buffers.x,
                                  .add = add,
                                  .gain = gain,
                                  .out = device->buffers.h,
                                  .n = device->architecture.hidden,
                                  .x_stride = device->architecture.hidden};
    cuda_norm(&arguments, step->rows, device->stream);
}

static void tick(struct device *device, uint32_t layer)
{
    if (device->counter == NULL)
        return;
    struct cuda_tick arguments = {.counter = device->counter,
                                  .base = device->buffers.counter_base,
                                  .ticks = device->shape.layer_first + layer + 1};
    cuda_tick(&arguments, device->stream);
}

static void sample(struct device *device, const struct cuda_step *step)
{
    const struct architecture *a = &device->architecture;
    struct cuda_buffers *b = &device->buffers;
    struct cuda_norm last = {.x = b->x,
                             .add = b->y,
                             .gain = device->weights.norm_final,
                             .select = step->graph ? NULL : device->arrays.select,
                             .out = b->h,
                             .sum = b->hidden,
                             .n = a->hidden,
                             .x_stride = a->hidden};
    cuda_norm(&last, step->samples, device->stream);
    cuda_product(device, b->h, device->weights.lm_head, b->logits, step->samples, a->vocab, a->hidden);
    struct cuda_sample greedy = {.rows = {.token = device->arrays.token,
                                          .position = device->arrays.position,
                                          .sequence = device->arrays.sequence},
                                 .logits = b->logits,
                                 .sampled = b->sampled,
                                 .vocab = a->vocab,
                                 .advance = step->graph};
    cuda_sample(&greedy, step->samples, device->stream);
}

void cuda_forward(struct device *device, const struct cuda_step *step)
{
    const struct architecture *a = &device->architecture;
    struct cuda_buffers *b = &device->buffers;
    struct cuda_embed embed = {.rows = {.token = device->arrays.token},
                               .x = b->x,
                               .matrix = device->embedding,
                               .hidden = a->hidden,
                               .scale = device->embedding_scale};
    if (device->shape.stage == 0)
        cuda_embed(&embed, step->rows, device->stream);
    for (uint32_t layer = 0; layer < device->shape.layers; layer++) {
        norm(device, step, layer == 0 ? NULL : b->y, device->weights.layers[layer].norm_attention);
        cuda_layer_attention(device, step, layer);
        cuda_reduce(device, step);
        tick(device, layer);
        norm(device, step, b->y, device->weights.layers[layer].norm_mlp);
        cuda_layer_mlp(device, step, layer);
        cuda_reduce(device, step);
    }
    if (!device->shape.last_stage)
        cuda_add(b->x, b->y, (uint64_t)step->rows * a->hidden, device->stream);
    else if (step->samples > 0)
        sample(device, step);
    cuda_note(device, cudaGetLastError());
}
