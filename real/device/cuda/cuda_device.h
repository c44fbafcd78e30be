/* The CUDA device (real/device/device.h) and what it offers beyond the table of operations.
 *
 * KV memory: where device_config.kv is NULL the device allocates it with cuMemCreate and exports it; where it is host
 * memory, that memory is registered and mapped, and the GPU works on it in place (slow, but any fabric can reach it).
 */
#ifndef TANDEM_REAL_DEVICE_CUDA_CUDA_DEVICE_H
#define TANDEM_REAL_DEVICE_CUDA_CUDA_DEVICE_H

#include "real/device/device.h"

extern const struct device_ops device_cuda;

/* A descriptor of the KV memory for the instance's process, to be imported by cuda_memory_import() with
 * kv_memory_bytes(); the caller closes it. -1 with a sentence, also where the memory is the host's. */
int cuda_device_export(struct device *device, char *error, size_t error_size);

/* The KV region as the GPU sees it. */
void *cuda_device_kv(struct device *device);

/* The GPU of a rank: ranks are dealt to the visible ones in turn. */
int cuda_device_ordinal(uint32_t rank);

#endif
