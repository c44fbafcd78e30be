/* How fast the transfer engine moves pages, beside a bare libfabric loop on the same provider and sizes, in one run.
 *
 * Writer and target are two processes. Engine and bare loop take turns, and each figure is the median of the turns, so
 * that what else the machine does strikes both alike.
 */
#ifndef TANDEM_REAL_FABRIC_FABRIC_BENCH_H
#define TANDEM_REAL_FABRIC_FABRIC_BENCH_H

#include "host/output.h"

#include <stdint.h>

struct fabric_bench_config {
    const char *provider;
    const char *address;
    uint32_t window;
    uint32_t turns;      /* of each, at least 1 */
    int64_t duration_ns; /* of a turn */
};

/* The columns, in a new table: provider, bytes, gb_per_s, bare_gb_per_s and the rest. */
struct table *fabric_bench_table(void);

/* Adds a row per size to `table`. False with a sentence when the provider is missing or a transfer fails. */
bool fabric_bench(const struct fabric_bench_config *config, struct table *table, char *error, size_t error_size);

#endif
