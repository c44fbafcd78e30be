/* See linear.h. */
#include "real/device/host/linear.h"

#include "base/check.h"
#include "real/device/kernels/kernel.h"

#include <math.h>
#include <string.h>

typedef float v8 __attribute__((vector_size(32)));
typedef uint32_t word8 __attribute__((vector_size(32)));

/* The same in memory, wherever it lies. */
typedef float float8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint16_t half8 __attribute__((vector_size(16), aligned(2), may_alias));

#define FLOATS(from) (*(const float8 *)(const void *)(from))
#define HALVES(from) ((v8)(__builtin_convertvector(*(const half8 *)(const void *)(from), word8) << 16))

#define LANES 8
#define INLINE static inline __attribute__((always_inline))

/* Where the processor has wider vectors than the compiler may assume, the same code is compiled for them too. Lane by
 * lane the operations stay the same, so the result does. */
#if defined(__x86_64__)
#define WIDE __attribute__((target("avx2")))
#define WIDE_SUPPORTED __builtin_cpu_supports("avx2")
#else
#define WIDE
#define WIDE_SUPPORTED 0
#endif

INLINE float lanes_sum(const float lanes[LANES])
{
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/* What is left over behind the last whole vector goes to the first lanes. */
INLINE float finish(const v8 *sums, const float *a, const uint16_t *b, uint32_t left)
{
    float lanes[LANES];
    memcpy(lanes, sums, sizeof lanes);
    for (uint32_t l = 0; l < left; l++)
        lanes[l] += a[l] * kernel_bf16_float(b[l]);
    return lanes_sum(lanes);
}

INLINE float dot_one(const float *a, const uint16_t *b, uint32_t n)
{
    v8 sums = {0};
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        sums += FLOATS(a + i) * HALVES(b + i);
    return finish(&sums, a + i, b + i, n - i);
}

/* Four dot products of the same x at once: each the same as one alone, together fewer stalls. */
INLINE void dot_four(const float *x, const uint16_t *w, size_t stride, uint32_t n, float out[4])
{
    const uint16_t *w1 = w + stride;
    const uint16_t *w2 = w1 + stride;
    const uint16_t *w3 = w2 + stride;
    v8 s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        v8 a = FLOATS(x + i);
        s0 += a * HALVES(w + i);
        s1 += a * HALVES(w1 + i);
        s2 += a * HALVES(w2 + i);
        s3 += a * HALVES(w3 + i);
    }
    out[0] = finish(&s0, x + i, w + i, n - i);
    out[1] = finish(&s1, x + i, w1 + i, n - i);
    out[2] = finish(&s2, x + i, w2 + i, n - i);
    out[3] = finish(&s3, x + i, w3 + i, n - i);
}

static float bisect(const float *values, uint32_t n)
{
    if (n == 1)
        return values[0];
    if (n == 2)
        return values[0] + values[1];
    return bisect(values, n / 2) + bisect(values + n / 2, n - n / 2);
}

/* One row times four outputs, over all units. */
INLINE void product_four(const struct product *p, const float *x, const uint16_t *weights, float *y)
{
    size_t stride = (size_t)p->units * p->width;
    if (p->units == 1) {
        dot_four(x, weights, stride, p->width, y);
        return;
    }
    float sums[4][UNITS_MAX];
    for (uint32_t u = 0; u < p->units; u++) {
        float four[4];
        dot_four(x + (size_t)u * p->width, weights + (size_t)u * p->width, stride, p->width, four);
        for (uint32_t o = 0; o < 4; o++)
            sums[o][u] = four[o];
    }
    for (uint32_t o = 0; o < 4; o++)
        y[o] = bisect(sums[o], p->units);
}

INLINE float product_one(const struct product *p, const float *x, const uint16_t *weights)
{
    float sums[UNITS_MAX];
    for (uint32_t u = 0; u < p->units; u++)
        sums[u] = dot_one(x + (size_t)u * p->width, weights + (size_t)u * p->width, p->width);
    return bisect(sums, p->units);
}

INLINE void product(const struct product *p)
{
    size_t stride = (size_t)p->units * p->width;
    uint32_t o = 0;
    for (; o + 4 <= p->outputs; o += 4)
        for (uint32_t r = 0; r < p->rows; r++)
            product_four(p, p->x + r * p->x_stride, p->weights + o * stride, p->y + r * p->y_stride + o);
    for (; o < p->outputs; o++)
        for (uint32_t r = 0; r < p->rows; r++)
            p->y[r * p->y_stride + o] = product_one(p, p->x + r * p->x_stride, p->weights + o * stride);
}

WIDE static void product_wide(const struct product *p)
{
    product(p);
}

void linear_product(const struct product *p)
{
    CHECK(p->units >= 1 && p->units <= UNITS_MAX);
    if (WIDE_SUPPORTED)
        product_wide(p);
    else
        product(p);
}

/* y[d] += weight of row j * element d of row j, 8 elements at a time, rows ascending. */
INLINE void weighted_rows(const float *weights, const uint16_t *values, size_t stride, uint32_t rows, uint32_t n,
                          float *y)
{
    uint32_t d = 0;
    for (; d + 2 * LANES <= n; d += 2 * LANES) {
        v8 s0 = {0}, s1 = {0};
        for (uint32_t j = 0; j < rows; j++) {
            const uint16_t *row = values + j * stride + d;
            s0 += weights[j] * HALVES(row);
            s1 += weights[j] * HALVES(row + LANES);
        }
        memcpy(y + d, &s0, sizeof s0);
        memcpy(y + d + LANES, &s1, sizeof s1);
    }
    for (; d < n; d++) {
        float sum = 0;
        for (uint32_t j = 0; j < rows; j++)
            sum += weights[j] * kernel_bf16_float(values[j * stride + d]);
        y[d] = sum;
    }
}

WIDE static void weighted_rows_wide(const float *weights, const uint16_t *values, size_t stride, uint32_t rows,
                                    uint32_t n, float *y)
{
    weighted_rows(weights, values, stride, rows, n, y);
}

void linear_weighted_rows(const float *weights, const uint16_t *values, size_t stride, uint32_t rows, uint32_t n,
                          float divisor, float *y)
{
    if (WIDE_SUPPORTED)
        weighted_rows_wide(weights, values, stride, rows, n, y);
    else
        weighted_rows(weights, values, stride, rows, n, y);
    for (uint32_t d = 0; d < n; d++)
        y[d] /= divisor;
}

void linear_rms_norm(const float *x, const float *gain, float *y, uint32_t n)
{
    v8 sums = {0};
    uint32_t whole = 0;
    for (; whole + LANES <= n; whole += LANES)
        sums += FLOATS(x + whole) * FLOATS(x + whole);
    float lanes[LANES];
    memcpy(lanes, &sums, sizeof lanes);
    for (uint32_t l = 0; whole + l < n; l++)
        lanes[l] += x[whole + l] * x[whole + l];
    float scale = kernel_rms_scale(lanes_sum(lanes), n);
    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] * scale * gain[i];
}

void linear_rotate(float *x, const float *cosines, const float *sines, uint32_t n)
{
    for (uint32_t i = 0; i < n / 2; i++)
        kernel_rope(&x[i], &x[i + n / 2], cosines[i], sines[i]);
}

void linear_angles(uint32_t position, const double *frequencies, uint32_t n, float *cosines, float *sines)
{
    /* In double: at position 100,000 an angle in f32 has two digits left. */
    for (uint32_t i = 0; i < n / 2; i++) {
        double angle = position * frequencies[i];
        cosines[i] = (float)cos(angle);
        sines[i] = (float)sin(angle);
    }
}

float linear_exponentials(float *scores, uint32_t n)
{
    float greatest = scores[0];
    for (uint32_t i = 1; i < n; i++)
        greatest = scores[i] > greatest ? scores[i] : greatest;
    for (uint32_t i = 0; i < n; i++)
        scores[i] = kernel_exp(scores[i] - greatest);
    float sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += scores[i];
    return sum;
}

void linear_swiglu(float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        gate[i] = kernel_silu(gate[i]) * up[i];
}

void linear_add(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}

void linear_cache_store(void *to, const float *from, uint32_t n, uint32_t element_bytes)
{
    CHECK(element_bytes == 1 || element_bytes == 2);
    uint16_t *halves = to;
    uint8_t *bytes = to;
    for (uint32_t i = 0; i < n && element_bytes == 2; i++)
        halves[i] = kernel_bf16(from[i]);
    for (uint32_t i = 0; i < n && element_bytes == 1; i++)
        bytes[i] = kernel_fp8(from[i]);
}

void linear_cache_load(uint16_t *to, const void *from, uint32_t n, uint32_t element_bytes)
{
    CHECK(element_bytes == 1 || element_bytes == 2);
    const uint8_t *bytes = from;
    if (element_bytes == 2)
        memcpy(to, from, n * sizeof *to);
    for (uint32_t i = 0; i < n && element_bytes == 1; i++)
        to[i] = kernel_bf16(kernel_fp8_float(bytes[i])); /* exact: bf16 has more of everything */
}
