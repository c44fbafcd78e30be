/* Inside of the simulated runtime, shared by sim.c (set-up, loop), sim_ops.c (operations, writes, messages),
 * sim_launch.c (steps) and sim_faults.c. Nobody else includes it.
 */
#ifndef TANDEM_SIM_ENGINE_SIM_INTERNAL_H
#define TANDEM_SIM_ENGINE_SIM_INTERNAL_H

#include "sim/engine/sim.h"

#include "base/arith.h"
#include "base/limits.h"
#include "base/rng.h"
#include "host/check_host.h"
#include "sim/time/event_queue.h"

#define HANDLE_NONE UINT32_MAX
#define INDEX_NONE UINT32_MAX

/* Boundaries of a repetition that are known ahead. The first chunk is short because most repetitions are cut short; the
 * last bounds the memory and the work thrown away. */
#define CHUNK_FIRST 8u
#define CHUNK_MAX 64u

/* Cached costs of decode batches per node, by batch size. */
#define COST_CACHE 64u

/* What a queue entry stands for. Packed as kind | node << 8 | aux << 24 | index << 32. */
enum pending_kind {
    PENDING_START = 1,
    PENDING_TIMER = 2,      /* aux: slot */
    PENDING_STEPS = 3,      /* aux: microbatch */
    PENDING_MESSAGE = 4,    /* index: message */
    PENDING_LANDED = 5,     /* index: write; aux: piece */
    PENDING_WRITE_DONE = 6, /* index: write */
    PENDING_CALL = 7,       /* index: call */
    PENDING_LOST = 8,       /* aux: enum peer_status, and LOST_BY_CUT; index: peer, and its incarnation << 16 */
    PENDING_FENCE = 9,      /* index: write that may land no longer */
};

#define LOST_BY_CUT 0x80u

static inline uint64_t pending_pack(enum pending_kind kind, uint32_t node, uint32_t aux, uint32_t index)
{
    return (uint64_t)kind | (uint64_t)node << 8 | (uint64_t)aux << 24 | (uint64_t)index << 32;
}

struct cost_entry {
    uint32_t batch; /* 0: empty */
    uint8_t bound;
    bool bound_known;
    bool line_known;
    int64_t fixed_ns;       /* of an instance with one group; 0: not known */
    uint64_t bound_context; /* where `bound` was found */
    struct decode_line line;
};

struct launch {
    bool running;
    bool decode_only;
    bool ends; /* no step after those of the chunk in hand */
    uint32_t ticket;
    uint32_t handle;
    uint32_t steps_max;
    uint32_t steps_done; /* before the chunk in hand */
    uint32_t chunk_count;
    uint32_t chunk_size; /* of the next one */
    uint32_t group_count;
    uint32_t joins;   /* sequences that decode from this launch on, */
    uint32_t follows; /* and of these, those that have had a token before */
    uint32_t yield;   /* of the instance's token clock, */
    uint64_t step;    /* and where it stood at the start */
    uint64_t tokens;  /* decode sequences of the batch */
    uint64_t prefill_tokens;
    uint64_t decode_context; /* at the start, for the row */
    int64_t start_ns;        /* when it was launched; over several stages, when the first began with it */
    int64_t before_ns;       /* end of the node's last step before it, of any kind; -1: none */
    int64_t decode_end_ns;   /* of the last step of this microbatch that produced tokens; -1: none */
    int64_t stage_ns; /* that it keeps the busiest stage busy; 0: the node has one, and it is busy all the time */
    int64_t fixed_ns;
    int64_t gate_first_ns; /* when layer 0's writes may go, */
    int64_t layer_ns;      /* and how much later those of each further one */
    enum step_bound bound;
    struct step_group *groups; /* contexts stand at the end of the chunk in hand */
    struct decode_line *lines;
    int64_t chunk_end_ns[CHUNK_MAX];
};

struct expectation {
    uint32_t immediate;
    bool armed;
    uint64_t expected;
    uint64_t counted;
};

struct sim_node {
    struct runtime runtime; /* first: an operation gets a pointer to it */
    struct sim *sim;
    struct participant participant;
    struct device device;
    int64_t message_ns;
    int64_t arm_ns;   /* longer, of messages of an instant in which a count is armed */
    int64_t armed_ns; /* when one was last */
    int64_t watcher_ns;
    uint32_t group_count;
    uint32_t incarnation;
    bool alive;
    bool inside;
    bool produces_first_token;
    uint32_t timer[TIMERS_MAX];
    uint32_t stages;
    struct launch *launches;           /* by microbatch: one a stage */
    uint32_t ending;                   /* the microbatch whose launch ends at this instant */
    int64_t stage_free_ns[STAGES_MAX]; /* when each stage has done what it has been given; of several */
    int64_t step_end_ns;               /* of the last step of any kind */
    struct cost_entry *costs;
    struct expectation *expectations; /* by slot of the immediate */
    uint32_t expectation_count;
    uint32_t write_first; /* posted and not answered, linked through write.next */
    uint32_t write_count;
    struct sim_ledger ledger;
};

/* One ticket. It is given back when the destination has counted and the source has been told. */
struct write {
    struct paged_write spec;
    uint32_t source;
    uint32_t source_incarnation;
    uint32_t flow;
    uint32_t next;
    uint32_t previous;
    bool flowing; /* the network still knows it */
    bool linked;  /* in the source's list */
    bool stopped;
    bool fails;      /* says the fabric: its last piece does not land */
    uint8_t pending; /* queue entries that name it */
    uint8_t status;
    uint8_t pieces; /* that it lands in */
    uint32_t layers;
    uint64_t writes;
    uint64_t bytes;
    int64_t posted_ns;
    int64_t landed_ns;
    int64_t confirmed_ns;
    int64_t fence_ns; /* from here on it cannot land: source or connection are gone. TIME_NEVER: they are there */
};

struct message {
    uint32_t source;
    uint32_t destination;
    uint32_t incarnation; /* of the destination, when sent */
    uint32_t length;
    uint32_t next_free;
    struct payload *payload;
};

/* Message bytes, by power of two; never given back to the allocator before the end. */
#define PAYLOAD_CLASSES 18u
#define PAYLOAD_SMALLEST 64u

struct payload {
    struct payload *next_free;
    struct payload *next_made;
    uint64_t class; /* 64 bits keep `bytes` aligned */
    unsigned char bytes[];
};

struct sim {
    int64_t now_ns;
    uint32_t phase; /* 1 while the step boundaries of this instant, and what follows from them, are handled */
    uint32_t node_count;
    uint64_t shuffle_seed;
    bool plain;
    bool poison;
    bool stop;
    struct event_queue *queue;
    struct network *network;
    struct sim_node *nodes;
    struct sim_detection detection;
    struct sim_faults faults;
    int64_t *last_arrival_ns; /* of a message, by source * node_count + destination */
    int64_t *cut_fence_ns;    /* likewise: of a connection that is lost; TIME_NEVER: it is there */

    struct write *writes;
    uint32_t write_capacity;
    uint32_t write_used;
    uint32_t write_free;

    struct message *messages;
    uint32_t message_capacity;
    uint32_t message_used;
    uint32_t message_free;
    struct payload *payload_free[PAYLOAD_CLASSES];
    struct payload *payload_made;

    struct sim_call *calls;
    uint32_t *call_free;
    uint32_t call_capacity;
    uint32_t call_used;
    uint32_t call_free_count;

    uint32_t *batch; /* nodes whose steps end at this instant */

    struct sim_listener listeners[SIM_LISTENERS_MAX];
    uint32_t listener_count;
    bool listens_before, listens_after, listens_steps, listens_transfer;

    struct check_context check;
    uint64_t trace_hash;
    uint64_t event_count;
    uint64_t queue_count;
    struct rng fingerprint;
    int64_t itl_from_ns;
    uint64_t itl[ITL_BUCKETS];
};

/* sim.c */
uint32_t sim_push(struct sim *sim, int64_t at_ns, uint64_t payload);
int64_t sim_key(const struct sim *sim, int64_t at_ns);
void sim_hand_over(struct sim *sim, struct sim_node *node, const struct event *event);
void *sim_grow(void *array, uint32_t *capacity, size_t size);

/* sim_ops.c */
extern const struct runtime_ops sim_ops;
void sim_flow_done(struct sim *sim, const struct flow_done *done);
void sim_landed(struct sim *sim, uint32_t index, uint32_t piece);
void sim_write_done(struct sim *sim, uint32_t index);
void sim_message(struct sim *sim, uint32_t index);
void sim_write_fail(struct sim *sim, uint32_t index);
void sim_write_unlink(struct sim *sim, uint32_t index);
void sim_write_release(struct sim *sim, uint32_t index);

/* sim_faults.c */
bool sim_is_cut(const struct sim *sim, uint32_t a, uint32_t b);
void sim_lost(struct sim *sim, struct sim_node *node, uint32_t aux, uint32_t index);
/* The write may land until `fence_ns` and no longer. */
void sim_write_fence(struct sim *sim, uint32_t index, int64_t fence_ns);
/* That time has come. */
void sim_fence(struct sim *sim, uint32_t index);

/* sim_launch.c */
void sim_launch(struct runtime *rt, const struct step_launch *spec);
void sim_launch_end(struct runtime *rt, uint32_t ticket);
/* An event is about to reach the node: a repetition ends at the first boundary not before it. */
void sim_launch_cut(struct sim_node *node);
/* The queue entry of the chunk in hand of the launch that is ending came up. */
void sim_steps(struct sim *sim, struct sim_node *node);
/* The launch in progress with the ticket; NULL: it is over. */
const struct launch *sim_launch_running(const struct sim_node *node, uint32_t ticket);

#endif
