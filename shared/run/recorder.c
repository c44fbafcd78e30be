/* See recorder.h. */
#include "run/recorder.h"

#include "base/arith.h"
#include "host/memory.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define UNSTAMPED INT64_MIN

struct live {
    struct request_row row;
    uint32_t epoch; /* the newest seen */
    bool epoch_seen;
    bool dispatched;     /* in this attempt */
    int64_t wait_ns;     /* since when it waits at the decoder, or UNSTAMPED */
    bool wait_for_pages; /* else for a tail slot */
    uint32_t next_free;
};

struct recorder {
    struct recorder_config config;
    struct run_summary counts;
    struct live *live;
    uint32_t live_capacity;
    uint32_t live_used;
    uint32_t live_free;
    uint32_t live_count;
    uint32_t *table; /* by request modulo its size: index in `live`. No two live requests share a place */
    uint32_t table_size;
    struct recorder_node *nodes;
};

struct recorder *recorder_make(const struct recorder_config *config)
{
    struct recorder *recorder = memory_zeroed(1, sizeof *recorder);
    recorder->config = *config;
    recorder->live_free = NONE;
    recorder->table_size = 256;
    recorder->table = memory_get(recorder->table_size * sizeof *recorder->table);
    recorder->nodes = memory_zeroed(config->node_count, sizeof *recorder->nodes);
    memset(recorder->table, 0xff, recorder->table_size * sizeof *recorder->table);
    return recorder;
}

void recorder_free(struct recorder *recorder)
{
    if (recorder == NULL)
        return;
    free(recorder->live);
    free(recorder->table);
    free(recorder->nodes);
    free(recorder);
}

/* ---- Requests under way ----------------------------------------------------------------------------------------- */

static struct live *find(struct recorder *recorder, uint32_t request)
{
    uint32_t index = recorder->table[request & (recorder->table_size - 1)];
    if (index == NONE || recorder->live[index].row.request != request)
        return NULL;
    return &recorder->live[index];
}

/* Ids are dense, so the live ones collide only when they span more than the table: doubling it ends that. */
static void table_grow(struct recorder *recorder)
{
    uint32_t size = recorder->table_size * 2;
    CHECK(size != 0);
    uint32_t *table = memory_get(size * sizeof *table);
    memset(table, 0xff, size * sizeof *table);
    for (uint32_t i = 0; i < recorder->table_size; i++) {
        uint32_t index = recorder->table[i];
        if (index != NONE)
            table[recorder->live[index].row.request & (size - 1)] = index;
    }
    free(recorder->table);
    recorder->table = table;
    recorder->table_size = size;
}

static struct live *add(struct recorder *recorder, uint32_t request)
{
    CHECK(find(recorder, request) == NULL);
    while (recorder->table[request & (recorder->table_size - 1)] != NONE)
        table_grow(recorder);
    uint32_t index = recorder->live_free;
    if (index != NONE) {
        recorder->live_free = recorder->live[index].next_free;
    } else {
        if (recorder->live_used == recorder->live_capacity) {
            uint32_t capacity = recorder->live_capacity == 0 ? 64 : recorder->live_capacity * 2;
            struct live *grown = memory_resized(recorder->live, capacity * sizeof *grown);
            recorder->live = grown;
            recorder->live_capacity = capacity;
        }
        index = recorder->live_used++;
    }
    recorder->table[request & (recorder->table_size - 1)] = index;
    recorder->live_count++;
    struct live *live = &recorder->live[index];
    memset(live, 0, sizeof *live);
    live->row.request = request;
    live->wait_ns = UNSTAMPED;
    for (uint32_t i = 0; i < BOUNDARY_COUNT; i++)
        live->row.boundary_ns[i] = UNSTAMPED;
    return live;
}

static void drop(struct recorder *recorder, struct live *live)
{
    uint32_t index = (uint32_t)(live - recorder->live);
    recorder->table[live->row.request & (recorder->table_size - 1)] = NONE;
    live->row.request = NONE;
    live->next_free = recorder->live_free;
    recorder->live_free = index;
    recorder->live_count--;
}

/* ---- Boundaries ------------------------------------------------------------------------------------------------- */

static bool stamped(const struct live *live, enum boundary boundary)
{
    return live->row.boundary_ns[boundary] != UNSTAMPED;
}

static void take_back_after(struct live *live, enum boundary boundary)
{
    for (uint32_t i = (uint32_t)boundary + 1; i < BOUNDARY_COUNT; i++)
        live->row.boundary_ns[i] = UNSTAMPED;
}

/* After the first token the spans of TTFT stand: what a preempted request does to come back is part of its decode. */
static void stamp(struct live *live, enum boundary boundary, int64_t now_ns)
{
    if (stamped(live, BOUNDARY_FIRST_TOKEN))
        return;
    take_back_after(live, boundary);
    live->row.boundary_ns[boundary] = now_ns;
}

/* Epochs grow from attempt to attempt; a record of an older one comes late. What has none is of whoever the request is
 * with. */
static bool stale(struct live *live, uint64_t epoch)
{
    if (epoch == 0)
        return false;
    uint32_t epoch_low = (uint32_t)epoch;
    if (live->epoch_seen && (int32_t)(epoch_low - live->epoch) < 0)
        return true;
    live->epoch = epoch_low;
    live->epoch_seen = true;
    return false;
}

static void end_wait(struct recorder *recorder, struct live *live, int64_t now_ns)
{
    if (live->wait_ns == UNSTAMPED)
        return;
    struct recorder_node *node = &recorder->nodes[live->row.decoder];
    uint64_t waited_ns = (uint64_t)(now_ns - live->wait_ns);
    if (live->wait_for_pages)
        node->page_wait_ns += waited_ns;
    else
        node->handoff_wait_ns += waited_ns;
    live->wait_ns = UNSTAMPED;
}

static void fill_gaps(struct request_row *row)
{
    int64_t *at = row->boundary_ns;
    if (at[BOUNDARY_DISPATCHED] == UNSTAMPED && at[BOUNDARY_PREFILL_STARTED] == UNSTAMPED)
        at[BOUNDARY_DISPATCHED] = at[BOUNDARY_READY];
    for (uint32_t i = 1; i < BOUNDARY_FINISHED; i++)
        if (at[i] == UNSTAMPED)
            at[i] = at[i - 1];
}

int64_t row_ttft_ns(const struct request_row *row)
{
    return row->boundary_ns[BOUNDARY_FIRST_TOKEN] - row->boundary_ns[BOUNDARY_ARRIVED];
}

int64_t row_tpot_ns(const struct request_row *row)
{
    int64_t decode_ns = row->boundary_ns[BOUNDARY_FINISHED] - row->boundary_ns[BOUNDARY_FIRST_TOKEN];
    return row->output_tokens > 1 ? decode_ns / (int64_t)(row->output_tokens - 1) : 0;
}

int64_t row_e2e_ns(const struct request_row *row)
{
    return row->boundary_ns[BOUNDARY_FINISHED] - row->boundary_ns[BOUNDARY_ARRIVED];
}

bool row_meets(const struct request_row *row, const struct targets *targets)
{
    for (uint32_t i = 0; i < targets->count; i++) {
        const struct target *target = &targets->item[i];
        if (target->metric == TARGET_TTFT && row_ttft_ns(row) > target->limit_ns)
            return false;
        if (target->metric == TARGET_TPOT && row_tpot_ns(row) > target->limit_ns)
            return false;
        if (target->metric == TARGET_E2E && row_e2e_ns(row) > target->limit_ns)
            return false;
    }
    return true;
}

static void check_completed(const struct request_row *row)
{
    int64_t sum_ns = 0;
    for (uint32_t i = 0; i < SPAN_COUNT; i++) {
        int64_t span_ns = row->boundary_ns[i + 1] - row->boundary_ns[i];
        CHECK(span_ns >= 0);
        if (i < BOUNDARY_FIRST_TOKEN)
            sum_ns += span_ns;
    }
    CHECK(sum_ns == row_ttft_ns(row));
    CHECK(row->output_tokens >= 1);
}

/* ---- Ends ------------------------------------------------------------------------------------------------------- */

static void count_end(struct recorder *recorder, const struct request_row *row, bool met)
{
    struct run_summary *counts = &recorder->counts;
    counts->completed += row->outcome == OUTCOME_COMPLETED;
    counts->rejected += row->outcome == OUTCOME_REJECTED;
    counts->failed += row->outcome == OUTCOME_FAILED;
    counts->aborted += row->outcome == OUTCOME_ABORTED;
    if (row->warmup || row->outcome == OUTCOME_ABORTED)
        return;
    counts->counted++;
    counts->met_all_targets += met;
    if (row->outcome == OUTCOME_COMPLETED) {
        counts->prompt_tokens += row->prompt_tokens;
        counts->output_tokens += row->output_tokens;
    }
}

static void end(struct recorder *recorder, struct live *live, int64_t now_ns, enum outcome outcome, uint64_t reason)
{
    struct request_row *row = &live->row;
    end_wait(recorder, live, now_ns);
    row->outcome = (uint8_t)outcome;
    row->reason = (uint8_t)reason;
    row->boundary_ns[BOUNDARY_FINISHED] = now_ns;
    bool met = false;
    if (outcome == OUTCOME_COMPLETED) {
        CHECK(stamped(live, BOUNDARY_FIRST_TOKEN));
        fill_gaps(row);
        check_completed(row);
        met = row_meets(row, &recorder->config.targets);
    }
    count_end(recorder, row, met);
    recorder->nodes[row->decoder].requests++;
    if (row->prefiller != row->decoder)
        recorder->nodes[row->prefiller].requests++;
    if (recorder->config.sink.row != NULL)
        recorder->config.sink.row(recorder->config.sink.self, row, met);
    drop(recorder, live);
}

/* ---- Records ---------------------------------------------------------------------------------------------------- */

static void arrived(struct recorder *recorder, int64_t now_ns, const struct trace_record *record)
{
    struct live *live = add(recorder, record->request);
    live->row.prompt_tokens = (uint32_t)record->a;
    live->row.output_tokens = (uint32_t)record->b;
    live->row.warmup = now_ns < recorder->config.warmup_ns || record->request < recorder->config.warmup_requests;
    live->row.decoder = record->node;
    live->row.prefiller = record->node;
    live->row.boundary_ns[BOUNDARY_ARRIVED] = now_ns;
    recorder->counts.arrived++;
}

/* What a decoder waits for, if it waits: pages are short, or only a tail slot is. */
static void waits(struct recorder *recorder, struct live *live, int64_t now_ns, const struct trace_record *record)
{
    end_wait(recorder, live, now_ns);
    live->wait_ns = now_ns;
    live->wait_for_pages = record->a > record->b;
}

static void preempted(struct recorder *recorder, struct live *live, const struct trace_record *record)
{
    if (live->row.preemptions < UINT8_MAX)
        live->row.preemptions++;
    recorder->nodes[record->node].preemptions++;
    if (!stamped(live, BOUNDARY_FIRST_TOKEN))
        take_back_after(live, BOUNDARY_RECEIVED);
}

static void prefill_record(struct live *live, int64_t now_ns, const struct trace_record *record)
{
    if (stale(live, record->a))
        return;
    if (record->kind == TRACE_PREFILL_STARTED) {
        if (!stamped(live, BOUNDARY_FIRST_TOKEN))
            live->row.cached_tokens = (uint32_t)record->b;
        stamp(live, BOUNDARY_PREFILL_STARTED, now_ns);
    } else if (!stamped(live, BOUNDARY_READY)) {
        stamp(live, BOUNDARY_PREFILL_FINISHED, now_ns);
    }
}

static void ready(struct live *live, int64_t now_ns, const struct trace_record *record)
{
    if (stale(live, record->a))
        return;
    if (stamped(live, BOUNDARY_PREFILL_STARTED) && !stamped(live, BOUNDARY_PREFILL_FINISHED))
        stamp(live, BOUNDARY_PREFILL_FINISHED, now_ns);
    stamp(live, BOUNDARY_READY, now_ns);
}

static void life_record(struct recorder *recorder, struct live *live, int64_t now_ns, const struct trace_record *record)
{
    switch (record->kind) {
    case TRACE_RECEIVED:
        end_wait(recorder, live, now_ns);
        live->row.decoder = record->node;
        live->row.attempts = (uint8_t)min_u64(record->a + 1, UINT8_MAX); /* attempts count from 0 */
        stamp(live, BOUNDARY_RECEIVED, now_ns);
        break;
    case TRACE_DISPATCHED:
        end_wait(recorder, live, now_ns);
        live->row.prefiller = (uint16_t)record->a;
        stamp(live, BOUNDARY_DISPATCHED, now_ns);
        break;
    case TRACE_PREFILL_STARTED:
    case TRACE_PREFILL_FINISHED:
        prefill_record(live, now_ns, record);
        break;
    case TRACE_READY:
        end_wait(recorder, live, now_ns);
        ready(live, now_ns, record);
        break;
    case TRACE_DECODE_STARTED:
        end_wait(recorder, live, now_ns);
        stamp(live, BOUNDARY_DECODE_STARTED, now_ns);
        break;
    case TRACE_FIRST_TOKEN:
        stamp(live, BOUNDARY_FIRST_TOKEN, now_ns);
        break;
    case TRACE_ROUTED:
        live->row.decoder = (uint16_t)record->a;
        live->row.prefiller = (uint16_t)record->b;
        break;
    case TRACE_PREEMPTED:
        preempted(recorder, live, record);
        break;
    case TRACE_ADMIT_WAIT:
        waits(recorder, live, now_ns, record);
        break;
    case TRACE_FINISHED:
        live->row.output_tokens = (uint32_t)record->a;
        end(recorder, live, now_ns, OUTCOME_COMPLETED, 0);
        break;
    case TRACE_REJECTED:
        end(recorder, live, now_ns, OUTCOME_REJECTED, record->a);
        break;
    case TRACE_FAILED:
        end(recorder, live, now_ns, OUTCOME_FAILED, record->a);
        break;
    case TRACE_ABORTED:
        end(recorder, live, now_ns, OUTCOME_ABORTED, record->a);
        break;
    default:
        break;
    }
}

void recorder_trace(struct recorder *recorder, int64_t now_ns, const struct trace_record *record)
{
    if (record->request == TRACE_NO_REQUEST || record->kind > TRACE_ADMIT_WAIT)
        return;
    /* A second request with the id of a live one is turned away; what the records say is then about the first. */
    if (record->kind == TRACE_REJECTED && record->a == REJECT_DUPLICATE)
        return;
    struct live *live = find(recorder, record->request);
    /* Clean-up is traced after the end, by nodes that hear of it later. */
    if (live == NULL && record->kind == TRACE_ARRIVED)
        arrived(recorder, now_ns, record);
    else if (live != NULL)
        life_record(recorder, live, now_ns, record);
}

uint32_t recorder_live(const struct recorder *recorder)
{
    return recorder->live_count;
}

void recorder_summary(const struct recorder *recorder, struct run_summary *summary)
{
    const struct run_summary *counts = &recorder->counts;
    CHECK(counts->arrived ==
          recorder->live_count + counts->completed + counts->rejected + counts->failed + counts->aborted);
    summary->arrived = counts->arrived;
    summary->completed = counts->completed;
    summary->rejected = counts->rejected;
    summary->failed = counts->failed;
    summary->aborted = counts->aborted;
    summary->met_all_targets = counts->met_all_targets;
    summary->counted = counts->counted;
    summary->prompt_tokens = counts->prompt_tokens;
    summary->output_tokens = counts->output_tokens;
}

const struct recorder_node *recorder_node(const struct recorder *recorder, uint32_t node)
{
    CHECK(node < recorder->config.node_count);
    return &recorder->nodes[node];
}
