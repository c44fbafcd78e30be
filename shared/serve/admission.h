/* Whether a request may enter at all: turning it away at once is kinder than missing its target after it has used up
 * prefill time that others needed.
 */
#ifndef TANDEM_SERVE_ADMISSION_H
#define TANDEM_SERVE_ADMISSION_H

#include "node.h"

/* What the front expects of a request where it would fare best. */
struct admission_outlook {
    uint64_t queued_tokens;        /* to compute before it, on the prefiller with the fewest */
    uint64_t tokens_to_first;      /* to compute until its prompt is done, its own that are not cached included, on the
                                      prefiller with the fewest */
    uint64_t prefill_tokens_per_s; /* as far as has been seen; 0: nothing has */
    uint64_t decode_load_permille; /* of the KV of the decoder with the smallest share, this request's included */
};

/* REJECT_NONE or REJECT_ADMISSION. */
enum reject_reason admission_check(const struct admission_policy *policy, const struct admission_outlook *outlook);

#endif
