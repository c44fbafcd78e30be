/* What changes from one launch to the next, as bytes for the executors: a launch's changes name page lists that live in
 * the node's memory, which no other process sees. Behind them come the tokens that the devices are given with them.
 *
 * A change is a header of STEP_CHANGE_BYTES, then its page indices, everything little-endian; given tokens have the
 * same form, with tokens for pages and STEP_GIVEN for the kind. Decoding trusts nothing: an executor that received
 * garbage would write through wild page numbers.
 */
#ifndef TANDEM_REAL_EXECUTOR_STEP_CODEC_H
#define TANDEM_REAL_EXECUTOR_STEP_CODEC_H

#include "runtime.h"

#define STEP_CHANGE_BYTES 40

/* A kind of its own beside enum step_change_kind: tokens at positions [start, start + page_count) are in `pages`. */
#define STEP_GIVEN 16

/* Tokens of a sequence that its device cannot know (device_ops.given). */
struct step_given {
    uint32_t sequence;
    uint32_t first;
    uint32_t count;
    const uint32_t *tokens;
};

/* What a change may name. */
struct step_bounds {
    uint32_t groups;
    uint32_t sequences;
    uint32_t request_tokens_max;
    uint32_t pages_per_group;
    uint32_t request_pages_max; /* pages of one sequence's list */
    uint32_t vocab;
};

/* Entries that the list behind one header has at most. */
static inline uint32_t step_list_max(const struct step_bounds *bounds)
{
    return bounds->request_pages_max > bounds->request_tokens_max ? bounds->request_pages_max
                                                                  : bounds->request_tokens_max;
}

static inline size_t step_change_bytes(const struct step_change *change)
{
    return STEP_CHANGE_BYTES + (size_t)change->page_count * 4;
}

/* Writes one change; `bytes` has room for step_change_bytes(). Returns the bytes written. */
size_t step_change_encode(const struct step_change *change, unsigned char *bytes);

static inline size_t step_given_bytes(const struct step_given *given)
{
    return STEP_CHANGE_BYTES + (size_t)given->count * 4;
}
size_t step_given_encode(const struct step_given *given, unsigned char *bytes);

enum step_decode { STEP_DECODED = 1, STEP_DECODE_END = 2, STEP_DECODE_BAD = 3 };

/* Reads the change, or the given tokens, at *at and moves past it. Its list is written to `pages`, which has room for
 * pages_max; change->pages points there. */
enum step_decode step_change_decode(const unsigned char *bytes, size_t length, size_t *at,
                                    const struct step_bounds *bounds, uint32_t *pages, uint32_t pages_max,
                                    struct step_change *change);

#endif
