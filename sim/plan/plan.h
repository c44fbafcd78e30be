/* The planner: how many prefill and decode workers, or how many that do both, sharded how, for this load and these
 * targets.
 *
 * Disaggregated and aggregated deployments are candidates alike. Those of a kind are ordered by what their bounds
 * promise for the money and searched in waves. One whose bound cannot beat what another of its kind has been shown to
 * serve is left out; one that misses the targets where it would equal that other one, less a slack, on the same
 * requests, is dismissed. For the others the highest rate that meets the targets is bracketed by simulation, under each
 * seed; the mean over seeds and its 95 % confidence interval are reported. The answer does not depend on the number of
 * threads.
 *
 * A recorded trace has no seeds: it is played whole. Where it is longer than what the seeds are asked to play together,
 * windows of it come first, one a seed and the same for every candidate, at the pace of the whole; they only decide who
 * plays the whole trace, whose rate is the answer.
 *
 * Where the errors of the device model are known, those that may be the answer are searched again at the limits of the
 * error: with steps of prefill, and of decoding, as fast and as slow as validation leaves open (uncertainty.c). What
 * wins everywhere is certain; else the plan names the step to measure, and the time that decides.
 *
 * The result is facts; sentences are the command line's.
 */
#ifndef TANDEM_SIM_PLAN_PLAN_H
#define TANDEM_SIM_PLAN_PLAN_H

#include "host/progress.h"
#include "host/user_error.h"
#include "sim/plan/candidate.h"
#include "sim/plan/model_error.h"
#include "sim/plan/probe.h"

#define PLAN_SEEDS_MAX 16
#define NO_CANDIDATE UINT32_MAX

/* Bounds leave out queueing, but a batch at its mean context or a step filled to the brim may do a little better than
 * computed: a candidate is left out only when its bound, with this on top, does not reach the best; and no rate above
 * that is tried, for a finite probe with lax targets may pass at any. */
#define PLAN_BOUND_SLACK_PERMILLE 150

/* Limits of the error of the device model, at which candidates are compared. At the first four, steps of all candidates
 * take what the limit says; at the last two, steps of the rival alone, where its sharding differs from the best one's.
 */
enum error_limit {
    LIMIT_PREFILL_FAST = 0,
    LIMIT_PREFILL_SLOW = 1,
    LIMIT_DECODE_FAST = 2,
    LIMIT_DECODE_SLOW = 3,
    LIMIT_PREFILL_RELATIVE = 4,
    LIMIT_DECODE_RELATIVE = 5,
    ERROR_LIMITS = 6,
};

/* What the search found out about one candidate. */
struct plan_candidate {
    struct candidate candidate;
    bool queued;                    /* given to the search */
    bool searched;                  /* its rate is known */
    uint64_t dismissed_micro_per_s; /* it misses the targets at this rate, which it had to reach; 0: not dismissed */
    uint32_t seeds;                 /* that it was given */
    bool reachable;                 /* some rate meets the targets */
    bool capped; /* the targets were met at the bound itself: what a longer load would show is not known */
    bool seed_done[PLAN_SEEDS_MAX];            /* false for all that an interrupt or a failure cut off */
    uint64_t seed_micro_per_s[PLAN_SEEDS_MAX]; /* highest rate that met the targets, by seed */
    struct probe at[PLAN_SEEDS_MAX];           /* the probe at that rate */
    struct probe above[PLAN_SEEDS_MAX];        /* the lowest one seen to fail */
    bool whole_done;                           /* a long trace was played whole: its rate, not the windows' */
    uint64_t whole_micro_per_s;
    struct probe whole_at;
    struct probe whole_above;
    struct probe light;            /* hardly any load: what latencies are made of when nothing waits */
    struct probe overload;         /* twice its rate, to the end: what it completes then is its saturation */
    uint64_t rate_micro_per_s;     /* mean over seeds, or of the whole trace; 0: none meets the targets */
    uint64_t rate_low_micro_per_s; /* 95 % confidence interval of the mean; of a trace, what the search leaves open */
    uint64_t rate_high_micro_per_s;
    uint32_t worst_seed; /* index of the seed with the lowest rate */
    enum bound bound_by;
    uint32_t saturation_permille;       /* its rate as a share of what it completes under overload, at most 1000 */
    bool short_probes;                  /* its rate lies above that: a longer load would lower it */
    uint64_t usd_micros_per_mtok;       /* per million output tokens at its rate; 0: no price is known */
    uint64_t asked_usd_micros_per_mtok; /* ... at the rate that is to be served; 0: no rate is asked */
    bool uncertainty_known;             /* its rates at the limits of the model's error are known: */
    /* Under the first seed and of a part of a probe's requests: enough to compare. The last is where the model is
     * right. */
    bool limit_known[ERROR_LIMITS + 1];
    uint64_t limit_micro_per_s[ERROR_LIMITS + 1];
    uint64_t rate_model_low_micro_per_s; /* its rate, between the least and the most of the first four limits */
    uint64_t rate_model_high_micro_per_s;
};

/* The probes behind a candidate's rate: where it meets the targets, and the lowest seen to fail, under the least
 * favourable seed or on the whole trace. */
const struct probe *plan_at(const struct plan_candidate *item);
const struct probe *plan_above(const struct plan_candidate *item);

struct frontier_point {
    bool aggregated;
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
struct plan_uncertainty {
    bool known;
    struct step_error error[STEP_KINDS]; /* of the best one's pools */
    bool certain;                        /* nothing else may be better */
    bool alternative_may_win;            /* the best one of the other kind */
    uint32_t tie_count;
    uint32_t ties[PLAN_TIES_MAX]; /* candidates that may be as good or better, the likeliest first */
    uint32_t measure_count;
    struct plan_measure measures[PLAN_MEASURES_MAX];
};

#define PLAN_FRONTIER_MAX 32

/* Whether there is an answer, and why not. */
enum plan_outcome {
    PLAN_FOUND = 1,
    PLAN_INTERRUPTED = 2,
    PLAN_NONE_DEPLOYABLE = 3,  /* every candidate is refused; `closest`, as an example */
    PLAN_NONE_HOLDS_ONE = 4,   /* the KV of one request does not fit what the model leaves of `closest` */
    PLAN_NONE_FAST_ENOUGH = 5, /* alone in the batch, a request on `closest` gets tokens too slowly */
    PLAN_BOUNDS_TOO_LOW = 6,   /* no bound reaches the rate that is to be served; that of `closest` is the greatest */
    PLAN_NONE_SERVES = 7,      /* simulated, the most is what `closest` serves */
    PLAN_NONE_MEETS = 8,       /* `closest` misses the targets at hardly any load */
};

struct plan_result {
    uint32_t count;
    struct plan_candidate *items; /* as enumerated */
    uint32_t *order;              /* indices of all: what was searched first, the most for the money first */
    enum plan_outcome outcome;
    uint32_t best;        /* index of the recommended one */
    uint32_t runner_up;   /* the next one by the same rule */
    uint32_t alternative; /* the best one of the other kind: aggregated beside disaggregated, or the reverse */
    uint32_t closest;     /* as the outcome says */
    bool aggregated_searched;
    bool disaggregated_searched;
    bool whole_trace;  /* played, not drawn under seeds */
    uint32_t seeds;    /* behind a rate */
    uint32_t requests; /* of the runs behind a rate */
    uint32_t frontier_count;
    struct frontier_point frontier[PLAN_FRONTIER_MAX];
    struct plan_uncertainty uncertainty;
    bool interrupted;
    uint64_t probes_run;
    uint64_t probes_found;      /* taken from the store */
    struct scenario **variants; /* of aggregated candidates, which point to them */
    uint32_t variant_count;
};

/* Where probes are kept. Called by one thread at a time. Either may be NULL. `candidate` names it within the
 * scenario. */
struct probe_store {
    void *self;
    bool (*find)(void *self, const char *candidate, uint64_t rate_micro_per_s, uint64_t seed, struct probe *probe);
    bool (*keep)(void *self, const char *candidate, const struct probe *probe, struct user_error *error);
};

struct plan_options {
    uint32_t threads;
    bool exhaustive; /* search every candidate with every seed, also those that their bounds or others rule out */
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
                             const struct plan_options *options, struct plan_result *result, struct user_error *error);

/* By how much a serves more for its cost than b, at their rates, in permille of b's; 1000: the same. */
uint64_t plan_worth_permille(const struct plan_candidate *a, const struct plan_candidate *b);
void plan_result_free(struct plan_result *result);

#endif
