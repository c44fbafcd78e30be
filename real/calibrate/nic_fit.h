/* From measured writes to the parameters of a NIC (world/scenario/hardware.h):
 *
 *     one write alone           T(b) = a + b / B
 *     one of a stream of them   t(b) = (g^p + (b / B)^p)^(1/p)
 *
 * The stream decides B, g and p, since transfers are streams; the single writes then decide a. Both are fitted to the
 * least relative error, so that small writes count as much as large ones.
 */
#ifndef TANDEM_REAL_CALIBRATE_NIC_FIT_H
#define TANDEM_REAL_CALIBRATE_NIC_FIT_H

#include "world/scenario/hardware.h"
#include "host/user_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct write_time {
    uint64_t bytes;
    int64_t ps; /* of one write */
};

/* Fills base_ns, bytes_per_s, gap_ps and knee_permille. False with a sentence when the points do not determine them:
 * fewer than two sizes, times that are not positive, streams whose time does not grow with the size. */
bool nic_fit(const struct write_time *singles, size_t single_count, const struct write_time *stream,
             size_t stream_count, struct nic *nic, struct user_error *error);

/* By how much the parameters miss the points they were fitted to, in thousandths of the measured time, on average. */
struct nic_misfit {
    uint32_t alone_permille;
    uint32_t streamed_permille;
};

struct nic_misfit nic_misfit(const struct write_time *singles, size_t single_count, const struct write_time *stream,
                             size_t stream_count, const struct nic *nic);

/* What the parameters say, in picoseconds. */
int64_t nic_single_ps(const struct nic *nic, uint64_t bytes);
int64_t nic_paged_ps(const struct nic *nic, uint64_t bytes);

#endif
