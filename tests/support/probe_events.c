/* See probe_events.h. */
#include "support/probe_events.h"

#include "base/arith.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void probe_handle(void *self, const struct event *event)
{
    struct probe *probe = self;
    int64_t now_ns = probe->rt->now_ns;
    assert_int_equal(probe->depth, 0);
    if (probe->count > 0)
        assert_true(probe->log[probe->count - 1].at_ns <= now_ns);
    if (probe->count == probe->capacity) {
        probe->capacity = probe->capacity == 0 ? 16 : probe->capacity * 2;
        probe->log = realloc(probe->log, probe->capacity * sizeof *probe->log);
        assert_non_null(probe->log);
    }
    struct probe_event *entry = &probe->log[probe->count++];
    *entry = (struct probe_event){.at_ns = now_ns, .event = *event};
    if (event->kind == EVENT_MESSAGE && event->count > 0)
        memcpy(entry->bytes, event->data, min_u64(event->count, PROBE_BYTES));
    if (probe->act != NULL) {
        probe->depth++;
        probe->act(probe, event);
        probe->depth--;
    }
    assert_true(probe->rt->now_ns == now_ns);
}

void probe_free(struct probe *probe)
{
    free(probe->log);
    probe->log = NULL;
    probe->count = 0;
    probe->capacity = 0;
}

uint32_t probe_count(const struct probe *probe, enum event_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < probe->count; i++)
        count += probe->log[i].event.kind == kind;
    return count;
}

const struct probe_event *probe_nth(const struct probe *probe, enum event_kind kind, uint32_t n)
{
    for (uint32_t i = 0; i < probe->count; i++)
        if (probe->log[i].event.kind == kind && n-- == 0)
            return &probe->log[i];
    fail_msg("node %u has no such event of kind %d", (unsigned)probe->rt->node, (int)kind);
    return NULL;
}

const struct transfer_plan *probe_plan(uint32_t layers, uint32_t bytes)
{
    static struct transfer_plan plan;
    struct kv_geometry geometry = {
        .layers = (uint16_t)layers,
        .kv_heads = 1,
        .planes = 1,
        .page_tokens = 1,
        .head_bytes = bytes,
        .layout = LAYOUT_HND,
        .parallelism = {.tensor = 1, .data = 1, .expert = 1, .pipeline = 1},
        .stage_layer_first = {0, (uint16_t)layers},
    };
    assert_int_equal(transfer_plan_make(&geometry, 0, &geometry, 0, 0, &plan), GEOMETRY_OK);
    return &plan;
}
