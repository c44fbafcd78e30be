/* See trace_merge.h. */
#include "real/cluster/trace_merge.h"

#include "base/arith.h"

#include <stdlib.h>
#include <string.h>

struct queue {
    struct timed_record *records;
    size_t first;
    size_t count; /* end of the used part */
    size_t room;
    int64_t promised_ns;
};

struct trace_merge {
    uint32_t nodes;
    void (*next)(void *self, const struct timed_record *record);
    void *self;
    struct queue *queues;
};

struct trace_merge *trace_merge_make(uint32_t nodes, void (*next)(void *self, const struct timed_record *record),
                                     void *self)
{
    struct trace_merge *merge = calloc(1, sizeof *merge);
    CHECK(merge != NULL);
    *merge = (struct trace_merge){.nodes = nodes, .next = next, .self = self};
    merge->queues = calloc(nodes, sizeof *merge->queues);
    CHECK(merge->queues != NULL);
    return merge;
}

void trace_merge_free(struct trace_merge *merge)
{
    if (merge == NULL)
        return;
    for (uint32_t i = 0; i < merge->nodes; i++)
        free(merge->queues[i].records);
    free(merge->queues);
    free(merge);
}

void trace_merge_add(struct trace_merge *merge, uint32_t node, const struct timed_record *record)
{
    CHECK(node < merge->nodes);
    struct queue *queue = &merge->queues[node];
    if (queue->first > 0 && queue->first == queue->count) {
        queue->first = 0;
        queue->count = 0;
    }
    if (queue->count == queue->room) {
        queue->room = queue->room == 0 ? 256 : queue->room * 2;
        queue->records = realloc(queue->records, queue->room * sizeof *queue->records);
        CHECK(queue->records != NULL);
    }
    struct timed_record *added = &queue->records[queue->count++];
    *added = *record;
    if (queue->promised_ns != INT64_MAX)
        added->time_ns = max_i64(added->time_ns, queue->promised_ns);
    queue->promised_ns = max_i64(queue->promised_ns, added->time_ns);
}

void trace_merge_promise(struct trace_merge *merge, uint32_t node, int64_t time_ns)
{
    CHECK(node < merge->nodes);
    merge->queues[node].promised_ns = max_i64(merge->queues[node].promised_ns, time_ns);
}

void trace_merge_again(struct trace_merge *merge, uint32_t node, int64_t time_ns)
{
    struct queue *queue = &merge->queues[node];
    CHECK(queue->promised_ns == INT64_MAX);
    bool waiting = queue->first < queue->count;
    queue->promised_ns = waiting ? max_i64(time_ns, queue->records[queue->count - 1].time_ns) : time_ns;
}

/* The earliest time at which a record of the node may still come, or waits. */
static int64_t earliest_ns(const struct queue *queue)
{
    return queue->first < queue->count ? queue->records[queue->first].time_ns : queue->promised_ns;
}

void trace_merge_release(struct trace_merge *merge)
{
    for (;;) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < merge->nodes; i++)
            if (earliest_ns(&merge->queues[i]) < earliest_ns(&merge->queues[best]))
                best = i;
        struct queue *queue = &merge->queues[best];
        if (queue->first == queue->count)
            return; /* it may send something earlier than all that waits, or nothing waits */
        struct timed_record record = queue->records[queue->first++];
        merge->next(merge->self, &record);
    }
}
