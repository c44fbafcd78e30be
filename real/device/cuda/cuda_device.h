/* The CUDA device (real/device/device.h) and what it offers beyond the table of operations.
 *
 * KV memory: where device_config.kv is NULL the device allocates it with cuMemCreate and exports it; where it is host
 * memory, that memory is registered and mapped, and the GPU works on it in place (slow, but any fabric can reach it).
 */
#ifndef TANDEM_REAL_DEVICE_CUDA_CUDA_DEVICE_H
#define TANDEM_REAL_DEVICE_CUDA_CUDA_DEVICE_H

#include "real/device/device.h"
#include "real/device/device_reach.h"
#include "host/user_error.h"

extern const struct device_ops device_cuda;

/* The KV region as the GPU sees it. */
void *cuda_device_kv(struct device *device);

/* Which GPU device number `number` of this machine is: numbers are dealt to the visible GPUs (CUDA_VISIBLE_DEVICES) in
 * turn, so that several share one where there are fewer. */
int cuda_device_ordinal(uint32_t number);

/* device_ops.reach (cuda_reach.c). */
struct device_reach *cuda_reach_make(const struct device_reach_config *config, struct user_error *error);

#endif
