/* See measure.h. */
#include "sim/check/gate_measure.h"

#include "base/arith.h"
#include "run/recorder.h"
#include "host/memory.h"
#include "host/stats.h"

#include <stdlib.h>
#include <string.h>

static void on_row(void *self, const struct request_row *row, bool met)
{
    struct measured *measured = self;
    if (row->request >= measured->capacity) {
        uint32_t capacity = max_u32(row->request + 1, max_u32(1024, 2 * measured->capacity));
        measured->rows = memory_resized(measured->rows, capacity * sizeof *measured->rows);
        memset(measured->rows + measured->capacity, 0, (capacity - measured->capacity) * sizeof *measured->rows);
        measured->capacity = capacity;
    }
    measured->rows[row->request] = *row;
    measured->count = max_u32(measured->count, row->request + 1);
    measured->completed += row->outcome == OUTCOME_COMPLETED;
    measured->served += row_counts(row) && met;
}

void measure(const struct baseline_run *run, const struct scenario *scenario, struct measured *measured)
{
    *measured = (struct measured){.itl = run->itl, .duration_ns = run->end_ns - run->start_ns};
    struct recorder_config config = {
        .warmup_ns = scenario->load.warmup_ns,
        .warmup_requests = scenario->load.warmup_requests,
        .targets = scenario->targets,
        .node_count = run->node_count,
        .sink = {.row = on_row, .self = measured},
    };
    struct recorder *recorder = recorder_make(&config);
    for (uint64_t i = 0; i < run->log.count; i++)
        recorder_trace(recorder, run->log.items[i].at_ns, &run->log.items[i].record);
    recorder_free(recorder);
}

void measured_free(struct measured *measured)
{
    free(measured->rows);
    *measured = (struct measured){.count = 0};
}

bool row_counts(const struct request_row *row)
{
    return row->outcome == OUTCOME_COMPLETED && !row->warmup;
}

int64_t row_value_ns(const struct request_row *row, enum watch_kind kind, uint32_t span)
{
    switch (kind) {
    case WATCH_TTFT:
        return row_ttft_ns(row);
    case WATCH_TPOT:
        return row->output_tokens > 1 ? row_tpot_ns(row) : -1;
    case WATCH_E2E:
        return row_e2e_ns(row);
    case WATCH_SPAN:
        return row->boundary_ns[span + 1] - row->boundary_ns[span];
    case WATCH_ITL:
    case WATCH_GOODPUT:
    case WATCH_COMPLETED:
        break;
    }
    check_failed("a latency of a request", __FILE__, __LINE__);
}

static bool latency(const struct measured *measured, const struct watch *watch, int64_t *value)
{
    int64_t *values = memory_zeroed((size_t)measured->count + 1, sizeof *values);
    uint64_t count = 0;
    int128 sum = 0;
    for (uint32_t i = 0; i < measured->count; i++) {
        int64_t ns = row_counts(&measured->rows[i]) ? row_value_ns(&measured->rows[i], watch->kind, watch->span) : -1;
        if (ns >= 0)
            values[count++] = ns;
        sum += ns >= 0 ? ns : 0;
    }
    stats_sort(values, count);
    if (count > 0 && watch->percentile_permille == WATCH_MEAN)
        *value = (int64_t)(sum / (int128)count);
    else if (count > 0)
        *value = stats_percentile(values, count, watch->percentile_permille);
    free(values);
    return count > 0;
}

/* As the reports have it: a percentile is the upper end of its bucket, the mean takes gaps at their middles. */
static bool token_gap(const struct measured *measured, const struct watch *watch, int64_t *value)
{
    uint64_t count = 0;
    uint128 sum = 0;
    for (uint32_t b = 0; b < ITL_BUCKETS; b++) {
        int64_t lower = b == 0 ? 0 : itl_bucket_upper_ns(b - 1) + 1;
        count += measured->itl[b];
        sum += (uint128)measured->itl[b] * (uint64_t)((lower + itl_bucket_upper_ns(b)) / 2);
    }
    if (count == 0)
        return false;
    if (watch->percentile_permille == WATCH_MEAN) {
        *value = (int64_t)(sum / count);
        return true;
    }
    uint64_t place = stats_place(count, watch->percentile_permille) + 1;
    uint32_t bucket = 0;
    for (uint64_t seen = measured->itl[0]; seen < place; seen += measured->itl[bucket])
        bucket++;
    *value = itl_bucket_upper_ns(bucket);
    return true;
}

bool measured_value(const struct measured *measured, const struct watch *watch, int64_t *value)
{
    switch (watch->kind) {
    case WATCH_ITL:
        return token_gap(measured, watch, value);
    case WATCH_COMPLETED:
        *value = (int64_t)measured->completed;
        return true;
    case WATCH_GOODPUT:
        if (measured->duration_ns > 0)
            *value =
                (int64_t)((uint128)measured->served * 1000000 * (uint64_t)NS_PER_S / (uint64_t)measured->duration_ns);
        return measured->duration_ns > 0;
    case WATCH_TTFT:
    case WATCH_TPOT:
    case WATCH_E2E:
    case WATCH_SPAN:
        break;
    }
    return latency(measured, watch, value);
}
