/* Where the decisions of two stored runs part, from their rows: where requests were sent, and what was batched. Works
 * for runs whose traces cannot be had again, and across runtimes, whose times never agree. See compare_data.h. */
#include "run/compare/compare_data.h"
#include "run/results/results_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *node_name(const struct run_report *report, int node)
{
    return node >= 1 && (uint32_t)node <= report->instance_count ? report->instances[node - 1].name : "no instance";
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

/* Of one run in a row: arrived, decoder, prefiller, outcome, attempts, preemptions. */
#define ROUTE_COLUMNS 6

static void route_text(sqlite3_stmt *row, int first, const struct run_report *report, char *text, size_t size)
{
    static const char *const ends[] = {"?", "", "rejected", "failed", "aborted"};
    int outcome = sqlite3_column_int(row, first + 3);
    int used;
    if (outcome == OUTCOME_REJECTED)
        used = snprintf(text, size, "run %" PRId64 " rejected it", report->run);
    else
        used = snprintf(text, size, "run %" PRId64 " sent it to %s through %s", report->run,
                        node_name(report, sqlite3_column_int(row, first + 1)),
                        node_name(report, sqlite3_column_int(row, first + 2)));
    if (outcome == OUTCOME_FAILED || outcome == OUTCOME_ABORTED)
        used += snprintf(text + used, size - (size_t)used, ", where it was %s", ends[outcome]);
    if (sqlite3_column_int(row, first + 4) > 1)
        used += snprintf(text + used, size - (size_t)used, ", %d attempts", sqlite3_column_int(row, first + 4));
    if (sqlite3_column_int(row, first + 5) > 0)
        snprintf(text + used, size - (size_t)used, ", preempted %d times", sqlite3_column_int(row, first + 5));
}

static bool same_route(sqlite3_stmt *row)
{
    bool same = true;
    for (int k = 1; k < ROUTE_COLUMNS; k++)
        same = same && sqlite3_column_int64(row, 1 + k) == sqlite3_column_int64(row, 1 + ROUTE_COLUMNS + k);
    return same;
}

static bool compare_routes(struct results *store, const struct run_report *a, const struct run_report *b,
                           struct decisions *decisions, struct user_error *error)
{
    sqlite3_stmt *row =
        results_prepare(store,
                        "SELECT request, a.arrived_ns, a.decoder, a.prefiller, a.outcome, a.attempts, a.preemptions,"
                        " b.arrived_ns, b.decoder, b.prefiller, b.outcome, b.attempts, b.preemptions"
                        " FROM request AS a JOIN request AS b USING (request) WHERE a.run_id = ? AND b.run_id = ?"
                        " ORDER BY a.arrived_ns, request",
                        error);
    if (row == NULL)
        return false;
    sqlite3_bind_int64(row, 1, a->run);
    sqlite3_bind_int64(row, 2, b->run);
    int code;
    while ((code = sqlite3_step(row)) == SQLITE_ROW) {
        bool same = same_route(row);
        decisions->requests++;
        decisions->alike += same;
        if (same || decisions->route.found)
            continue;
        char texts[2][160];
        route_text(row, 1, a, texts[0], sizeof texts[0]);
        route_text(row, 1 + ROUTE_COLUMNS, b, texts[1], sizeof texts[1]);
        decisions->route.found = true;
        decisions->route.at_ns = sqlite3_column_int64(row, 1);
        snprintf(decisions->route.text, sizeof decisions->route.text, "request %" PRId64 ": %s; %s",
                 (int64_t)sqlite3_column_int64(row, 0), texts[0], texts[1]);
    }
    if (code != SQLITE_DONE)
        results_fail(store, error, "reading results");
    sqlite3_finalize(row);
    return code == SQLITE_DONE;
}

/* ---- Batches ----------------------------------------------------------------------------------------------------- */

/* Batches of one node in order. A batch that only decodes lasts until another takes its place: into how many launches
 * it was cut depends on what arrived meanwhile. */
struct batches {
    sqlite3_stmt *rows;
    bool there;
    int code;
    uint64_t number; /* of the batch, from 1, on its node */
    int node;
    int64_t start_ns;
    int64_t prefill_tokens;
    int64_t sequences;
};

static bool batches_open(struct results *store, int64_t run, struct batches *batches, struct user_error *error)
{
    *batches = (struct batches){.code = SQLITE_ROW};
    batches->rows = results_prepare(store,
                                    "SELECT node, start_ns, prefill_tokens, decode_sequences FROM step"
                                    " WHERE run_id = ? ORDER BY node, start_ns",
                                    error);
    if (batches->rows == NULL)
        return false;
    sqlite3_bind_int64(batches->rows, 1, run);
    return true;
}

static void batches_next(struct batches *batches)
{
    const struct batches before = *batches;
    while (batches->code == SQLITE_ROW && (batches->code = sqlite3_step(batches->rows)) == SQLITE_ROW) {
        batches->node = sqlite3_column_int(batches->rows, 0);
        batches->start_ns = sqlite3_column_int64(batches->rows, 1);
        batches->prefill_tokens = sqlite3_column_int64(batches->rows, 2);
        batches->sequences = sqlite3_column_int64(batches->rows, 3);
        bool same_node = before.there && before.node == batches->node;
        if (same_node && batches->prefill_tokens == 0 && before.prefill_tokens == 0 &&
            batches->sequences == before.sequences)
            continue;
        batches->number = same_node ? before.number + 1 : 1;
        batches->there = true;
        return;
    }
    batches->there = false;
}

/* Past what is left of a node. */
static void skip_node(struct batches *batches, int node)
{
    while (batches->there && batches->node <= node)
        batches_next(batches);
}

static void batch_text(const struct batches *batches, int node, const struct run_report *report, char *text,
                       size_t size)
{
    if (!batches->there || batches->node != node)
        snprintf(text, size, "run %" PRId64 " has no more", report->run);
    else
        snprintf(text, size, "run %" PRId64 " has %" PRId64 " prompt tokens and %" PRId64 " sequences", report->run,
                 batches->prefill_tokens, batches->sequences);
}

static void note_batch(const struct batches sides[2], int node, const struct run_report *a, const struct run_report *b,
                       struct decision_difference *first)
{
    uint32_t there = sides[0].there && sides[0].node == node ? 0 : 1;
    int64_t at_ns = sides[there].start_ns;
    if (first->found && first->at_ns <= at_ns)
        return;
    char texts[2][120];
    batch_text(&sides[0], node, a, texts[0], sizeof texts[0]);
    batch_text(&sides[1], node, b, texts[1], sizeof texts[1]);
    first->found = true;
    first->at_ns = at_ns;
    snprintf(first->text, sizeof first->text, "batch %" PRIu64 " of %s: %s; %s", sides[there].number,
             node_name(there == 0 ? a : b, node), texts[0], texts[1]);
}

static bool compare_batches(struct results *store, const struct run_report *a, const struct run_report *b,
                            struct decisions *decisions, struct user_error *error)
{
    struct batches sides[2] = {{.rows = NULL}, {.rows = NULL}};
    bool good = batches_open(store, a->run, &sides[0], error) && batches_open(store, b->run, &sides[1], error);
    for (uint32_t s = 0; s < 2 && good; s++)
        batches_next(&sides[s]);
    decisions->batches_known = good && sides[0].there && sides[1].there;
    while (decisions->batches_known && (sides[0].there || sides[1].there)) {
        int node = !sides[0].there || (sides[1].there && sides[1].node < sides[0].node) ? sides[1].node : sides[0].node;
        bool same = sides[0].there && sides[1].there && sides[0].node == sides[1].node &&
                    sides[0].prefill_tokens == sides[1].prefill_tokens && sides[0].sequences == sides[1].sequences;
        if (!same) {
            note_batch(sides, node, a, b, &decisions->batch);
            skip_node(&sides[0], node);
            skip_node(&sides[1], node);
            continue;
        }
        batches_next(&sides[0]);
        batches_next(&sides[1]);
    }
    for (uint32_t s = 0; s < 2; s++) {
        if (good && sides[s].code != SQLITE_DONE && sides[s].code != SQLITE_ROW)
            good = results_fail(store, error, "reading results");
        sqlite3_finalize(sides[s].rows);
    }
    return good;
}

bool compare_decisions(struct results *store, const struct run_report *a, const struct run_report *b, bool paired,
                       struct decisions *decisions, struct user_error *error)
{
    memset(decisions, 0, sizeof *decisions);
    if (!paired)
        return true;
    return compare_routes(store, a, b, decisions, error) && compare_batches(store, a, b, decisions, error);
}
