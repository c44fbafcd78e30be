/* The transfer engine as a node's messenger uses it, for measuring: commands go through the rings of a fabric thread,
 * and the caller waits on a descriptor for reports, as the loop of an instance does. Nothing else of an instance is
 * here.
 */
#ifndef TANDEM_REAL_BENCH_ENGINE_LOOP_H
#define TANDEM_REAL_BENCH_ENGINE_LOOP_H

#include "real/bench/bare_loop.h"
#include "real/fabric/fabric_thread.h"
#include "host/user_error.h"

/* Units of the longest paged write, and most of them in flight. */
#define ENGINE_UNITS_MAX 256
#define ENGINE_TICKETS_MAX (2 * BARE_WINDOW_MAX)

struct engine_loop;

/* A card of one NIC and one rank. */
struct engine_card {
    uint32_t bytes;
    unsigned char card[4096];
};

/* An engine of one rank whose region is `memory`, cut into pages of `page_bytes`: a page is one write. `self` is 0 or
 * 1, the peer the other one. NULL with a sentence. */
struct engine_loop *engine_loop_make(const char *provider, const char *address, uint32_t window, void *memory,
                                     size_t bytes, uint32_t page_bytes, uint32_t self, struct engine_card *own,
                                     struct user_error *error);

/* Learns the peer and starts the thread. */
bool engine_loop_aim(struct engine_loop *loop, const struct engine_card *peer, struct user_error *error);
void engine_loop_free(struct engine_loop *loop);

/* Keeps writes of `units` pages each in flight, twice as many pages as the window: uncounted for `warm_ns` from the
 * first completion on, then for `duration_ns`, then waits for all. False when a write failed. */
bool engine_loop_stream(struct engine_loop *loop, uint32_t units, int64_t warm_ns, int64_t duration_ns,
                        struct bare_stream *stream);

/* One write of one page. Times from the moment it is given to the engine. */
struct engine_single {
    int64_t post_ns;       /* to its post at the NIC */
    int64_t completion_ns; /* to the loop's hearing that it is delivered */
    int64_t start_ns;      /* CLOCK_MONOTONIC */
};
bool engine_loop_single(struct engine_loop *loop, struct engine_single *single);

/* Arms a count of one immediate, and returns when it is in effect. */
void engine_loop_expect(struct engine_loop *loop);

/* Readable when engine_loop_heard() may have something. */
int engine_loop_fd(const struct engine_loop *loop);

/* An armed count has been reached: when the engine counted it, and when the loop heard of it. */
bool engine_loop_heard(struct engine_loop *loop, int64_t *counted_ns, int64_t *heard_ns);

#endif
