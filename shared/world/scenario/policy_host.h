/* Answers for one node what its scenario decides in Lua (serve/policy.h).
 *
 * A function is called with the request, and for all but the order of a queue with the workers it may choose from. Both
 * can be read and not written, nothing else can be reached, and nothing is kept from call to call: a function has the
 * exact part of math, ipairs, select, tonumber, type, assert and error. It may take so many instructions and so much
 * memory. What fails chooses nobody, and is told once.
 */
#ifndef TANDEM_WORLD_SCENARIO_POLICY_HOST_H
#define TANDEM_WORLD_SCENARIO_POLICY_HOST_H

#include "serve/policy.h"
#include "world/scenario/scenario.h"

/* Of one decision. */
#define POLICY_INSTRUCTIONS_MAX 100000
#define POLICY_MEMORY_MAX ((size_t)1 << 20)

/* NULL where the scenario leaves the node nothing to decide. `pool` is the index of the node's pool, UINT32_MAX of the
 * front. The scenario must outlive it. */
struct policy *policy_host_make(const struct scenario *scenario, uint32_t pool);
void policy_host_free(struct policy *policy);

/* What has failed first, as "FILE:LINE: routing.prefill: ..."; NULL: nothing has. policy may be NULL. */
const char *policy_host_failure(const struct policy *policy);

#endif
