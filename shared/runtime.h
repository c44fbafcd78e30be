/* The seam: everything the logic may ask of the world, and everything the world may tell it.
 *
 * Events enter a node through one function (node_handle); requests leave through one const table behind the inline
 * wrappers below. Two runtimes stand behind it, virtual time (sim/) and real time (real/); fakes, recorders and
 * fault-injecting shims stand behind it in tests. Five rules hold in all of them:
 *
 *  1. One node is entered by one thread at a time, never re-entrantly. No operation calls back into the node: every
 *     answer is a later event.
 *  2. `now_ns` is a field, fixed during one node_handle() and monotonic.
 *  3. Posting cannot fail. A later event carries the failure. The node keeps within `limits`.
 *  4. Remote writes land in any order. Only immediates are counted, and an immediate is counted only after the bytes of
 *     its own write are visible.
 *  5. Pointers in an event, and pointers in an operation's arguments, die when the call returns; the transfer plan of a
 *     write is the one exception: it must live as long as the node.
 */
#ifndef TANDEM_RUNTIME_H
#define TANDEM_RUNTIME_H

#include "base/trace.h"
#include "model/transfer_plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Events ---------------------------------------------------------------------------------------------------- */

enum event_kind {
    EVENT_START = 1,   /* first event of every node. count: its incarnation, 0 unless it replaces one that was lost */
    EVENT_ARRIVAL = 2, /* front only. status: enum arrival_status; data: struct request_spec */
    EVENT_TIMER = 3,   /* id: slot */
    EVENT_STEPS_DONE = 4, /* id: launch ticket; count: steps completed (at least 1 unless status is an error) */
    EVENT_WRITE_DONE = 5, /* id: write ticket; status: enum write_status; count: layers posted. Every write of the
                             ticket has completed at the sender with delivery semantics */
    EVENT_IMMEDIATE = 6,  /* id: immediate; count: writes counted, as expected */
    EVENT_MESSAGE = 7,    /* id: source node; data, count: the bytes */
    EVENT_PEER_LOST = 8,  /* id: node; status: enum peer_status; count: the incarnation that is lost */
    EVENT_STOP = 9,       /* no more arrivals; finish what is here */
};

enum arrival_status {
    ARRIVAL_NEW = 0,
    ARRIVAL_ABORT = 1, /* the client of request_spec.id went away */
};

enum write_status {
    WRITE_OK = 0,
    WRITE_STOPPED = 1, /* by write_stop() before all layers were posted; what was posted has completed */
    WRITE_FAILED = 2,  /* the fabric failed; nothing of the ticket will be written any more */
};

enum peer_status {
    PEER_SUSPECTED = 1, /* the peer does not answer. It may still write */
    PEER_FENCED = 2,    /* it can never write again: connection torn down, keys revoked */
};

/* 32 bytes. */
struct event {
    uint16_t kind;
    uint16_t status;
    uint32_t id;
    uint64_t count;
    const void *data;
    uint64_t reserved;
};

/* A request as it enters at the front. */
struct request_spec {
    uint32_t id;            /* run-wide, dense from 0 */
    uint32_t prompt_tokens; /* >= 1 */
    uint32_t output_tokens; /* >= 1. The scheduler reserves by it only where a policy says so */
    uint32_t block_count;   /* prefix blocks named in `blocks`; 0: shares no prefix with anything */
    uint32_t block_tokens;  /* tokens of a prefix block; the last may be partly filled */
    int64_t deadline_ns;    /* of the first token, for earliest-deadline-first; TIME_NEVER: none */
    uint64_t token_seed;    /* the prompt's tokens derive from it where tokens are real */
    const uint64_t *blocks; /* chained hashes: equal hash means equal block and equal everything before it */
};

/* ---- Operations ------------------------------------------------------------------------------------------------ */

/* One attention group's part of a step, in sums: a step's cost depends on nothing else, and the node keeps them up to
 * date without walking its sequences. */
struct step_group {
    uint32_t decode_sequences; /* each takes one token; with speculation also those it drafts */
    uint32_t prefill_sequences;
    uint64_t decode_context;  /* tokens already cached, summed over the decode sequences, before the step */
    uint64_t prefill_tokens;  /* new tokens q, summed over the chunks */
    uint64_t prefill_context; /* tokens already cached k, summed over the chunks */
    uint64_t prefill_pairs;   /* query-key pairs under the causal mask: sum of q * k + q * (q + 1) / 2 */
};

enum step_change_kind {
    STEP_CHUNK = 1, /* run tokens [start, start + tokens) of the sequence's prompt in this step */
    STEP_JOIN = 2,  /* the sequence decodes from this step on; its context is `start` tokens */
    STEP_PAGES = 3, /* the sequence now also holds these pages */
    STEP_LEAVE = 4, /* the sequence is gone; its slot may be used again */
};

/* What differs from the last launch: a device keeps the batch, so that a steady decode step carries no list. */
struct step_change {
    uint16_t kind;
    uint16_t group;
    uint32_t sequence; /* slot, unique among the live sequences of the instance */
    uint32_t request;
    uint32_t start;
    uint32_t tokens;
    uint32_t page_first; /* index in the sequence's page list of the first of `pages` */
    uint32_t page_count;
    const uint32_t *pages;
    uint64_t token_seed;
};

struct step_launch {
    uint32_t ticket;
    uint32_t
        microbatch; /* whose batch this is: sequences that join stay in it. Each has at most one launch in flight */
    uint32_t repeat_max; /* the same batch for up to this many steps; > 1 only without chunks, and of one microbatch */
    uint32_t group_count;
    uint32_t change_count;
    uint32_t yield; /* tokens that a decode sequence takes in a step on average, times 2^16; see serve/token_clock.h */
    uint64_t step;  /* steps that this microbatch has completed: where its token clock stands */
    const struct step_group *groups;
    const struct step_change *changes;
};

#define STEP_NONE UINT32_MAX

/* A gated paged write: units [unit_first, unit_first + unit_count) of a prompt, along a transfer plan, layer by layer
 * as the step that produces them passes each layer. With gate == STEP_NONE everything is available at once. A tail
 * (what else the decoder needs, such as hidden states) exists only when the step of the last chunk has ended: it is a
 * write of its own, with no units and no gate, the last that is posted for a request. */
struct paged_write {
    uint32_t ticket;
    uint32_t gate; /* launch ticket, which must be one in progress or an earlier one */
    uint32_t destination;
    uint32_t destination_incarnation; /* whose memory is meant: a write to one that has been replaced fails */
    uint32_t immediate;               /* carried by every write */
    uint32_t request;                 /* whose bytes: for shadow memory and traces */
    uint32_t epoch;
    uint32_t unit_first;
    uint32_t unit_count; /* 0: the tail alone */
    uint16_t source_group;
    uint16_t destination_group;
    uint32_t tail_writes; /* 0: no tail */
    uint32_t tail_bytes;  /* in all */
    uint32_t tail_source_slot;
    uint32_t tail_destination_slot;
    uint32_t source_page_count; /* transfer_pages() of the units, on either side; 0 for a tail alone */
    uint32_t destination_page_count;
    const uint32_t *source_pages;      /* page holding unit_first first */
    const uint32_t *destination_pages; /* likewise */
    const struct transfer_plan *plan;
};

struct policy;
struct runtime;

struct runtime_ops {
    void (*timer_set)(struct runtime *rt, uint32_t slot, int64_t at_ns);
    void (*launch)(struct runtime *rt, const struct step_launch *launch);
    void (*launch_end)(struct runtime *rt, uint32_t ticket);
    void (*write_post)(struct runtime *rt, const struct paged_write *write);
    void (*write_stop)(struct runtime *rt, uint32_t ticket);
    void (*immediate_expect)(struct runtime *rt, uint32_t immediate, uint64_t count);
    void (*send)(struct runtime *rt, uint32_t node, const void *bytes, size_t length);
    void (*trace)(struct runtime *rt, const struct trace_record *record);
};

struct runtime_limits {
    uint32_t writes_in_flight; /* tickets posted and not yet answered */
    uint32_t message_bytes;
    uint32_t launches_in_flight; /* of an instance with that many pipeline stages, or more; 0: one */
};

struct runtime {
    const struct runtime_ops *ops;
    int64_t now_ns;
    uint32_t node; /* whose runtime this is */
    struct runtime_limits limits;
    struct policy *policy; /* answers what the scenario decides itself (serve/policy.h); NULL: it decides nothing */
};

/* Arms timer `slot` for `at_ns` (an instant in the past fires at once), replacing what it was set to; TIME_NEVER
 * disarms. An event already on its way when the timer is set again is not delivered. */
static inline void rt_timer_set(struct runtime *rt, uint32_t slot, int64_t at_ns)
{
    rt->ops->timer_set(rt, slot, at_ns);
}

/* Starts the next step of a microbatch, or up to repeat_max of them; the next of the same one only after its
 * EVENT_STEPS_DONE. Launches pass the pipeline stages one after the other, in the order in which they were made: a
 * stage begins with one when it has come from the stage before and the one before it has left, so that with as many
 * microbatches as stages all of them work. They end in that order too. An instance of one stage has one microbatch. */
static inline void rt_launch(struct runtime *rt, const struct step_launch *launch)
{
    rt->ops->launch(rt, launch);
}

/* Ends a repetition at the next step boundary. Any event given to the node does that too; this is for the node that
 * changes its mind while handling another instance's event. Ignored when the launch is over. */
static inline void rt_launch_end(struct runtime *rt, uint32_t ticket)
{
    rt->ops->launch_end(rt, ticket);
}

static inline void rt_write_post(struct runtime *rt, const struct paged_write *write)
{
    rt->ops->write_post(rt, write);
}

/* No further layer of the write is posted. Its EVENT_WRITE_DONE still comes, and says how many were. Ignored when it
 * has already been answered. */
static inline void rt_write_stop(struct runtime *rt, uint32_t ticket)
{
    rt->ops->write_stop(rt, ticket);
}

/* Counts writes that carry `immediate` from zero and delivers EVENT_IMMEDIATE when `count` have landed. count == 0
 * forgets the immediate: what still arrives is counted as late and dropped. Must precede any message that lets a peer
 * write. */
static inline void rt_immediate_expect(struct runtime *rt, uint32_t immediate, uint64_t count)
{
    rt->ops->immediate_expect(rt, immediate, count);
}

/* Reliable and in order per pair of nodes, unless the peer is lost; a node may send to itself. */
static inline void rt_send(struct runtime *rt, uint32_t node, const void *bytes, size_t length)
{
    rt->ops->send(rt, node, bytes, length);
}

static inline void rt_trace(struct runtime *rt, uint16_t kind, uint32_t request, uint64_t a, uint64_t b)
{
    struct trace_record record = {.kind = kind, .node = (uint16_t)rt->node, .request = request, .a = a, .b = b};
    rt->ops->trace(rt, &record);
}

#endif
