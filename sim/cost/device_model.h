/* How long a step takes on an instance: a roofline per operator, with efficiencies fitted to measured kernels; or,
 * where steps of the same model in the same sharding were measured on the machine itself, those (measured_steps.h).
 *
 * Pure functions of (architecture, parallelism, hardware, step sums), rounded once to nanoseconds; + - * / only, so the
 * result is the same on every machine. A model is immutable once made and may be shared by threads.
 *
 * A decode-only step splits into a part that depends on the batch alone and the attention of the slowest group, which
 * is piecewise linear in that group's cached tokens:
 *
 *     step = fixed(batches of all groups) + max over groups g of line_g(context_g)
 *
 * device_step() of a decode-only step equals that sum exactly; the simulator uses the split to step in O(groups).
 */
#ifndef TANDEM_SIM_COST_DEVICE_MODEL_H
#define TANDEM_SIM_COST_DEVICE_MODEL_H

#include "base/arith.h"
#include "world/scenario/engine.h"
#include "world/scenario/hardware.h"
#include "world/scenario/scenario.h"
#include "model/architecture.h"
#include "model/kv_geometry.h"
#include "node.h"
#include "runtime.h"
#include "sim/cost/estimate.h"
#include "host/user_error.h"

#include <stddef.h>

struct device_model;

/* What bounds a step, by its largest share of time. */
enum step_bound {
    BOUND_COMPUTE = 1,
    BOUND_BANDWIDTH = 2,
    BOUND_COMMUNICATION = 3,
    BOUND_OVERHEAD = 4,
};

struct step_time {
    int64_t total_ns;
    int64_t first_layer_ns; /* from the start of the step until layer 0's attention output is reduced */
    int64_t layer_ns;       /* from layer to layer after that; first_layer + (layers - 1) * layer <= total */
    /* Over P > 1 pipeline stages: total = entry + P * stage + (P - 1) * hop + exit. The first stage also has the host's
     * part, the last the logits; between stages the hidden states are handed over. The next step may enter a stage when
     * this one has left it. */
    int64_t stage_ns;
    int64_t entry_ns;
    int64_t exit_ns;
    int64_t hop_ns;
    enum step_bound bound;
};

/* The least time from a step to the next of the same kind: what its busiest stage takes. */
static inline int64_t step_interval_ns(const struct step_time *time, uint32_t stages)
{
    return stages <= 1 ? time->total_ns : time->stage_ns + max_i64(time->entry_ns, time->exit_ns);
}

/* line(context) = base_ns + (context * slope_q32 >> 32), for context in [context_min, context_max]. */
struct decode_line {
    uint64_t context_min;
    uint64_t context_max;
    int64_t base_ns;
    uint64_t slope_q32;
};

/* `engine` NULL, or one that names no kernels: the neutral one. NULL with a sentence in `error` when the model cannot
 * be served so (it does not fit, ranks do not divide it, ...). */
struct device_model *device_model_make(const struct architecture *architecture, struct parallelism parallelism,
                                       const struct hardware *hardware, const struct engine *engine,
                                       struct user_error *error);

/* The same for a pool of a scenario, with what it drafts and the copies of experts that it holds. */
struct device_model *device_model_of_pool(const struct scenario *scenario, const struct pool *pool,
                                          struct parallelism parallelism, struct user_error *error);

/* Whether it knows the steps of the role: a measured one may have been measured for another. False with a sentence. */
bool device_model_serves(const struct device_model *model, enum node_role role, struct user_error *error);

void device_model_free(struct device_model *model);

void device_step(const struct device_model *model, const struct step_group *groups, uint32_t group_count,
                 struct step_time *time);

/* What a launch of decode steps takes beyond its steps; 0 where that is not known apart from them. */
int64_t device_launch_ns(const struct device_model *model);

/* Whether its steps, or all kernels of its GPU, come from measurements of the user's own, which may be beyond what the
 * machine is said to reach. */
bool device_model_is_measured(const struct device_model *model);

/* Pipeline stages that a step passes while others are in the rest of them. */
uint32_t device_stages(const struct device_model *model);

int64_t device_decode_fixed_ns(const struct device_model *model, const struct step_group *groups, uint32_t group_count);
void device_decode_line(const struct device_model *model, uint32_t decode_sequences, uint64_t decode_context,
                        struct decode_line *line);

/* The line at `context`; exact for every context, also outside the line's range. */
static inline int64_t decode_line_ns(const struct decode_line *line, uint64_t context)
{
    return line->base_ns + (int64_t)(uint64_t)((uint128)context * line->slope_q32 >> 32);
}

/* What a step is made of, for people and for tests: each operator once, its time summed over the layers that have it,
 * of the slowest attention group, computed afresh at the exact shape; then what the step is simulated with beside its
 * kernels: the engine's factor on prompts, and what tables interpolate, pad, and keep from decreasing where
 * measurements do. All of them together are device_step()'s time, to the nanosecond. Nothing is called measured on a
 * machine whose rates are not those that its GPU was measured at. */
struct operator_share {
    const char *name;   /* "experts" */
    const char *source; /* the measured table, or the formula; lives as long as the model */
    enum estimate estimate;
    int64_t ns;
    uint32_t count; /* times it runs in the step */
    enum step_bound bound;
    bool rest; /* beside the kernels; may be negative */
};

#define OPERATORS_MAX 96

/* Returns how many entries of shares[OPERATORS_MAX] it filled, in the order of execution. */
uint32_t device_model_breakdown(const struct device_model *model, const struct step_group *groups, uint32_t group_count,
                                struct operator_share *shares);

/* Names of the GPUs whose kernels are shipped: "A100, B200, GB200, H100, H200". */
const char *device_gpu_names(void);

#endif
