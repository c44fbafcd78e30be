/* See variate.h. */
#include "world/load/variate.h"

#include "base/arith.h"

#define ONE ((int64_t)VARIATE_ONE)
#define LN2_Q32 INT64_C(2977044472) /* ln 2 */
#define E_Q32 INT64_C(11674931555)  /* e */

int64_t variate_log2(uint64_t value)
{
    CHECK(value > 0);
    int64_t whole = 31;
    while (!(value >> 63)) {
        value <<= 1;
        whole--;
    }
    uint64_t fraction = 0;
    for (int bit = 0; bit < 32; bit++) {
        uint128 square = (uint128)value * value;
        bool over = square >> 127 != 0;
        fraction = fraction << 1 | (over ? 1 : 0);
        value = (uint64_t)(square >> (over ? 64 : 63));
    }
    return whole * ONE + (int64_t)fraction;
}

uint64_t variate_exp2(int64_t power)
{
    /* 2^(1/2), 2^(1/4), ... in units of 2^-62. */
    static const uint64_t roots[32] = {
        UINT64_C(0x5a827999fcef3242), UINT64_C(0x4c1bf828c6dc54b8), UINT64_C(0x45cae0f1f545eb73),
        UINT64_C(0x42d561b3e6243d8a), UINT64_C(0x4166c34c5615d0ec), UINT64_C(0x40b268f9de0183ba),
        UINT64_C(0x4058f6a7ecccd5b6), UINT64_C(0x402c6be96af2fb58), UINT64_C(0x4016321b687027a8),
        UINT64_C(0x400b18178ba33b14), UINT64_C(0x40058bce410147e8), UINT64_C(0x4002c5d7bff71daf),
        UINT64_C(0x400162e807ee7e5b), UINT64_C(0x4000b1730df6a524), UINT64_C(0x400058b9497b8152),
        UINT64_C(0x40002c5c955dd701), UINT64_C(0x4000162e46d6f26c), UINT64_C(0x40000b1722757b1b),
        UINT64_C(0x4000058b90fd3e0c), UINT64_C(0x400002c5c86f3f26), UINT64_C(0x40000162e433c79b),
        UINT64_C(0x400000b17218edd0), UINT64_C(0x40000058b90c3968), UINT64_C(0x4000002c5c860d54),
        UINT64_C(0x400000162e4302d2), UINT64_C(0x4000000b17218073), UINT64_C(0x400000058b90bffc),
        UINT64_C(0x40000002c5c85fef), UINT64_C(0x4000000162e42ff3), UINT64_C(0x40000000b17217f9),
        UINT64_C(0x4000000058b90bfc), UINT64_C(0x400000002c5c85fe),
    };
    int64_t whole = power >= 0 ? power / ONE : -((-power + ONE - 1) / ONE);
    uint64_t fraction = (uint64_t)(power - whole * ONE);
    uint64_t value = UINT64_C(1) << 62;
    if (whole >= 31)
        return UINT64_MAX;
    for (int bit = 0; bit < 32; bit++)
        if ((fraction >> (31 - bit) & 1) != 0)
            value = (uint64_t)((uint128)value * roots[bit] >> 62);
    /* From units of 2^-62 to those of 2^-32. */
    int64_t down = 30 - whole;
    return down >= 64 ? 0 : down >= 0 ? value >> down : value << -down;
}

/* value to the power of 1000 / milli. */
static uint64_t root(uint64_t value, uint32_t milli)
{
    int128 power = (int128)variate_log2(value) * 1000 / milli;
    if (power < -64 * (int128)ONE)
        return 0;
    return power > 64 * (int128)ONE ? UINT64_MAX : variate_exp2((int64_t)power);
}

static uint64_t exponential(struct rng *rng)
{
    return rng_exponential(rng, VARIATE_ONE);
}

static uint64_t minus_ln(uint64_t value)
{
    int128 log2 = variate_log2(value);
    return log2 >= 0 ? 0 : (uint64_t)(-log2 * LN2_Q32 / ONE);
}

/* Shapes below 1. */
static uint64_t gamma_part(struct rng *rng, uint32_t milli)
{
    /* b = 1 + a / e. */
    uint64_t b = VARIATE_ONE + (uint64_t)((uint128)milli * VARIATE_ONE * VARIATE_ONE / 1000 / (uint64_t)E_Q32);
    for (;;) {
        uint64_t u = rng_next(rng) >> 32 | 1;
        uint64_t p = (uint64_t)((uint128)b * u >> 32);
        uint64_t accept = exponential(rng);
        if (p == 0)
            continue;
        if (p <= VARIATE_ONE) {
            uint64_t x = root(p, milli);
            if (accept >= x)
                return x;
        } else {
            uint64_t rest = (uint64_t)((uint128)(b - p) * 1000 / milli);
            uint64_t x = minus_ln(max_u64(1, rest));
            if (x == 0)
                continue;
            int128 ln_x = (int128)variate_log2(x) * LN2_Q32 / ONE;
            if ((int128)accept >= ln_x * (1000 - (int64_t)milli) / 1000)
                return x;
        }
    }
}

uint64_t variate_gamma(struct rng *rng, uint32_t shape_milli)
{
    CHECK(shape_milli >= VARIATE_SHAPE_MIN && shape_milli <= VARIATE_SHAPE_MAX);
    uint64_t sum = shape_milli % 1000 == 0 ? 0 : gamma_part(rng, shape_milli % 1000);
    for (uint32_t k = 0; k < shape_milli / 1000; k++)
        sum += exponential(rng);
    return sum;
}

uint64_t variate_weibull(struct rng *rng, uint32_t shape_milli)
{
    CHECK(shape_milli >= VARIATE_SHAPE_MIN && shape_milli <= VARIATE_SHAPE_MAX);
    return root(max_u64(1, exponential(rng)), shape_milli);
}

uint64_t variate_weibull_mean(uint32_t shape_milli)
{
    static const double coefficients[] = {-0.577191652, 0.988205891, -0.897056937, 0.918206857,
                                          -0.756704078, 0.482199394, -0.193527818, 0.035868343};
    CHECK(shape_milli >= VARIATE_SHAPE_MIN && shape_milli <= VARIATE_SHAPE_MAX);
    double x = 1000.0 / shape_milli;
    double factor = 1;
    while (x > 1) {
        factor *= x;
        x -= 1;
    }
    double sum = 0;
    for (int k = 7; k >= 0; k--)
        sum = (sum + coefficients[k]) * x;
    double mean = factor * (1 + sum) * (double)VARIATE_ONE + 0.5;
    return mean < 9e18 ? (uint64_t)mean : UINT64_MAX;
}
