/* Tokens over steps, for a batch whose every sequence takes the same number of tokens in a step.
 *
 * Without speculation that number is 1. A step that verifies d drafted tokens, each accepted with probability a if all
 * before it were, yields 1 + a + a^2 + ... + a^d on average; with the shares s1 ... sd of steps that accept the token
 * of each place, as engines report them, 1 + s1 + ... + sd. Sequences would draw around that mean one by one; here all
 * of a batch advance by the same whole number of tokens, whose sum over steps follows the mean: what is kept per
 * instance stays one number, and a steady step costs nothing per sequence.
 */
#ifndef TANDEM_SERVE_TOKEN_CLOCK_H
#define TANDEM_SERVE_TOKEN_CLOCK_H

#include "base/arith.h"

#include <stdint.h>

#define TOKEN_CLOCK_ONE (UINT32_C(1) << 16)

/* Tokens a step, times 2^16, at least TOKEN_CLOCK_ONE; rounded down. By place where the first place has a share, which
 * then stand in `place_permille`; else by the one number. */
static inline uint32_t token_clock_yield(uint32_t draft_tokens, uint32_t acceptance_permille,
                                         const uint16_t *place_permille)
{
    uint64_t sum = TOKEN_CLOCK_ONE;
    uint64_t power = TOKEN_CLOCK_ONE;
    if (place_permille[0] > 0) {
        uint32_t shares = 0;
        for (uint32_t i = 0; i < draft_tokens; i++)
            shares += place_permille[i];
        return (uint32_t)(sum + (uint64_t)shares * TOKEN_CLOCK_ONE / 1000);
    }
    for (uint32_t i = 0; i < draft_tokens && power > 0; i++) {
        power = power * acceptance_permille / 1000;
        sum += power;
    }
    return (uint32_t)sum;
}

/* What the clock shows after `step` steps of the instance. A sequence that joined after step j has since then taken
 * token_clock(step) - token_clock(j) tokens. */
static inline uint64_t token_clock(uint32_t yield, uint64_t step)
{
    return (uint64_t)((uint128)step * yield >> 16);
}

/* The first step after which the clock shows at least `tokens`. */
static inline uint64_t token_clock_step(uint32_t yield, uint64_t tokens)
{
    return (uint64_t)((((uint128)tokens << 16) + yield - 1) / yield);
}

#endif
