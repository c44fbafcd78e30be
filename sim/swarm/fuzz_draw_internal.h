/* Between the files of fuzz_draw.h. */
#ifndef TANDEM_SIM_SWARM_FUZZ_DRAW_INTERNAL_H
#define TANDEM_SIM_SWARM_FUZZ_DRAW_INTERNAL_H

#include "base/arith.h"
#include "base/rng.h"
#include "sim/swarm/fuzz_draw.h"

#include <stdbool.h>

#define LENGTH(list) (sizeof(list) / sizeof((list)[0]))

/* What a seed turns on; the more, the rarer each is in company. */
struct tastes {
    bool aborts;
    bool prefixes;
    bool tight;
    bool tail;
    bool drafts;
    bool aggregated;
    bool pools;     /* more than one of a role */
    bool generated; /* the load makes its requests, rather than list them */
    bool bursts;
    bool short_deadlines;
    bool kills;
    bool messages;
    bool writes;
    bool network;
    bool late_writes; /* by up to half a minute */
    bool overload;
    bool last_words; /* messages and completions of the dead, when they have been missed and are not fenced yet */
    bool in_time;    /* requests that come when a loss is noticed */
    bool late_nacks;
    bool beside;      /* mixed pools beside prefill and decode */
    bool functions;   /* a policy in Lua */
    bool conditional; /* decoders compute some of their prompts */
    bool returns;     /* of both sides of a pair, while all is said twice */
};

static inline uint32_t between(struct rng *rng, uint32_t low, uint32_t high)
{
    return (uint32_t)rng_between(rng, low, high);
}

static inline bool one_in(struct rng *rng, uint32_t n)
{
    return rng_below(rng, n) == 0;
}

/* Small ones often, large ones sometimes: uniform in the number of digits. In [1, most]. */
static inline int64_t scaled(struct rng *rng, int64_t most)
{
    uint32_t digits = 1;
    while (digits < 62 && INT64_C(1) << digits < most)
        digits++;
    uint32_t bits = between(rng, digits > 16 ? digits - 16 : 1, digits);
    return min_i64(most, 1 + (int64_t)rng_below(rng, UINT64_C(1) << bits));
}

/* After a death, in a simulated run: sim/sim_run.c. */
#define SUSPECTED_NS (3 * NS_PER_S)
#define FENCED_NS (4 * NS_PER_S)

/* The scenario has its pools and its load. */
void fuzz_draw_faults(struct rng *rng, const struct tastes *tastes, struct drawn *drawn);

/* Makes something else of the whole: refusals that come late. There are prefillers and decoders. */
void fuzz_draw_late_nacks(struct rng *rng, struct drawn *drawn);

/* The same: decoders that compute again. The load lists its requests. */
void fuzz_draw_recomputes(struct rng *rng, struct drawn *drawn);

#endif
