/* Logarithms and powers of two that are the same number on every machine: only + - * /, never the C library, whose last
 * bits differ. Both are within 2^-48 of the exact value.
 *
 * A duration is stored as a code: 512 * log2(nanoseconds), rounded. Two neighbouring codes are 0.135 % apart, so a code
 * is within 0.068 % of what was measured, whatever its magnitude.
 */
#ifndef TANDEM_BASE_LOG2_H
#define TANDEM_BASE_LOG2_H

#include <stdint.h>

#define LOG_CODES_AN_OCTAVE 512

/* Of a finite x > 0. */
double log2_of(double x);

/* 2^x for -1000 < x < 1000. */
double exp2_of(double x);

/* The code of a duration of at least 1 ns and below 2^127 ns. */
static inline uint16_t log_code(double ns)
{
    return (uint16_t)(log2_of(ns) * LOG_CODES_AN_OCTAVE + 0.5);
}

#endif
