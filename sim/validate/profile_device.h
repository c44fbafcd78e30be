/* A device whose steps are looked up in the tables of a profiler: one layer's attention over (prompt tokens of the
 * step, tokens cached before them, decoding sequences, tokens cached of each), everything else of a layer by the step's
 * tokens, the head by sequences. Between the points of a table it is
 * linear. Several prompts in a step count as one with the same number of query-key pairs.
 */
#ifndef TANDEM_SIM_VALIDATE_PROFILE_DEVICE_H
#define TANDEM_SIM_VALIDATE_PROFILE_DEVICE_H

#include "host/user_error.h"
#include "sim/engine/sim.h"

struct profile_device;

struct profile_shape {
    const char *name; /* "rtx4090-llama-8b": of validation/profile-NAME-*.csv */
    uint32_t layers;
    int64_t host_ns; /* a step */
};

/* NULL with `error` set when a table cannot be read. */
struct profile_device *profile_device_make(const struct profile_shape *shape, struct user_error *error);
void profile_device_free(struct profile_device *device); /* NULL is allowed */

/* For one attention group. */
struct device profile_device_of(const struct profile_device *device);

#endif
