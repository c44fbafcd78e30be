/* Random streams: one per purpose, so that a new draw in one place changes nothing elsewhere.
 *
 * Generator: xoshiro256** (Blackman and Vigna, 2018), seeded through splitmix64 from (run seed, component, purpose).
 * Probabilities are ratios of integers; nothing here uses floating point.
 */
#ifndef TANDEM_BASE_RNG_H
#define TANDEM_BASE_RNG_H

#include <stdbool.h>
#include <stdint.h>

/* What a stream is for. Append-only: the number is part of the seed. */
enum rng_purpose {
    RNG_ARRIVALS = 1,
    RNG_PROMPT_LENGTH = 2,
    RNG_OUTPUT_LENGTH = 3,
    RNG_ROUTING = 4,
    RNG_REPLICA = 5,
    RNG_NETWORK = 6,
    RNG_FAULTS = 7,
    RNG_TIES = 8,
    RNG_FINGERPRINT = 9,
    RNG_TRACE_WINDOW = 10,
    RNG_ABORTS = 11,
    RNG_GENERATE = 12,
};

struct rng {
    uint64_t state[4];
};

struct rng rng_stream(uint64_t run_seed, uint64_t component, enum rng_purpose purpose);
uint64_t rng_next(struct rng *rng);

/* Uniform in [0, bound), without bias; bound > 0. */
uint64_t rng_below(struct rng *rng, uint64_t bound);

/* Uniform in [low, high], low <= high. */
uint64_t rng_between(struct rng *rng, uint64_t low, uint64_t high);

/* True with probability numerator / denominator. */
bool rng_chance(struct rng *rng, uint64_t numerator, uint64_t denominator);

/* An exponential variate with mean `mean`, rounded to the nearest integer. Computed in fixed point with the logarithm
 * by repeated squaring, so that it is the same on every machine; relative resolution 2^-40. */
uint64_t rng_exponential(struct rng *rng, uint64_t mean);

#endif
