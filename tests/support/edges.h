/* The edges of the two state machines of the KV messenger, as seen from outside: what a node holds of each request
 * before an event and after it. An event may take a request over several edges at once; what is seen, and listed here,
 * is where it begins and where it ends.
 *
 * edges.c lists every edge there is, in words. A cluster that sees another fails its test; tests/stories/EDGES.md says
 * in which story each can be read.
 */
#ifndef TANDEM_TESTS_SUPPORT_EDGES_H
#define TANDEM_TESTS_SUPPORT_EDGES_H

#include "node.h"
#include "serve/sequence.h"

#include <stdbool.h>
#include <stdint.h>

#define EDGE_STATES (SEQUENCE_CANCELLED + 1)
#define EDGE_SEQUENCES_MAX 128

/* What one node held when it was last looked at. */
struct edge_view {
    struct node_sequence sequences[EDGE_SEQUENCES_MAX];
    uint32_t count;
};

struct edge {
    enum node_role role;
    enum sequence_state from;
    enum sequence_state to;
    const char *words;
};

extern const struct edge known_edges[];
extern const uint32_t known_edge_count;

/* By number of the known edge. */
#define EDGES_MAX 64
struct edge_counts {
    uint32_t of[EDGES_MAX];
};

const char *edge_state_name(enum sequence_state state);

/* Counts the edges between what the view holds and what the node holds now, which the view then holds. Fails the test
 * for an edge that is not known. */
void edges_look(struct edge_view *view, enum node_role role, const struct node *node, struct edge_counts *counts);

#endif
