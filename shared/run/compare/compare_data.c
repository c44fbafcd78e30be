/* See compare_data.h. */
#include "run/compare/compare_data.h"

#include "base/arith.h"
#include "run/results/results_internal.h"
#include "host/memory.h"
#include "host/stats.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Order statistics -------------------------------------------------------------------------------------------- */

/* Sorts. */
static int64_t percentile(struct stats_values *values, uint32_t percent)
{
    CHECK(values->count > 0);
    stats_sort(values->items, values->count);
    return stats_percentile(values->items, values->count, percent * 10);
}

/* `difference` in tenths of a percent of `of`, which is not 0. */
static int64_t permille(int128 difference, int128 of)
{
    int128 half = of / 2;
    return (int64_t)((difference * 1000 + (difference < 0 ? -half : half)) / of);
}

/* ---- Request by request ------------------------------------------------------------------------------------------ */

/* A column of a view with a row a request. */
static const struct {
    const char *name;
    const char *view;
    const char *column;
} metric_columns[PAIRED_METRICS] = {
    {"ttft", "request_latency", "ttft_ns"},
    {"tpot", "request_latency", "tpot_ns"},
    {"route", "request_latency", "route_ns"},
    {"admission_wait", "request_latency", "admission_wait_ns"},
    {"prefill_queue", "request_latency", "prefill_queue_ns"},
    {"prefill", "request_latency", "prefill_ns"},
    {"exposed_transfer", "request_latency", "exposed_transfer_ns"},
    {"decode_queue", "request_latency", "decode_queue_ns"},
    {"first_decode", "request_latency", "first_decode_ns"},
    {"decode", "request_latency", "decode_ns"},
    {"transfer", "request_transfer", "transfer_ns"},
};

static sqlite3_stmt *prepare_two(struct results *store, const char *sql, int64_t a, int64_t b, struct user_error *error)
{
    sqlite3_stmt *statement = results_prepare(store, sql, error);
    if (statement == NULL)
        return NULL;
    sqlite3_bind_int64(statement, 1, a);
    sqlite3_bind_int64(statement, 2, b);
    return statement;
}

/* Ends a query whose last step gave `code`. */
static bool end(struct results *store, sqlite3_stmt *statement, int code, struct user_error *error)
{
    bool good = code == SQLITE_DONE || results_fail(store, error, "reading results");
    sqlite3_finalize(statement);
    return good;
}

static void summarize_pairs(struct stats_values side[2], uint32_t reference, struct paired_metric *metric)
{
    struct stats_values differences = {.count = 0};
    struct stats_values relatives = {.count = 0};
    int128 sum = 0;
    int128 reference_sum = 0;
    metric->pairs = side[0].count;
    for (size_t i = 0; i < metric->pairs; i++) {
        int64_t of = side[reference].items[i];
        int64_t difference = side[1 - reference].items[i] - of;
        stats_add(&differences, difference < 0 ? -difference : difference);
        if (of > 0)
            stats_add(&relatives, permille(difference < 0 ? -(int128)difference : difference, of));
        sum += difference;
        reference_sum += of;
    }
    if (metric->pairs > 0) {
        metric->error_p50_ns = percentile(&differences, 50);
        metric->p50_ns[0] = percentile(&side[0], 50);
        metric->p50_ns[1] = percentile(&side[1], 50);
    }
    metric->relative = relatives.count > 0 && reference_sum > 0;
    if (metric->relative) {
        metric->error_p50_permille = percentile(&relatives, 50);
        metric->error_p90_permille = percentile(&relatives, 90);
        metric->bias_permille = permille(sum, reference_sum);
    }
    free(differences.items);
    free(relatives.items);
}

static bool read_pairs(struct results *store, int64_t a, int64_t b, uint32_t which, uint32_t reference,
                       struct paired_metric *metric, struct user_error *error)
{
    char sql[400];
    const char *view = metric_columns[which].view;
    const char *column = metric_columns[which].column;
    snprintf(sql, sizeof sql,
             "SELECT a.%s, b.%s FROM (SELECT request, %s FROM %s WHERE run_id = ?) AS a"
             " JOIN (SELECT request, %s FROM %s WHERE run_id = ?) AS b USING (request)"
             " WHERE a.%s IS NOT NULL AND b.%s IS NOT NULL",
             column, column, column, view, column, view, column, column);
    *metric = (struct paired_metric){.name = metric_columns[which].name};
    sqlite3_stmt *statement = prepare_two(store, sql, a, b, error);
    if (statement == NULL)
        return false;
    struct stats_values side[2] = {{.count = 0}, {.count = 0}};
    int code;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
        stats_add(&side[0], sqlite3_column_int64(statement, 0));
        stats_add(&side[1], sqlite3_column_int64(statement, 1));
    }
    bool good = end(store, statement, code, error);
    if (good)
        summarize_pairs(side, reference, metric);
    free(side[0].items);
    free(side[1].items);
    return good;
}

/* Whether request k of one run is request k of the other. */
static bool read_paired(struct results *store, const struct run_report *a, const struct run_report *b, bool *paired,
                        struct user_error *error)
{
    sqlite3_stmt *statement = prepare_two(store,
                                          "SELECT count(*) FROM request AS a JOIN request AS b USING (request)"
                                          " WHERE a.run_id = ? AND b.run_id = ? AND a.prompt_tokens = b.prompt_tokens"
                                          " AND a.output_tokens = b.output_tokens",
                                          a->run, b->run, error);
    if (statement == NULL)
        return false;
    int code = sqlite3_step(statement);
    uint64_t same = code == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(statement, 0) : 0;
    *paired = same > 0 && same == a->requests && same == b->requests;
    code = code == SQLITE_ROW ? sqlite3_step(statement) : code;
    return end(store, statement, code, error);
}

/* ---- By shape ---------------------------------------------------------------------------------------------------- */

struct shaped {
    struct shape_error shape; /* the first four */
    int64_t ns;
};

struct shaped_list {
    struct shaped *items;
    size_t count;
    size_t room;
};

static int compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_shapes(const struct shape_error *a, const struct shape_error *b)
{
    int order = compare_numbers(a->role, b->role);
    order = order != 0 ? order : compare_numbers(a->tokens, b->tokens);
    order = order != 0 ? order : compare_numbers(a->sequences, b->sequences);
    return order != 0 ? order : compare_numbers(a->context, b->context);
}

static int by_shape(const void *a, const void *b)
{
    const struct shaped *left = a;
    const struct shaped *right = b;
    int order = compare_shapes(&left->shape, &right->shape);
    return order != 0 ? order : left->ns < right->ns ? -1 : left->ns > right->ns; /* equal ones are alike */
}

/* The largest power of 2^log2 that is not above the value; 0 of 0. */
static uint64_t power_below(uint64_t value, uint32_t log2)
{
    uint64_t power = 1;
    if (value == 0)
        return 0;
    while (power <= value >> log2)
        power <<= log2;
    return power;
}

static void add_shaped(struct shaped_list *list, const struct shaped *item)
{
    if (list->count == list->room) {
        list->room = list->room == 0 ? 256 : list->room * 2;
        list->items = memory_resized(list->items, list->room * sizeof *list->items);
    }
    list->items[list->count++] = *item;
}

static void take_step(sqlite3_stmt *row, struct shaped *item)
{
    uint64_t sequences = (uint64_t)sqlite3_column_int64(row, 2);
    uint64_t steps = max_u64(1, (uint64_t)sqlite3_column_int64(row, 4));
    /* A repetition reads one token more for each sequence and step: the mean step of it is meant. */
    uint64_t context = (uint64_t)sqlite3_column_int64(row, 3) + sequences * (steps - 1) / 2;
    *item = (struct shaped){
        .shape = {.role = (uint16_t)sqlite3_column_int(row, 0),
                  .tokens = power_below((uint64_t)sqlite3_column_int64(row, 1), 1),
                  .sequences = power_below(sequences, 1),
                  .context = power_below(context, 2)},
        .ns = sqlite3_column_int64(row, 5) / (int64_t)steps,
    };
}

static void take_transfer(sqlite3_stmt *row, struct shaped *item)
{
    *item = (struct shaped){.shape = {.tokens = power_below((uint64_t)sqlite3_column_int64(row, 0), 1)},
                            .ns = sqlite3_column_int64(row, 1)};
}

static bool read_shapes(struct results *store, int64_t run, const char *sql,
                        void (*take)(sqlite3_stmt *row, struct shaped *item), struct shaped_list *list,
                        struct user_error *error)
{
    *list = (struct shaped_list){.count = 0};
    sqlite3_stmt *statement = results_prepare(store, sql, error);
    if (statement == NULL)
        return false;
    sqlite3_bind_int64(statement, 1, run);
    int code;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
        struct shaped item;
        take(statement, &item);
        add_shaped(list, &item);
    }
    if (list->count > 0)
        qsort(list->items, list->count, sizeof *list->items, by_shape);
    return end(store, statement, code, error);
}

/* How many from `at` on have its shape. */
static size_t run_length(const struct shaped_list *list, size_t at)
{
    size_t last = at;
    while (last < list->count && compare_shapes(&list->items[last].shape, &list->items[at].shape) == 0)
        last++;
    return last - at;
}

static void match(const struct shaped_list lists[2], uint32_t reference, struct shape_errors *errors)
{
    size_t at[2] = {0, 0};
    struct stats_values weighed = {.count = 0};
    errors->total = lists[reference].count;
    while (at[0] < lists[0].count && at[1] < lists[1].count) {
        int order = compare_shapes(&lists[0].items[at[0]].shape, &lists[1].items[at[1]].shape);
        if (order != 0) {
            uint32_t behind = order < 0 ? 0 : 1;
            at[behind] += run_length(&lists[behind], at[behind]);
            continue;
        }
        errors->items = memory_resized(errors->items, (errors->count + (size_t)1) * sizeof *errors->items);
        struct shape_error *error = &errors->items[errors->count++];
        *error = lists[0].items[at[0]].shape;
        for (uint32_t s = 0; s < 2; s++) {
            error->count[s] = run_length(&lists[s], at[s]);
            error->p50_ns[s] = lists[s].items[at[s] + (error->count[s] + 1) / 2 - 1].ns; /* sorted within a shape */
            at[s] += error->count[s];
        }
        int64_t of = error->p50_ns[reference];
        error->relative = of > 0;
        error->error_permille = of > 0 ? permille((int128)error->p50_ns[1 - reference] - of, of) : 0;
        errors->matched += error->count[reference];
        for (uint64_t k = 0; of > 0 && k < error->count[reference]; k++)
            stats_add(&weighed, error->error_permille < 0 ? -error->error_permille : error->error_permille);
    }
    errors->error_p50_permille = weighed.count > 0 ? percentile(&weighed, 50) : 0;
    free(weighed.items);
}

static bool read_shape_errors(struct results *store, int64_t a, int64_t b, const char *sql,
                              void (*take)(sqlite3_stmt *row, struct shaped *item), uint32_t reference,
                              struct shape_errors *errors, struct user_error *error)
{
    struct shaped_list lists[2] = {{.count = 0}, {.count = 0}};
    bool good =
        read_shapes(store, a, sql, take, &lists[0], error) && read_shapes(store, b, sql, take, &lists[1], error);
    if (good)
        match(lists, reference, errors);
    free(lists[0].items);
    free(lists[1].items);
    return good;
}

static const char step_query[] =
    "SELECT role, step.prefill_tokens, decode_sequences, decode_context, step.steps, end_ns - start_ns"
    " FROM step JOIN instance USING (run_id, node) WHERE step.run_id = ?";

/* The chunks of a request together: a recorder may tell them apart or not. */
static const char transfer_query[] = "SELECT sum(bytes), max(landed_ns) - min(posted_ns) FROM transfer WHERE run_id = ?"
                                     " GROUP BY request, epoch";

/* ---- All together ------------------------------------------------------------------------------------------------ */

bool comparison_data_read(struct results *store, const struct run_report *a, const struct run_report *b,
                          struct comparison_data *data, struct user_error *error)
{
    memset(data, 0, sizeof *data);
    data->reference = strcmp(b->backend, "sim") != 0 && strcmp(a->backend, "sim") == 0;
    bool good = read_paired(store, a, b, &data->paired, error);
    for (uint32_t m = 0; m < PAIRED_METRICS && good; m++) {
        data->metrics[m].name = metric_columns[m].name;
        /* A span that one side does not know has no pairs. */
        uint32_t span = m - 2;
        if (m >= 2 && span < SPAN_COUNT && (a->spans[span].count == 0 || b->spans[span].count == 0))
            continue;
        if (data->paired)
            good = read_pairs(store, a->run, b->run, m, data->reference, &data->metrics[m], error);
    }
    return good &&
           read_shape_errors(store, a->run, b->run, step_query, take_step, data->reference, &data->steps, error) &&
           read_shape_errors(store, a->run, b->run, transfer_query, take_transfer, data->reference, &data->transfers,
                             error) &&
           compare_decisions(store, a, b, data->paired, &data->decisions, error);
}

void comparison_data_free(struct comparison_data *data)
{
    free(data->steps.items);
    free(data->transfers.items);
    memset(data, 0, sizeof *data);
}
