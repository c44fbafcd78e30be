/* What the planner chooses among: so many prefillers and so many decoders, each pool on its hardware with one of its
 * shardings; and, to compare with, colocated serving on the same machines.
 *
 * Each candidate comes with an upper bound of its rate, computed without simulating from the device model: what its
 * prefillers can compute, what its decoders can produce within the TPOT target and their KV memory, what its NICs can
 * carry. A candidate whose bound cannot beat what another one was shown to serve need not be simulated.
 */
#ifndef TANDEM_SIM_PLAN_CANDIDATE_H
#define TANDEM_SIM_PLAN_CANDIDATE_H

#include "world/deployment.h"
#include "world/scenario/scenario.h"
#include "world/load/trace_reader.h"
#include "sim/plan/scaled_device.h"
#include "sim/sim_run.h"
#include "host/user_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What keeps a candidate from serving more. Names are in bound_name(). */
enum bound {
    BOUND_NONE = 0,
    BOUND_PREFILL_COMPUTE = 1,
    BOUND_DECODE_COMPUTE = 2,
    BOUND_DECODE_BANDWIDTH = 3,
    BOUND_DECODE_COMMUNICATION = 4,
    BOUND_DECODE_OVERHEAD = 5,
    BOUND_KV_CAPACITY = 6,
    BOUND_HANDOFFS = 7,
    BOUND_NIC_BANDWIDTH = 8,
    BOUND_NIC_OP_RATE = 9,
    BOUND_DOES_NOT_FIT = 10,
    BOUND_PREFILL_INTERFERENCE = 11, /* mixed: a prompt's chunks stretch the steps of those who decode */
    BOUND_BATCH_LIMIT = 12,          /* batch_max of the decoders */
};
const char *bound_name(enum bound bound);

struct candidate {
    const struct scenario *scenario; /* the plan's, or one of its colocated variants */
    struct deployment_choice choice;
    struct run_models models; /* borrowed from the plan */
    struct step_scale scale;  /* what steps take of what the models say */
    bool aggregated;
    uint32_t prefill; /* instances; mixed ones count as decode */
    uint32_t decode;
    uint32_t machines;
    uint32_t gpus;
    struct deployment_paths paths; /* of its hand-overs */
    uint64_t usd_micros_per_hour;  /* 0: the price of one of its machines is not known */
    uint64_t cost;      /* what candidates are compared by: dollars where all of a plan have prices, else GPUs */
    char label[256];    /* "2P3D TP8 / DP8 EP8": unique in a plan, it names the candidate's probes in the store */
    char sharding[224]; /* "TP8 / DP8 EP8": with the hardware, or the pool, where that tells candidates apart */
    char refusal[256];  /* why it cannot run; empty: it can */
    uint64_t prompt_ns; /* mean device time of one prompt on an instance of the prefill (or mixed) pool */
    int64_t token_ns;   /* decode step of one sequence a group: no output token comes faster */
    uint64_t bound_micro_per_s;
    enum bound bound_by;         /* which of the bounds is the least */
    uint64_t likely_micro_per_s; /* where a search may begin: the bound, and for mixed instances what both kinds of work
                                    leave to each other */
};

/* Samples of what is to be served, from which bounds are computed. */
struct demand {
    uint32_t count;
    uint32_t *prompt_tokens;
    uint32_t *output_tokens;
    uint32_t *cached_tokens; /* of each prompt, at most: what an unlimited prefix cache would have of it */
    uint64_t prompt_sum;
    uint64_t output_sum;
};

/* Up to `count` requests of the scenario's load, spread over a trace. False with an error when the load cannot be
 * drawn. */
bool demand_make(struct demand *demand, const struct scenario *scenario, const struct trace_file *recorded,
                 uint32_t count, struct user_error *error);
void demand_free(struct demand *demand);

/* Mean tokens that a decoding sequence has cached, over the tokens produced. */
uint64_t demand_context(const struct demand *demand);

/* Fills machines, gpus, price and the bounds of a candidate whose scenario, choice, models and scale are set; sets
 * `refusal` instead when it cannot be deployed. */
void candidate_assess(struct candidate *candidate, const struct demand *demand, const struct deployment_sizes *sizes);

#endif
