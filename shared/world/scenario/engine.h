/* What a serving engine adds to the times of its kernels, as a pool's `engine` says it (scenarios/engines). The neutral
 * engine, the default, stands for none in particular: any kernel that was measured, and half a millisecond of host time
 * a step.
 *
 * Host time here is what the device waits for: an engine that prepares a step while the device computes the one before
 * hides most of its work, and only the rest is counted. `prefill` scales what the prompt tokens of a step add to it,
 * and nothing else. A batch runs on the next larger one that a CUDA graph was captured for.
 */
#ifndef TANDEM_WORLD_SCENARIO_ENGINE_H
#define TANDEM_WORLD_SCENARIO_ENGINE_H

#include "model/footprint.h"

#include <stdint.h>

/* Whose kernels. Stored in no file: may be renumbered. */
enum engine_kind {
    ENGINE_NEUTRAL = 1,
    ENGINE_VLLM = 2,
    ENGINE_SGLANG = 3,
    ENGINE_TRTLLM = 4,
};

/* The neutral engine's host time: scheduling, launch of the step's graph, sampling, and the way of the token to the
 * next step's input, as far as an engine does not hide them. Of 0, 0.5 and 1.0 ms, the one with the smallest error:
 * against 750 decode rows of InferenceX, as carried by ai-dynamo/aiconfigurator@095f58a's silicon sample, the median
 * absolute error was 9.5, 8.5 and 10.7 % when it was chosen. */
#define ENGINE_HOST_NS 500000

struct engine {
    enum engine_kind kernels;
    int64_t host_ns;           /* a step */
    int64_t host_sequence_ns;  /* a step and sequence of the largest attention group */
    uint32_t mixes;            /* 1: prompts and decoding sequences share a step; 0: such a step is a prefill step and a
                                  decode step, one after the other */
    uint32_t prefill_permille; /* of the time of the kernels */
    uint32_t prefill_experts_permille; /* the same, of models with experts; 0: as of others */
    uint32_t graph_step; /* graphs for batches 1, 2, 4, ... up to this, then for its multiples; 0: for every batch */
    uint32_t graph_max;  /* largest batch with a graph; larger ones run as they are */
    uint32_t overlap_permille; /* of the exchange of tokens among experts on several machines, what other work hides:
                                  two halves of a batch in turn */
    uint32_t receive_steps;    /* these two as in struct scheduler_policy, which gets them from here */
    uint32_t gather_steps;
    enum memory_share memory_share; /* what a pool's memory_utilization is a share of */
};

static inline struct engine engine_neutral(void)
{
    return (struct engine){.kernels = ENGINE_NEUTRAL, .host_ns = ENGINE_HOST_NS, .mixes = 1, .prefill_permille = 1000};
}

static inline uint32_t engine_prefill_permille(const struct engine *engine, uint32_t experts)
{
    return experts > 0 && engine->prefill_experts_permille > 0 ? engine->prefill_experts_permille
                                                               : engine->prefill_permille;
}

/* The batch that `sequences` decoding sequences are padded to. Grows with them. */
static inline uint64_t engine_batch(const struct engine *engine, uint64_t sequences)
{
    if (engine->graph_step == 0 || sequences == 0 || sequences > engine->graph_max)
        return sequences;
    if (sequences > engine->graph_step) {
        uint64_t multiple = (sequences + engine->graph_step - 1) / engine->graph_step * engine->graph_step;
        return multiple < engine->graph_max ? multiple : engine->graph_max;
    }
    uint64_t power = 1;
    while (power < sequences)
        power *= 2;
    return power < engine->graph_step ? power : engine->graph_step;
}

#endif
