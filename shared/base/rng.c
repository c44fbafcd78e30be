/* See rng.h. */
#include "base/rng.h"

#include "base/arith.h"

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t rotate_left(uint64_t x, int bits)
{
    return (x << bits) | (x >> (64 - bits));
}

struct rng rng_stream(uint64_t run_seed, uint64_t component, enum rng_purpose purpose)
{
    uint64_t seed = run_seed;
    uint64_t mixed = splitmix64(&seed);
    seed = mixed ^ (component * UINT64_C(0xd6e8feb86659fd93));
    mixed = splitmix64(&seed);
    seed = mixed ^ ((uint64_t)purpose * UINT64_C(0xa0761d6478bd642f));
    struct rng rng;
    for (int i = 0; i < 4; i++)
        rng.state[i] = splitmix64(&seed);
    return rng;
}

uint64_t rng_next(struct rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

uint64_t rng_below(struct rng *rng, uint64_t bound)
{
    CHECK(bound > 0);
    /* Lemire's multiply-and-reject: the low half tells whether the draw falls into the biased remainder. */
    uint128 product = (uint128)rng_next(rng) * bound;
    if ((uint64_t)product < bound) {
        uint64_t threshold = (0 - bound) % bound;
        while ((uint64_t)product < threshold)
            product = (uint128)rng_next(rng) * bound;
    }
    return (uint64_t)(product >> 64);
}

uint64_t rng_between(struct rng *rng, uint64_t low, uint64_t high)
{
    CHECK(low <= high);
    if (low == 0 && high == UINT64_MAX)
        return rng_next(rng);
    return low + rng_below(rng, high - low + 1);
}

bool rng_chance(struct rng *rng, uint64_t numerator, uint64_t denominator)
{
    CHECK(numerator <= denominator);
    return rng_below(rng, denominator) < numerator;
}

/* -log2(u / 2^64) in 2^-40 units, for u > 0: the integer part from the leading zeros, the fraction bit by bit by
 * squaring the mantissa. */
static uint64_t minus_log2_q40(uint64_t u)
{
    int zeros = 0;
    while (!(u & (UINT64_C(1) << 63))) {
        u <<= 1;
        zeros++;
    }
    uint64_t fraction = 0;
    for (int bit = 0; bit < 40; bit++) {
        uint128 square = (uint128)u * u;
        fraction <<= 1;
        if (square >> 127) {
            fraction |= 1;
            u = (uint64_t)(square >> 64);
        } else {
            u = (uint64_t)(square >> 63);
        }
    }
    /* log2(u / 2^64) = -zeros - 1 + fraction */
    return ((uint64_t)(zeros + 1) << 40) - fraction;
}

uint64_t rng_exponential(struct rng *rng, uint64_t mean)
{
    CHECK(mean < (UINT64_C(1) << 56));
    const uint64_t ln2_q40 = UINT64_C(762123384786); /* ln 2 * 2^40 */
    uint64_t u = rng_next(rng) | 1;
    uint128 minus_ln_q80 = (uint128)minus_log2_q40(u) * ln2_q40;
    uint128 scaled = (minus_ln_q80 >> 20) * mean;
    uint128 rounded = (scaled + ((uint128)1 << 59)) >> 60;
    CHECK(rounded <= UINT64_MAX);
    return (uint64_t)rounded;
}
