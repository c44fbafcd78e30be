/* A device whose steps take a share of what its model says: what an answer comes to where the model is wrong by so
 * much.
 *
 * A step is its decoding part, as if no prompt were in it, and what prompts add. Each is scaled by itself, in permille;
 * what is known of a step beside its length (first layer, layers) moves with it.
 */
#ifndef TANDEM_SIM_PLAN_SCALED_DEVICE_H
#define TANDEM_SIM_PLAN_SCALED_DEVICE_H

#include "sim/engine/sim.h"

#include <stdbool.h>
#include <stdint.h>

struct step_scale {
    uint32_t prefill_permille;
    uint32_t decode_permille;
};

#define STEP_SCALE_NONE ((struct step_scale){.prefill_permille = 1000, .decode_permille = 1000})

struct scaled_device {
    struct device under;
    struct step_scale scale;
};

static inline bool step_scale_is_none(struct step_scale scale)
{
    return scale.prefill_permille == 1000 && scale.decode_permille == 1000;
}

/* `scaled` must outlive what is returned: the device below it where nothing is scaled. */
struct device scaled_device_of(const struct scaled_device *scaled);

#endif
