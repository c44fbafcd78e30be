/* See edges.h. */
#include "support/edges.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define EDGE(role, from, to, words)                                                                                    \
    {                                                                                                                  \
        ROLE_##role, SEQUENCE_##from, SEQUENCE_##to, words                                                             \
    }

const struct edge known_edges[] = {
    EDGE(DECODE, FREE, ALLOC, "comes, and waits for pages or a hand-off slot"),
    EDGE(DECODE, FREE, DISPATCHED, "comes, gets all it needs, its prefiller is asked"),
    EDGE(DECODE, FREE, READY, "comes, with nothing to fetch, and waits for a place in the batch"),
    EDGE(DECODE, FREE, DECODE, "comes, with nothing to fetch, and decodes"),
    EDGE(DECODE, ALLOC, FREE, "its client leaves, or its prefiller is lost, while it waits"),
    EDGE(DECODE, ALLOC, DISPATCHED, "room has become free, its prefiller is asked"),
    EDGE(DECODE, ALLOC, READY, "room has become free, nothing is to be fetched, and the batch is full"),
    EDGE(DECODE, ALLOC, DECODE, "room has become free, and nothing is to be fetched"),
    EDGE(DECODE, DISPATCHED, FREE, "the prefiller refuses"),
    EDGE(DECODE, DISPATCHED, FILLING, "the prefiller accepts"),
    EDGE(DECODE, DISPATCHED, CANCELLING, "deadline, or its client leaves, before the prefiller has answered"),
    EDGE(DECODE, DISPATCHED, QUARANTINE, "the prefiller is suspected before it has answered"),
    EDGE(DECODE, DISPATCHED, READY, "the count is reached before the acceptance is heard; the batch is full"),
    EDGE(DECODE, DISPATCHED, DECODE, "the count is reached before the acceptance is heard"),
    EDGE(DECODE, FILLING, FREE, "the prefiller's write has failed"),
    EDGE(DECODE, FILLING, CANCELLING, "deadline, or its client leaves"),
    EDGE(DECODE, FILLING, QUARANTINE, "the prefiller is suspected"),
    EDGE(DECODE, FILLING, READY, "the count is reached; a step is running"),
    EDGE(DECODE, FILLING, DECODE, "the count is reached, and it decodes"),
    EDGE(DECODE, CANCELLING, FREE, "the prefiller has confirmed"),
    EDGE(DECODE, CANCELLING, QUARANTINE, "the prefiller is suspected before it has confirmed"),
    EDGE(DECODE, QUARANTINE, FREE, "the prefiller is fenced"),
    EDGE(DECODE, READY, FREE, "its client leaves while it waits for a place in the batch"),
    EDGE(DECODE, READY, ALLOC, "preempted before it decoded"),
    EDGE(DECODE, READY, DISPATCHED, "preempted before it decoded, and another group has room for it"),
    EDGE(DECODE, READY, DECODE, "joins the batch"),
    EDGE(DECODE, DECODE, FREE, "finished, or its client has left"),
    EDGE(DECODE, DECODE, ALLOC, "preempted"),
    EDGE(DECODE, DECODE, DISPATCHED, "preempted, and another group has room for it"),
    EDGE(DECODE, FREE, QUEUED, "comes, its prompt is to be computed here, and waits for its turn"),
    EDGE(DECODE, FREE, STREAMING, "comes, and the first chunk of its prompt is launched here"),
    EDGE(DECODE, QUEUED, FREE, "its client leaves before its prompt has its turn"),
    EDGE(DECODE, QUEUED, STREAMING, "the first chunk of its prompt is launched"),
    EDGE(DECODE, STREAMING, FREE, "its client leaves, or its first token is its last"),
    EDGE(DECODE, STREAMING, READY, "its prompt is computed, it has its first token, and the batch is full"),
    EDGE(DECODE, STREAMING, DECODE, "its prompt is computed, it has its first token, and decodes"),
    EDGE(DECODE, DECODE, QUEUED, "preempted, and to be computed here again"),
    EDGE(DECODE, DECODE, STREAMING, "preempted, and another group computes it at once"),
    EDGE(DECODE, READY, QUEUED, "preempted before it decoded, and to be computed here"),
    EDGE(DECODE, READY, STREAMING, "preempted before it decoded, and another group computes it at once"),
    EDGE(DECODE, STREAMING, QUEUED, "its prompt is computed, and it is preempted again at once"),
    EDGE(PREFILL, FREE, QUEUED, "accepted, while a step is running or pages are short"),
    EDGE(PREFILL, FREE, STREAMING, "accepted, and its first chunk launched"),
    EDGE(PREFILL, FREE, DRAIN, "accepted, all of it cached: everything is posted"),
    EDGE(PREFILL, QUEUED, FREE, "cancelled, or its decoder is lost, while it waits"),
    EDGE(PREFILL, QUEUED, STREAMING, "its first chunk is launched"),
    EDGE(PREFILL, QUEUED, DRAIN, "all of it turns out to be cached: everything is posted"),
    EDGE(PREFILL, STREAMING, FREE, "cancelled while it is in no step and nothing of it is posted"),
    EDGE(PREFILL, STREAMING, DRAIN, "the step of its last chunk has ended"),
    EDGE(PREFILL, STREAMING, CANCELLED, "cancelled, a write failed, or its decoder is lost"),
    EDGE(PREFILL, DRAIN, FREE, "the last write has completed"),
    EDGE(PREFILL, DRAIN, CANCELLED, "cancelled, a write failed, or its decoder is lost, with writes still posted"),
    EDGE(PREFILL, CANCELLED, FREE, "its step and its writes have ended"),
};
const uint32_t known_edge_count = sizeof known_edges / sizeof *known_edges;

const char *edge_state_name(enum sequence_state state)
{
    static const char *const names[EDGE_STATES] = {
        [SEQUENCE_FREE] = "free",           [SEQUENCE_ALLOC] = "ALLOC",           [SEQUENCE_DISPATCHED] = "DISPATCHED",
        [SEQUENCE_FILLING] = "FILLING",     [SEQUENCE_CANCELLING] = "CANCELLING", [SEQUENCE_QUARANTINE] = "QUARANTINE",
        [SEQUENCE_READY] = "READY",         [SEQUENCE_DECODE] = "DECODE",         [SEQUENCE_QUEUED] = "QUEUED",
        [SEQUENCE_STREAMING] = "STREAMING", [SEQUENCE_DRAIN] = "DRAIN",           [SEQUENCE_CANCELLED] = "CANCELLED",
    };
    return names[state];
}

static void take(enum node_role role, uint8_t from, uint8_t to, uint32_t request, struct edge_counts *counts)
{
    if (from == to)
        return;
    for (uint32_t i = 0; i < known_edge_count; i++) {
        const struct edge *edge = &known_edges[i];
        if (edge->role == role && edge->from == from && edge->to == to) {
            counts->of[i]++;
            return;
        }
    }
    fail_msg("request %u of a %s: from %s to %s there is no edge", (unsigned)request,
             role == ROLE_DECODE ? "decoder" : "prefiller", edge_state_name((enum sequence_state)from),
             edge_state_name((enum sequence_state)to));
}

/* The same request at the same station: a prefiller may still hold an epoch that has ended beside the next one, and
 * one of a decoder that was replaced beside that of its replacement. */
static bool same(enum node_role role, const struct node_sequence *a, const struct node_sequence *b)
{
    return a->request == b->request &&
           (role == ROLE_DECODE ||
            (a->peer == b->peer && a->peer_incarnation == b->peer_incarnation && a->epoch == b->epoch));
}

static const struct node_sequence *find(enum node_role role, const struct edge_view *view,
                                        const struct node_sequence *sequence)
{
    for (uint32_t i = 0; i < view->count; i++)
        if (same(role, &view->sequences[i], sequence))
            return &view->sequences[i];
    return NULL;
}

void edges_look(struct edge_view *view, enum node_role role, const struct node *node, struct edge_counts *counts)
{
    struct edge_view now;
    if (role != ROLE_DECODE && role != ROLE_PREFILL)
        return;
    assert_true(known_edge_count <= EDGES_MAX);
    now.count = node_sequences(node, now.sequences, EDGE_SEQUENCES_MAX);
    assert_true(now.count <= EDGE_SEQUENCES_MAX);
    for (uint32_t i = 0; i < now.count; i++) {
        const struct node_sequence *before = find(role, view, &now.sequences[i]);
        take(role, before == NULL ? SEQUENCE_FREE : before->state, now.sequences[i].state, now.sequences[i].request,
             counts);
    }
    for (uint32_t i = 0; i < view->count; i++)
        if (find(role, &now, &view->sequences[i]) == NULL)
            take(role, view->sequences[i].state, SEQUENCE_FREE, view->sequences[i].request, counts);
    *view = now;
}
