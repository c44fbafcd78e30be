/* The executor process of one rank: `tandem executor`. It inherits the mailbox, its KV region and the collective memory
 * of its instance by descriptor, owns a device, and does what the mailbox says until it is abandoned or its instance
 * dies.
 */
#ifndef TANDEM_REAL_EXECUTOR_EXECUTOR_H
#define TANDEM_REAL_EXECUTOR_EXECUTOR_H

#include "real/executor/mailbox.h"
#include "host/user_error.h"

/* The device of a name, or NULL with a sentence. */
const struct device_ops *executor_device(const char *name, struct user_error *error);

/* What all executors of an instance take of the machine's memory, with what they share with it. */
struct executor_bytes {
    uint64_t weights;
    uint64_t kv;
    uint64_t buffers;
};

/* False with a sentence where the device is absent or cannot hold the model. */
bool executor_setup_bytes(const struct executor_setup *setup, struct executor_bytes *bytes, struct user_error *error);

/* `tandem executor RANK MAILBOX KV COLLECTIVE CHANNEL`: the rank and four descriptors. KV is -1 where the device has
 * memory of its own, COLLECTIVE with one rank, and CHANNEL, over which such a device's memory is shared (executors.c),
 * where it has none. */
int executor_main(int argc, char **argv);

#endif
