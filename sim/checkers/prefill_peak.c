/* See prefill_peak.h. */
#include "sim/checkers/prefill_peak.h"

#include "base/arith.h"
#include "host/memory.h"

#include <inttypes.h>
#include <stdlib.h>

struct limit {
    uint64_t flops_per_token; /* 0: not watched */
    uint64_t flops_per_s;     /* of the ranks of a stage */
    uint32_t permille;        /* of their time that prefill is said to take, where that is less than all of it */
    uint32_t stages;
    int64_t end_ns; /* of the launch before */
};

struct prefill_peak {
    struct checkers *checkers;
    struct limit *limits; /* by node */
};

/* The fastest units that any of the model's products run on. */
static uint64_t peak_of(const struct hardware *hardware, const struct architecture *model)
{
    const enum number_format formats[2] = {model->weight_format, model->expert_weight_format};
    uint64_t peak = hardware->bf16_flops;
    for (int i = 0; i < 2; i++) {
        bool eight = formats[i] == FORMAT_FP8 || formats[i] == FORMAT_FP8_BLOCK;
        peak = max_u64(peak, eight ? hardware->fp8_flops : 0);
        peak = max_u64(peak, formats[i] == FORMAT_FP4 ? max_u64(hardware->fp4_flops, hardware->fp8_flops) : 0);
    }
    return peak;
}

static void on_steps(void *self, const struct step_row *row)
{
    struct prefill_peak *peak = self;
    struct limit *limit = &peak->limits[row->node];
    if (limit->flops_per_token == 0)
        return;
    uint128 flops = (uint128)limit->flops_per_token * row->prefill_tokens;
    int64_t least_ns = (int64_t)(flops * (uint64_t)NS_PER_S / limit->flops_per_s * limit->permille / 1000);
    if (row->end_ns - row->start_ns < least_ns)
        checkers_fail(peak->checkers, row->node,
                      "%" PRIu64 " prompt tokens took %" PRId64 " ns, their operations at peak take %" PRId64,
                      row->prefill_tokens, row->end_ns - row->start_ns, least_ns);
    if (limit->end_ns >= 0 && row->end_ns - limit->end_ns < least_ns / limit->stages)
        checkers_fail(peak->checkers, row->node,
                      "%" PRIu64 " prompt tokens ended %" PRId64
                      " ns after the launch before, their operations at the peak of all stages take %" PRId64,
                      row->prefill_tokens, row->end_ns - limit->end_ns, least_ns / limit->stages);
    limit->end_ns = row->end_ns;
}

struct prefill_peak *prefill_peak_make(struct sim *sim, const struct scenario *scenario,
                                       const struct deployment *deployment, const bool *modelled,
                                       struct checkers *checkers)
{
    struct prefill_peak *peak = memory_zeroed(1, sizeof *peak);
    peak->checkers = checkers;
    peak->limits = memory_zeroed(deployment->node_count, sizeof *peak->limits);
    bool any = false;
    for (uint32_t i = 1; i < deployment->node_count; i++) {
        const struct deployment_instance *instance = &deployment->instances[i];
        const struct pool *pool = &scenario->pools[instance->pool];
        const struct architecture model = scenario_served(scenario, pool);
        struct footprint_parameters parameters;
        if (!scenario_prefills(scenario, pool) || !modelled[instance->pool])
            continue;
        footprint_parameters(&model, &parameters);
        uint64_t ranks = (uint64_t)instance->parallelism.tensor * instance->parallelism.data;
        peak->limits[i] = (struct limit){
            .flops_per_token = 2 * (parameters.active - mul_u64(model.vocab, model.hidden)),
            .flops_per_s = mul_u64(peak_of(&pool->hardware, &model), ranks),
            .permille = min_u32(1000, engine_prefill_permille(&pool->engine, model.experts)),
            .stages = instance->parallelism.pipeline,
            .end_ns = -1,
        };
        any = true;
    }
    if (any)
        sim_listen(sim, &(struct sim_listener){.self = peak, .steps = on_steps});
    return peak;
}

void prefill_peak_free(struct prefill_peak *peak)
{
    if (peak == NULL)
        return;
    free(peak->limits);
    free(peak);
}
