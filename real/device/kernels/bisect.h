/* Sums by bisection: the sum of the first half plus the sum of the second half, and so on. The order in which ranks are
 * added up everywhere (real/device/collective.h).
 */
#ifndef TANDEM_REAL_DEVICE_KERNELS_BISECT_H
#define TANDEM_REAL_DEVICE_KERNELS_BISECT_H

#include "real/device/kernels/kernel.h"

#define KERNEL_BISECT_MAX 8u

/* Of a power of two of values; they are overwritten. Bounds are constant, so that a GPU keeps the values in
 * registers. */
KERNEL float kernel_bisect(float values[KERNEL_BISECT_MAX], uint32_t count)
{
    for (uint32_t stride = 1; stride < KERNEL_BISECT_MAX; stride *= 2)
        for (uint32_t i = 0; i + stride < KERNEL_BISECT_MAX; i += 2 * stride)
            if (i + stride < count)
                values[i] = values[i] + values[i + stride];
    return values[0];
}

#endif
