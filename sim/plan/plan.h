/* The planner: how many prefillers and decoders, sharded how, for this load and these targets.
 *
 * Candidates are ordered by what their bounds promise for the money and searched in waves; a candidate whose bound
 * cannot beat what another has been shown to serve is left out and said to be. For each candidate and seed the highest
 * rate that meets the targets is bracketed by simulation; the mean over seeds and its 95 % confidence interval are
 * reported. One that falls far behind the best under its first seed is not given the others. The answer does not depend
 * on the number of threads.
 */
#ifndef TANDEM_SIM_PLAN_PLAN_H
#define TANDEM_SIM_PLAN_PLAN_H

#include "host/progress.h"
#include "sim/plan/candidate.h"
#include "sim/plan/probe.h"

#define PLAN_SEEDS_MAX 16

/* Bounds leave out queueing, but a batch at its mean context or a step filled to the brim may do a little better than
 * computed: a candidate is left out only when its bound, with this on top, does not reach the best; and no rate above
 * that is tried, for a finite probe with lax targets may pass at any. */
#define PLAN_BOUND_SLACK_PERMILLE 150

/* What the search found out about one candidate. */
struct plan_candidate {
    struct candidate candidate;
    bool searched;
    uint32_t seeds; /* that it was given */
    bool reachable; /* some rate meets the targets */
    bool capped;    /* the targets were met at the bound itself: what a longer load would show is not known */
    bool seed_done[PLAN_SEEDS_MAX];            /* false for all that an interrupt or a failure cut off */
    uint64_t seed_micro_per_s[PLAN_SEEDS_MAX]; /* highest rate that met the targets, by seed */
    struct probe at[PLAN_SEEDS_MAX];           /* the probe at that rate */
    struct probe above[PLAN_SEEDS_MAX];        /* the lowest one seen to fail */
    struct probe light;                        /* hardly any load: what latencies are made of when nothing waits */
    struct probe overload;         /* twice its rate, to the end: what it completes then is its saturation */
    uint64_t rate_micro_per_s;     /* mean over seeds; 0: none meets the targets */
    uint64_t rate_low_micro_per_s; /* 95 % confidence interval of the mean */
    uint64_t rate_high_micro_per_s;
    uint32_t worst_seed; /* index of the seed with the lowest rate */
    enum bound bound_by;
    uint32_t saturation_permille; /* its rate as a share of what it completes under overload */
    uint64_t usd_micros_per_mtok; /* per million output tokens at its rate; 0: no price is known */
};

struct frontier_point {
    bool mixed;
    char label[256];
    uint64_t rate_micro_per_s;
    uint64_t tokens_per_s_per_user_milli; /* 1 / median TPOT */
    uint64_t tokens_per_s_per_gpu_milli;
};

#define PLAN_FRONTIER_MAX 32

struct plan_result {
    uint32_t count; /* in the order of the search */
    struct plan_candidate *items;
    uint32_t best;      /* index of the recommended one; UINT32_MAX: none meets the targets */
    uint32_t colocated; /* index of the best colocated one; UINT32_MAX: none */
    uint32_t frontier_count;
    struct frontier_point frontier[PLAN_FRONTIER_MAX];
    char why[1024];
    bool interrupted;
    uint64_t probes_run;
    uint64_t probes_found;      /* taken from the store */
    struct scenario **variants; /* of colocated candidates, which point to them */
    uint32_t variant_count;
};

/* Where probes are kept. Called by one thread at a time. Either may be NULL. `candidate` names it within the
 * scenario. */
struct probe_store {
    void *self;
    bool (*find)(void *self, const char *candidate, uint64_t rate_micro_per_s, uint64_t seed, struct probe *probe);
    bool (*keep)(void *self, const char *candidate, const struct probe *probe, char *error, size_t error_size);
};

struct plan_options {
    uint32_t threads;
    bool exhaustive; /* search every candidate with every seed, also those that their bounds rule out */
    struct probe_store store;
    struct progress *progress; /* NULL: none */
};

enum plan_status {
    PLAN_DONE = 1,
    PLAN_REFUSED = 2,     /* the scenario cannot be planned: exit status 2 */
    PLAN_NO_PROGRESS = 3, /* a probe stood still: 128 */
    PLAN_INVARIANT = 4,   /* a probe broke an invariant: 129 */
};

/* `recorded` is the trace of a trace load, else NULL. Fills *result, which plan_result_free() gives back. */
enum plan_status plan_search(const struct scenario *scenario, const struct trace_file *recorded,
                             const struct plan_options *options, struct plan_result *result, char *error,
                             size_t error_size);
void plan_result_free(struct plan_result *result);

/* Names a probe in the store: the candidate's label and the share of the load it stands for. */
void plan_probe_label(const struct candidate *candidate, uint32_t requests, bool early, char *label, size_t size);

#endif
