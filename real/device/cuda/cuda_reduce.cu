/* The all-reduce over peers' memory. See cuda_kernels.h. */
#include "real/device/cuda/cuda_kernels.h"
#include "real/device/cuda/cuda_launch.h"
#include "real/device/kernels/bisect.h"

CUDA_DEVICE float *buffer_of(const struct cuda_all_reduce *a, uint32_t rank, uint32_t sequence)
{
    return (float *)(void *)(a->memory[rank] + CUDA_PEER_FLAGS_BYTES) + (sequence & 1u) * a->capacity;
}

/* The flag of `writer`'s block in the memory of `owner`. */
CUDA_DEVICE uint32_t *flag_of(const struct cuda_all_reduce *a, uint32_t owner, uint32_t block, uint32_t writer)
{
    return (uint32_t *)(void *)a->memory[owner] + block * CUDA_PEERS_MAX + writer;
}

CUDA_KERNEL(all_reduce_kernel, cuda_all_reduce)
{
    uint32_t block = CUDA_BLOCK_X;
    uint32_t sequence = a.sequence[block] + 1;
    uint64_t from = a.n * block / CUDA_PEER_BLOCKS;
    uint64_t to = a.n * (block + 1) / CUDA_PEER_BLOCKS;
    float *own = buffer_of(&a, a.rank, sequence);
    for (uint64_t i = from + CUDA_THREAD; i < to; i += CUDA_THREADS)
        own[i] = a.values[i];
    cuda_fence_system();
    cuda_sync();
    if (CUDA_THREAD < a.ranks)
        cuda_store_release(flag_of(&a, CUDA_THREAD, block, a.rank), sequence);
    cuda_sync();
    if (CUDA_THREAD < a.ranks) {
        /* Calls are counted modulo 2^32; a peer is at most one ahead. */
        const uint32_t *flag = flag_of(&a, a.rank, block, CUDA_THREAD);
        while ((int32_t)(cuda_load_acquire(flag) - sequence) < 0) {
            if (a.abandon != NULL && *(const volatile uint8_t *)a.abandon != 0)
                break;
            cuda_pause();
        }
    }
    cuda_sync();
    const float *theirs[CUDA_PEERS_MAX];
    CUDA_UNROLL
    for (uint32_t r = 0; r < CUDA_PEERS_MAX; r++)
        theirs[r] = buffer_of(&a, r < a.ranks ? r : 0, sequence);
    for (uint64_t i = from + CUDA_THREAD; i < to; i += CUDA_THREADS) {
        float values[KERNEL_BISECT_MAX];
        CUDA_UNROLL
        for (uint32_t r = 0; r < CUDA_PEERS_MAX; r++)
            values[r] = r < a.ranks ? theirs[r][i] : 0.0f;
        a.values[i] = kernel_bisect(values, a.ranks);
    }
    if (CUDA_THREAD == 0)
        a.sequence[block] = sequence;
}

void cuda_all_reduce(const struct cuda_all_reduce *a, cudaStream_t stream)
{
    CUDA_LAUNCH(all_reduce_kernel, CUDA_PEER_BLOCKS, 1, 1, 256, 0, stream, *a);
}
