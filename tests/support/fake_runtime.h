/* A runtime by hand: it writes down what nodes ask for and delivers what a test decides.
 *
 * Everything asked for is pending until a test brings it about: fake_message(), fake_timer(), fake_step(),
 * fake_layer(), fake_confirm(). fake_run() brings pending things about in an order drawn from a seed, within the rules
 * of the seam, until nothing is pending: whatever order a test then sees, a real world might show it. Time is virtual
 * and moves a microsecond with every event delivered, or to the next timer where nothing else is pending.
 */
#ifndef TANDEM_TESTS_SUPPORT_FAKE_RUNTIME_H
#define TANDEM_TESTS_SUPPORT_FAKE_RUNTIME_H

#include "base/rng.h"
#include "runtime.h"
#include "sim/engine/sim.h"

#include <stdbool.h>
#include <stdint.h>

#define FAKE_NODES_MAX 8
#define FAKE_TIMERS 8

enum fake_call_kind {
    FAKE_TIMER_SET = 1,
    FAKE_LAUNCH = 2,
    FAKE_LAUNCH_END = 3,
    FAKE_WRITE_POST = 4,
    FAKE_WRITE_STOP = 5,
    FAKE_IMMEDIATE_EXPECT = 6,
    FAKE_SEND = 7,
    FAKE_TRACE = 8,
};

/* One operation as it was called; pointers in it are stale. */
struct fake_call {
    enum fake_call_kind kind;
    uint32_t node;
    int64_t at_ns;
    union {
        struct {
            uint32_t slot;
            int64_t at_ns;
        } timer;
        struct step_launch launch;
        uint32_t ticket;
        struct paged_write write;
        struct {
            uint32_t immediate;
            uint64_t count;
        } expect;
        struct {
            uint32_t destination;
            uint32_t length;
        } send;
        struct trace_record trace;
    };
};

struct fake_message {
    uint32_t source;
    uint32_t destination;
    uint32_t length;
    bool delivered;
    unsigned char *bytes; /* poisoned once delivered */
};

struct fake_write {
    struct paged_write spec;
    uint32_t source;
    uint32_t layers; /* landed */
    bool stopped;
    bool confirmed;
};

struct fake_expectation {
    uint32_t immediate;
    bool armed;
    uint64_t expected;
    uint64_t counted;
};

struct fake_node {
    struct runtime runtime; /* first */
    struct fake_runtime *fake;
    struct participant participant;
    bool inside;
    int64_t timer_ns[FAKE_TIMERS]; /* TIME_NEVER: not armed */
    bool running;
    bool ends;
    uint32_t ticket;
    uint32_t repeat_max;
    uint32_t steps;
    struct fake_expectation expectations[16];
    uint32_t expectation_count;
    uint64_t late;
};

struct fake_runtime {
    int64_t now_ns;
    uint32_t node_count;
    struct rng rng;
    struct fake_node nodes[FAKE_NODES_MAX];
    struct fake_call *calls;
    uint32_t call_count, call_capacity;
    struct fake_message *messages;
    uint32_t message_count, message_capacity;
    struct fake_write *writes;
    uint32_t write_count, write_capacity;
};

struct fake_runtime *fake_make(uint32_t node_count, uint64_t seed);
void fake_free(struct fake_runtime *fake);

struct runtime *fake_runtime_of(struct fake_runtime *fake, uint32_t node);
void fake_attach(struct fake_runtime *fake, uint32_t node, struct participant participant);

/* Gives a node an event now. A repetition that is under way ends with its next step. */
void fake_deliver(struct fake_runtime *fake, uint32_t index, const struct event *event);

/* Each brings one pending thing about; false where there is none. */
bool fake_message(struct fake_runtime *fake, uint32_t source, uint32_t destination); /* the oldest of the pair */
bool fake_timer(struct fake_runtime *fake, uint32_t node, uint32_t slot);            /* time moves to it */
bool fake_step(struct fake_runtime *fake, uint32_t node);                            /* one step; the last reports */
bool fake_layer(struct fake_runtime *fake, uint32_t write);                          /* the next layer lands */
bool fake_confirm(struct fake_runtime *fake, uint32_t write); /* everything posted has landed: tells the sender */

void fake_run(struct fake_runtime *fake);

/* Operations of a kind by a node, and the n-th of them (NULL where there is none). */
uint32_t fake_call_count(const struct fake_runtime *fake, uint32_t node, enum fake_call_kind kind);
const struct fake_call *fake_call_nth(const struct fake_runtime *fake, uint32_t node, enum fake_call_kind kind,
                                      uint32_t n);

#endif
