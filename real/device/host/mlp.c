/* The MLP half of a layer on the host device: dense, or a mixture of experts with shared ones. */
#include "real/device/host/host_device.h"

#include "base/arith.h"
#include "real/device/host/linear.h"

#include <string.h>

void host_mlp_share(struct host_device *device, const struct host_mlp *mlp, const float *x, uint32_t rows, float *y)
{
    uint32_t hidden = device->architecture.hidden;
    uint32_t columns = mlp->units * mlp->width;
    for (uint32_t done = 0; done < rows; done += HOST_MLP_ROWS) {
        uint32_t tile = min_u32(HOST_MLP_ROWS, rows - done);
        struct product up = {.x = x + (size_t)done * hidden,
                             .x_stride = hidden,
                             .weights = mlp->gate,
                             .y = device->gate,
                             .y_stride = columns,
                             .rows = tile,
                             .outputs = columns,
                             .units = 1,
                             .width = hidden};
        linear_product(&up);
        up.weights = mlp->up;
        up.y = device->up;
        linear_product(&up);
        linear_swiglu(device->gate, device->up, (size_t)tile * columns);
        linear_product(&(struct product){.x = device->gate,
                                         .x_stride = columns,
                                         .weights = mlp->down,
                                         .y = y + (size_t)done * hidden,
                                         .y_stride = hidden,
                                         .rows = tile,
                                         .outputs = hidden,
                                         .units = mlp->units,
                                         .width = mlp->width});
    }
}

/* partial <- the whole output of an MLP that the group shares. */
static bool shared_by_group(struct host_device *device, const struct host_mlp *mlp)
{
    const struct host_shape *shape = &device->shape;
    host_mlp_share(device, mlp, device->normed, device->batch.rows, device->partial);
    return collective_all_reduce(device->config.collective, shape->group_first, shape->tensor, device->partial,
                                 (size_t)device->batch.rows * device->architecture.hidden);
}

bool host_mlp_layer(struct host_device *device, uint32_t layer)
{
    const struct architecture *a = &device->architecture;
    const struct host_layer *weights = &device->weights.layers[layer - device->shape.layer_first];
    size_t floats = (size_t)device->batch.rows * a->hidden;
    for (size_t row = 0; row < device->batch.rows; row++)
        linear_rms_norm(device->x + row * a->hidden, weights->norm_mlp, device->normed + row * a->hidden, a->hidden);
    if (!host_layer_sparse(a, layer)) {
        if (!shared_by_group(device, &weights->dense))
            return false;
    } else {
        if (a->shared_experts == 0)
            memset(device->partial, 0, floats * sizeof *device->partial);
        else if (!shared_by_group(device, &weights->shared))
            return false;
        if (!host_moe(device, weights))
            return false;
    }
    linear_add(device->x, device->partial, floats);
    return true;
}
