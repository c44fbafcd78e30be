/* Knows whose every page is, from nothing but the operations that nodes call and the events they get.
 *
 * What it asserts, by the numbers of tests/INVARIANTS.md: a page that a posted write targets is nobody else's (1, 2,
 * 3); nothing is posted for an epoch after its QUIESCED (4); a transfer is armed and let go of exactly once (5, 8, 10);
 * a write reads only pages of its own request (7); a count is armed before the prefiller is asked (18); no write lands
 * for a transfer that is over (2, 3, 12).
 */
#ifndef TANDEM_SIM_CHECKERS_ORACLE_H
#define TANDEM_SIM_CHECKERS_ORACLE_H

#include "node.h"
#include "sim/checkers/checkers.h"
#include "sim/engine/sim.h"

#include <stdbool.h>
#include <stdint.h>

struct oracle;

struct oracle_write {
    bool open;    /* posted and not answered */
    bool landing; /* some of it may still land */
    uint32_t source;
    uint32_t source_incarnation;
    uint32_t pieces_landed;
    uint32_t capacity;
    uint32_t *pages;         /* of both sides */
    struct paged_write spec; /* its page lists are those above */
};

/* Listens to `sim`. What does not hold goes to `checkers`. Both, and the configurations of the nodes, by id, must
 * outlive it. */
struct oracle *oracle_make(struct sim *sim, const struct node_config *configs, uint32_t node_count,
                           struct checkers *checkers);
void oracle_free(struct oracle *oracle);

/* At the end, when nothing is pending: no write of a living node may be without its answer. */
void oracle_drained(struct oracle *oracle);

/* The write that is landing, or NULL where that is nobody's. For listeners after the oracle, while they are told. */
const struct oracle_write *oracle_landing(const struct oracle *oracle);

#endif
