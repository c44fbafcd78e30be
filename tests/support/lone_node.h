/* A node by itself: events go in by hand, and what it asks of its runtime comes out as lines, one a call; a test says
 * which. With it the configurations of a small cluster whose numbers can be followed in the head.
 *
 * The lines:
 *   timer 0 at 1000
 *   launch 3 x8 g0 decode 2/198 prefill 1/64+0 chunk r7 0+64 join r8 @99 pages r8 7+1 leave r9
 *   end 3
 *   write t0 n2 r7 e1 0x00100000 units 0+4 gate 3 0-3>8-11 tail 1@0
 *   stop t0
 *   expect 0x00100000 16
 *   send n2 prefill r7 e1 tokens 99 first 0 pages 0-6 0x00100000 tail 0 group 0
 *   send n0 finished r7 produced 3
 * Traces are lines only where the test asks for them ("trace ready r7 1 0").
 */
#ifndef TANDEM_TESTS_SUPPORT_LONE_NODE_H
#define TANDEM_TESTS_SUPPORT_LONE_NODE_H

#include "messenger/wire.h"
#include "node.h"
#include "runtime.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LONE_TEXT_BYTES 65536
#define LONE_WRITES 8 /* in flight */

struct lone_node {
    struct runtime runtime; /* first: an operation gets a pointer to it */
    struct node *node;
    void *memory;
    bool traces;     /* lines for trace records too */
    bool inside;     /* the node is handling an event: the only time it may call */
    uint32_t launch; /* ticket of the launch in progress */
    bool launched;
    uint32_t repeat_max;      /* of the last launch */
    bool posted[LONE_WRITES]; /* by ticket: not yet answered */
    uint32_t writes;          /* of those, how many */
    uint32_t requests;        /* that the front has sent: their numbers */
    size_t used;
    char text[LONE_TEXT_BYTES]; /* lines since the last assert_calls() */
};

/* Makes a node of this configuration, at time 0, and starts it; the configuration must outlive it. */
void lone_make(struct lone_node *lone, const struct node_config *config);
void lone_free(struct lone_node *lone);

void lone_event(struct lone_node *lone, const struct event *event);
/* A REQUEST without a number gets the next one. */
void lone_message(struct lone_node *lone, uint32_t source, const struct message *message, const uint64_t *blocks,
                  const uint32_t *pages);

/* Shorter ways to say the usual events. */
void lone_steps_done(struct lone_node *lone, uint64_t steps); /* of the launch in progress */
void lone_write_done(struct lone_node *lone, uint32_t ticket, enum write_status status);
void lone_all_written(struct lone_node *lone); /* every write now in flight is done and well */
void lone_immediate(struct lone_node *lone, uint32_t immediate, uint64_t count);
void lone_timer(struct lone_node *lone, uint32_t slot);
void lone_peer_lost(struct lone_node *lone, uint32_t peer, enum peer_status status, uint32_t incarnation);
/* A replacement of `source` says hello. */
void lone_hello(struct lone_node *lone, uint32_t source, uint32_t incarnation);
void lone_about(struct lone_node *lone, uint32_t source, enum message_kind kind, uint32_t request, uint32_t epoch,
                uint32_t reason);

/* A request for `id`, as the front sends it to a decoder (with PREFILLER chosen) or a mixed instance. */
struct message lone_request_of(uint32_t id, uint32_t prompt_tokens, uint32_t output_tokens);

/* Ends the launch in progress, in full, as often as it takes for the device to run dry. */
void lone_run_dry(struct lone_node *lone);

/* Fails the test unless the node holds nothing for anybody. */
void assert_lone_empty(const struct lone_node *lone);

/* Fails the test unless the calls since the last time are exactly `lines`, each ended by a newline. */
#define assert_calls(lone, lines) assert_calls_at((lone), (lines), __FILE__, __LINE__)
void assert_calls_at(struct lone_node *lone, const char *lines, const char *file, int line);

/* Forgets the calls so far. */
void lone_forget(struct lone_node *lone);

/* ---- A small cluster: front 0, prefiller 1, decoder 2, a second prefiller 3, mixed 4 ------------------------------
 */

enum {
    FRONT = 0,
    PREFILLER = 1,
    DECODER = 2,
    PREFILLER_TOO = 3,
    MIXED = 4,
};

struct small_cluster {
    struct node_config config[5];
    struct peer_config peers_of_front[3];
    struct peer_config peers_of_mixed_front[1];
    struct peer_config peers_of_prefiller[2]; /* the front, then the decoder */
    struct peer_config peers_of_decoder[3];   /* the front, then the prefillers */
    struct peer_config peers_of_mixed[1];
};

/* Two layers, two heads, K and V, pages of 16 tokens, one rank: four writes a page. 64 pages a pool, 4 hand-offs,
 * batches of 8, 64 tokens a step, headroom 16 tokens, no prefix cache, no tail, deadline of 1 ms, three attempts.
 * Change what a test is about, then call small_cluster_link(). */
void small_cluster_make(struct small_cluster *cluster);

/* Copies what peers know of each other from the configurations. */
void small_cluster_link(struct small_cluster *cluster);

/* One rank, 2 layers, `heads` heads. */
struct kv_geometry small_geometry(uint16_t tensor, uint16_t heads, uint16_t page_tokens);

/* What the decoder sends for `tokens` tokens of which it has the first `first`: all of them in one immediate,
 * 0x00100000 and the epoch, in tail slot 3, without a deadline. */
struct message lone_prefill_of(const struct small_cluster *cluster, uint32_t request, uint32_t epoch, uint32_t tokens,
                               uint32_t first);
/* ... reaches the prefiller `lone`, the decoder's pages being 100, 101, ... `blocks` names the prompt's, or NULL. */
void lone_prefill(struct lone_node *lone, const struct message *message, const uint64_t *blocks);

#endif
