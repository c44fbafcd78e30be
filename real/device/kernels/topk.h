/* Choosing among scores: the order that greedy sampling and expert routing share. A greater score wins; of equal scores
 * the lower id.
 */
#ifndef TANDEM_REAL_DEVICE_KERNELS_TOPK_H
#define TANDEM_REAL_DEVICE_KERNELS_TOPK_H

#include "real/device/kernels/kernel.h"

/* Experts of one token; DeepSeek routes to 8, the widest in sight to 12. */
#define KERNEL_TOPK_MAX 16

KERNEL int kernel_better(float score, uint32_t id, float other_score, uint32_t other_id)
{
    return score > other_score || (score == other_score && id < other_id);
}

/* Offers a score to a list kept best first, of which *count entries are filled and `k` may be. */
KERNEL void kernel_topk_offer(float *scores, uint32_t *ids, uint32_t *count, uint32_t k, float score, uint32_t id)
{
    uint32_t at = *count;
    if (at == k) {
        if (!kernel_better(score, id, scores[k - 1], ids[k - 1]))
            return;
        at = k - 1;
    } else {
        *count = at + 1;
    }
    while (at > 0 && kernel_better(score, id, scores[at - 1], ids[at - 1])) {
        scores[at] = scores[at - 1];
        ids[at] = ids[at - 1];
        at--;
    }
    scores[at] = score;
    ids[at] = id;
}

/* Turns the chosen scores, best first, into weights that sum to 1: a softmax over the chosen alone. */
KERNEL void kernel_topk_weights(float *scores, uint32_t count)
{
    float greatest = scores[0];
    float sum = 0.0f;
    for (uint32_t i = 0; i < count; i++) {
        scores[i] = kernel_exp(scores[i] - greatest);
        sum += scores[i];
    }
    for (uint32_t i = 0; i < count; i++)
        scores[i] = scores[i] / sum;
}

#endif
