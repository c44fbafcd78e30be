/* See nic.h. */
#include "sim/net/nic.h"

#include "base/arith.h"

/* log2(x) for x in (0, 2]: the power of two is taken out exactly, the rest by 2 atanh(z) with |z| <= 0.172, whose
 * thirteen terms leave 1e-20. */
static double log2_of(double x)
{
    static const double inverse_ln2 = 1.4426950408889634;
    double exponent = 0;
    while (x < 0.70710678118654752) {
        x *= 2;
        exponent -= 1;
    }
    while (x > 1.4142135623730951) {
        x /= 2;
        exponent += 1;
    }
    double z = (x - 1) / (x + 1);
    double square = z * z;
    double sum = 0;
    for (int term = 25; term >= 1; term -= 2)
        sum = sum * square + 1.0 / term;
    return exponent + 2 * z * sum * inverse_ln2;
}

/* 2^x for x in [-64, 1]: e^(f ln 2) with f in [0, 1) by its series, then halved or doubled exactly. */
static double exp2_of(double x)
{
    static const double ln2 = 0.69314718055994531;
    double scale = 1;
    while (x < 0) {
        x += 1;
        scale /= 2;
    }
    double y = x * ln2;
    double sum = 1;
    for (int term = 22; term >= 1; term--)
        sum = 1 + sum * y / term;
    return sum * scale;
}

/* (a^p + b^p)^(1/p) for a, b >= 0, p > 0. The greater of the two is taken out, so that nothing overflows; what the
 * smaller adds below one part in 2^60 is nothing. */
static double smooth_max(double a, double b, double p)
{
    double greater = a > b ? a : b;
    double smaller = a > b ? b : a;
    if (smaller <= 0)
        return greater;
    double power = p * log2_of(smaller / greater);
    if (power < -60)
        return greater;
    return greater * exp2_of(log2_of(1 + exp2_of(power)) / p);
}

uint64_t nic_wire_ps(uint64_t bytes_per_s, uint64_t bytes)
{
    return mul_div_ceil_u64(bytes, UINT64_C(1000000000000), bytes_per_s);
}

uint64_t nic_stream_ps(const struct nic *nic, uint64_t bytes)
{
    CHECK(nic->bytes_per_s > 0 && nic->gap_ps >= 0 && nic->knee_permille >= 1000);
    double wire_ps = (double)bytes * 1e12 / (double)nic->bytes_per_s;
    double time_ps = smooth_max((double)nic->gap_ps, wire_ps, (double)nic->knee_permille / 1000);
    return (uint64_t)(time_ps + 0.5);
}

uint64_t nic_transmit_ps(const struct nic *nic, uint64_t bytes)
{
    uint64_t stream_ps = nic_stream_ps(nic, bytes);
    if (nic->queue_depth == 0)
        return stream_ps;
    uint64_t round_ps = (uint64_t)nic->base_ns * 1000 + nic_wire_ps(nic->bytes_per_s, bytes);
    return max_u64(stream_ps, ceil_div_u64(round_ps, nic->queue_depth));
}
