/* Device memory that another process can map: the KV cache of a rank, allocated by its executor and imported by the
 * instance's process (and, for all-reduces, by the executors of the other ranks). The handle is a file descriptor,
 * passed over a Unix socket; the memory lives until the last process that maps it is gone.
 */
#ifndef TANDEM_REAL_DEVICE_CUDA_CUDA_MEMORY_H
#define TANDEM_REAL_DEVICE_CUDA_CUDA_MEMORY_H

#include "real/device/cuda/cuda_driver.h"
#include "host/user_error.h"

#include <stdint.h>

struct cuda_memory {
    const struct cuda_driver *driver; /* outlives this */
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address; /* 0: nothing is held */
    size_t bytes;        /* rounded up to the allocation granularity */
};

/* Allocates and maps at least `bytes` on GPU `ordinal`, zeroed. The current device must be that one. */
bool cuda_memory_make(struct cuda_memory *memory, const struct cuda_driver *driver, int ordinal, size_t bytes,
                      struct user_error *error);

/* A descriptor for another process, which the caller closes; -1 with a sentence. */
int cuda_memory_export(const struct cuda_memory *memory, struct user_error *error);

/* Maps what another process has exported, for reading and writing by GPU `ordinal`. `bytes`: as asked for when it was
 * made. The descriptor stays the caller's. */
bool cuda_memory_import(struct cuda_memory *memory, const struct cuda_driver *driver, int ordinal, int descriptor,
                        size_t bytes, struct user_error *error);

void cuda_memory_free(struct cuda_memory *memory);

static inline void *cuda_memory_pointer(const struct cuda_memory *memory)
{
    return (void *)(uintptr_t)memory->address;
}

#endif
