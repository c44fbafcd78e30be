/* Arithmetic of the host device, each result with one fixed order of operations: f32 throughout, times weights and
 * cached vectors that are bf16 in memory.
 *
 * The dot product of one unit: eight lanes, lane l taking elements l, l + 8, ... in ascending order; then the lanes by
 * bisection: ((0+4)+(2+6)) + ((1+5)+(3+7)). A dimension that ranks may split is cut into units; unit sums are added by
 * bisection: first half of the units plus second half. So a rank that holds an aligned share of the units computes a
 * subtree, and ranks are added by collective_all_reduce(), which goes on bisecting.
 *
 * Vectors of eight floats are written with the compilers' vector extension: whatever the instruction set, lane by lane
 * the same additions in the same order.
 */
#ifndef TANDEM_REAL_DEVICE_HOST_LINEAR_H
#define TANDEM_REAL_DEVICE_HOST_LINEAR_H

#include <stddef.h>
#include <stdint.h>

/* Units of one dimension that one rank may hold. */
#define UNITS_MAX 256

/* y[r][o] = sum over units u and their elements i of x[r][u * width + i] * weights[o][u * width + i]. Strides in
 * floats; weights are dense. */
struct product {
    const float *x;
    size_t x_stride;
    const uint16_t *weights; /* [outputs][units * width] */
    float *y;
    size_t y_stride;
    uint32_t rows;
    uint32_t outputs;
    uint32_t units; /* at most UNITS_MAX; 1 for a dimension that is never split */
    uint32_t width;
};

void linear_product(const struct product *product);

/* y = x * kernel_rms_scale(sum of squares, n) * gain. */
void linear_rms_norm(const float *x, const float *gain, float *y, uint32_t n);

/* Rotates pairs (i, i + n / 2) of an even n by the angles whose n / 2 cosines and sines are given. */
void linear_rotate(float *x, const float *cosines, const float *sines, uint32_t n);

/* Cosines and sines of position * frequencies[i], i < n / 2. */
void linear_angles(uint32_t position, const double *frequencies, uint32_t n, float *cosines, float *sines);

/* scores <- exp(scores - maximum); returns their sum, taken in ascending order. n >= 1. */
float linear_exponentials(float *scores, uint32_t n);

/* gate <- gate / (1 + exp(-gate)) * up. */
void linear_swiglu(float *gate, const float *up, size_t n);

/* y[d] = (sum over j, ascending, of weights[j] * values[j * stride + d]) / divisor, d < n. */
void linear_weighted_rows(const float *weights, const uint16_t *values, size_t stride, uint32_t rows, uint32_t n,
                          float divisor, float *y);

void linear_add(float *x, const float *y, size_t n);

/* Elements as the KV cache keeps them, of 2 bytes (bf16) or 1 (fp8 e4m3); read, both are bf16. */
void linear_cache_store(void *to, const float *from, uint32_t n, uint32_t element_bytes);
void linear_cache_load(uint16_t *to, const void *from, uint32_t n, uint32_t element_bytes);

#endif
