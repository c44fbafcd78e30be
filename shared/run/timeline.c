/* See timeline.h. The format is the "Trace Event Format" of the Chromium project. */
#include "run/timeline.h"

#include "host/output.h"
#include "run/results/results_internal.h"

#include <inttypes.h>

struct writing {
    struct results *store;
    FILE *file;
    bool any; /* an event has been written */
};

static json_t *microseconds(int64_t ns)
{
    return json_fixed(ns, 3);
}

/* Takes `event`. */
static void write_event(struct writing *writing, json_t *event)
{
    fputs(writing->any ? ",\n" : "\n", writing->file);
    writing->any = true;
    /* Fifteen digits are exact: the nanosecond of a run of ten days. */
    json_dumpf(event, writing->file, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(event);
}

static void write_process(struct writing *writing, int64_t node, const char *name)
{
    write_event(writing, json_pack("{s:s, s:s, s:I, s:{s:s}}", "ph", "M", "name", "process_name", "pid",
                                   (json_int_t)node, "args", "name", name));
    write_event(writing, json_pack("{s:s, s:s, s:I, s:{s:I}}", "ph", "M", "name", "process_sort_index", "pid",
                                   (json_int_t)node, "args", "sort_index", (json_int_t)node));
}

static void write_span(struct writing *writing, const char *category, int64_t id, int64_t node, const char *name,
                       int64_t start_ns, int64_t end_ns, json_t *args)
{
    write_event(writing, json_pack("{s:s, s:s, s:I, s:s, s:I, s:I, s:o, s:o}", "ph", "b", "cat", category, "id",
                                   (json_int_t)id, "name", name, "pid", (json_int_t)node, "tid", (json_int_t)0, "ts",
                                   microseconds(start_ns), "args", args));
    write_event(writing,
                json_pack("{s:s, s:s, s:I, s:s, s:I, s:I, s:o}", "ph", "e", "cat", category, "id", (json_int_t)id,
                          "name", name, "pid", (json_int_t)node, "tid", (json_int_t)0, "ts", microseconds(end_ns)));
}

/* Where each span is spent: at the front, the decoder or the prefiller. */
static int64_t node_of_span(int span, int64_t decoder, int64_t prefiller)
{
    if (span == BOUNDARY_ARRIVED)
        return 0;
    return span == BOUNDARY_DISPATCHED || span == BOUNDARY_PREFILL_STARTED ? prefiller : decoder;
}

/* Columns: request, decoder, prefiller, outcome, prompt, output and cached tokens, then the boundaries. */
#define FIRST_BOUNDARY 7

static void write_request(struct writing *writing, sqlite3_stmt *row)
{
    static const char *const outcomes[] = {"", "completed", "rejected", "failed", "aborted"};
    int64_t request = sqlite3_column_int64(row, 0);
    int64_t decoder = sqlite3_column_int64(row, 1);
    int64_t prefiller = sqlite3_column_int64(row, 2);
    int outcome = sqlite3_column_int(row, 3);
    json_t *args =
        json_pack("{s:s, s:I, s:I, s:I}", "outcome", outcome >= 1 && outcome <= 4 ? outcomes[outcome] : "",
                  "prompt_tokens", (json_int_t)sqlite3_column_int64(row, 4), "output_tokens",
                  (json_int_t)sqlite3_column_int64(row, 5), "cached_tokens", (json_int_t)sqlite3_column_int64(row, 6));
    char name[32];
    snprintf(name, sizeof name, "request %" PRId64, request);
    int last = FIRST_BOUNDARY + BOUNDARY_FINISHED;
    write_span(writing, "request", request, 0, name, sqlite3_column_int64(row, FIRST_BOUNDARY),
               sqlite3_column_int64(row, last), args);
    for (int span = 0; span < SPAN_COUNT; span++) {
        int column = FIRST_BOUNDARY + span;
        /* A boundary that was not reached is NULL; an empty span would hide another. */
        if (sqlite3_column_type(row, column) == SQLITE_NULL || sqlite3_column_type(row, column + 1) == SQLITE_NULL)
            continue;
        int64_t start_ns = sqlite3_column_int64(row, column);
        int64_t end_ns = sqlite3_column_int64(row, column + 1);
        if (end_ns > start_ns)
            write_span(writing, "span", request, node_of_span(span, decoder, prefiller), span_names[span], start_ns,
                       end_ns, json_pack("{s:I}", "request", (json_int_t)request));
    }
}

static void write_step(struct writing *writing, sqlite3_stmt *row)
{
    char name[96];
    int64_t start_ns = sqlite3_column_int64(row, 1);
    int64_t steps = sqlite3_column_int64(row, 3);
    int64_t sequences = sqlite3_column_int64(row, 4);
    int64_t tokens = sqlite3_column_int64(row, 5);
    int used = 0;
    if (tokens > 0)
        used = snprintf(name, sizeof name, "prefill %" PRId64, tokens);
    if (sequences > 0 || tokens == 0)
        used += snprintf(name + used, sizeof name - (size_t)used, "%sdecode %" PRId64, used > 0 ? ", " : "", sequences);
    if (steps > 1)
        snprintf(name + used, sizeof name - (size_t)used, " x %" PRId64, steps);
    write_event(writing,
                json_pack("{s:s, s:s, s:s, s:I, s:I, s:o, s:o, s:{s:I, s:I, s:I, s:I}}", "ph", "X", "cat", "step",
                          "name", name, "pid", (json_int_t)sqlite3_column_int64(row, 0), "tid", (json_int_t)0, "ts",
                          microseconds(start_ns), "dur", microseconds(sqlite3_column_int64(row, 2) - start_ns), "args",
                          "steps", (json_int_t)steps, "decode_sequences", (json_int_t)sequences, "prefill_tokens",
                          (json_int_t)tokens, "decode_context", (json_int_t)sqlite3_column_int64(row, 6)));
}

static void write_transfer(struct writing *writing, sqlite3_stmt *row)
{
    int64_t request = sqlite3_column_int64(row, 0);
    int64_t source = sqlite3_column_int64(row, 1);
    char name[48];
    snprintf(name, sizeof name, "write to node %" PRId64, (int64_t)sqlite3_column_int64(row, 2));
    write_span(writing, "transfer", (sqlite3_column_int64(row, 7) << 16) + source, source, name,
               sqlite3_column_int64(row, 3), sqlite3_column_int64(row, 4),
               json_pack("{s:I, s:I, s:I}", "request", (json_int_t)request, "bytes",
                         (json_int_t)sqlite3_column_int64(row, 5), "writes", (json_int_t)sqlite3_column_int64(row, 6)));
}

static bool write_rows(struct writing *writing, int64_t run, const char *sql,
                       void (*write)(struct writing *writing, sqlite3_stmt *row), struct user_error *error)
{
    sqlite3_stmt *statement = results_prepare(writing->store, sql, error);
    if (statement == NULL)
        return false;
    sqlite3_bind_int64(statement, 1, run);
    int code;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW)
        write(writing, statement);
    bool good = code == SQLITE_DONE || results_fail(writing->store, error, "reading results");
    sqlite3_finalize(statement);
    return good;
}

bool timeline_write(struct results *store, int64_t run, FILE *file, struct user_error *error)
{
    struct run_report report;
    struct writing writing = {.store = store, .file = file};
    if (!results_run_read(store, run, &report, error))
        return false;
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", file);
    write_process(&writing, 0, "front");
    for (uint32_t i = 0; i < report.instance_count; i++)
        write_process(&writing, i + 1, report.instances[i].name);
    bool good = write_rows(&writing, run,
                           "SELECT request, decoder, prefiller, outcome, prompt_tokens, output_tokens, cached_tokens,"
                           " arrived_ns, received_ns, dispatched_ns, prefill_started_ns, prefill_finished_ns, ready_ns,"
                           " decode_started_ns, first_token_ns, finished_ns FROM request WHERE run_id = ?"
                           " ORDER BY request",
                           write_request, error) &&
                write_rows(&writing, run,
                           "SELECT node, start_ns, end_ns, steps, decode_sequences, prefill_tokens, decode_context"
                           " FROM step WHERE run_id = ? ORDER BY node, start_ns",
                           write_step, error) &&
                write_rows(&writing, run,
                           "SELECT request, source, destination, posted_ns, landed_ns, bytes, writes, ticket"
                           " FROM transfer WHERE run_id = ? ORDER BY source, posted_ns, ticket",
                           write_transfer, error);
    run_report_free(&report);
    json_t *other = json_pack("{s:s, s:I}", "scenario", report.scenario, "run", (json_int_t)run);
    fputs("\n],\"otherData\":", file);
    json_dumpf(other, file, JSON_COMPACT);
    fputs("}\n", file);
    json_decref(other);
    if (good && (fflush(file) != 0 || ferror(file) != 0))
        user_error_set(error, NULL, 0, NULL, "the timeline could not be written");
    return good && !error->set;
}
