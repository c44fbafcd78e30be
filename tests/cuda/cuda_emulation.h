/* Runs the sources of CUDA kernels on the CPU, compiled as C: a block's threads are coroutines that switch at barriers
 * and shuffles, blocks run one after another, device memory is the host's. Include this before the .cu files. What it
 * finds are errors of indices, barriers and arithmetic; not races between blocks.
 *
 * Beside it stand the calls of the CUDA runtime, of the driver and of cuBLAS that the device makes
 * (cuda_emulation_runtime.c): work is done when it is queued, or recorded while a stream is captured and done when the
 * graph is launched.
 */
#ifndef TANDEM_TESTS_CUDA_CUDA_EMULATION_H
#define TANDEM_TESTS_CUDA_CUDA_EMULATION_H

#include <stddef.h>
#include <stdint.h>

#define CUDA_EMULATED

struct emulated_thread {
    uint32_t block_x, block_y, block_z;
    uint32_t grid_x;
    uint32_t thread;
    uint32_t threads;
};
extern _Thread_local struct emulated_thread emulated;
extern _Thread_local float *emulated_shared;

struct emulated_grid {
    uint32_t x, y, z;
    uint32_t threads;
    size_t shared_bytes;
};

/* How many GPUs there are: that variable, else 1. Each has this process's memory. */
#define EMULATED_GPUS_VARIABLE "TANDEM_EMULATED_GPUS"

/* Calls body(arguments) as every thread of every block. */
void emulated_run(void (*body)(const void *arguments), const void *arguments, struct emulated_grid grid);
/* Queues that; the arguments are copied. */
void emulated_launch(void (*body)(const void *arguments), const void *arguments, size_t size,
                     struct emulated_grid grid);
extern _Atomic uint64_t emulated_graph_launches;
extern _Atomic uint64_t emulated_host_calls; /* made from streams */
void emulated_barrier(void);
void emulated_pause(void); /* lets other ranks go on */
uint32_t emulated_shuffle_xor(uint32_t bits, uint32_t mask);
float emulated_shuffle_xor_float(float value, uint32_t mask);

#define CUDA_KERNEL(name, type)                                                                                        \
    static void name##_thread(const struct type a);                                                                    \
    static void name(const void *arguments)                                                                            \
    {                                                                                                                  \
        const struct type *typed = arguments;                                                                          \
        name##_thread(*typed);                                                                                         \
    }                                                                                                                  \
    static void name##_thread(const struct type a)
#define CUDA_LAUNCH(name, x, y, z, threads, shared_bytes, stream, arguments)                                           \
    ((void)(stream), emulated_launch(name, &(arguments), sizeof(arguments),                                            \
                                     (struct emulated_grid){(x), (y), (z), (threads), (shared_bytes)}))
#define CUDA_DEVICE static inline
#define CUDA_SHARED static _Thread_local
#define CUDA_DYNAMIC_SHARED(name) float *name = emulated_shared
#define CUDA_UNROLL
#define CUDA_SHARED_LIMIT(name, bytes) ((bytes) <= 227u * 1024u ? cudaSuccess : cudaErrorInvalidValue)
#define cuda_fma(x, y, z) ((x) * (y) + (z))
#define cuda_sync() emulated_barrier()
#define cuda_fence_system() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define cuda_store_release(word, value) __atomic_store_n((word), (value), __ATOMIC_RELEASE)
#define cuda_load_acquire(word) __atomic_load_n((word), __ATOMIC_ACQUIRE)
#define cuda_pause() emulated_pause()
#define cuda_shuffle_xor(value, mask) emulated_shuffle_xor_float((value), (mask))
#define cuda_shuffle_xor_u32(value, mask) emulated_shuffle_xor((value), (mask))
#define CUDA_BLOCK_X emulated.block_x
#define CUDA_BLOCK_Y emulated.block_y
#define CUDA_BLOCK_Z emulated.block_z
#define CUDA_GRID_X emulated.grid_x
#define CUDA_THREAD emulated.thread
#define CUDA_THREADS emulated.threads

#endif
