/* What goes wrong in a simulated run, as a scenario's `faults` list it. Each happens at an instant, or when a trace
 * record is written for the n-th time: so a kill falls on a state's edge whatever the times are.
 *
 * Only what the runtime's contract allows can be said, and one thing beyond it: of messages between two living nodes
 * `drop` loses PREFILL and what answers it, which a deadline makes good. Others cannot be lost: a connection delivers
 * in order or is lost, and then both are told (`cut`). Nor can a message overtake another; `late` delays all that
 * follow it. The front neither dies nor is cut off: it is where requests are counted.
 */
#ifndef TANDEM_WORLD_SCENARIO_FAULT_H
#define TANDEM_WORLD_SCENARIO_FAULT_H

#include <stdbool.h>
#include <stdint.h>

enum fault_kind {
    FAULT_KILL = 1,   /* an instance dies; with `lingers` its NICs go on until the fence. `back`: comes back empty */
    FAULT_CUT = 2,    /* the connection of a prefiller and a decoder is lost for good */
    FAULT_NIC = 3,    /* the NIC of one rank carries nothing. `back`: works again */
    FAULT_LATE = 4,   /* messages take longer by `delay` */
    FAULT_TWICE = 5,  /* messages come twice */
    FAULT_SLOW = 6,   /* writes land later by `delay`; with `pieces` in so many, the last first, `delay` apart */
    FAULT_STALL = 7,  /* completions of writes reach the sender later by `delay` */
    FAULT_FAIL = 8,   /* the fabric gives up on writes half way */
    FAULT_TICKS = 9,  /* a step's layer ticks are seen together, by `delay` after the last */
    FAULT_LEAVE = 10, /* the client of a request goes away */
    FAULT_DROP = 11   /* of messages those are lost whose loss a deadline makes good (message_loss_is_covered()) */
};

#define FAULT_NODE_SIZE 48
#define FAULT_REQUEST_ANY UINT32_MAX

struct fault {
    enum fault_kind kind;
    char node[FAULT_NODE_SIZE]; /* "prefill-0". Of messages and writes the sender; empty: any */
    char to[FAULT_NODE_SIZE];   /* the receiver; cut: the other side */
    uint32_t rank;              /* nic */
    /* When: `at_ns` after the start, or after the trigger where there is one. */
    int64_t at_ns;
    uint32_t record;          /* enum trace_kind that triggers; 0: none */
    char by[FAULT_NODE_SIZE]; /* the node that writes it; empty: any */
    uint32_t nth;             /* the how-manyth, from 1 */
    uint32_t request;         /* FAULT_LEAVE; FAULT_REQUEST_ANY: that of the record */
    /* How much. */
    uint32_t skip;  /* messages or writes that are let pass first */
    uint32_t count; /* that are hit; 0: all from then on */
    int64_t delay_ns;
    int64_t back_ns; /* TIME_NEVER: never */
    uint32_t lingers;
    uint32_t pieces;
};

#define FAULTS_MAX 256

/* Owned by the scenario that it was read from or drawn for. That a scenario has one, be it empty, turns on the checkers
 * of sim/watch.h. */
struct fault_list {
    uint64_t shuffle; /* perturbs the order of equal times; 0: none */
    uint32_t count;
    struct fault item[FAULTS_MAX];
};

#endif
