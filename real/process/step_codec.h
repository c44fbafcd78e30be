/* What changes from one launch to the next, as bytes for the executors: a launch's changes name page lists that live in
 * the node's memory, which no other process sees.
 *
 * A change is a header of STEP_CHANGE_BYTES, then its page indices, everything little-endian. Decoding trusts nothing:
 * an executor that received garbage would write through wild page numbers.
 */
#ifndef TANDEM_REAL_PROCESS_STEP_CODEC_H
#define TANDEM_REAL_PROCESS_STEP_CODEC_H

#include "runtime.h"

#define STEP_CHANGE_BYTES 40

/* What a change may name. */
struct step_bounds {
    uint32_t groups;
    uint32_t sequences;
    uint32_t request_tokens_max;
    uint32_t pages_per_group;
    uint32_t request_pages_max; /* pages of one sequence's list */
};

static inline size_t step_change_bytes(const struct step_change *change)
{
    return STEP_CHANGE_BYTES + (size_t)change->page_count * 4;
}

/* Writes one change; `bytes` has room for step_change_bytes(). Returns the bytes written. */
size_t step_change_encode(const struct step_change *change, unsigned char *bytes);

enum step_decode { STEP_DECODED = 1, STEP_DECODE_END = 2, STEP_DECODE_BAD = 3 };

/* Reads the change at *at and moves past it. Its pages are written to `pages`, which has room for pages_max;
 * change->pages points there. */
enum step_decode step_change_decode(const unsigned char *bytes, size_t length, size_t *at,
                                    const struct step_bounds *bounds, uint32_t *pages, uint32_t pages_max,
                                    struct step_change *change);

#endif
