/* See divergence.h. */
#include "run/compare/divergence.h"

#include <inttypes.h>
#include <string.h>

/* ---- A record ---------------------------------------------------------------------------------------------------- */

struct operand_names {
    const char *a; /* NULL: not shown */
    const char *b;
};

static struct operand_names operands_of(uint16_t kind)
{
    static const struct operand_names names[] = {
        [TRACE_ARRIVED] = {"prompt", "output"},
        [TRACE_RECEIVED] = {"attempt", NULL},
        [TRACE_DISPATCHED] = {"prefiller", "writes"},
        [TRACE_PREFILL_STARTED] = {"epoch", "cached"},
        [TRACE_PREFILL_FINISHED] = {"epoch", NULL},
        [TRACE_READY] = {"epoch", NULL},
        [TRACE_DECODE_STARTED] = {"group", NULL},
        [TRACE_FINISHED] = {"tokens", NULL},
        [TRACE_ROUTED] = {"decoder", "prefiller"},
        [TRACE_CHUNK] = {"from", "tokens"},
        [TRACE_PREEMPTED] = {"tokens", NULL},
        [TRACE_ADMIT_WAIT] = {"wanted", "free"},
        [TRACE_PREFIX_HIT] = {"tokens", "group"},
        [TRACE_ARMED] = {"immediate", "writes"},
        [TRACE_ACCEPTED] = {"epoch", NULL},
        [TRACE_TAIL] = {"epoch", NULL},
        [TRACE_DRAINED] = {"epoch", NULL},
        [TRACE_RELEASED] = {"epoch", NULL},
    };
    struct operand_names plain = {"a", "b"};
    return kind < sizeof names / sizeof *names && names[kind].a != NULL ? names[kind] : plain;
}

void trace_record_words(const struct trace_record *record, char *text, size_t size)
{
    const char *kind = trace_kind_name(record->kind);
    struct operand_names operands = operands_of(record->kind);
    char request[32] = "";
    if (record->request != TRACE_NO_REQUEST)
        snprintf(request, sizeof request, " request %" PRIu32, record->request);
    int used = snprintf(text, size, "%s%s", kind == NULL ? "unknown" : kind, request);
    if (record->kind == TRACE_BATCH)
        snprintf(text + used, size - (size_t)used, " group=%" PRIu64 " decoding=%" PRIu32 " prefill_tokens=%" PRIu64,
                 record->a >> 32, (uint32_t)record->a, record->b);
    else if (record->kind == TRACE_WRITE)
        snprintf(text + used, size - (size_t)used, " unit=%" PRIu64 " units=%" PRIu32 " epoch=%" PRIu64,
                 record->a >> 32, (uint32_t)record->a, record->b);
    else if (operands.b != NULL)
        snprintf(text + used, size - (size_t)used, " %s=%" PRIu64 " %s=%" PRIu64, operands.a, record->a, operands.b,
                 record->b);
    else
        snprintf(text + used, size - (size_t)used, " %s=%" PRIu64, operands.a, record->a);
}

void trace_record_text(const struct trace_record *record, const char *name, char *text, size_t size)
{
    char words[DIVERGENCE_TEXT_SIZE];
    trace_record_words(record, words, sizeof words);
    snprintf(text, size, "%.47s %s", name, words);
}

/* ---- The divergence ---------------------------------------------------------------------------------------------- */

static void write_side(FILE *file, const char *indent, const char *name, int64_t at_ns, const char *text)
{
    if (at_ns < 0)
        fprintf(file, "%s  %s: %s\n", indent, name, text);
    else
        fprintf(file, "%s  %s at %" PRId64 " ns: %s\n", indent, name, at_ns, text);
}

static void write_nodes(FILE *file, const struct divergence *divergence, const char *indent)
{
    fprintf(file, "%s  requests at that instant:     waiting filling ready decoding   queued prefilling draining\n",
            indent);
    for (uint32_t i = 0; i < divergence->node_count; i++) {
        const struct divergence_node *node = &divergence->nodes[i];
        fprintf(file,
                "%s    %4" PRIu32 " %-21s %8" PRIu32 " %7" PRIu32 " %5" PRIu32 " %8" PRIu32 " %8" PRIu32 " %10" PRIu32
                " %8" PRIu32 "\n",
                indent, node->node, node->name, node->waiting, node->filling, node->ready, node->decoding, node->queued,
                node->prefilling, node->draining);
    }
    if (divergence->nodes_left_out > 0)
        fprintf(file, "%s    and %" PRIu32 " nodes with no more requests than these\n", indent,
                divergence->nodes_left_out);
}

void divergence_write(FILE *file, const struct divergence *divergence, const char *a, const char *b, const char *indent)
{
    if (!divergence->found) {
        fprintf(file, "%sno decision differs up to the end of the shorter trace\n", indent);
        return;
    }
    fprintf(file, "%sfirst difference%s at %s %" PRIu64, indent, divergence->times_alone ? ", in time alone," : "",
            divergence->what == NULL ? "trace record" : divergence->what, divergence->record);
    if (divergence->node[0] != '\0')
        fprintf(file, ", %s", divergence->node);
    if (divergence->node[0] != '\0' && divergence->request != TRACE_NO_REQUEST)
        fprintf(file, ", request %" PRIu32, divergence->request);
    fputs(":\n", file);
    for (uint32_t i = 0; i < divergence->before_count; i++)
        write_side(file, indent, "both", divergence->before[i].at_ns, divergence->before[i].text);
    write_side(file, indent, a, divergence->time_a_ns, divergence->a);
    write_side(file, indent, b, divergence->time_b_ns, divergence->b);
    if (divergence->about_count > 0)
        fprintf(file, "%s  earlier, of request %" PRIu32 ":\n", indent, divergence->request);
    for (uint32_t i = 0; i < divergence->about_count; i++)
        fprintf(file, "%s    %" PRId64 " ns: %s\n", indent, divergence->about[i].at_ns, divergence->about[i].text);
    if (divergence->node_count > 0)
        write_nodes(file, divergence, indent);
}

static json_t *lines_json(const struct divergence_line *lines, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(array,
                              json_pack("{s:I, s:s}", "time_ns", (json_int_t)lines[i].at_ns, "record", lines[i].text));
    return array;
}

static json_t *time_json(int64_t at_ns)
{
    return at_ns < 0 ? json_null() : json_integer((json_int_t)at_ns);
}

json_t *divergence_json(const struct divergence *divergence)
{
    if (!divergence->found)
        return json_null();
    json_t *nodes = json_array();
    for (uint32_t i = 0; i < divergence->node_count; i++) {
        const struct divergence_node *node = &divergence->nodes[i];
        json_array_append_new(nodes,
                              json_pack("{s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "node", (json_int_t)node->node,
                                        "name", node->name, "waiting", (json_int_t)node->waiting, "filling",
                                        (json_int_t)node->filling, "ready", (json_int_t)node->ready, "decoding",
                                        (json_int_t)node->decoding, "queued", (json_int_t)node->queued, "prefilling",
                                        (json_int_t)node->prefilling, "draining", (json_int_t)node->draining));
    }
    json_t *request = divergence->node[0] != '\0' && divergence->request != TRACE_NO_REQUEST
                          ? json_integer((json_int_t)divergence->request)
                          : json_null();
    return json_pack("{s:I, s:b, s:s?, s:o, s:o, s:o, s:s, s:s, s:o, s:o, s:o}", "record",
                     (json_int_t)divergence->record, "times_alone", divergence->times_alone, "node",
                     divergence->node[0] != '\0' ? divergence->node : NULL, "request", request, "time_a_ns",
                     time_json(divergence->time_a_ns), "time_b_ns", time_json(divergence->time_b_ns), "a",
                     divergence->a, "b", divergence->b, "before",
                     lines_json(divergence->before, divergence->before_count), "about",
                     lines_json(divergence->about, divergence->about_count), "nodes", nodes);
}
