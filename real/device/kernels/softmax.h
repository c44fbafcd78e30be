/* Softmax in one pass. Scores arrive one by one or in blocks; the running state holds the greatest score so far and the
 * sum of e^(score - greatest). Two states over disjoint tokens merge into the state of their union.
 */
#ifndef TANDEM_REAL_DEVICE_KERNELS_SOFTMAX_H
#define TANDEM_REAL_DEVICE_KERNELS_SOFTMAX_H

#include "real/device/kernels/kernel.h"

#define KERNEL_SCORE_NONE (-3.0e38f)

struct kernel_softmax {
    float greatest;
    float sum;
};

KERNEL struct kernel_softmax kernel_softmax_empty(void)
{
    struct kernel_softmax state;
    state.greatest = KERNEL_SCORE_NONE;
    state.sum = 0.0f;
    return state;
}

/* Adds one score. Returns its weight; *correction is what everything accumulated before must be multiplied with. */
KERNEL float kernel_softmax_add(struct kernel_softmax *state, float score, float *correction)
{
    if (score <= state->greatest) {
        float weight = kernel_exp(score - state->greatest);
        *correction = 1.0f;
        state->sum += weight;
        return weight;
    }
    *correction = kernel_exp(state->greatest - score);
    state->greatest = score;
    state->sum = state->sum * *correction + 1.0f;
    return 1.0f;
}

/* The state of both together; the accumulators of each must be multiplied with its factor before they are added. */
KERNEL struct kernel_softmax kernel_softmax_merge(struct kernel_softmax a, struct kernel_softmax b, float *factor_a,
                                                  float *factor_b)
{
    struct kernel_softmax both;
    both.greatest = a.greatest > b.greatest ? a.greatest : b.greatest;
    *factor_a = kernel_exp(a.greatest - both.greatest);
    *factor_b = kernel_exp(b.greatest - both.greatest);
    both.sum = a.sum * *factor_a + b.sum * *factor_b;
    return both;
}

#endif
