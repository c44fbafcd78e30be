/* The executor process of one rank: `tandem executor`. It inherits the mailbox, its KV region and the collective memory
 * of its instance by descriptor, owns a device, and does what the mailbox says until it is abandoned or its instance
 * dies.
 */
#ifndef TANDEM_REAL_EXECUTOR_EXECUTOR_H
#define TANDEM_REAL_EXECUTOR_EXECUTOR_H

#include "real/device/device.h"

/* The device of a name, or NULL with a sentence. */
const struct device_ops *executor_device(const char *name, char *error, size_t error_size);

/* `tandem executor RANK MAILBOX KV COLLECTIVE CHANNEL`: the rank and four descriptors. KV is -1 where the device has
 * memory of its own, COLLECTIVE with one rank, and CHANNEL, over which such a device's memory is shared (executors.c),
 * where it has none. */
int executor_main(int argc, char **argv);

#endif
