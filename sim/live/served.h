/* A simulated cluster that serves: virtual time goes as fast as the wall clock, requests come when somebody sends them,
 * and each token is told when its step ends.
 *
 * served_run() plays it on the thread that calls it, until served_close(). Every other function may be called by any
 * thread, at any time between served_make() and served_free().
 */
#ifndef TANDEM_SIM_LIVE_SERVED_H
#define TANDEM_SIM_LIVE_SERVED_H

#include "run/run.h"

struct served;

/* Called by the thread in served_run(), which holds no lock of this file. */
struct served_listener {
    void *self;
    /* A step gave it so many. Tokens beyond those asked for are possible where a step takes several. */
    void (*tokens)(void *self, uint32_t request, uint32_t count);
    void (*first)(void *self, uint32_t request); /* it has at least one */
    void (*ended)(void *self, const struct request_row *row);
};

struct served_config {
    const struct scenario *scenario;
    const struct deployment_choice *choice;
    const struct trace_file *recorded; /* of a trace load: prefix blocks are of its size; else NULL */
    uint64_t seed;
    uint32_t request_tokens_max; /* prompt and output; at most REQUEST_TOKENS_MAX */
    uint32_t requests_together;
    struct served_listener listener;
};

struct served_stats {
    uint64_t running;
    uint64_t waiting;
    uint64_t preemptions;
    uint64_t pages_total;
    uint64_t pages_held;
    uint32_t lag_max_us; /* of virtual time behind the wall clock */
};

struct served *served_make(const struct served_config *config);
void served_free(struct served *served);

/* What is sent, now: of *spec all but id and deadline; blocks are copied. Returns its id. */
uint32_t served_submit(struct served *served, const struct request_spec *spec);

/* The client of a request went away. It still ends, as listeners hear. */
void served_abort(struct served *served, uint32_t request);

/* Requests are no longer taken (they would never end); what is under way may end until so long from now, then its
 * clients go away. */
void served_close(struct served *served, int64_t grace_ns);

void served_read(struct served *served, struct served_stats *stats);

void served_run(struct served *served, struct run_result *result);

#endif
