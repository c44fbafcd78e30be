/* Mixture of experts: routing, sorting rows by expert, products whose sizes are known on the device alone, and
 * combining. The order of slots and of sums is fixed, so that a step gives the same numbers every time.
 */
#include "real/device/cuda/cuda_kernels.h"
#include "real/device/cuda/cuda_launch.h"
#include "real/device/kernels/kernel.h"
#include "real/device/kernels/topk.h"

CUDA_KERNEL(route_kernel, cuda_route)
{
    CUDA_SHARED float scores[KERNEL_TOPK_MAX];
    CUDA_SHARED uint32_t ids[KERNEL_TOPK_MAX];
    uint32_t row = CUDA_BLOCK_X;
    const float *logits = a.logits + (uint64_t)row * a.experts;
    int padding = a.rows.sequence[row] == CUDA_ROW_NONE;
    /* Round by round: each takes the best that comes after the one before, in the order of scores and ids. */
    float last = 0.0f;
    uint32_t last_id = CUDA_ROW_NONE;
    for (uint32_t chosen = 0; chosen < a.active; chosen++) {
        float best = 0.0f;
        uint32_t id = CUDA_ROW_NONE;
        for (uint32_t e = CUDA_THREAD; e < a.experts; e += 32) {
            int later = last_id == CUDA_ROW_NONE || kernel_better(last, last_id, logits[e], e);
            if (later && (id == CUDA_ROW_NONE || kernel_better(logits[e], e, best, id))) {
                best = logits[e];
                id = e;
            }
        }
        for (uint32_t mask = 16; mask > 0; mask >>= 1) {
            float other = cuda_shuffle_xor(best, mask);
            uint32_t other_id = cuda_shuffle_xor_u32(id, mask);
            if (other_id != CUDA_ROW_NONE && (id == CUDA_ROW_NONE || kernel_better(other, other_id, best, id))) {
                best = other;
                id = other_id;
            }
        }
        last = best;
        last_id = id;
        if (CUDA_THREAD == 0) {
            scores[chosen] = best;
            ids[chosen] = id;
        }
    }
    if (CUDA_THREAD != 0)
        return;
    kernel_topk_weights(scores, a.active);
    for (uint32_t k = 0; k < a.active; k++) {
        a.choice[(uint64_t)row * a.active + k] = padding ? CUDA_ROW_NONE : ids[k];
        a.weight[(uint64_t)row * a.active + k] = scores[k];
    }
}

void cuda_route(const struct cuda_route *a, uint32_t rows, cudaStream_t stream)
{
    CUDA_LAUNCH(route_kernel, rows, 1, 1, 32, 0, stream, *a);
}

/* A thread's share of the pairs, and how many of them chose `expert`. */
CUDA_DEVICE uint32_t count_share(const struct cuda_place *a, uint32_t expert, uint32_t *from, uint32_t *to)
{
    uint32_t share = (a->pairs + CUDA_THREADS - 1) / CUDA_THREADS;
    *from = CUDA_THREAD * share < a->pairs ? CUDA_THREAD * share : a->pairs;
    *to = *from + share < a->pairs ? *from + share : a->pairs;
    uint32_t count = 0;
    for (uint32_t i = *from; i < *to; i++)
        count += a->choice[i] == expert;
    return count;
}

CUDA_KERNEL(count_kernel, cuda_place)
{
    CUDA_SHARED uint32_t counts[256];
    uint32_t from, to;
    counts[CUDA_THREAD] = count_share(&a, a.expert_first + CUDA_BLOCK_X, &from, &to);
    cuda_sync();
    if (CUDA_THREAD != 0)
        return;
    uint32_t sum = 0;
    for (uint32_t t = 0; t < CUDA_THREADS; t++)
        sum += counts[t];
    a.count[CUDA_BLOCK_X] = sum;
}

CUDA_KERNEL(place_kernel, cuda_place)
{
    CUDA_SHARED uint32_t counts[256];
    uint32_t local = CUDA_BLOCK_X;
    uint32_t expert = a.expert_first + local;
    uint32_t from, to;
    counts[CUDA_THREAD] = count_share(&a, expert, &from, &to);
    cuda_sync();
    uint32_t slot = 0;
    for (uint32_t e = 0; e < local; e++)
        slot += a.count[e];
    if (CUDA_THREAD == 0) {
        a.first[local] = slot;
        if (local + 1 == a.experts)
            a.first[a.experts] = slot + a.count[local];
    }
    for (uint32_t t = 0; t < CUDA_THREAD; t++)
        slot += counts[t];
    for (uint32_t i = from; i < to; i++) {
        if (a.choice[i] == expert) {
            a.slot_row[slot] = i / a.active;
            a.pair_slot[i] = slot++;
        }
        /* What no local expert was chosen for is said by the block of the first. */
        if (local == 0 && (a.choice[i] < a.expert_first || a.choice[i] >= a.expert_first + a.experts))
            a.pair_slot[i] = CUDA_ROW_NONE;
    }
}

void cuda_place(const struct cuda_place *a, cudaStream_t stream)
{
    CUDA_LAUNCH(count_kernel, a->experts, 1, 1, 256, 0, stream, *a);
    CUDA_LAUNCH(place_kernel, a->experts, 1, 1, 256, 0, stream, *a);
}

CUDA_KERNEL(gather_kernel, cuda_gather)
{
    uint32_t slot = CUDA_BLOCK_X;
    if (slot >= *a.limit)
        return;
    const uint16_t *from = a.in + (uint64_t)a.slot_row[slot] * a.n;
    for (uint32_t i = CUDA_THREAD; i < a.n; i += CUDA_THREADS)
        a.out[(uint64_t)slot * a.n + i] = from[i];
}

void cuda_gather(const struct cuda_gather *a, uint32_t slots, cudaStream_t stream)
{
    CUDA_LAUNCH(gather_kernel, slots, 1, 1, 256, 0, stream, *a);
}

#define SLOTS_AT_ONCE 8u

CUDA_KERNEL(expert_product_kernel, cuda_expert_product)
{
    uint32_t expert = CUDA_BLOCK_X;
    uint32_t output = CUDA_BLOCK_Y * 8 + CUDA_THREAD / 32;
    uint32_t lane = CUDA_THREAD % 32;
    uint32_t end = a.first[expert + 1];
    uint32_t pairs = a.inputs / 2;
    if (output >= a.outputs)
        return;
    const uint16_t *matrix = a.weights + ((uint64_t)expert * a.outputs + output) * a.inputs;
    const uint32_t *weights = (const uint32_t *)(const void *)matrix;
    for (uint32_t slot = a.first[expert]; slot < end; slot += SLOTS_AT_ONCE) {
        float sum[SLOTS_AT_ONCE];
        CUDA_UNROLL
        for (uint32_t s = 0; s < SLOTS_AT_ONCE; s++)
            sum[s] = 0.0f;
        for (uint32_t i = lane; i < pairs; i += 32) {
            float low = kernel_bits_float(weights[i] << 16);
            float high = kernel_bits_float(weights[i] & 0xffff0000u);
            CUDA_UNROLL
            for (uint32_t s = 0; s < SLOTS_AT_ONCE; s++) {
                if (slot + s >= end)
                    continue;
                uint32_t in = ((const uint32_t *)(const void *)(a.in + (uint64_t)(slot + s) * a.inputs))[i];
                sum[s] = cuda_fma(low, kernel_bits_float(in << 16), sum[s]);
                sum[s] = cuda_fma(high, kernel_bits_float(in & 0xffff0000u), sum[s]);
            }
        }
        CUDA_UNROLL
        for (uint32_t s = 0; s < SLOTS_AT_ONCE; s++) {
            for (uint32_t mask = 16; mask > 0; mask >>= 1)
                sum[s] += cuda_shuffle_xor(sum[s], mask);
            if (lane == 0 && slot + s < end)
                a.out[(uint64_t)(slot + s) * a.outputs + output] = sum[s];
        }
    }
}

void cuda_expert_product(const struct cuda_expert_product *a, uint32_t experts, cudaStream_t stream)
{
    CUDA_LAUNCH(expert_product_kernel, experts, (a->outputs + 7) / 8, 1, 256, 0, stream, *a);
}

CUDA_KERNEL(combine_kernel, cuda_combine)
{
    uint32_t row = CUDA_BLOCK_X;
    const uint32_t *slots = a.pair_slot + (uint64_t)row * a.active;
    const float *weights = a.weight + (uint64_t)row * a.active;
    for (uint32_t i = CUDA_THREAD; i < a.n; i += CUDA_THREADS) {
        float sum = 0.0f;
        for (uint32_t k = 0; k < a.active; k++)
            if (slots[k] != CUDA_ROW_NONE)
                sum += weights[k] * a.in[(uint64_t)slots[k] * a.n + i];
        a.y[(uint64_t)row * a.n + i] += sum;
    }
}

void cuda_combine(const struct cuda_combine *a, uint32_t rows, cudaStream_t stream)
{
    CUDA_LAUNCH(combine_kernel, rows, 1, 1, 256, 0, stream, *a);
}
