/* What the processes of a run take of this machine's memory, and what there is: told and compared before the first of
 * them is started, for a machine that runs out of memory ends whatever it likes.
 *
 * Counted is what grows with the scenario: weights, KV pages and tails, buffers of the steps, what an instance shares
 * with its executors, and regions of the fabric's shm provider. Every process has some 10 MB beside that. KV pages
 * count whole, whether or not the load will fill them.
 */
#ifndef TANDEM_REAL_CLUSTER_MEMORY_NEED_H
#define TANDEM_REAL_CLUSTER_MEMORY_NEED_H

#include "real/cluster/real_world.h"
#include "host/user_error.h"

/* Bytes. */
struct memory_need {
    uint64_t weights;
    uint64_t kv;
    uint64_t buffers;
    uint64_t processes; /* what each has beside that */
    uint64_t regions;   /* in /dev/shm */
};

/* Of all instances of the world. False with a sentence where the device cannot be, or cannot hold the model. */
bool memory_need_of(const struct real_world *world, const struct real_options *options, struct memory_need *need,
                    struct user_error *error);

uint64_t memory_need_total(const struct memory_need *need);

/* "16.4 GiB of this machine's memory: weights 15.0, KV 1.2, ..." */
void memory_need_text(const struct memory_need *need, char *text, size_t size);

struct memory_there {
    uint64_t bytes;      /* that processes may still take */
    const char *limit;   /* what says so: "available", "left to this control group" */
    uint64_t shared;     /* in /dev/shm */
    bool shared_matters; /* the fabric will use it */
};

struct memory_there memory_there_now(const struct real_options *options);

/* False with a sentence that says what is wanted, what there is, and what to lower. */
bool memory_suffices(const struct memory_need *need, const struct memory_there *there, struct user_error *error);

#endif
