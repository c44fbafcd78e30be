/* Random variates of the families that request arrivals are described with, in fixed point: the same on every machine.
 *
 * All are of scale 1, in units of 2^-32. Logarithms are taken bit by bit by squaring, powers of two bit by bit by
 * multiplying, so nothing here uses floating point; they are good to about 2^-28 of their value.
 */
#ifndef TANDEM_WORLD_LOAD_VARIATE_H
#define TANDEM_WORLD_LOAD_VARIATE_H

#include "base/rng.h"

#include <stdint.h>

#define VARIATE_ONE (UINT64_C(1) << 32)

/* Shapes in thousandths; those of recorded traffic lie between a hundredth and a few hundred. */
#define VARIATE_SHAPE_MIN 5
#define VARIATE_SHAPE_MAX 1000000

/* Gamma distributed; its mean is the shape. Whole parts of the shape are sums of exponential variates, the rest is by
 * rejection (Ahrens and Dieter, 1974: algorithm GS). */
uint64_t variate_gamma(struct rng *rng, uint32_t shape_milli);

/* Weibull distributed: an exponential variate to the power of 1 / shape. */
uint64_t variate_weibull(struct rng *rng, uint32_t shape_milli);

/* Its mean, the gamma function of 1 + 1 / shape (Abramowitz and Stegun, 6.1.36, good to 3e-7). */
uint64_t variate_weibull_mean(uint32_t shape_milli);

/* log2 of a number above 0, and 2 to a power, both of them and their results in units of 2^-32. What is too large for a
 * result is UINT64_MAX. */
int64_t variate_log2(uint64_t value);
uint64_t variate_exp2(int64_t power);

#endif
