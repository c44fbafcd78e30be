/* A source of requests: what a scenario's load says, drawn one by one from a seed.
 *
 * Memory does not grow with the number of requests: generated loads keep a few counters, a trace is read by reference
 * and may be shared by any number of workloads on any number of threads. Only client aborts that lie ahead are kept.
 *
 * Nothing here uses floating point, and each purpose has its own random stream: another rate stretches the same
 * arrivals without touching a length, and a larger share of aborts keeps the aborts of a smaller one.
 *
 * Arrivals, from time 0 of the run:
 *   Poisson      the first a gap after 0.
 *   uniform      request k at k / rate exactly, the first at 0.
 *   burst        as Poisson at rate / burst_size, each time burst_size requests at once.
 *   closed loop  `concurrency` requests at 0, then one whenever workload_closed_next() is called.
 *   sessions     conversations as a Poisson process, of each the first turn; the others as workload_answered() says.
 *   trace        see below.
 *   listed       as the scenario says; lengths, prefixes and aborts too.
 * The first three and conversations may have a profile, which moves their arrivals (rate_profile.h).
 * A load ends before its request number load.requests, before load.duration_ns (no arrival at or after it), or with
 * its trace, whichever comes first. A trace that holds fewer requests than load.requests asks for ends the load early:
 * the summary says how many there are, and trace_repeat makes more.
 *
 * Traces. The rows that arrive in [window start, window start + window) of the file form a circle: after the last
 * comes the first again, one window length after its last turn. A window that reaches beyond the file (or has no end)
 * ends one mean gap after the last row. trace_repeat turns are played, ids running on, with the same prefix blocks, so
 * that a second turn may hit what the first has cached. Seed 1 begins with the first row of the window and is what was
 * recorded; every other seed begins at a row drawn at random: as real, but another piece of the traffic wherever less
 * than the whole window is played. The first request played arrives at 0. With a rate, time is stretched evenly so
 * that the requests played, as limited by requests, duration_ns (at that rate) and trace_repeat, have exactly that
 * mean rate: the number of requests over the time from the first to the one that would follow the last.
 */
#ifndef TANDEM_WORLD_LOAD_WORKLOAD_H
#define TANDEM_WORLD_LOAD_WORKLOAD_H

#include "world/scenario/scenario.h"
#include "world/load/trace_reader.h"
#include "host/user_error.h"
#include "runtime.h"

#include <stdbool.h>
#include <stdint.h>

/* Requests of one run: ids are 32 bits and some values have a meaning of their own. */
#define WORKLOAD_REQUESTS_MAX (UINT32_C(1) << 31)

/* Requests that arrive at once, in a burst or as the clients of a closed loop. */
#define WORKLOAD_TOGETHER_MAX (UINT32_C(1) << 20)

/* A request arrives, or the client of one that arrived earlier goes away. Of an abort, only spec.id is meant; the
 * request may have ended by then. spec.deadline_ns is an instant. spec.blocks lives as long as the trace, or, of a
 * conversation or a listed load, until the next call. */
struct workload_item {
    int64_t arrival_ns;
    bool is_abort;
    struct request_spec spec;
};

/* What a workload will play, for explanations and reports. */
struct workload_summary {
    uint64_t requests;                 /* exact, but expected where the duration ends a Poisson or burst load, and 0
                                          (unknown) where it ends a closed loop */
    uint64_t rate_micro_per_s;         /* mean; 0: closed loop */
    int64_t span_ns;                   /* over which they arrive; 0: closed loop */
    uint64_t prompt_tokens_mean_milli; /* mean tokens x 1000: of the distribution, or of the rows in the window */
    uint64_t output_tokens_mean_milli;
    /* Of a trace, else 0: */
    uint64_t recorded_rate_micro_per_s; /* of the requests played, before stretching */
    uint32_t window_rows;
    uint32_t first_row; /* of the window, played first */
    uint32_t out_of_order;
};

struct workload;

/* `trace` is the file named by load->trace_path for a trace load, else NULL; it must outlive the workload. `load` is
 * copied. NULL and `error` described when the load makes no sense: a limit missing, a window without rows. */
struct workload *workload_create(const struct load *load, uint64_t seed, const struct trace_file *trace,
                                 struct user_error *error);

/* Requests that have arrived before, by id: a run that is played again. */
struct workload_arrivals {
    uint32_t count;
    const int64_t *at_ns;          /* not descending */
    const uint32_t *conversations; /* whose turns they were, as workload_conversation() said; NULL: of none */
};

/* The same requests, with the aborts of their clients as long after, but at these instants; must outlive the workload.
 * Nothing else ends the load, and a closed loop is open: its requests come when they came, as do the turns of
 * conversations. NULL where a request is no turn that the load has. */
struct workload *workload_create_again(const struct load *load, uint64_t seed, const struct trace_file *trace,
                                       const struct workload_arrivals *arrivals, struct user_error *error);

void workload_free(struct workload *workload); /* NULL is allowed */

/* The next item in order of time; of equal times the arrivals first. False: none is left, or (closed loop) none until
 * workload_closed_next(). */
bool workload_next(struct workload *workload, struct workload_item *item);

/* The time of the item that workload_next() would give, TIME_NEVER where it would give none. In a closed loop a new
 * request may bring an abort that comes earlier than what was next: ask again after workload_closed_next(). */
int64_t workload_next_ns(const struct workload *workload);

/* Closed loop only: a request ended at `now_ns`, completed or not, and its client sends its next one now. False: the
 * load has ended and the client leaves. */
bool workload_closed_next(struct workload *workload, int64_t now_ns, struct workload_item *item);

/* Whether requests may come because others have ended, so that workload_answered() must be called: conversations, and
 * traces whose rows wait. */
bool workload_follows(const struct workload *workload);

/* A request has ended, completed or not. What waited for it, if anything did, comes some time after: ask for the next
 * item again. Nothing in loads that do not follow. */
void workload_answered(struct workload *workload, uint32_t id, int64_t now_ns);

/* The conversation of a request, from 1 on, until workload_answered(), or of a trace whose rows wait the row that it
 * was, from 1 on: what a run needs to be played again. 0 in other loads. */
uint32_t workload_conversation(const struct workload *workload, uint32_t id);

void workload_describe(const struct workload *workload, struct workload_summary *summary);

#endif
