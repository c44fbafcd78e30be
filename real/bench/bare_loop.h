/* The yardstick of the transfer engine: the plainest fast program that one would write with libfabric alone.
 *
 * It keeps a window of equal writes in flight, round and round a region that is registered once, and reads completions
 * in batches. It asks of the provider what the engine asks: the same endpoint, remote writes that carry an immediate,
 * completions that mean delivery, manual progress by the thread that posts. It has no tickets, pages, gates, peers or
 * deadlines; what it is faster by is the price of those.
 */
#ifndef TANDEM_REAL_BENCH_BARE_LOOP_H
#define TANDEM_REAL_BENCH_BARE_LOOP_H

#include "host/user_error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More writes in flight than a bench may ask for. */
#define BARE_WINDOW_MAX 1024

struct bare_loop;

struct bare_address {
    unsigned char address[256];
    uint64_t base;
    uint64_t key;
};

/* An endpoint with `memory` registered. NULL with a sentence. */
struct bare_loop *bare_loop_make(const char *provider, const char *address, void *memory, size_t bytes,
                                 struct bare_address *own, struct user_error *error);
void bare_loop_free(struct bare_loop *loop);

/* Whose memory is written to from now on. False: the address makes no sense. */
bool bare_loop_aim(struct bare_loop *loop, const struct bare_address *target);

/* Makes progress as the target, once. Returns how many immediates came. */
uint32_t bare_loop_serve(struct bare_loop *loop);

/* What was completed, counted between two completions. */
struct bare_stream {
    uint64_t writes;
    int64_t took_ns;
};

/* Keeps `window` writes of `bytes` bytes in flight: for `warm_ns` from the first completion on, uncounted, then for
 * `duration_ns`; then waits for all. False when a write failed or nothing moved. */
bool bare_loop_stream(struct bare_loop *loop, uint32_t window, size_t bytes, int64_t warm_ns, int64_t duration_ns,
                      struct bare_stream *stream);

/* One write, from its post to its completion. 0: it failed. */
int64_t bare_loop_single_ns(struct bare_loop *loop, size_t bytes);

#endif
