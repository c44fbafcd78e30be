/* See decision.h. */
#include "sim/check/decision.h"

#include "base/arith.h"

#include <stdlib.h>
#include <string.h>

static bool same_record(const struct trace_record *a, const struct trace_record *b)
{
    return a->kind == b->kind && a->node == b->node && a->request == b->request && a->a == b->a && a->b == b->b;
}

static bool same(const struct stamped_record *a, const struct stamped_record *b)
{
    return a->at_ns == b->at_ns && same_record(&a->record, &b->record);
}

static const char *name_of(const struct trace_side *side, uint16_t node)
{
    return node < side->name_count ? side->names[node] : "?";
}

static void line_of(const struct trace_side *side, const struct stamped_record *item, struct divergence_line *line)
{
    line->at_ns = item->at_ns;
    trace_record_text(&item->record, name_of(side, item->record.node), line->text, sizeof line->text);
}

/* Records before `at` about the request, the last ones that there is room for. */
static void describe_request(const struct trace_side *side, uint64_t at, struct divergence *divergence)
{
    uint64_t places[DIVERGENCE_BEFORE_MAX];
    uint32_t count = 0;
    if (divergence->request == TRACE_NO_REQUEST)
        return;
    for (uint64_t i = at; i-- > 0 && count < DIVERGENCE_BEFORE_MAX;)
        if (side->items[i].record.request == divergence->request)
            places[count++] = i;
    for (uint32_t k = 0; k < count; k++)
        line_of(side, &side->items[places[count - 1 - k]], &divergence->about[k]);
    divergence->about_count = count;
}

static void describe_side(const struct trace_side *side, const struct stamped_record *item, int64_t *at_ns, char *text,
                          size_t size)
{
    *at_ns = item == NULL ? -1 : item->at_ns;
    if (item == NULL)
        snprintf(text, size, "has ended");
    else
        trace_record_text(&item->record, name_of(side, item->record.node), text, size);
}

/* `x` and `y` are what differs, NULL where that side has ended. */
static void describe(const struct trace_side *a, const struct trace_side *b, const struct stamped_record *x,
                     const struct stamped_record *y, struct divergence *divergence)
{
    const struct trace_side *owner = x != NULL ? a : b;
    const struct stamped_record *item = x != NULL ? x : y;
    divergence->found = true;
    divergence->times_alone = x != NULL && y != NULL && same_record(&x->record, &y->record);
    divergence->request = item->record.request;
    snprintf(divergence->node, sizeof divergence->node, "%s", name_of(owner, item->record.node));
    describe_side(a, x, &divergence->time_a_ns, divergence->a, sizeof divergence->a);
    describe_side(b, y, &divergence->time_b_ns, divergence->b, sizeof divergence->b);
}

void decision_first(const struct trace_side *a, const struct trace_side *b, uint64_t first, struct cluster *cluster,
                    struct divergence *divergence)
{
    uint64_t shorter = min_u64(a->count, b->count);
    uint64_t at = 0;
    while (at < shorter && same(&a->items[at], &b->items[at]))
        cluster_trace(cluster, &a->items[at++].record);
    if (at == shorter && a->count == b->count)
        return;
    divergence->record = first + at;
    describe(a, b, at < a->count ? &a->items[at] : NULL, at < b->count ? &b->items[at] : NULL, divergence);
    for (uint64_t i = at - min_u64(at, DIVERGENCE_BEFORE_MAX); i < at; i++)
        line_of(a, &a->items[i], &divergence->before[divergence->before_count++]);
    describe_request(a, at - divergence->before_count, divergence);
    cluster_describe(cluster, a->names, a->name_count, divergence);
}

/* ---- Times aside ------------------------------------------------------------------------------------------------- */

static bool decides(const struct trace_record *record)
{
    switch (record->kind) {
    case TRACE_ROUTED:
    case TRACE_BATCH:
    case TRACE_CHUNK:
    case TRACE_PREEMPTED:
    case TRACE_EVICTED:
    case TRACE_REJECTED:
    case TRACE_FAILED:
    case TRACE_ABORTED:
        return true;
    default:
        return false;
    }
}

/* The next decision of a node at or after `*at`; NULL when there is none. */
static const struct stamped_record *next_of(const struct trace_side *side, uint16_t node, uint64_t *at)
{
    while (*at < side->count) {
        const struct stamped_record *item = &side->items[(*at)++];
        if (item->record.node == node && decides(&item->record))
            return item;
    }
    return NULL;
}

/* The first decision in which a node's two sequences differ; false where they do not. */
static bool node_differs(const struct trace_side *a, const struct trace_side *b, uint16_t node,
                         const struct stamped_record **x, const struct stamped_record **y)
{
    uint64_t at_a = 0;
    uint64_t at_b = 0;
    for (;;) {
        *x = next_of(a, node, &at_a);
        *y = next_of(b, node, &at_b);
        if (*x == NULL && *y == NULL)
            return false;
        if (*x == NULL || *y == NULL || !same_record(&(*x)->record, &(*y)->record))
            return true;
    }
}

void decision_first_timeless(const struct trace_side *a, const struct trace_side *b, struct divergence *divergence)
{
    const struct stamped_record *best_x = NULL;
    const struct stamped_record *best_y = NULL;
    int64_t best_ns = TIME_NEVER;
    uint32_t nodes = max_u32(a->name_count, b->name_count);
    for (uint32_t node = 0; node < nodes; node++) {
        const struct stamped_record *x;
        const struct stamped_record *y;
        if (!node_differs(a, b, (uint16_t)node, &x, &y))
            continue;
        int64_t at_ns = x != NULL ? x->at_ns : y->at_ns;
        if (at_ns < best_ns) {
            best_ns = at_ns;
            best_x = x;
            best_y = y;
        }
    }
    if (best_ns == TIME_NEVER)
        return;
    /* What led to it is told by the first run: up to the record, or up to its time where it has none. */
    uint64_t at = 0;
    struct cluster *cluster = cluster_make();
    while (at < a->count && (best_x != NULL ? &a->items[at] != best_x : a->items[at].at_ns < best_ns))
        cluster_trace(cluster, &a->items[at++].record);
    divergence->record = at;
    describe(a, b, best_x, best_y, divergence);
    describe_request(a, at, divergence);
    cluster_describe(cluster, a->names, a->name_count, divergence);
    cluster_free(cluster);
}
