/* `tandem explain SCENARIO --step ...`: what one step is made of. */
#ifndef TANDEM_CLI_EXPLAIN_STEP_H
#define TANDEM_CLI_EXPLAIN_STEP_H

#include "host/output.h"
#include "world/scenario/scenario.h"
#include "host/user_error.h"

/* A step as the command line names it: "BATCH,CONTEXT" decodes BATCH sequences with CONTEXT tokens each;
 * "prefill:TOKENS,CONTEXT" computes one chunk of TOKENS after CONTEXT cached ones. In every attention group the same.
 */
struct step_wanted {
    bool prefill;
    uint32_t count;   /* sequences, or tokens of the chunk */
    uint32_t context; /* tokens */
};

/* False with `error` described. */
bool step_wanted_read(const char *text, struct step_wanted *step, struct user_error *error);

/* A table for each pool that runs such steps, in its first sharding. */
bool explain_step(const struct scenario *scenario, const struct step_wanted *step, const struct output *output,
                  struct user_error *error);

#endif
