/* A runtime over the real one that makes things go wrong, drawn from a seed: in every process of a run whose
 * environment has TANDEM_MISHAP_SEED, the node is made on it and entered through it. Its program is linked with
 * real_runtime_make() and real_runtime_seam() wrapped (tests/CMakeLists.txt); the product knows nothing of it.
 *
 * The seed first draws which mishaps the run has at all (swarm testing), then each process draws when they happen.
 * What the contract of the seam rules out is left out: messages of a pair stay in order, and those of which the
 * protocol has no second chance are not lost while both ends live.
 */
#ifndef TANDEM_TESTS_REAL_MISHAP_RUNTIME_H
#define TANDEM_TESTS_REAL_MISHAP_RUNTIME_H

#include <stdint.h>

enum mishap_bit {
    MISHAP_LATE_MESSAGES = 1 << 0,    /* and what follows on the same pair of nodes with them */
    MISHAP_TWICE_MESSAGES = 1 << 1,   /* they come again at once */
    MISHAP_LOST_MESSAGES = 1 << 2,    /* PREFILL and what answers it: the deadline makes them good */
    MISHAP_LATE_COMPLETIONS = 1 << 3, /* of writes and counts: they pass each other */
    MISHAP_LATE_STEPS = 1 << 4,
    MISHAP_WRITES_IN_ERROR = 1 << 5, /* the bytes are there, the sender is told that they are not */
    MISHAP_KILL = 1 << 6,            /* one instance */
};
#define MISHAP_BITS 7

struct mishaps {
    uint32_t bits;
    uint32_t victim;    /* node */
    uint32_t victim_at; /* dies before its so-manyth event */
};

/* What the seed draws for a run with `instances` instances, nodes 1 to `instances`. */
struct mishaps mishaps_of(uint64_t seed, uint32_t instances);

#endif
