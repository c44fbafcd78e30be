/* Whether a request may enter at all: turning it away at once is kinder than missing its target after it has used up
 * prefill time that others needed.
 */
#ifndef TANDEM_SERVE_ADMISSION_H
#define TANDEM_SERVE_ADMISSION_H

#include "node.h"

/* REJECT_NONE or REJECT_ADMISSION. `least_queued_tokens`: of the prefiller with the shortest queue. The expected wait
 * is that queue and the request's own prompt at the policy's rate. */
enum reject_reason admission_check(const struct admission_policy *policy, uint64_t least_queued_tokens,
                                   uint32_t prompt_tokens);

#endif
