/* One run: a scenario, a choice of counts and shardings, a seed, from the first arrival until everything has drained,
 * on whatever backend (backend.h).
 *
 * The run owns what does not depend on how time passes: the deployment, the arrivals, clients that answer (closed loops
 * and conversations), the warm-up, the recorder, the status and most of the result. Nothing is printed or stored here;
 * rows stream to the listener and the rest is in the result. Runs share nothing that is written, so that any number may
 * go on at once, one a thread, where the backend lets them.
 */
#ifndef TANDEM_RUN_RUN_H
#define TANDEM_RUN_RUN_H

#include "host/exit_status.h"
#include "host/user_error.h"
#include "run/run_record.h"
#include "world/deployment.h"
#include "world/load/trace_reader.h"
#include "world/load/workload.h"
#include "world/scenario/scenario.h"
#include "world/scenario/scenario_lua.h"

#include <stdbool.h>
#include <stdint.h>

struct run_backend;

/* Any function may be NULL. What is pointed to dies with the return. */
struct run_listener {
    void *self;
    /* At the end of each request; false ends the run at once (RUN_STOPPED). */
    bool (*row)(void *self, const struct request_row *row, bool met_all_targets);
    void (*trace)(void *self, int64_t now_ns, const struct trace_record *record);
    void (*steps)(void *self, const struct step_row *row);
    void (*transfer)(void *self, const struct transfer_row *row);
    void (*sample)(void *self, const struct sample_row *row);
    void (*notice)(void *self, const char *text); /* a line for people, without its end: a node was lost */
};

/* Requests that come from outside, when they come: in place of what a load says. Their tokens are within
 * request_tokens_max, their ids dense from 0. */
struct run_source {
    void *self;
    uint32_t request_tokens_max;
    uint32_t requests_together;
    bool (*next)(void *self, struct workload_item *item); /* what has come; false: nothing more so far */
    bool (*closed)(void *self);                           /* and nothing will */
};

/* Everything is borrowed and must outlive the run. */
struct run_config {
    const struct scenario *scenario;
    const struct deployment_choice *choice;
    uint64_t seed;
    const struct load *load;                  /* in place of the scenario's; NULL: the scenario's own */
    const struct trace_file *recorded;        /* of a trace load, else NULL */
    const struct workload_arrivals *arrivals; /* of a run that is played again; NULL: the load draws them */
    const struct run_source *source;          /* in place of any load; NULL: the load */
    const struct scenario_override *sets;     /* that the scenario was loaded with, for processes that load it, too */
    size_t set_count;
    const void *options; /* the backend's own; NULL: none */
    struct run_listener listener;
};

enum run_status {
    RUN_COMPLETE = 1,    /* every request has ended and everything is back */
    RUN_STOPPED = 2,     /* by the listener or by an interrupt; summaries are of what was seen */
    RUN_NO_PROGRESS = 3, /* requests are unfinished, and nothing would ever happen or it took longer than it may */
    RUN_INVARIANT = 4,   /* a checker failed: something is left, lost or differs that must not */
    RUN_REFUSED = 5,     /* the scenario cannot be run so */
};

/* What the program says of it to a script. */
enum exit_status run_exit(enum run_status status);

struct run_result {
    enum run_status status;
    char text[4096]; /* of the last three */
    struct run_summary summary;
    uint32_t instance_count; /* without the front */
    struct instance_summary *instances;
    uint64_t *itl; /* ITL_BUCKETS counts, after the warm-up */
    uint32_t machines;
    uint32_t gpus;
    uint64_t usd_micros_per_hour;
    uint64_t queue_events; /* taken from a simulation's queue; the summary counts those given to nodes */
    uint64_t steps;
};

/* Fills *result, which the caller gives back with run_result_free(), whatever the status. */
void run_play(const struct run_backend *backend, const struct run_config *config, struct run_result *result);

void run_result_free(struct run_result *result);

/* The trace that a scenario's load names, or NULL with error->set false when it names none. The caller frees. */
struct trace_file *scenario_trace(const struct scenario *scenario, struct user_error *error);

#endif
