/* Sums over the ranks of a group: in one kernel over the memory of all of them where every rank has a GPU of its own
 * that reaches the others', else through pinned memory and the host's collective. Ranks that share a GPU are of
 * different processes: their kernels take turns of milliseconds there, and one that waits for another's flag would wait
 * for its turn.
 */
#include "real/device/cuda/cuda_internal.h"

#include "base/arith.h"
#include "base/check.h"

#include <stdio.h>

/* Floats of a buffer: longer sums go in pieces. 4 MiB keep eight GPUs' links busy. */
#define CAPACITY_MAX ((uint64_t)1 << 20)

static bool counts_fit(uint32_t ranks)
{
    return ranks > 1 && ranks <= CUDA_PEERS_MAX && (ranks & (ranks - 1)) == 0;
}

/* Every rank of the group looks at its own GPU against those of the others. */
static bool reaches_all(const struct device *device)
{
    const struct cuda_shape *shape = &device->shape;
    for (uint32_t t = 0; t < shape->tensor; t++) {
        int reaches = 0;
        int other = cuda_device_ordinal(device->config.device_first + shape->group_first + t);
        if (t == shape->t)
            continue;
        if (other == device->ordinal)
            return false;
        if (cudaDeviceCanAccessPeer(&reaches, device->ordinal, other) != cudaSuccess || reaches == 0)
            return false;
    }
    return true;
}

bool cuda_peers_make(struct device *device, struct user_error *error)
{
    struct cuda_peers *peers = &device->peers;
    if (!counts_fit(device->shape.tensor) || !reaches_all(device))
        return true;
    peers->capacity = min_u64(CAPACITY_MAX, (uint64_t)device->rows_max * device->architecture.hidden);
    size_t bytes = CUDA_PEER_FLAGS_BYTES + 2 * peers->capacity * sizeof(float);
    if (!cuda_memory_make(&peers->own, &device->driver, device->ordinal, bytes, error))
        return false;
    cudaError_t status = cudaMalloc((void **)&peers->sequence, CUDA_PEER_BLOCKS * sizeof *peers->sequence);
    if (status == cudaSuccess)
        status = cudaMemset(peers->sequence, 0, CUDA_PEER_BLOCKS * sizeof *peers->sequence);
    void *mapped = NULL;
    if (status == cudaSuccess && device->config.abandon != NULL)
        status = cuda_map_word((uintptr_t)device->config.abandon, &peers->abandon_registered, &mapped);
    peers->abandon = mapped;
    if (status != cudaSuccess)
        user_error_set(error, NULL, 0, NULL, "the ranks' GPUs cannot add up in each other's memory: %s",
                       cudaGetErrorString(status));
    peers->possible = status == cudaSuccess;
    return peers->possible;
}

void cuda_peers_free(struct device *device)
{
    struct cuda_peers *peers = &device->peers;
    for (uint32_t t = 0; t < CUDA_PEERS_MAX; t++)
        cuda_memory_free(&peers->others[t]);
    cuda_memory_free(&peers->own);
    cudaFree(peers->sequence);
    if (peers->abandon_registered != NULL)
        cudaHostUnregister(peers->abandon_registered);
    cudaFreeHost(device->reduce_host);
}

int cuda_peers_share(struct device *device, struct user_error *error)
{
    return device->peers.possible ? cuda_memory_export(&device->peers.own, error) : -1;
}

/* A rank whose peers cannot all be mapped says so when the ranks settle, and all of them use the host. */
bool cuda_peers_join(struct device *device, const int *descriptors, struct user_error *error)
{
    struct cuda_peers *peers = &device->peers;
    const struct cuda_shape *shape = &device->shape;
    cudaError_t status = cudaSetDevice(device->ordinal);
    for (uint32_t t = 0; t < shape->tensor && peers->possible; t++) {
        struct user_error why = {.set = false};
        int descriptor = descriptors[shape->group_first + t];
        size_t bytes = CUDA_PEER_FLAGS_BYTES + 2 * peers->capacity * sizeof(float);
        if (t != shape->t)
            peers->possible = descriptor >= 0 && cuda_memory_import(&peers->others[t], &device->driver, device->ordinal,
                                                                    descriptor, bytes, &why);
    }
    /* Made in any case: which way it goes is known when all ranks have been asked. */
    if (status == cudaSuccess && shape->tensor > 1)
        status =
            cudaHostAlloc((void **)&device->reduce_host,
                          (size_t)device->rows_max * device->architecture.hidden * sizeof(float), cudaHostAllocDefault);
    if (status != cudaSuccess)
        user_error_set(error, NULL, 0, NULL, "no pinned memory for sums over ranks: %s", cudaGetErrorString(status));
    return status == cudaSuccess;
}

bool cuda_peers_settle(struct device *device)
{
    struct cuda_peers *peers = &device->peers;
    const struct cuda_shape *shape = &device->shape;
    if (peers->reduction != CUDA_REDUCE_UNSETTLED || shape->tensor == 1)
        return true;
    CHECK(device->reduce_host != NULL); /* joined */
    float refusals = peers->possible ? 0.0f : 1.0f;
    if (!collective_all_reduce(device->config.collective, shape->group_first, shape->tensor, &refusals, 1))
        return false;
    peers->reduction = refusals > 0.0f ? CUDA_REDUCE_HOST : CUDA_REDUCE_PEERS;
    return true;
}

/* ---- Queueing ---------------------------------------------------------------------------------------------------- */

static void reduce_on_host(void *argument)
{
    struct cuda_reduce *reduce = argument;
    struct device *device = reduce->device;
    if (!device->abandoned && !collective_all_reduce(device->config.collective, device->shape.group_first,
                                                     device->shape.tensor, device->reduce_host, reduce->floats))
        device->abandoned = true;
}

/* The callback runs when the stream reaches it, in a graph too. */
static void through_host(struct device *device, const struct cuda_step *step, size_t floats)
{
    struct cuda_reduce *argument = &device->reduces[step->graph ? cuda_bucket(step->rows) : CUDA_BUCKETS];
    *argument = (struct cuda_reduce){.device = device, .floats = floats};
    float *y = device->buffers.y;
    cuda_note(device,
              cudaMemcpyAsync(device->reduce_host, y, floats * sizeof *y, cudaMemcpyDeviceToHost, device->stream));
    cuda_note(device, cudaLaunchHostFunc(device->stream, reduce_on_host, argument));
    cuda_note(device,
              cudaMemcpyAsync(y, device->reduce_host, floats * sizeof *y, cudaMemcpyHostToDevice, device->stream));
}

static void through_peers(struct device *device, size_t floats)
{
    struct cuda_peers *peers = &device->peers;
    struct cuda_all_reduce all = {.sequence = peers->sequence,
                                  .abandon = peers->abandon,
                                  .capacity = peers->capacity,
                                  .rank = device->shape.t,
                                  .ranks = device->shape.tensor};
    for (uint32_t t = 0; t < device->shape.tensor; t++)
        all.memory[t] = cuda_memory_pointer(t == device->shape.t ? &peers->own : &peers->others[t]);
    for (size_t done = 0; done < floats; done += peers->capacity) {
        all.values = device->buffers.y + done;
        all.n = min_u64(peers->capacity, floats - done);
        cuda_all_reduce(&all, device->stream);
    }
}

void cuda_reduce(struct device *device, const struct cuda_step *step)
{
    size_t floats = (size_t)step->rows * device->architecture.hidden;
    if (device->peers.reduction == CUDA_REDUCE_PEERS)
        through_peers(device, floats);
    else if (device->shape.tensor > 1)
        through_host(device, step, floats);
}
