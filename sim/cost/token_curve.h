/* A duration as a function of a count of tokens, tabulated on breakpoints that lie like floating-point numbers: every
 * integer below 32, then 16 breakpoints an octave. Between breakpoints it is linear in integers; it never decreases.
 */
#ifndef TANDEM_SIM_COST_TOKEN_CURVE_H
#define TANDEM_SIM_COST_TOKEN_CURVE_H

#include "base/arith.h"

#include <stdint.h>

#define TOKEN_CURVE_BITS 4
#define TOKEN_CURVE_OCTAVE_LAST 21 /* 2^21 is REQUEST_TOKENS_MAX; beyond the last breakpoint the last slope goes on */

/* Position of x on breakpoints with 2^bits an octave, exact below 2^(bits + 1). */
struct breakpoint_position {
    uint32_t index;
    uint32_t shift; /* the next breakpoint is 2^shift away */
    uint64_t above; /* x minus the breakpoint */
};

static inline struct breakpoint_position breakpoint_locate(uint64_t x, uint32_t bits, uint32_t octave_last)
{
    if (x < UINT64_C(2) << bits)
        return (struct breakpoint_position){.index = (uint32_t)x};
    uint32_t octave = 63u - (uint32_t)__builtin_clzll(x);
    if (octave > octave_last)
        octave = octave_last;
    uint32_t shift = octave - bits;
    uint64_t mantissa = x >> shift;
    uint64_t mantissa_last = (UINT64_C(2) << bits) - 1;
    if (mantissa > mantissa_last)
        mantissa = mantissa_last;
    return (struct breakpoint_position){
        .index = (shift << bits) + (uint32_t)mantissa,
        .shift = shift,
        .above = x - (mantissa << shift),
    };
}

/* Breakpoints 0 ... breakpoint_count - 1 exist; the last octave's end is one of them. */
#define BREAKPOINT_COUNT(bits, octave_last) ((((octave_last) - (bits)) << (bits)) + (2u << (bits)) + 1u)

static inline uint64_t breakpoint_value(uint32_t index, uint32_t bits)
{
    if (index < 2u << bits)
        return index;
    uint32_t shift = (index >> bits) - 1;
    return (uint64_t)(index - (shift << bits)) << shift;
}

#define TOKEN_CURVE_BREAKPOINTS BREAKPOINT_COUNT(TOKEN_CURVE_BITS, TOKEN_CURVE_OCTAVE_LAST)

struct token_curve {
    int64_t ns[TOKEN_CURVE_BREAKPOINTS];
};

/* Between low at the breakpoint and high at the next one; they do not decrease. */
static inline int64_t breakpoint_between(const struct breakpoint_position *at, int64_t low, int64_t high)
{
    return low + (int64_t)(uint64_t)((uint128)(uint64_t)(high - low) * at->above >> at->shift);
}

static inline int64_t token_curve_ns(const struct token_curve *curve, uint64_t tokens)
{
    struct breakpoint_position at = breakpoint_locate(tokens, TOKEN_CURVE_BITS, TOKEN_CURVE_OCTAVE_LAST);
    return breakpoint_between(&at, curve->ns[at.index], curve->ns[at.index + 1]);
}

#endif
