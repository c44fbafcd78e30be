/* A small simulated deployment of real nodes, watched by the oracle of sim/checkers/oracle.h, which knows whose every
 * page is, and the shadow memory of sim/checkers/shadow.h, which knows what is in it, with a log of trace records that
 * stories are compared with. After all inputs have stopped nobody holds anything (5, 6, 10, 12, 33 of
 * tests/INVARIANTS.md).
 */
#ifndef TANDEM_TESTS_SUPPORT_CLUSTER_H
#define TANDEM_TESTS_SUPPORT_CLUSTER_H

#include "node.h"
#include "sim/engine/sim.h"
#include "support/edges.h"
#include "support/fault_injection.h"
#include "support/probe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLUSTER_NODES_MAX 8
#define CLUSTER_REQUESTS_MAX 128
#define CLUSTER_KINDS 64
#define CLUSTER_TEXT_BYTES (1 << 20)

struct cluster_config {
    uint32_t node_count;
    struct node_config nodes[CLUSTER_NODES_MAX]; /* node 0 is the front; ids and peers are filled in */
    struct probe_cost cost;                      /* of every device */
    int64_t message_ns;
    int64_t watcher_ns;
    uint32_t writes_in_flight; /* most tickets of a node; 0: 64 */
    struct sim_detection detection;
    uint64_t shuffle_seed;
    const char *label; /* what a failure calls this; NULL: nothing */
    bool plain;        /* a launch per step and an event per layer */
};

struct oracle;
struct shadow;
struct cluster;

/* A node where the simulation sees it. */
struct cluster_seat {
    struct cluster *cluster;
    uint32_t node;
};

/* Who takes part. */
struct cluster_cast {
    uint32_t node_count;
    uint32_t request_count;
    uint32_t requests[CLUSTER_REQUESTS_MAX];
};

struct cluster {
    struct cluster_config config;
    struct peer_config peers[CLUSTER_NODES_MAX][CLUSTER_NODES_MAX];
    struct sim *sim;
    struct checkers *checkers;
    struct oracle *oracle;
    struct shadow *shadow;
    struct node *nodes[CLUSTER_NODES_MAX];
    void *memory[CLUSTER_NODES_MAX];
    const struct runtime_ops *ops; /* the simulator's own */
    struct runtime_ops own_ops;    /* what the nodes have: a fault may change what they ask for */
    struct cluster_seat seats[CLUSTER_NODES_MAX];
    struct cluster_cast cast;
    struct edge_view views[CLUSTER_NODES_MAX];
    struct edge_counts edges;
    bool meets;   /* a fault, which is part of the story or of a loop over it */
    bool unlucky; /* one thing goes wrong, and what happens is not as told */
    struct fault_injection injection;
    void *retired[16]; /* memory of nodes that were replaced */
    uint32_t retired_count;
    char label[64];                      /* of the configuration, in failures */
    uint32_t ends[CLUSTER_REQUESTS_MAX]; /* trace records of an end, by request */
    uint32_t kinds[CLUSTER_KINDS];       /* trace records by kind */
    bool text_overflow;
    size_t text_used;
    char text[CLUSTER_TEXT_BYTES];
};

/* A front, `prefill` prefillers, `decode` decoders and `mixed` mixed instances, in this order. Four layers, two KV
 * heads of 256 bytes a token, pages of 16 tokens, 64 of them. A prompt token takes 1 us, a decode step 20 us; messages
 * take 5 us; the world notices a loss after 300 us and fences it 200 us later. */
struct cluster_config cluster_config_of(uint32_t prefill, uint32_t decode, uint32_t mixed);

/* The configuration is copied. Everything starts at time 0. */
void cluster_make(struct cluster *cluster, const struct cluster_config *config);
void cluster_free(struct cluster *cluster);

/* Clusters made from here on meet this fault (NULL: none; INJECT_NONE: none, but what is told is not compared). Whether
 * the last one that was freed met it, who took part in it, and which edges it took. */
void cluster_fault(const struct injected_fault *fault);
bool cluster_fault_struck(void);
struct cluster_cast cluster_cast(void);
struct edge_counts cluster_edges(void);

/* This cluster, which is a story's, meets a fault that is told of. A fault of cluster_fault() takes its place. */
void cluster_meets(struct cluster *cluster, const struct injected_fault *fault);

/* What is to happen, in any order, before cluster_run(). Times in microseconds. */
void cluster_arrives(struct cluster *cluster, int64_t at_us,
                     const struct request_spec *request); /* copied, but not its blocks */
void cluster_prompt(struct cluster *cluster, int64_t at_us, uint32_t id, uint32_t prompt_tokens,
                    uint32_t output_tokens);
void cluster_aborts(struct cluster *cluster, int64_t at_us, uint32_t id);
void cluster_dies(struct cluster *cluster, int64_t at_us, uint32_t node);
void cluster_returns(struct cluster *cluster, int64_t at_us, uint32_t node);

/* Until this time, everything that happens at it included. */
void cluster_until(struct cluster *cluster, int64_t at_us);

/* Until nothing is pending; fails the test where an invariant does not hold, somebody holds something at the end, or a
 * request has no end. */
void cluster_run(struct cluster *cluster);

/* Fails the test unless the records since the last time are exactly these lines:
 *   "    12.345 decode-2  armed r7 0x00100000 28"
 * Times are in microseconds; behind the request stand the record's two values, as base/trace.h has them. */
#define expect_trace(cluster, lines) expect_trace_at((cluster), (lines), __FILE__, __LINE__)
void expect_trace_at(struct cluster *cluster, const char *lines, const char *file, int line);

#endif
