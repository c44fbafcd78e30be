/* --verify: a digest of every piece of a transferred prompt, taken at the sender when its write has completed and its
 * source pages are still held, and compared at the receiver before the node learns that the bytes are here and may
 * change them.
 *
 * A piece is what one write carries: one run of one unit, layer and plane, so that it works for every pair of
 * shardings; a tail is one piece. Digests travel over the control plane; an immediate whose count is reached waits for
 * them.
 */
#ifndef TANDEM_REAL_RUNTIME_VERIFIER_H
#define TANDEM_REAL_RUNTIME_VERIFIER_H

#include "real/control/frame.h"
#include "real/fabric/fabric.h"
#include "real/memory/kv_memory.h"
#include "runtime.h"

struct verifier;

struct verifier_config {
    struct kv_memory memory;
    uint32_t ranks;
    const struct fabric_rank *regions; /* of the ranks */
    void *self;
    void (*send)(void *self, uint32_t node, const void *body, size_t length); /* a FRAME_DIGESTS */
    void (*complete)(void *self, uint32_t immediate, uint64_t count); /* an immediate that was held may be told */
};

struct verifier *verifier_make(const struct verifier_config *config);
void verifier_free(struct verifier *verifier);

/* Sender: the write has completed well. */
void verifier_written(struct verifier *verifier, const struct paged_write *write);

/* Receiver. An expectation of 0 forgets. landed() returns whether the digests are all here and compared. */
void verifier_expected(struct verifier *verifier, uint32_t immediate, uint64_t count);
bool verifier_landed(struct verifier *verifier, uint32_t immediate, uint64_t count);

/* A FRAME_DIGESTS has come. False: it makes no sense. */
bool verifier_digests(struct verifier *verifier, const struct frame *frame);

/* Pieces compared, and those that differed. */
uint64_t verifier_compared(const struct verifier *verifier);
uint64_t verifier_differed(const struct verifier *verifier);

#endif
