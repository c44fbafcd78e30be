/* Where a stored run came from: the file of its scenario and what was set beside it. */
#include "run/results/results_internal.h"
#include "host/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static char *copy_column(sqlite3_stmt *row, int column)
{
    const char *text = (const char *)sqlite3_column_text(row, column);
    size_t size = strlen(text == NULL ? "" : text) + 1;
    char *copy = memory_get(size);
    return memcpy(copy, text == NULL ? "" : text, size);
}

bool results_origin_read(struct results *store, int64_t run, struct results_origin *origin, struct user_error *error)
{
    memset(origin, 0, sizeof *origin);
    sqlite3_stmt *path =
        results_prepare(store,
                        "SELECT path, coalesce(replay_of, 0) FROM run JOIN scenario ON scenario.id = scenario_id"
                        " WHERE run.id = ? AND status = 'complete'",
                        error);
    sqlite3_stmt *params =
        path == NULL
            ? NULL
            : results_prepare(store,
                              "SELECT path, value FROM run_param WHERE run_id = ? AND path <> '" RESULTS_REPLAY_PARAM
                              "' ORDER BY path",
                              error);
    bool good = params != NULL;
    if (good) {
        sqlite3_bind_int64(path, 1, run);
        sqlite3_bind_int64(params, 1, run);
        good = sqlite3_step(path) == SQLITE_ROW;
        if (good) {
            snprintf(origin->path, sizeof origin->path, "%s", (const char *)sqlite3_column_text(path, 0));
            origin->replay_of = sqlite3_column_int64(path, 1);
        } else {
            user_error_set(error, store->path, 0, NULL, "holds no run %" PRId64, run);
        }
        while (good && origin->param_count < RESULTS_ORIGIN_PARAMS_MAX && sqlite3_step(params) == SQLITE_ROW) {
            struct results_param *param = &origin->params[origin->param_count++];
            *param = (struct results_param){copy_column(params, 0), copy_column(params, 1)};
        }
    }
    sqlite3_finalize(path);
    sqlite3_finalize(params);
    return good;
}

void results_origin_free(struct results_origin *origin)
{
    for (uint32_t p = 0; p < origin->param_count; p++) {
        free((void *)(uintptr_t)origin->params[p].path);
        free((void *)(uintptr_t)origin->params[p].value);
    }
    memset(origin, 0, sizeof *origin);
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

static void grow(struct results_requests *r, uint32_t *room)
{
    if (r->count < *room)
        return;
    *room = *room == 0 ? 1024 : *room * 2;
    r->arrived_ns = memory_resized(r->arrived_ns, *room * sizeof *r->arrived_ns);
    r->prompt_tokens = memory_resized(r->prompt_tokens, *room * sizeof *r->prompt_tokens);
    r->output_tokens = memory_resized(r->output_tokens, *room * sizeof *r->output_tokens);
    r->conversations = memory_resized(r->conversations, *room * sizeof *r->conversations);
}

bool results_requests_read(struct results *store, int64_t run, struct results_requests *requests,
                           struct user_error *error)
{
    uint32_t room = 0;
    *requests = (struct results_requests){.count = 0};
    sqlite3_stmt *rows = results_prepare(
        store,
        "SELECT request, arrived_ns, prompt_tokens, output_tokens, coalesce(conversation, 0) FROM request"
        " WHERE run_id = ? ORDER BY request",
        error);
    if (rows == NULL)
        return false;
    sqlite3_bind_int64(rows, 1, run);
    int code;
    while (!error->set && (code = sqlite3_step(rows)) == SQLITE_ROW) {
        uint32_t k = requests->count;
        int64_t at_ns = sqlite3_column_int64(rows, 1);
        grow(requests, &room);
        if (sqlite3_column_int64(rows, 0) != k || (k > 0 && at_ns < requests->arrived_ns[k - 1])) {
            user_error_set(error, store->path, 0, NULL,
                           "run %" PRId64 ": request %" PRIu32 " is missing, or arrived before the one before it", run,
                           k);
        } else {
            requests->arrived_ns[k] = at_ns;
            requests->prompt_tokens[k] = (uint32_t)sqlite3_column_int64(rows, 2);
            requests->output_tokens[k] = (uint32_t)sqlite3_column_int64(rows, 3);
            requests->conversations[k] = (uint32_t)sqlite3_column_int64(rows, 4);
            requests->count++;
        }
    }
    if (!error->set && code != SQLITE_DONE)
        results_fail(store, error, "reading results");
    sqlite3_finalize(rows);
    if (error->set)
        results_requests_free(requests);
    return !error->set;
}

void results_requests_free(struct results_requests *requests)
{
    free(requests->arrived_ns);
    free(requests->prompt_tokens);
    free(requests->output_tokens);
    free(requests->conversations);
    *requests = (struct results_requests){.count = 0};
}
