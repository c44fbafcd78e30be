/* See checkers.h. */
#include "sim/checkers/checkers.h"

#include "base/arith.h"
#include "host/memory.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct checkers {
    struct sim *sim;
    uint32_t node_count;
    uint32_t every;
    const struct node **nodes;
    uint32_t *events; /* since the last look */
    bool failed;
    char text[512];
};

void checkers_fail(struct checkers *checkers, uint32_t node, const char *format, ...)
{
    if (checkers->failed)
        return;
    checkers->failed = true;
    int used = snprintf(checkers->text, sizeof checkers->text, "node %" PRIu32 " at %" PRId64 " ns: ", node,
                        sim_now_ns(checkers->sim));
    CHECK(used > 0 && (size_t)used < sizeof checkers->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(checkers->text + used, sizeof checkers->text - (size_t)used, format, arguments);
    va_end(arguments);
    sim_stop(checkers->sim);
}

static void fail(struct checkers *checkers, uint32_t node, const char *what, uint64_t a, uint64_t b)
{
    checkers_fail(checkers, node, "%s (%" PRIu64 ", %" PRIu64 ")", what, a, b);
}

static void look(struct checkers *checkers, uint32_t index)
{
    struct node_stats stats = node_stats(checkers->nodes[index]);
    if (stats.pages_free + stats.pages_held != stats.pages_total)
        fail(checkers, index, "pages held and free do not make the pool (accounted for, total)",
             stats.pages_free + stats.pages_held, stats.pages_total);
    if (stats.pages_cached > stats.pages_free)
        fail(checkers, index, "cached pages that can be evicted exceed the free ones (cached, free)",
             stats.pages_cached, stats.pages_free);
    if (stats.running + stats.waiting > stats.requests_live)
        fail(checkers, index, "more requests run and wait than are live (run and wait, live)",
             (uint64_t)stats.running + stats.waiting, stats.requests_live);
    if (stats.requests_live == 0 && (stats.pages_held > 0 || stats.transfers > 0))
        fail(checkers, index, "no request is live, but something is held (pages, transfers)", stats.pages_held,
             stats.transfers);
}

static void after(void *self, int64_t now_ns, uint32_t node, const struct event *event)
{
    (void)now_ns;
    (void)event;
    struct checkers *checkers = self;
    if (checkers->nodes[node] == NULL || ++checkers->events[node] < checkers->every)
        return;
    checkers->events[node] = 0;
    look(checkers, node);
}

struct checkers *checkers_make(struct sim *sim, uint32_t node_count, uint32_t every)
{
    CHECK(every >= 1);
    struct checkers *checkers = memory_zeroed(1, sizeof *checkers);
    checkers->sim = sim;
    checkers->node_count = node_count;
    checkers->every = every;
    checkers->nodes = memory_zeroed(node_count, sizeof *checkers->nodes);
    checkers->events = memory_zeroed(node_count, sizeof *checkers->events);
    sim_listen(sim, &(struct sim_listener){.self = checkers, .after = after});
    return checkers;
}

void checkers_free(struct checkers *checkers)
{
    if (checkers == NULL)
        return;
    free(checkers->nodes);
    free(checkers->events);
    free(checkers);
}

void checkers_watch(struct checkers *checkers, uint32_t index, const struct node *node)
{
    CHECK(index < checkers->node_count);
    checkers->nodes[index] = node;
}

void checkers_drained(struct checkers *checkers)
{
    for (uint32_t i = 0; i < checkers->node_count; i++) {
        if (checkers->nodes[i] == NULL || !sim_alive(checkers->sim, i))
            continue;
        look(checkers, i);
        struct node_stats stats = node_stats(checkers->nodes[i]);
        if (stats.requests_live > 0 || stats.pages_held > 0)
            fail(checkers, i, "not drained (requests live, pages held)", stats.requests_live, stats.pages_held);
        if (stats.transfers > 0 || stats.quarantined > 0)
            fail(checkers, i, "not drained (transfers, quarantined)", stats.transfers, stats.quarantined);
    }
}

const char *checkers_failure(const struct checkers *checkers)
{
    return checkers->failed ? checkers->text : NULL;
}
