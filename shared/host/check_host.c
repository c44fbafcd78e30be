/* See check_host.h. check_failed() itself is declared in base/check.h. */
#include "host/check_host.h"

#include "base/check.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define EXIT_BUG 127

static _Thread_local struct check_context *current;

void check_context_set(struct check_context *context)
{
    current = context;
}

static void print_record(int64_t time_ns, const struct trace_record *record)
{
    const char *name = trace_kind_name(record->kind);
    fprintf(stderr, "  %14" PRId64 " ns  node %u  ", time_ns, (unsigned)record->node);
    if (record->request != TRACE_NO_REQUEST)
        fprintf(stderr, "request %" PRIu32 "  ", record->request);
    if (name != NULL)
        fprintf(stderr, "%s", name);
    else
        fprintf(stderr, "kind %u", (unsigned)record->kind);
    fprintf(stderr, "  %" PRIu64 " %" PRIu64 "\n", record->a, record->b);
}

static void print_context(const struct check_context *context)
{
    fprintf(stderr, "seed: %" PRIu64 "\n", context->seed);
    /* The counter may have wrapped; a record that was never written has kind 0, which no kind has. */
    uint32_t count = 0;
    for (uint32_t i = 0; i < CHECK_RING; i++)
        count += context->ring[i].record.kind != 0;
    if (count > 0)
        fprintf(stderr, "the last %" PRIu32 " trace records, oldest first:\n", count);
    for (uint32_t i = 0; i < CHECK_RING; i++) {
        uint32_t place = (context->next + i) % CHECK_RING;
        if (context->ring[place].record.kind != 0)
            print_record(context->ring[place].time_ns, &context->ring[place].record);
    }
    if (context->hint != NULL)
        fprintf(stderr, "run it again: %s\n", context->hint);
}

_Noreturn void check_failed(const char *condition, const char *file, int line)
{
    /* What was printed before belongs before the report. */
    fflush(stdout);
    fprintf(stderr, "%s:%d: CHECK failed: %s\nThis is a bug in tandem.\n", file, line, condition);
    struct check_context *context = current;
    current = NULL; /* a CHECK that fails in the report must not report again */
    if (context != NULL)
        print_context(context);
    fflush(stderr);
    _Exit(EXIT_BUG);
}
