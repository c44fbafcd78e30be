/* Shadow memory: what is in every page of every node, token by token, down to the (rank, layer, plane, head) that each
 * run of a write carries.
 *
 * The simulator moves no bytes. Here a token's place in a page holds a tag of whose KV it is (the prefix block that the
 * token lies in, else the request, and its position), as real memory would hold the KV itself: steps put tags into the
 * pages that they are launched with, and every write that lands copies the tags that its plan's offsets name. Offsets
 * are taken apart again by the layout of each side's own geometry, so that plan and memory are two opinions.
 *
 * Asserted, by the numbers of tests/INVARIANTS.md: what a write reads is computed, and its request's (7); every piece
 * that lands belongs there, from the right layer, head and token, once in its epoch (19, 22, 23, 31); at the count
 * every byte is there, and the writes counted are those armed for (4 of section "Counting"; 26); what a step begins
 * with is the KV of its own sequence, also where it was found in a prefix cache; pages that a step writes are nobody
 * else's.
 */
#ifndef TANDEM_SIM_CHECKERS_SHADOW_H
#define TANDEM_SIM_CHECKERS_SHADOW_H

#include "node.h"
#include "sim/checkers/oracle.h"
#include "sim/engine/sim.h"

#include <stdint.h>

struct shadow;

/* As oracle_make(); after `oracle`, whose writes it reads, and which must outlive it. */
struct shadow *shadow_make(struct sim *sim, const struct node_config *configs, uint32_t node_count,
                           const struct oracle *oracle, struct checkers *checkers);
void shadow_free(struct shadow *shadow);

#endif
