/* What every runtime promises: the five rules of runtime.h and the wording of its operations, as checks that any
 * runtime can be put to. Who has one describes how to make a small world of probes of it (support/probe_events.h) and
 * how to run that until nothing is pending.
 */
#ifndef TANDEM_TESTS_SUPPORT_CONTRACT_H
#define TANDEM_TESTS_SUPPORT_CONTRACT_H

#include "support/probe_events.h"

#define CONTRACT_LAYERS 8
#define CONTRACT_PAGE_BYTES 65536 /* of a token, which is a page, in a layer */
#define CONTRACT_PAGES 8          /* more than any write names */
#define CONTRACT_TAIL_BYTES 16384
#define CONTRACT_PREFILL_TOKEN_NS 100 /* a prefill step takes this a token, layers share it evenly */
#define CONTRACT_DECODE_NS 20000      /* a decode step takes this at least */

struct contract_runtime {
    const char *name;
    uint64_t seeds; /* each check runs so often */
    /* Virtual time: what takes how long is known to the nanosecond. */
    bool exact;
    bool real;    /* time is that of a clock */
    bool plain;   /* a repetition is reported step by step */
    bool poisons; /* bytes of an event are overwritten, and kept, when the call returns */
    /* Node 0 and up to two more; the probes are the world's, `act` and `context` are set by the check. */
    void *(*make)(const struct contract_runtime *runtime, uint32_t nodes, uint64_t seed, struct probe **probes);
    void (*run)(void *world); /* starts all nodes; until nothing is pending */
    void (*free)(void *world);
};

/* Each a cmocka test whose state is a struct contract_runtime. */
void contract_operations_never_call_back(void **state);
void contract_messages_keep_their_order(void **state);
void contract_pointers_die_with_the_call(void **state);
void contract_timers_are_replaced(void **state);
void contract_immediates_are_counted(void **state);
void contract_gates_open_with_their_step(void **state);
void contract_writes_stop_where_they_are(void **state);
void contract_undisturbed_repetitions_run_to_their_end(void **state);
void contract_an_event_ends_a_repetition(void **state);
void contract_launch_end_ends_a_repetition(void **state);

#define CONTRACT_TEST(label, check, runtime)                                                                           \
    {                                                                                                                  \
        label ": " #check, contract_##check, NULL, NULL, runtime                                                       \
    }

/* All of them over one runtime: entries of an array of struct CMUnitTest. */
#define CONTRACT_TESTS(label, runtime)                                                                                 \
    CONTRACT_TEST(label, operations_never_call_back, runtime),                                                         \
        CONTRACT_TEST(label, messages_keep_their_order, runtime),                                                      \
        CONTRACT_TEST(label, pointers_die_with_the_call, runtime), CONTRACT_TEST(label, timers_are_replaced, runtime), \
        CONTRACT_TEST(label, immediates_are_counted, runtime),                                                         \
        CONTRACT_TEST(label, gates_open_with_their_step, runtime),                                                     \
        CONTRACT_TEST(label, writes_stop_where_they_are, runtime),                                                     \
        CONTRACT_TEST(label, undisturbed_repetitions_run_to_their_end, runtime),                                       \
        CONTRACT_TEST(label, an_event_ends_a_repetition, runtime),                                                     \
        CONTRACT_TEST(label, launch_end_ends_a_repetition, runtime)

#endif
