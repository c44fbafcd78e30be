/* Making and freeing the CUDA device, its operations' table, tails and digests. */
#include "real/device/cuda/cuda_internal.h"

#include "base/arith.h"
#include "real/device/kernels/model.h"
#include "real/device/seeded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES ((uintptr_t)4096)

int cuda_device_ordinal(uint32_t number)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count <= 0)
        return 0;
    return (int)(number % (uint32_t)count);
}

static uint32_t device_count(struct user_error *error)
{
    struct cuda_driver driver;
    int count = 0;
    if (!cuda_driver_load(&driver, error) || cudaGetDeviceCount(&count) != cudaSuccess)
        return 0;
    return (uint32_t)count;
}

static void device_free(struct device *device)
{
    if (device == NULL)
        return;
    if (device->stream != NULL)
        cudaStreamSynchronize(device->stream);
    for (uint32_t i = 0; i < CUDA_BUCKETS; i++)
        if (device->graphs[i] != NULL)
            cudaGraphExecDestroy(device->graphs[i]);
    cuda_peers_free(device);
    cuda_stages_free(device);
    cuda_buffers_free(device);
    cuda_weights_free(device);
    cuda_memory_free(&device->memory);
    if (device->registered != NULL)
        cudaHostUnregister(device->registered);
    if (device->counter_registered != NULL)
        cudaHostUnregister(device->counter_registered);
    if (device->blas != NULL)
        device->library.destroy(device->blas);
    if (device->stream != NULL)
        cudaStreamDestroy(device->stream);
    slots_free(&device->slots);
    free(device);
}

cudaError_t cuda_map_host(void *memory, size_t bytes, void **registered, void **mapped)
{
    cudaError_t status = cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
    if (status == cudaSuccess)
        *registered = memory;
    else if (status == cudaErrorHostMemoryAlreadyRegistered)
        (void)cudaGetLastError();
    else
        return status;
    return cudaHostGetDevicePointer(mapped, memory, 0);
}

cudaError_t cuda_map_word(uintptr_t word, void **registered, void **mapped)
{
    void *page = (void *)(word / PAGE_BYTES * PAGE_BYTES);
    cudaError_t status = cuda_map_host(page, PAGE_BYTES, registered, mapped);
    if (status == cudaSuccess)
        *mapped = (uint8_t *)*mapped + word % PAGE_BYTES;
    return status;
}

static bool make_counter(struct device *device, struct user_error *error)
{
    if (device->config.layer_counter == NULL || device->shape.t != 0)
        return true;
    void *mapped = NULL;
    cudaError_t status = cuda_map_word((uintptr_t)device->config.layer_counter, &device->counter_registered, &mapped);
    if (status != cudaSuccess) {
        user_error_set(error, NULL, 0, NULL, "the GPU cannot reach the layer counter: %s", cudaGetErrorString(status));
        return false;
    }
    device->counter = mapped;
    return true;
}

static bool make_kv(struct device *device, struct user_error *error)
{
    const struct kv_memory *memory = &device->config.memory;
    uint64_t bytes = kv_memory_bytes(memory, device->config.rank);
    device->pages = kernel_pages_make(memory, kv_format_bytes(device->architecture.kv_format));
    if (device->config.kv == NULL) {
        if (!cuda_memory_make(&device->memory, &device->driver, device->ordinal, bytes, error))
            return false;
        device->kv = cuda_memory_pointer(&device->memory);
        return true;
    }
    void *mapped = NULL;
    cudaError_t status = cuda_map_host(device->config.kv, bytes, &device->registered, &mapped);
    device->kv = mapped;
    if (status != cudaSuccess)
        user_error_set(error, NULL, 0, NULL, "the GPU cannot reach the KV memory of the host: %s",
                       cudaGetErrorString(status));
    return status == cudaSuccess;
}

static bool make_tables(struct device *device, struct user_error *error)
{
    uint32_t sequences = device->config.sequences_max;
    if (slots_make(&device->slots, &(struct slots_config){.sequences_max = sequences,
                                                          .pages = device->config.memory.pages,
                                                          .vocab = device->architecture.vocab,
                                                          .groups = (uint16_t)device->shape.data,
                                                          .group = (uint16_t)device->shape.group}))
        return true;
    user_error_set(error, NULL, 0, NULL, "no memory for %u sequences", sequences);
    return false;
}

static bool make_library(struct device *device, struct user_error *error)
{
    device->ordinal = cuda_device_ordinal(device->config.device_first + device->config.rank);
    cudaError_t status = cudaSetDevice(device->ordinal);
    if (status == cudaSuccess)
        status = cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking);
    if (status != cudaSuccess) {
        user_error_set(error, NULL, 0, NULL, "GPU %d cannot be used: %s", device->ordinal, cudaGetErrorString(status));
        return false;
    }
    if (!cuda_blas_load(&device->library, error))
        return false;
    cublasStatus_t blas = device->library.create(&device->blas);
    if (blas == CUBLAS_STATUS_SUCCESS)
        blas = device->library.set_stream(device->blas, device->stream);
    if (blas != CUBLAS_STATUS_SUCCESS)
        user_error_set(error, NULL, 0, NULL, "cuBLAS cannot be used: %s", device->library.status_string(blas));
    return blas == CUBLAS_STATUS_SUCCESS;
}

/* The attention kernel may need more shared memory than kernels have by default. */
static bool prepare_attention(struct device *device, struct user_error *error)
{
    struct cuda_attention arguments = cuda_attention_arguments(device, 0, 0, 1);
    cudaError_t status = cuda_attention_prepare(&arguments);
    if (status != cudaSuccess)
        user_error_set(error, NULL, 0, NULL,
                       "attention over heads of %u elements needs more shared memory than the GPU has: %s",
                       arguments.key_dim, cudaGetErrorString(status));
    return status == cudaSuccess;
}

static struct device *device_make(const struct device_config *config, struct user_error *error)
{
    struct device *device = calloc(1, sizeof *device);
    if (device == NULL) {
        user_error_set(error, NULL, 0, NULL, "no memory for the CUDA device");
        return NULL;
    }
    device->config = *config;
    device->architecture = *config->architecture;
    device->config.architecture = &device->architecture;
    device->rows_max = max_u32(config->tokens_max, (uint32_t)1 << cuda_bucket(max_u32(1, config->sequences_max)));
    device->pages_max = ceil_div_u32(config->request_tokens_max, config->memory.geometry.page_tokens);
    device->rows_stale = true;
    device->embedding = seeded_matrix(config->weight_seed, SEEDED_EMBEDDING, 0, 0);
    device->embedding_scale = config->architecture->tied_embeddings
                                  ? model_weight_scale(config->architecture->hidden, MODEL_GAIN_EMBEDDING_TIED)
                                  : model_weight_scale(1, MODEL_GAIN_EMBEDDING);
    if (cuda_driver_load(&device->driver, error) && cuda_shape_make(&device->shape, config, error) &&
        make_tables(device, error) && make_library(device, error) && make_kv(device, error) &&
        make_counter(device, error) && cuda_weights_make(device, error) && cuda_buffers_make(device, error) &&
        prepare_attention(device, error) && cuda_peers_make(device, error) && cuda_stages_make(device, error))
        return device;
    device_free(device);
    return NULL;
}

static int share(struct device *device, enum device_share what, struct user_error *error)
{
    if (what == DEVICE_SHARE_PEERS)
        return cuda_peers_share(device, error);
    if (device->memory.address != 0)
        return cuda_memory_export(&device->memory, error);
    user_error_set(error, NULL, 0, NULL, "the KV memory is the host's: it is not exported");
    return -1;
}

void *cuda_device_kv(struct device *device)
{
    return device->kv;
}

static void tail_store(struct device *device, uint32_t sequence, uint32_t slot)
{
    const struct kv_memory *memory = &device->config.memory;
    if (device->tails == NULL || device->shape.t != 0)
        return;
    size_t floats = (size_t)device->architecture.hidden + device->architecture.vocab;
    size_t bytes = floats * sizeof(float) < memory->tail_bytes ? floats * sizeof(float) : memory->tail_bytes;
    uint8_t *to = device->kv + kv_memory_tail_offset(memory, device->config.rank, slot);
    cuda_note(device, cudaMemsetAsync(to, 0, memory->tail_bytes, device->stream));
    cuda_note(device, cudaMemcpyAsync(to, device->tails + sequence * floats, bytes, cudaMemcpyDefault, device->stream));
    cuda_note(device, cudaStreamSynchronize(device->stream));
}

static uint64_t page_digest(struct device *device, uint32_t layer, uint32_t plane, uint32_t page)
{
    const struct kv_memory *memory = &device->config.memory;
    size_t bytes = (size_t)kv_page_plane_bytes(&memory->geometry);
    void *copy = malloc(bytes);
    if (copy == NULL)
        return 0;
    const uint8_t *from = device->kv + kv_memory_page_offset(memory, device->config.rank, layer, plane, page);
    cuda_note(device, cudaMemcpy(copy, from, bytes, cudaMemcpyDefault));
    uint64_t digest = device_digest(copy, bytes);
    free(copy);
    return digest;
}

static void change(struct device *device, const struct step_change *changes, uint32_t count)
{
    slots_change(&device->slots, changes, count);
}

static void given(struct device *device, uint32_t sequence, uint32_t first, const uint32_t *tokens, uint32_t count)
{
    slots_given(&device->slots, sequence, first, tokens, count);
}

const struct device_ops device_cuda = {
    .name = "cuda",
    .count = device_count,
    .make = device_make,
    .free = device_free,
    .change = change,
    .given = given,
    .step = cuda_step_run,
    .tail_store = tail_store,
    .page_digest = page_digest,
    .share = share,
    .join = cuda_peers_join,
    .reach = cuda_reach_make,
};
