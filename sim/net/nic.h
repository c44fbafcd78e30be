/* What one write costs a NIC. Pure functions of a hardware profile, evaluated once per route at set-up; floating point
 * with + - * / only, rounded once to picoseconds, so that every machine gets the same integer.
 */
#ifndef TANDEM_SIM_NET_NIC_H
#define TANDEM_SIM_NET_NIC_H

#include "world/scenario/hardware.h"

#include <stdint.h>

/* Time that one of a stream of writes of `bytes` occupies one side of the NIC: (g^p + (bytes / B)^p)^(1/p), the smooth
 * knee between the least gap between writes and the line rate, fitted to the paged-write table of arXiv 2510.27656. */
uint64_t nic_stream_ps(const struct nic *nic, uint64_t bytes);

/* The same, as the sender pays it: no shorter than (a + bytes / B) / q, because with q writes outstanding and a + bytes
 * / B until each is acknowledged no more than q leave in that time. A queue_depth of 0 sets no such bound. */
uint64_t nic_transmit_ps(const struct nic *nic, uint64_t bytes);

/* bytes / B alone, in picoseconds, rounded up. */
uint64_t nic_wire_ps(uint64_t bytes_per_s, uint64_t bytes);

#endif
