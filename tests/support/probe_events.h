/* A participant that stands where a node goes: it writes down every event it is given, and acts as a test tells it. */
#ifndef TANDEM_TESTS_SUPPORT_PROBE_EVENTS_H
#define TANDEM_TESTS_SUPPORT_PROBE_EVENTS_H

#include "runtime.h"

#include <stdbool.h>
#include <stdint.h>

#define PROBE_BYTES 64

struct probe_event {
    int64_t at_ns;
    struct event event;               /* `data` is stale */
    unsigned char bytes[PROBE_BYTES]; /* the first of a message's */
};

struct probe {
    struct runtime *rt;
    void (*act)(struct probe *probe, const struct event *event); /* may be NULL */
    void *context;
    uint32_t depth; /* how often it is entered at this moment */
    uint32_t count;
    uint32_t capacity;
    struct probe_event *log;
};

/* A participant's function. Asserts rules 1 and 2: never re-entered, and time stands still within and never goes
 * back. */
void probe_handle(void *self, const struct event *event);
void probe_free(struct probe *probe);

/* How many events of a kind it has, and the n-th of them (fails the test where there is none). */
uint32_t probe_count(const struct probe *probe, enum event_kind kind);
const struct probe_event *probe_nth(const struct probe *probe, enum event_kind kind, uint32_t n);

/* The transfer plan between two one-rank instances of `layers` layers: one write a unit and layer, `bytes` long. */
const struct transfer_plan *probe_plan(uint32_t layers, uint32_t bytes);

#endif
