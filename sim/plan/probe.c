/* See probe.h. */
#include "sim/plan/probe.h"

#include "base/arith.h"
#include "run/recorder.h"

#include <stdio.h>
#include <stdlib.h>

#define WARMUP_SHARE 10 /* a tenth of the time */

/* ---- Load -------------------------------------------------------------------------------------------------------- */

struct trace_rows probe_trace_rows(const struct load *load, const struct trace_file *recorded)
{
    int64_t start_ns = load->trace_window_start_ns;
    int64_t end_ns = load->trace_window_ns == 0 ? TIME_NEVER : start_ns + load->trace_window_ns;
    struct trace_rows rows = {0, 0};
    while (rows.first < recorded->count && recorded->arrival_ns[rows.first] < start_ns)
        rows.first++;
    while (rows.first + rows.count < recorded->count && recorded->arrival_ns[rows.first + rows.count] < end_ns)
        rows.count++;
    return rows;
}

/* The mean rate within a window of a trace whose arrivals are spaced so that all of the trace has `rate`. */
static uint64_t paced_rate(uint64_t rate, uint32_t count, int64_t span_ns, uint32_t all, int64_t all_span_ns)
{
    uint128 paced = (uint128)rate * count * (uint64_t)max_i64(1, all_span_ns) / max_u32(1, all);
    paced /= (uint64_t)max_i64(1, span_ns);
    return paced > UINT64_MAX ? UINT64_MAX : max_u64(1, (uint64_t)paced);
}

static void cut_trace(const struct probe_input *input, struct load *load)
{
    const struct trace_file *trace = input->recorded;
    struct trace_rows rows = probe_trace_rows(load, trace);
    uint32_t length = max_u32(1, min_u32(input->requests, rows.count));
    uint32_t spare = rows.count - min_u32(length, rows.count);
    uint32_t windows = max_u32(2, input->seeds);
    uint32_t first = rows.first + (uint32_t)((uint64_t)spare * ((input->seed - 1) % windows) / (windows - 1));
    load->trace_window_start_ns = trace->arrival_ns[first];
    load->trace_window_ns = trace->arrival_ns[first + length - 1] - trace->arrival_ns[first] + 1;
    load->trace_repeat = 1;
    load->rate_micro_per_s =
        paced_rate(input->rate_micro_per_s, length, load->trace_window_ns, rows.count,
                   trace->arrival_ns[rows.first + rows.count - 1] - trace->arrival_ns[rows.first] + 1);
}

struct load probe_load(const struct probe_input *input)
{
    struct load load = input->scenario->load;
    load.rate_micro_per_s = input->rate_micro_per_s;
    load.requests = input->requests;
    load.duration_ns = 0;
    if (load.arrivals == ARRIVAL_TRACE)
        cut_trace(input, &load);
    uint64_t span_ns = mul_div_ceil_u64((uint64_t)input->requests * 1000000, (uint64_t)NS_PER_S, load.rate_micro_per_s);
    load.warmup_ns = (int64_t)(span_ns / WARMUP_SHARE);
    return load;
}

/* ---- Watching the rows ------------------------------------------------------------------------------------------- */

struct watch {
    const struct targets *targets;
    struct probe *probe;
    uint64_t misses_allowed[SCENARIO_TARGETS_MAX + 1]; /* the last: of all targets at once */
    bool stop_early;
    uint32_t capacity;
    uint32_t count;
    int64_t *ttft_ns;
    int64_t *tpot_ns;
    int64_t *e2e_ns;
    uint32_t tpot_count;
    int128 span_sum_ns[SPAN_COUNT];
    /* Completions of the whole run: the first of the middle eight tenths and its last so far. */
    uint64_t ended;
    int64_t middle_from_ns;
    int64_t middle_until_ns;
};

static uint64_t middle_first(const struct watch *watch)
{
    return watch->capacity / 10 + 1;
}

static uint64_t middle_last(const struct watch *watch)
{
    return watch->capacity - watch->capacity / 10;
}

static void watch_completions(struct watch *watch, const struct request_row *row)
{
    if (row->outcome != OUTCOME_COMPLETED)
        return;
    watch->ended++;
    if (watch->ended == middle_first(watch))
        watch->middle_from_ns = row->boundary_ns[BOUNDARY_FINISHED];
    if (watch->ended <= middle_last(watch))
        watch->middle_until_ns = row->boundary_ns[BOUNDARY_FINISHED];
}

static int64_t metric_of(const struct request_row *row, enum target_metric metric)
{
    switch (metric) {
    case TARGET_TTFT:
        return row_ttft_ns(row);
    case TARGET_TPOT:
        return row_tpot_ns(row);
    case TARGET_E2E:
        return row_e2e_ns(row);
    case TARGET_ITL: /* of tokens, not of requests: judged on the histogram when the run is over */
        break;
    }
    return 0;
}

static bool hopeless(const struct watch *watch)
{
    const struct probe *probe = watch->probe;
    for (uint32_t t = 0; t < watch->targets->count; t++)
        if (probe->missed[t] > watch->misses_allowed[t])
            return true;
    return watch->targets->attainment_permille > 0 &&
           probe->counted - probe->met_all > watch->misses_allowed[SCENARIO_TARGETS_MAX];
}

static bool on_row(void *self, const struct request_row *row, bool met_all)
{
    struct watch *watch = self;
    struct probe *probe = watch->probe;
    watch_completions(watch, row);
    if (row->warmup || row->outcome == OUTCOME_ABORTED)
        return true;
    probe->counted++;
    probe->met_all += met_all && row->outcome == OUTCOME_COMPLETED;
    bool completed = row->outcome == OUTCOME_COMPLETED;
    for (uint32_t t = 0; t < watch->targets->count; t++) {
        const struct target *target = &watch->targets->item[t];
        probe->missed[t] += !completed || metric_of(row, target->metric) > target->limit_ns;
    }
    if (!completed) {
        probe->unserved++;
    } else {
        CHECK(watch->count < watch->capacity);
        probe->completed++;
        watch->ttft_ns[watch->count] = row_ttft_ns(row);
        watch->e2e_ns[watch->count] = row_e2e_ns(row);
        watch->count++;
        if (row->output_tokens > 1)
            watch->tpot_ns[watch->tpot_count++] = row_tpot_ns(row);
        for (uint32_t s = 0; s < SPAN_COUNT; s++)
            watch->span_sum_ns[s] += row->boundary_ns[s + 1] - row->boundary_ns[s];
    }
    return !(watch->stop_early && hopeless(watch));
}

static int by_value(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left;
    int64_t b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

/* Nearest rank: the smallest value that at least `permille` of all do not exceed. */
static int64_t percentile(const int64_t *sorted, uint32_t count, uint32_t permille)
{
    if (count == 0)
        return 0;
    uint32_t rank = (uint32_t)(((uint64_t)count * permille + 999) / 1000);
    return sorted[max_u32(rank, 1) - 1];
}

static int64_t itl_percentile(const uint64_t *itl, uint32_t permille)
{
    uint64_t total = 0;
    for (uint32_t b = 0; b < ITL_BUCKETS; b++)
        total += itl[b];
    uint64_t rank = max_u64(1, (total * permille + 999) / 1000);
    uint64_t seen = 0;
    for (uint32_t b = 0; b < ITL_BUCKETS; b++) {
        seen += itl[b];
        if (seen >= rank)
            return itl_bucket_upper_ns(b);
    }
    return 0;
}

static void sum_up_latencies(struct watch *watch, const struct run_result *result)
{
    static const uint32_t permille[PROBE_PERCENTILES] = {500, 900, 950, 990};
    struct probe *probe = watch->probe;
    qsort(watch->ttft_ns, watch->count, sizeof *watch->ttft_ns, by_value);
    qsort(watch->tpot_ns, watch->tpot_count, sizeof *watch->tpot_ns, by_value);
    qsort(watch->e2e_ns, watch->count, sizeof *watch->e2e_ns, by_value);
    for (uint32_t p = 0; p < PROBE_PERCENTILES; p++) {
        probe->ttft_ns[p] = percentile(watch->ttft_ns, watch->count, permille[p]);
        probe->tpot_ns[p] = percentile(watch->tpot_ns, watch->tpot_count, permille[p]);
    }
    for (uint32_t s = 0; s < SPAN_COUNT && watch->count > 0; s++)
        probe->span_ns[s] = (int64_t)(watch->span_sum_ns[s] / watch->count);
    for (uint32_t t = 0; t < watch->targets->count; t++) {
        const struct target *target = &watch->targets->item[t];
        int64_t *value = &probe->target_ns[t];
        if (target->metric == TARGET_TTFT)
            *value = percentile(watch->ttft_ns, watch->count, target->percentile_permille);
        else if (target->metric == TARGET_TPOT)
            *value = percentile(watch->tpot_ns, watch->tpot_count, target->percentile_permille);
        else if (target->metric == TARGET_E2E)
            *value = percentile(watch->e2e_ns, watch->count, target->percentile_permille);
        else
            *value = itl_percentile(result->itl, target->percentile_permille);
    }
}

/* ---- The rest ---------------------------------------------------------------------------------------------------- */

static uint32_t permille_of(int64_t part, int64_t whole)
{
    return whole <= 0 ? 0 : (uint32_t)mul_div_floor_u64((uint64_t)part, 1000, (uint64_t)whole);
}

/* The thread that posts is part of the NICs it feeds: where it is busier than they are, writes are what is scarce. */
static void sum_up_nic(struct probe *probe, const struct instance_summary *instance, int64_t duration_ns)
{
    int64_t nic_ns = max_i64(instance->nic_transmit_busy_ns, instance->nic_receive_busy_ns);
    bool posting = instance->posting_busy_ns > nic_ns;
    int64_t busy_ns = posting ? instance->posting_busy_ns : nic_ns;
    if (permille_of(busy_ns, duration_ns) < probe->nic_busy)
        return;
    probe->nic_busy = permille_of(busy_ns, duration_ns);
    probe->nic_op_bound = posting ? 1000 : permille_of(instance->nic_op_bound_ns, nic_ns);
}

static void sum_up_instances(struct probe *probe, const struct run_result *result)
{
    int64_t duration_ns = result->summary.end_ns; /* of the whole run: busy times include the warm-up */
    uint64_t pages = 0;
    uint64_t handoff = 0;
    uint64_t preemptions = 0;
    int64_t busiest_ns = -1;
    for (uint32_t i = 0; i < result->instance_count; i++) {
        const struct instance_summary *s = &result->instances[i];
        uint32_t busy = permille_of(s->busy_ns, duration_ns);
        pages += s->page_wait_ns;
        preemptions += s->preemptions;
        handoff += s->handoff_wait_ns;
        sum_up_nic(probe, s, duration_ns);
        if (s->role != ROLE_DECODE)
            probe->prefill_busy = max_u32(probe->prefill_busy, busy);
        if (s->role == ROLE_PREFILL)
            continue;
        probe->decode_busy = max_u32(probe->decode_busy, busy);
        probe->kv_peak = max_u32(probe->kv_peak, permille_of((int64_t)s->pages_held_peak, (int64_t)s->pages_total));
        if (s->busy_ns > busiest_ns) {
            busiest_ns = s->busy_ns;
            probe->decode_compute = permille_of(s->compute_bound_ns, s->busy_ns);
            probe->decode_bandwidth = permille_of(s->bandwidth_bound_ns, s->busy_ns);
            probe->decode_communication = permille_of(s->communication_bound_ns, s->busy_ns);
            probe->decode_overhead = permille_of(s->overhead_bound_ns, s->busy_ns);
        }
    }
    uint64_t ended = max_u64(1, result->summary.completed);
    probe->page_wait_ns = (int64_t)(pages / ended);
    probe->handoff_wait_ns = (int64_t)(handoff / ended);
    probe->preempted = (uint32_t)min_u64(UINT32_MAX, preemptions * 1000 / ended);
}

static bool judge(const struct probe *probe, const struct targets *targets)
{
    for (uint32_t t = 0; t < targets->count; t++) {
        const struct target *target = &targets->item[t];
        /* Of token gaps the percentile decides; requests that were not served miss it all the same. */
        if (target->metric == TARGET_ITL && probe->target_ns[t] > target->limit_ns)
            return false;
        if (probe->missed[t] * 1000 > probe->counted * (1000 - target->percentile_permille))
            return false;
    }
    return probe->counted > 0 && probe->met_all * 1000 >= probe->counted * targets->attainment_permille &&
           (targets->count > 0 || probe->unserved == 0);
}

static bool watch_make(struct watch *watch, const struct probe_input *input, struct probe *probe)
{
    const struct targets *targets = &input->scenario->targets;
    *watch = (struct watch){
        .targets = targets, .probe = probe, .stop_early = input->stop_early, .capacity = input->requests};
    for (uint32_t t = 0; t < targets->count; t++)
        watch->misses_allowed[t] = (uint64_t)input->requests * (1000 - targets->item[t].percentile_permille) / 1000;
    watch->misses_allowed[SCENARIO_TARGETS_MAX] =
        (uint64_t)input->requests * (1000 - targets->attainment_permille) / 1000;
    watch->ttft_ns = calloc(input->requests, sizeof *watch->ttft_ns);
    watch->tpot_ns = calloc(input->requests, sizeof *watch->tpot_ns);
    watch->e2e_ns = calloc(input->requests, sizeof *watch->e2e_ns);
    return watch->ttft_ns != NULL && watch->tpot_ns != NULL && watch->e2e_ns != NULL;
}

static void watch_free(struct watch *watch)
{
    free(watch->ttft_ns);
    free(watch->tpot_ns);
    free(watch->e2e_ns);
}

bool probe_run(const struct probe_input *input, struct probe *probe, enum run_status *status, char *error,
               size_t error_size)
{
    *probe = (struct probe){.rate_micro_per_s = input->rate_micro_per_s, .seed = input->seed};
    struct load load = probe_load(input);
    struct watch watch;
    CHECK(watch_make(&watch, input, probe));
    struct scaled_device scaled[SCENARIO_POOLS_MAX];
    struct device devices[SCENARIO_POOLS_MAX];
    for (uint32_t p = 0; input->scale != NULL && p < input->models->pool_count; p++) {
        scaled[p] = (struct scaled_device){.under = device_of(input->models->pool[p]), .scale = *input->scale};
        devices[p] = scaled_device_of(&scaled[p]);
    }
    struct run_config config = {
        .scenario = input->scenario,
        .choice = input->choice,
        .seed = input->seed,
        .load = &load,
        .recorded = input->recorded,
        .options = &(struct sim_options){.models = input->models, .devices = input->scale != NULL ? devices : NULL},
        .listener = {.self = &watch, .row = on_row},
    };
    struct run_result result;
    run_play(&sim_backend, &config, &result);
    *status = result.status;
    bool usable = result.status == RUN_COMPLETE || result.status == RUN_STOPPED;
    if (usable) {
        probe->complete = result.status == RUN_COMPLETE;
        probe->trace_hash = result.summary.trace_hash;
        int64_t duration_ns = result.summary.end_ns - result.summary.start_ns;
        int64_t middle_ns = watch.middle_until_ns - watch.middle_from_ns;
        if (watch.ended >= middle_first(&watch) && middle_ns > 0) {
            uint64_t completed = min_u64(watch.ended, middle_last(&watch)) - middle_first(&watch);
            probe->completed_micro_per_s =
                mul_div_floor_u64(completed * 1000000, (uint64_t)NS_PER_S, (uint64_t)middle_ns);
        }
        if (duration_ns > 0) {
            probe->output_tokens_per_s =
                mul_div_floor_u64(result.summary.output_tokens, (uint64_t)NS_PER_S, (uint64_t)duration_ns);
        }
        sum_up_latencies(&watch, &result);
        sum_up_instances(probe, &result);
        probe->passed = probe->complete && judge(probe, &input->scenario->targets);
    } else {
        snprintf(error, error_size, "%s", result.text);
    }
    watch_free(&watch);
    run_result_free(&result);
    return usable;
}

/* ---- Storage ----------------------------------------------------------------------------------------------------- */

/* Every field by name, so that what is written is what is read. */
#define PROBE_SCALARS(X)                                                                                               \
    X(rate_micro_per_s, uint64_t)                                                                                      \
    X(seed, uint64_t)                                                                                                  \
    X(complete, bool)                                                                                                  \
    X(passed, bool)                                                                                                    \
    X(counted, uint64_t)                                                                                               \
    X(completed, uint64_t)                                                                                             \
    X(unserved, uint64_t)                                                                                              \
    X(met_all, uint64_t)                                                                                               \
    X(completed_micro_per_s, uint64_t)                                                                                 \
    X(output_tokens_per_s, uint64_t)                                                                                   \
    X(page_wait_ns, int64_t)                                                                                           \
    X(handoff_wait_ns, int64_t)                                                                                        \
    X(prefill_busy, uint32_t)                                                                                          \
    X(decode_busy, uint32_t)                                                                                           \
    X(decode_compute, uint32_t)                                                                                        \
    X(decode_bandwidth, uint32_t)                                                                                      \
    X(decode_communication, uint32_t)                                                                                  \
    X(decode_overhead, uint32_t)                                                                                       \
    X(nic_busy, uint32_t)                                                                                              \
    X(nic_op_bound, uint32_t)                                                                                          \
    X(kv_peak, uint32_t)                                                                                               \
    X(preempted, uint32_t)

#define PROBE_ARRAYS(X)                                                                                                \
    X(missed, uint64_t)                                                                                                \
    X(target_ns, int64_t)                                                                                              \
    X(ttft_ns, int64_t)                                                                                                \
    X(tpot_ns, int64_t)                                                                                                \
    X(span_ns, int64_t)

json_t *probe_json(const struct probe *probe)
{
    json_t *json = json_object();
#define PUT(name, type) json_object_set_new(json, #name, json_integer((json_int_t)probe->name));
#define PUT_ARRAY(name, type)                                                                                          \
    {                                                                                                                  \
        json_t *array = json_array();                                                                                  \
        for (size_t i = 0; i < sizeof probe->name / sizeof probe->name[0]; i++)                                        \
            json_array_append_new(array, json_integer((json_int_t)probe->name[i]));                                    \
        json_object_set_new(json, #name, array);                                                                       \
    }
    PROBE_SCALARS(PUT)
    PROBE_ARRAYS(PUT_ARRAY)
#undef PUT
#undef PUT_ARRAY
    char hash[24];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)probe->trace_hash);
    json_object_set_new(json, "trace_hash", json_string(hash));
    return json;
}

bool probe_from_json(const json_t *json, struct probe *probe)
{
    *probe = (struct probe){.rate_micro_per_s = 0};
    bool whole = true;
#define GET(name, type)                                                                                                \
    {                                                                                                                  \
        const json_t *value = json_object_get(json, #name);                                                            \
        whole = whole && json_is_integer(value);                                                                       \
        probe->name = (type)json_integer_value(value);                                                                 \
    }
#define GET_ARRAY(name, type)                                                                                          \
    {                                                                                                                  \
        const json_t *array = json_object_get(json, #name);                                                            \
        size_t count = sizeof probe->name / sizeof probe->name[0];                                                     \
        whole = whole && json_array_size(array) == count;                                                              \
        for (size_t i = 0; whole && i < count; i++)                                                                    \
            probe->name[i] = (type)json_integer_value(json_array_get(array, i));                                       \
    }
    PROBE_SCALARS(GET)
    PROBE_ARRAYS(GET_ARRAY)
#undef GET
#undef GET_ARRAY
    const char *hash = json_string_value(json_object_get(json, "trace_hash"));
    whole = whole && hash != NULL;
    if (whole)
        probe->trace_hash = strtoull(hash, NULL, 16);
    return whole;
}
