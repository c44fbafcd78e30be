/* Staging: moves pieces of pages between device memory and pinned host memory that a NIC can reach, for fabrics that
 * cannot register device memory. Batches of pieces are copied by one kernel each on a stream of their own, so that the
 * batch before is on the wire while the next one is being copied; nothing here waits.
 *
 * A sender submits each layer's pieces when the layer counter passes it, and posts its writes from the host buffer when
 * the batch is done. A receiver's writes land in its host buffer; when the count of a request is reached it submits the
 * pieces the other way, and the pages are the decoder's when that batch is done.
 *
 * One thread uses a staging. It belongs to the process that owns the fabric, and the device region may be imported
 * (cuda_memory.h).
 */
#ifndef TANDEM_REAL_DEVICE_CUDA_CUDA_STAGING_H
#define TANDEM_REAL_DEVICE_CUDA_CUDA_STAGING_H

#include "real/device/device_reach.h"
#include "host/user_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cuda_staging;

/* `device`: a device address on GPU `ordinal`. `batches`: how many may be under way; `pieces`: of each at most. NULL
 * with a sentence. */
struct cuda_staging *cuda_staging_make(int ordinal, void *device, size_t host_bytes, uint32_t batches, uint32_t pieces,
                                       struct user_error *error);
void cuda_staging_free(struct cuda_staging *staging);

/* The pinned buffer, host_bytes long, for the NIC to register. */
void *cuda_staging_host(const struct cuda_staging *staging);

/* Starts a batch; false when as many as allowed are under way: poll first. Batches are done in the order of
 * submission. */
bool cuda_staging_submit(struct cuda_staging *staging, enum device_reach_direction direction,
                         const struct device_reach_piece *pieces, uint32_t count);

/* The number of batches done since the beginning. */
uint64_t cuda_staging_done(struct cuda_staging *staging);

/* False after an error of the device, which is in `error`; then no batch will ever be done. */
bool cuda_staging_healthy(const struct cuda_staging *staging, struct user_error *error);

struct device_reach_statistics cuda_staging_statistics(const struct cuda_staging *staging);

#endif
