/* How fast the transfer engine moves pages, beside a bare libfabric loop on the same provider, region, sizes and
 * window, in one run.
 *
 * Writer and target are two processes, each with every thread of it on a core of its own where there are two. The
 * engine is driven as a node's messenger drives it, through its fabric thread (real/bench/engine_loop.h). Engine and
 * bare loop take turns, and the order of the two alternates, so that what else the machine does strikes both alike.
 * Speeds are medians over the turns; the ratio is the median of the ratios of neighbouring turns, and its spread is
 * that of its quartiles.
 */
#ifndef TANDEM_REAL_BENCH_FABRIC_BENCH_H
#define TANDEM_REAL_BENCH_FABRIC_BENCH_H

#include "host/output.h"
#include "host/user_error.h"

#include <stdint.h>

#define FABRIC_BENCH_TURNS_MAX 31
#define FABRIC_BENCH_SINGLES 200 /* a turn */

struct fabric_bench_config {
    const char *provider;
    const char *address;
    uint32_t window;
    uint32_t turns;      /* of each of the two, at least 1 */
    int64_t duration_ns; /* counted of a stream of a turn; a turn of the engine has two */
};

/* Speeds in bytes a second; a ratio in thousandths. */
struct fabric_bench_stream {
    uint64_t bytes_per_s;
    uint64_t writes_per_s;
    uint32_t of_bare; /* median */
    uint32_t of_bare_low;
    uint32_t of_bare_high;
};

struct fabric_bench_percentiles {
    int64_t p50_ns;
    int64_t p99_ns;
};

/* What was measured at one size. */
struct fabric_bench_size {
    uint32_t bytes;
    struct fabric_bench_stream paged;  /* many pages to a command, as a chunk of a prompt is sent */
    struct fabric_bench_stream single; /* a page to a command */
    uint64_t bare_bytes_per_s;
    struct fabric_bench_percentiles post;       /* from the messenger's command to the post at the NIC */
    struct fabric_bench_percentiles completion; /* ... to the messenger's hearing of the delivery */
    struct fabric_bench_percentiles bare;       /* the bare loop's, from post to completion */
    struct fabric_bench_percentiles landed;     /* from the command to the event at the target's loop */
    struct fabric_bench_percentiles event;      /* of that, from the counted immediate to the event */
};

/* Measures one size, which divides 1 MiB. False with a sentence. */
bool fabric_bench_measure(const struct fabric_bench_config *config, uint32_t bytes, struct fabric_bench_size *size,
                          struct user_error *error);

/* The columns of what fabric_bench() tells, in a new table: speeds, then latencies of one write at a time. */
struct table *fabric_bench_speeds(void);
struct table *fabric_bench_latencies(void);

/* Measures 4 KiB to 1 MiB and adds rows to both tables. False with a sentence when the provider is missing or a
 * transfer fails. */
bool fabric_bench(const struct fabric_bench_config *config, struct table *speeds, struct table *latencies,
                  struct user_error *error);

#endif
