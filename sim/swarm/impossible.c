/* Pairs of state and event that cannot be, with the reason. Kept apart from the counting, for it is the part that is
 * read. A reason that is wrong is found out: what happens although it cannot fails the swarm.
 */
#include "sim/swarm/coverage.h"

#include <stddef.h>
#include <string.h>

struct impossible {
    const char *table;
    const char *state; /* "*": any */
    const char *event;
    const char *why;
};

#define COPY "a copy comes right behind its message, and another attempt only when the one before has ended here"
#define ANSWER "it answers a cancel, and what waits for that is cancelling, or its prefiller is lost, or it has ended"
#define ONCE "the last write of a transfer is counted once, before the request is ready"
#define UNDER_WAY "deadlines are of transfers under way"
#define NOBODY "a step is about the requests that are there"
#define HOLDS "a stream ends when its writes have"
#define OWN "a prompt that the decoder computes itself no prefiller knows of"
#define NO_PAGES "what waits for pages has none to write from"
#define NUMBERS "the world gives every request a number of its own (unit/test_front.c gives one twice)"

static const struct impossible impossible[] = {
    {"decoder", "filling", "request", COPY},
    {"decoder", "cancelling", "request", COPY},
    {"decoder", "alloc", "quiesced", ANSWER},
    {"decoder", "dispatched", "quiesced", ANSWER},
    {"decoder", "filling", "quiesced", ANSWER},
    {"decoder", "ready", "quiesced", ANSWER},
    {"decoder", "decode", "quiesced", ANSWER},
    {"decoder", "none", "count", "an immediate that was let go of is not counted"},
    {"decoder", "alloc", "count", ONCE},
    {"decoder", "ready", "count", ONCE},
    {"decoder", "decode", "count", ONCE},
    {"decoder", "none", "deadline", UNDER_WAY},
    {"decoder", "alloc", "deadline", UNDER_WAY},
    {"decoder", "cancelling", "deadline", UNDER_WAY},
    {"decoder", "quarantine", "deadline", UNDER_WAY},
    {"decoder", "ready", "deadline", UNDER_WAY},
    {"decoder", "decode", "deadline", UNDER_WAY},
    {"decoder", "none", "step", NOBODY},
    {"decoder", "queued", "accepted", OWN},
    {"decoder", "queued", "nack", OWN},
    {"decoder", "queued", "quiesced", OWN},
    {"decoder", "queued", "count", OWN},
    {"decoder", "queued", "deadline", OWN},
    {"decoder", "queued", "suspected", OWN},
    {"decoder", "queued", "fenced", OWN},
    {"decoder", "queued", "replaced", OWN},
    {"decoder", "streaming", "accepted", OWN},
    {"decoder", "streaming", "nack", OWN},
    {"decoder", "streaming", "quiesced", OWN},
    {"decoder", "streaming", "count", OWN},
    {"decoder", "streaming", "deadline", OWN},
    {"decoder", "streaming", "suspected", OWN},
    {"decoder", "streaming", "fenced", OWN},
    {"decoder", "streaming", "replaced", OWN},
    {"prefiller", "cancelled", "prefill", COPY},
    {"prefiller", "none", "write_ok", HOLDS},
    {"prefiller", "none", "write_stopped", HOLDS},
    {"prefiller", "none", "write_failed", HOLDS},
    {"prefiller", "queued", "write_ok", NO_PAGES},
    {"prefiller", "queued", "write_stopped", NO_PAGES},
    {"prefiller", "queued", "write_failed", NO_PAGES},
    {"prefiller", "streaming", "write_stopped", "only what is cancelled is stopped"},
    {"prefiller", "drain", "write_stopped", "only what is cancelled is stopped"},
    {"prefiller", "none", "step", NOBODY},
    {"mixed", "ready", "request", COPY},
    {"mixed", "decode", "request", COPY},
    {"mixed", "none", "step", NOBODY},
    {"front", "waiting", "arrival", NUMBERS},
    {"front", "answering", "arrival", NUMBERS},
    {"front", "aborted", "arrival", NUMBERS},
    {"front", "waiting", "finished", "the first token is told before the last"},
    {"front", "waiting", "aborted", "only what was aborted ends so"},
    {"front", "answering", "aborted", "only what was aborted ends so"},
};

static bool matches(const char *pattern, const char *name)
{
    return strcmp(pattern, "*") == 0 || strcmp(pattern, name) == 0;
}

const char *coverage_explanation(uint32_t table, uint32_t state, uint32_t event)
{
    for (size_t i = 0; i < sizeof impossible / sizeof impossible[0]; i++)
        if (matches(impossible[i].table, coverage_table_name(table)) &&
            matches(impossible[i].state, coverage_state_name(table, state)) &&
            matches(impossible[i].event, coverage_event_name(table, event)))
            return impossible[i].why;
    return NULL;
}
