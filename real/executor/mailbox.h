/* How an instance tells its executors what to do: one shared memory of all its ranks.
 *
 *     struct mailbox | reply of each rank, its tokens | changes of the launch
 *
 * The device thread of the instance writes a command and raises `command`; every executor carries it out, writes its
 * reply and counts itself in `done`; the last one wakes the thread. One command at a time.
 */
#ifndef TANDEM_REAL_EXECUTOR_MAILBOX_H
#define TANDEM_REAL_EXECUTOR_MAILBOX_H

#include "base/limits.h"
#include "real/device/device.h"
#include "real/executor/step_codec.h"

#include <stdatomic.h>

/* Bytes of changes of one command; a launch with more sends them in several. Room for the longest single change. */
#define MAILBOX_CHANGES_BYTES ((size_t)1 << 20)

/* What makes an executor's device: written before the executors start. */
struct executor_setup {
    char device[16]; /* "host", "cuda" */
    struct architecture architecture;
    struct kv_memory memory;
    uint64_t weight_seed;
    uint32_t ranks;
    uint32_t device_first; /* ranks of other instances on this machine that come before these */
    uint32_t groups;
    uint32_t sequences_max;
    uint32_t tokens_max;
    uint32_t request_tokens_max;
    uint32_t request_pages_max;
    uint32_t prefill_tokens; /* 1: the step that ends a prompt yields a token */
    uint32_t stores_tails;   /* 1: of a chunk, in the tail slot of its sequence */
    uint64_t collective_floats;
};

enum mailbox_kind {
    MAILBOX_CHANGES = 1, /* take note of changes; more, or a step, follow */
    MAILBOX_STEP = 2,    /* take note, apply all changes noted since the last step, run one step */
    MAILBOX_REPEAT = 3,  /* run one step more over the same batch */
};

enum reply_status {
    REPLY_OK = 0,
    REPLY_BAD_COMMAND = 1, /* changes that do not parse */
    REPLY_ABANDONED = 2,   /* the collective was given up */
    REPLY_NO_DEVICE = 3,   /* `error` says why */
};

struct mailbox_reply {
    uint32_t status;
    uint32_t token_count;
    struct user_error error;
};

struct mailbox {
    struct executor_setup setup;
    _Atomic uint32_t command; /* raised by one for each; executors wait on it */
    _Atomic uint32_t done;    /* executors that have replied to the command in hand */
    uint32_t kind;
    uint64_t change_bytes;
    uint64_t counter_base;
    atomic_bool abandon; /* a rank is gone, or the run is over: nobody waits, and executors end */
    _Alignas(64) _Atomic uint64_t layer_counters[GROUPS_MAX];
};

size_t mailbox_bytes(const struct executor_setup *setup);

struct mailbox_reply *mailbox_reply(struct mailbox *mailbox, uint32_t rank);
struct device_token *mailbox_tokens(struct mailbox *mailbox, uint32_t rank); /* sequences_max */
unsigned char *mailbox_changes(struct mailbox *mailbox);

#endif
