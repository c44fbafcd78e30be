/* Decisions that a scenario makes itself, in a language of its own. The logic asks; whoever made the runtime answers
 * (world/scenario/policy_host.h).
 *
 * An answer is a pure function of the question: it depends on nothing else, keeps nothing, and takes a bounded time. So
 * it is the same in every runtime, and in a run that is played again. It is no operation of the seam, for nothing
 * happens.
 */
#ifndef TANDEM_SERVE_POLICY_H
#define TANDEM_SERVE_POLICY_H

#include "runtime.h"

enum policy_kind {
    POLICY_PREFILL,   /* which prefiller, or mixed instance; none: the decoder, where it may */
    POLICY_DECODE,    /* which decoder */
    POLICY_ADMISSION, /* whether the request may enter */
    POLICY_QUEUE,     /* the order of an instance's prompts */
    POLICY_KINDS,
};

#define POLICY_NONE UINT32_MAX

struct router;

/* Members of the router that may be chosen, by number. router->matched is up to date. */
struct policy_question {
    const struct request_spec *request;
    const struct router *router;
    const uint32_t *eligible;
    uint32_t count;
    int64_t now_ns;
};

struct policy;
struct policy_ops {
    /* An index in `eligible`, or POLICY_NONE. */
    uint32_t (*choose)(struct policy *policy, enum policy_kind kind, const struct policy_question *question);
    bool (*admit)(struct policy *policy, const struct policy_question *question);
    /* Smaller keys go first. */
    uint64_t (*order)(struct policy *policy, const struct request_spec *request);
};

struct policy {
    const struct policy_ops *ops;
    bool decides[POLICY_KINDS];
};

#endif
