/* See linear.h. */
#include "real/device/host/linear.h"

#include "base/check.h"
#include "real/device/kernels/kernel.h"

#include <math.h>
#include <string.h>

typedef float v8 __attribute__((vector_size(32)));

#define LANES 8

static inline float lanes_sum(const float lanes[LANES])
{
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

float linear_dot(const float *a, const float *b, uint32_t n)
{
    v8 sums = {0};
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        v8 x, y;
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        sums += x * y;
    }
    float lanes[LANES];
    memcpy(lanes, &sums, sizeof lanes);
    for (uint32_t l = 0; i < n; i++, l++)
        lanes[l] += a[i] * b[i];
    return lanes_sum(lanes);
}

/* Four dot products of the same x at once: each the same as linear_dot(), together fewer stalls. */
static inline void dot_four(const float *x, const float *weights, size_t stride, uint32_t n, float out[4])
{
    v8 sums[4] = {{0}, {0}, {0}, {0}};
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        v8 a, w;
        memcpy(&a, x + i, sizeof a);
        for (size_t o = 0; o < 4; o++) {
            memcpy(&w, weights + o * stride + i, sizeof w);
            sums[o] += a * w;
        }
    }
    for (size_t o = 0; o < 4; o++) {
        float lanes[LANES];
        memcpy(lanes, &sums[o], sizeof lanes);
        for (uint32_t l = 0; i + l < n; l++)
            lanes[l] += x[i + l] * weights[o * stride + i + l];
        out[o] = lanes_sum(lanes);
    }
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
static void product_four(const struct product *p, const float *x, const float *weights, float *y)
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

static float product_one(const struct product *p, const float *x, const float *weights)
{
    float sums[UNITS_MAX];
    for (uint32_t u = 0; u < p->units; u++)
        sums[u] = linear_dot(x + (size_t)u * p->width, weights + (size_t)u * p->width, p->width);
    return bisect(sums, p->units);
}

void linear_product(const struct product *p)
{
    CHECK(p->units >= 1 && p->units <= UNITS_MAX);
    size_t stride = (size_t)p->units * p->width;
    uint32_t o = 0;
    for (; o + 4 <= p->outputs; o += 4)
        for (uint32_t r = 0; r < p->rows; r++)
            product_four(p, p->x + r * p->x_stride, p->weights + o * stride, p->y + r * p->y_stride + o);
    for (; o < p->outputs; o++)
        for (uint32_t r = 0; r < p->rows; r++)
            p->y[r * p->y_stride + o] = product_one(p, p->x + r * p->x_stride, p->weights + o * stride);
}

void linear_rms_norm(const float *x, const float *gain, float *y, uint32_t n)
{
    float scale = kernel_rms_scale(linear_dot(x, x, n), n);
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

void linear_weighted_rows(const float *weights, const float *values, size_t stride, uint32_t rows, uint32_t n,
                          float divisor, float *y)
{
    memset(y, 0, n * sizeof *y);
    for (uint32_t j = 0; j < rows; j++) {
        const float *row = values + j * stride;
        float weight = weights[j];
        for (uint32_t d = 0; d < n; d++)
            y[d] += weight * row[d];
    }
    for (uint32_t d = 0; d < n; d++)
        y[d] /= divisor;
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

void linear_cache_load(float *to, const void *from, uint32_t n, uint32_t element_bytes)
{
    CHECK(element_bytes == 1 || element_bytes == 2);
    const uint16_t *halves = from;
    const uint8_t *bytes = from;
    for (uint32_t i = 0; i < n && element_bytes == 2; i++)
        to[i] = kernel_bf16_float(halves[i]);
    for (uint32_t i = 0; i < n && element_bytes == 1; i++)
        to[i] = kernel_fp8_float(bytes[i]);
}
