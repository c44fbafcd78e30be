/* See log2.h. */
#include "base/log2.h"

#include "base/check.h"

#include <string.h>

#define LN_2 0.69314718055994530942
#define SQRT_2 1.41421356237309504880
#define MANTISSA UINT64_C(0x000fffffffffffff)
#define ONE UINT64_C(0x3ff0000000000000)

/* With s = (m - 1) / (m + 1): ln m = 2 (s + s^3 / 3 + s^5 / 5 + ...). m lies in [sqrt 1/2, sqrt 2], so s^2 < 0.0295
 * and what is left out after s^19 is below 2^-52. */
double log2_of(double x)
{
    CHECK(x > 0);
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & MANTISSA) | ONE;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > SQRT_2) {
        m *= 0.5;
        exponent++;
    }
    double s = (m - 1.0) / (m + 1.0);
    double q = s * s;
    double sum = 1.0 / 19.0;
    sum = sum * q + 1.0 / 17.0;
    sum = sum * q + 1.0 / 15.0;
    sum = sum * q + 1.0 / 13.0;
    sum = sum * q + 1.0 / 11.0;
    sum = sum * q + 1.0 / 9.0;
    sum = sum * q + 1.0 / 7.0;
    sum = sum * q + 1.0 / 5.0;
    sum = sum * q + 1.0 / 3.0;
    sum = sum * q + 1.0;
    return (double)exponent + 2.0 / LN_2 * s * sum;
}

/* The whole part goes into the exponent, the rest, within [-1/2, 1/2], through the series of e^z, |z| < 0.347. */
double exp2_of(double x)
{
    CHECK(x > -1000.0 && x < 1000.0);
    int64_t whole = (int64_t)(x < 0 ? x - 0.5 : x + 0.5);
    double z = (x - (double)whole) * LN_2;
    double sum = 1.0;
    for (uint32_t n = 13; n > 0; n--)
        sum = 1.0 + sum * z / (double)n;
    uint64_t bits = (uint64_t)(whole + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}
