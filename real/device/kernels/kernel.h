/* Arithmetic of the devices, written once: inline functions in the common subset of C and CUDA C++, compiled for the
 * host by the C compiler and for the GPU by nvcc. They allocate nothing and call no libm but sqrtf, which IEEE 754
 * rounds exactly. With contraction off on both sides (-ffp-contract=off, -fmad=false) an element-wise result is the
 * same bits on both.
 */
#ifndef TANDEM_REAL_DEVICE_KERNELS_KERNEL_H
#define TANDEM_REAL_DEVICE_KERNELS_KERNEL_H

#include <stdint.h>

#ifdef __CUDACC__
#define KERNEL static __host__ __device__ inline
#else
#include <math.h>
#define KERNEL static inline
#endif

union kernel_bits {
    float value;
    uint32_t bits;
};

KERNEL uint32_t kernel_float_bits(float value)
{
    union kernel_bits u;
    u.value = value;
    return u.bits;
}

KERNEL float kernel_bits_float(uint32_t bits)
{
    union kernel_bits u;
    u.bits = bits;
    return u.value;
}

/* bf16 is the upper half of a float; rounded to nearest, ties to even. Not a number stays one. */
KERNEL uint16_t kernel_bf16(float value)
{
    uint32_t bits = kernel_float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

KERNEL float kernel_bf16_float(uint16_t half)
{
    return kernel_bits_float((uint32_t)half << 16);
}

/* fp8 e4m3 (one sign, four exponent, three mantissa bits; no infinity; 0x7f is not a number): the KV cache's second
 * format. Rounded to nearest even; beyond 448 saturates. */
KERNEL uint8_t kernel_fp8(float value)
{
    uint32_t bits = kernel_float_bits(value);
    uint8_t sign = (uint8_t)((bits >> 24) & 0x80u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint8_t)(sign | 0x7fu);
    if (magnitude >= 0x43e80000u) /* 464, from where on rounding would give 480 */
        return (uint8_t)(sign | 0x7eu);
    if (magnitude < 0x3c800000u) { /* below 2^-6: subnormal, a multiple of 2^-9. Adding 1.5 * 2^14 rounds to it */
        float rounded = kernel_bits_float(magnitude) + 24576.0f;
        return (uint8_t)(sign | (kernel_float_bits(rounded) - kernel_float_bits(24576.0f)));
    }
    magnitude += 0x7ffffu + ((magnitude >> 20) & 1u);
    return (uint8_t)(sign | ((magnitude >> 20) - (120u << 3)));
}

KERNEL float kernel_fp8_float(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    uint32_t exponent = (code >> 3) & 15u;
    uint32_t mantissa = code & 7u;
    if ((code & 0x7fu) == 0x7fu)
        return kernel_bits_float(sign | 0x7fc00000u);
    if (exponent == 0) { /* mantissa * 2^-9 */
        float value = (float)mantissa * 0.001953125f;
        return kernel_bits_float(kernel_float_bits(value) | sign);
    }
    return kernel_bits_float(sign | ((exponent + 120u) << 23) | (mantissa << 20));
}

/* e^x within 2 units in the last place: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial for e^r, and 2^n by the
 * exponent field. 0 below -87; the caller never asks above 88. */
KERNEL float kernel_exp(float x)
{
    if (!(x > -87.0f))
        return x == x ? 0.0f : x;
    if (x > 88.0f)
        x = 88.0f;
    float shifted = x * 1.44269504088896341f + 12582912.0f; /* 1.5 * 2^23: rounds to an integer in the low bits */
    float n = shifted - 12582912.0f;
    float r = x - n * 0.693359375f; /* ln 2 in two parts; the first has few enough bits that n times it is exact */
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f; /* the minimax coefficients of Cephes expf */
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    int32_t power = (int32_t)n;
    return p * kernel_bits_float((uint32_t)(power + 127) << 23);
}

/* SwiGLU's gate: x / (1 + e^-x). */
KERNEL float kernel_silu(float x)
{
    return x / (1.0f + kernel_exp(-x));
}

/* RMSNorm is x * kernel_rms_scale(sum of x^2, n) * gain. */
KERNEL float kernel_rms_scale(float sum_of_squares, uint32_t n)
{
    return 1.0f / sqrtf(sum_of_squares / (float)n + 1e-5f);
}

/* Rotates the pair (a, b) by an angle given as its cosine and sine. Element i of the first half of a head pairs with
 * element i of the second half; the angle is position / base^(2 i / dim), tabulated by rope_table(). */
KERNEL void kernel_rope(float *a, float *b, float cosine, float sine)
{
    float x = *a;
    float y = *b;
    *a = x * cosine - y * sine;
    *b = x * sine + y * cosine;
}

/* Which layers of a model with a sliding window see everything: full_layers of them, spread evenly, the last of each
 * stretch. Returns the number of last tokens that layer attends to, or 0 for all. */
KERNEL uint32_t kernel_layer_window(uint32_t layer, uint32_t layers, uint32_t full_layers, uint32_t window)
{
    if (window == 0)
        return 0;
    int full = (uint64_t)(layer + 1) * full_layers / layers != (uint64_t)layer * full_layers / layers;
    return full ? 0 : window;
}

/* The first token that a query at `position` attends to. */
KERNEL uint32_t kernel_attention_first(uint32_t position, uint32_t window)
{
    return window != 0 && position >= window ? position + 1 - window : 0;
}

#endif
