/* The planner: how many prefillers and decoders, sharded how, for this load and these targets.
 *
 * Candidates are ordered by what their bounds promise for the money and searched in waves; a candidate whose bound
 * cannot beat what another has been shown to serve is left out and said to be. For each candidate and seed the highest
 * rate that meets the targets is bracketed by simulation; the mean over seeds and its 95 % confidence interval are
 * reported. One that falls far behind the best under its first seed is not given the others. The answer does not depend
 * on the number of threads.
 *
 * Where the errors of the device model are known, those that may be the answer are searched again at their ends: with
 * steps of prefill, and of decoding, as fast and as slow as validation leaves open (doubt.c). What wins everywhere is
 * recommended; else the plan says which step to measure, and the time that decides.
 */
#ifndef TANDEM_SIM_PLAN_PLAN_H
#define TANDEM_SIM_PLAN_PLAN_H

#include "host/progress.h"
#include "sim/plan/candidate.h"
#include "sim/plan/model_error.h"
#include "sim/plan/probe.h"

#define PLAN_SEEDS_MAX 16

/* Bounds leave out queueing, but a batch at its mean context or a step filled to the brim may do a little better than
 * computed: a candidate is left out only when its bound, with this on top, does not reach the best; and no rate above
 * that is tried, for a finite probe with lax targets may pass at any. */
#define PLAN_BOUND_SLACK_PERMILLE 150

/* Where in the error of the device model candidates are compared. At the first four, steps of all candidates take what
 * the end says; at the last two, steps of the rival alone, where its sharding differs from the best one's. */
enum plan_end {
    END_PREFILL_FAST = 0,
    END_PREFILL_SLOW = 1,
    END_DECODE_FAST = 2,
    END_DECODE_SLOW = 3,
    END_PREFILL_APART = 4,
    END_DECODE_APART = 5,
    PLAN_ENDS = 6,
};

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
    bool doubted;                 /* its rates at the ends of the model's error are known: */
    /* Under the first seed and of a part of a probe's requests: enough to compare. The last is where the model is
     * right. */
    bool end_known[PLAN_ENDS + 1];
    uint64_t end_micro_per_s[PLAN_ENDS + 1];
    uint64_t rate_model_low_micro_per_s; /* its rate, between the least and the most of the first four ends */
    uint64_t rate_model_high_micro_per_s;
};

struct frontier_point {
    bool mixed;
    char label[256];
    uint64_t rate_micro_per_s;
    uint64_t tokens_per_s_per_user_milli; /* 1 / median TPOT */
    uint64_t tokens_per_s_per_gpu_milli;
};

/* A step whose time decides between the best candidate and another. */
struct plan_measure {
    enum step_kind step;
    char sharding[96];  /* of the instance to measure */
    uint32_t gpus;      /* of it */
    char engine[16];    /* whose benchmark takes it */
    uint32_t sequences; /* of the step: of all attention groups */
    uint64_t tokens;    /* a sequence: of its prompt, or cached */
    int64_t model_ns;   /* what the model says */
    int64_t decides_ns; /* where both serve as much */
    char below[256];    /* what is best when the step is faster than that; empty: none serves the rate */
    char above[256];    /* ... slower */
};

#define PLAN_MEASURES_MAX 2 /* one of prefill, one of decoding */
#define PLAN_TIES_MAX 8

/* What the error of the device model leaves of the answer. */
struct plan_doubt {
    bool known;
    struct step_error error[STEP_KINDS]; /* of the best one's pools */
    bool certain;                        /* no other ratio may be better */
    bool colocated_may_win;
    uint32_t tie_count;
    uint32_t ties[PLAN_TIES_MAX]; /* candidates that may be as good or better, the likeliest first */
    uint32_t measure_count;
    struct plan_measure measures[PLAN_MEASURES_MAX];
};

#define PLAN_FRONTIER_MAX 32

struct plan_result {
    uint32_t count; /* in the order of the search */
    struct plan_candidate *items;
    uint32_t best;      /* index of the recommended one; UINT32_MAX: none meets the targets */
    uint32_t colocated; /* index of the best colocated one; UINT32_MAX: none */
    uint32_t frontier_count;
    struct frontier_point frontier[PLAN_FRONTIER_MAX];
    struct plan_doubt doubt;
    char why[3072];
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
    struct progress *progress;         /* NULL: none */
    const struct model_errors *errors; /* of the device model; NULL: not known, and nothing is said of them */
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
/* How to take a measure, in words: the engine's own benchmark. */
void plan_measure_how(const struct plan_measure *measure, char *text, size_t size);

void plan_result_free(struct plan_result *result);

#endif
