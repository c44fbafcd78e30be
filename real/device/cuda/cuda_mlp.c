/* The MLP half of a layer: a dense SwiGLU, or routed experts and shared ones. */
#include "real/device/cuda/cuda_internal.h"

static void swiglu_mlp(struct device *device, uint32_t rows, const uint16_t *gate_up, const uint16_t *down, uint32_t n)
{
    uint32_t hidden = device->architecture.hidden;
    struct cuda_buffers *b = &device->buffers;
    cuda_product(device, b->h, gate_up, b->wide, rows, 2 * n, hidden);
    struct cuda_swiglu swiglu = {.in = b->wide, .out = b->act, .n = n};
    cuda_swiglu(&swiglu, rows, device->stream);
    cuda_product(device, b->act, down, b->y, rows, hidden, n);
}

static void route(struct device *device, const struct cuda_step *step, const struct cuda_layer *w)
{
    const struct architecture *a = &device->architecture;
    const struct cuda_shape *s = &device->shape;
    struct cuda_buffers *b = &device->buffers;
    cuda_product(device, b->h, w->router, b->router, step->rows, a->experts, a->hidden);
    struct cuda_route choose = {.rows = {.sequence = device->arrays.sequence},
                                .logits = b->router,
                                .choice = b->choice,
                                .weight = b->weight,
                                .experts = a->experts,
                                .active = a->experts_active};
    cuda_route(&choose, step->rows, device->stream);
    struct cuda_place place = {.choice = b->choice,
                               .count = b->expert_count,
                               .first = b->expert_first,
                               .slot_row = b->slot_row,
                               .pair_slot = b->pair_slot,
                               .pairs = step->rows * a->experts_active,
                               .expert_first = s->expert_first,
                               .experts = s->experts,
                               .active = a->experts_active};
    cuda_place(&place, device->stream);
    struct cuda_gather gather = {.in = b->h,
                                 .out = b->expert_in,
                                 .slot_row = b->slot_row,
                                 .limit = b->expert_first + s->experts,
                                 .n = a->hidden};
    cuda_gather(&gather, step->rows * a->experts_active, device->stream);
}

/* Few rows an expert: sizes stay on the device. */
static void experts_few(struct device *device, const struct cuda_step *step, const struct cuda_layer *w)
{
    const struct architecture *a = &device->architecture;
    const struct cuda_shape *s = &device->shape;
    struct cuda_buffers *b = &device->buffers;
    struct cuda_expert_product up = {.weights = w->expert_gate_up,
                                     .in = b->expert_in,
                                     .first = b->expert_first,
                                     .out = b->expert_wide,
                                     .outputs = 2 * s->expert,
                                     .inputs = a->hidden};
    cuda_expert_product(&up, s->experts, device->stream);
    struct cuda_swiglu swiglu = {
        .in = b->expert_wide, .out = b->expert_act, .limit = b->expert_first + s->experts, .n = s->expert};
    cuda_swiglu(&swiglu, step->rows * a->experts_active, device->stream);
    struct cuda_expert_product down = {.weights = w->expert_down,
                                       .in = b->expert_act,
                                       .first = b->expert_first,
                                       .out = b->expert_out,
                                       .outputs = a->hidden,
                                       .inputs = s->expert};
    cuda_expert_product(&down, s->experts, device->stream);
}

/* Many rows an expert: the host reads the sizes, and cuBLAS multiplies expert by expert. */
static void experts_many(struct device *device, const struct cuda_layer *w)
{
    const struct architecture *a = &device->architecture;
    const struct cuda_shape *s = &device->shape;
    struct cuda_buffers *b = &device->buffers;
    uint32_t *first = device->expert_first_host;
    cuda_note(device, cudaMemcpyAsync(first, b->expert_first, (s->experts + 1) * sizeof *first, cudaMemcpyDeviceToHost,
                                      device->stream));
    cuda_note(device, cudaStreamSynchronize(device->stream));
    if (device->failure != cudaSuccess)
        return;
    for (uint32_t e = 0; e < s->experts; e++) {
        uint32_t rows = first[e + 1] - first[e];
        if (rows == 0)
            continue;
        float *wide = b->expert_wide + (size_t)first[e] * 2 * s->expert;
        uint16_t *act = b->expert_act + (size_t)first[e] * s->expert;
        cuda_product(device, b->expert_in + (size_t)first[e] * a->hidden,
                     w->expert_gate_up + (size_t)e * 2 * s->expert * a->hidden, wide, rows, 2 * s->expert, a->hidden);
        struct cuda_swiglu swiglu = {.in = wide, .out = act, .n = s->expert};
        cuda_swiglu(&swiglu, rows, device->stream);
        cuda_product(device, act, w->expert_down + (size_t)e * a->hidden * s->expert,
                     b->expert_out + (size_t)first[e] * a->hidden, rows, a->hidden, s->expert);
    }
}

void cuda_layer_mlp(struct device *device, const struct cuda_step *step, uint32_t layer)
{
    const struct architecture *a = &device->architecture;
    const struct cuda_shape *s = &device->shape;
    const struct cuda_layer *w = &device->weights.layers[layer];
    struct cuda_buffers *b = &device->buffers;
    if (!cuda_layer_sparse(a, s->layer_first + layer)) {
        swiglu_mlp(device, step->rows, w->gate_up, w->down, s->dense);
        return;
    }
    if (s->shared > 0)
        swiglu_mlp(device, step->rows, w->shared_gate_up, w->shared_down, s->shared);
    else
        cuda_note(device, cudaMemsetAsync(b->y, 0, (size_t)step->rows * a->hidden * sizeof *b->y, device->stream));
    if (s->experts == 0)
        return;
    route(device, step, w);
    /* A graph cannot ask the host for sizes. */
    if (step->graph || step->rows * a->experts_active <= CUDA_EXPERT_SLOTS_FEW * a->experts)
        experts_few(device, step, w);
    else
        experts_many(device, w);
    struct cuda_combine combine = {.in = b->expert_out,
                                   .pair_slot = b->pair_slot,
                                   .weight = b->weight,
                                   .y = b->y,
                                   .n = a->hidden,
                                   .active = a->experts_active};
    cuda_combine(&combine, step->rows, device->stream);
}
