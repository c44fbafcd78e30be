/* A rank's KV memory on a GPU in the process of its instance. See real/device/device_reach.h. */
#include "real/device/cuda/cuda_device.h"
#include "real/device/cuda/cuda_memory.h"
#include "real/device/cuda/cuda_staging.h"

#include "base/check.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

struct cuda_reach {
    struct device_reach reach; /* first: it is what others hold */
    struct cuda_driver driver;
    struct cuda_memory memory;
    struct cuda_staging *staging;
};

static struct cuda_reach *of(struct device_reach *reach)
{
    return (struct cuda_reach *)(void *)reach;
}

static void reach_free(struct device_reach *reach)
{
    struct cuda_reach *self = of(reach);
    cudaSetDevice(reach->ordinal);
    cuda_staging_free(self->staging);
    cuda_memory_free(&self->memory);
    free(self);
}

static bool reach_read(struct device_reach *reach, uint64_t offset, void *to, size_t bytes)
{
    return cudaSetDevice(reach->ordinal) == cudaSuccess &&
           cudaMemcpy(to, (const uint8_t *)reach->address + offset, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
}

static bool reach_write(struct device_reach *reach, uint64_t offset, const void *from, size_t bytes)
{
    return cudaSetDevice(reach->ordinal) == cudaSuccess &&
           cudaMemcpy((uint8_t *)reach->address + offset, from, bytes, cudaMemcpyHostToDevice) == cudaSuccess &&
           cudaDeviceSynchronize() == cudaSuccess;
}

static void *reach_stage(struct device_reach *reach, size_t host_bytes, uint32_t batches, uint32_t pieces,
                         struct user_error *error)
{
    struct cuda_reach *self = of(reach);
    CHECK(self->staging == NULL);
    self->staging = cuda_staging_make(reach->ordinal, reach->address, host_bytes, batches, pieces, error);
    return self->staging == NULL ? NULL : cuda_staging_host(self->staging);
}

static bool reach_submit(struct device_reach *reach, enum device_reach_direction direction,
                         const struct device_reach_piece *pieces, uint32_t count)
{
    return cuda_staging_submit(of(reach)->staging, direction, pieces, count);
}

static uint64_t reach_done(struct device_reach *reach)
{
    struct user_error error = {.set = false};
    uint64_t done = cuda_staging_done(of(reach)->staging);
    if (cuda_staging_healthy(of(reach)->staging, &error))
        return done;
    fprintf(stderr, "GPU %d: %s\n", reach->ordinal, error.text);
    return UINT64_MAX;
}

static struct device_reach_statistics reach_statistics(const struct device_reach *reach)
{
    const struct cuda_reach *self = (const struct cuda_reach *)(const void *)reach;
    return self->staging == NULL ? (struct device_reach_statistics){0} : cuda_staging_statistics(self->staging);
}

struct device_reach *cuda_reach_make(const struct device_reach_config *config, struct user_error *error)
{
    static const struct device_reach_ops ops = {
        .free = reach_free,
        .read = reach_read,
        .write = reach_write,
        .stage = reach_stage,
        .submit = reach_submit,
        .done = reach_done,
        .statistics = reach_statistics,
    };
    struct cuda_reach *self = calloc(1, sizeof *self);
    if (self == NULL) {
        user_error_set(error, NULL, 0, NULL, "no memory");
        return NULL;
    }
    int ordinal = cuda_device_ordinal(config->number);
    cudaError_t status = cudaSuccess;
    if (!cuda_driver_load(&self->driver, error) || (status = cudaSetDevice(ordinal)) != cudaSuccess ||
        !cuda_memory_import(&self->memory, &self->driver, ordinal, config->descriptor, config->bytes, error)) {
        if (status != cudaSuccess)
            user_error_set(error, NULL, 0, NULL, "GPU %d cannot be used: %s", ordinal, cudaGetErrorString(status));
        free(self);
        return NULL;
    }
    self->reach = (struct device_reach){
        .ops = &ops, .address = cuda_memory_pointer(&self->memory), .kind = DEVICE_REACH_CUDA, .ordinal = ordinal};
    if (cudaDeviceGetPCIBusId(self->reach.pci, (int)sizeof self->reach.pci, ordinal) != cudaSuccess)
        self->reach.pci[0] = '\0';
    return &self->reach;
}
