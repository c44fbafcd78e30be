/* See measurement.h. */
#include "run/compare/measurement.h"

#include "base/arith.h"
#include "host/input.h"
#include "host/python_json.h"
#include "host/stats.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX (UINT64_C(2) << 30)
#define SECOND 1e9
#define MILLISECOND 1e6

enum latency { TTFT, TPOT, ITL, E2E, LATENCIES };

struct reading {
    struct measurement *measurement;
    struct user_error *error;
    int line;                              /* of the document being read */
    struct stats_values values[LATENCIES]; /* of requests, where the file has them */
    uint64_t documents;
    uint64_t requests; /* of those that stand one by one */
    uint64_t failed;
    uint64_t aborted;
    uint64_t warmup;
    uint64_t prompt_tokens;
    uint64_t output_tokens;
    int64_t first_ns;
    int64_t last_ns;
};

static bool wrong(struct reading *reading, const char *key, const char *expected)
{
    user_error_set(reading->error, reading->measurement->file, reading->line, key, "expected %s", expected);
    return false;
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* Of the object's key in units of `each_ns`; -1 where it is missing or null. */
static bool read_ns(struct reading *reading, const json_t *object, const char *key, double each_ns, int64_t *ns)
{
    const json_t *value = json_object_get(object, key);
    double number = json_number_value(value) * each_ns;
    *ns = -1;
    if (value == NULL || json_is_null(value))
        return true;
    if (!json_is_number(value) || !(number >= 0 && number < 9e18))
        return wrong(reading, key, "a time of 0 or more");
    *ns = (int64_t)llround(number);
    return true;
}

/* COUNT_UNKNOWN where it is missing or null. */
static bool read_count(struct reading *reading, const json_t *object, const char *key, double scale, uint64_t *count)
{
    const json_t *value = json_object_get(object, key);
    double number = json_number_value(value) * scale;
    *count = COUNT_UNKNOWN;
    if (value == NULL || json_is_null(value))
        return true;
    if (!json_is_number(value) || !(number >= 0 && number < 9e18))
        return wrong(reading, key, "a number of 0 or more");
    *count = (uint64_t)llround(number);
    return true;
}

/* Nanoseconds of a unit of time; 0: it is none. */
static double unit_ns(const json_t *unit)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"ns", 1},           {"nanoseconds", 1},
                 {"us", 1e3},         {"microseconds", 1e3},
                 {"ms", MILLISECOND}, {"milliseconds", MILLISECOND},
                 {"s", SECOND},       {"sec", SECOND},
                 {"seconds", SECOND}};
    for (size_t k = 0; json_is_string(unit) && k < sizeof units / sizeof *units; k++)
        if (strcmp(json_string_value(unit), units[k].name) == 0)
            return units[k].ns;
    return 0;
}

static struct metric_summary *latency_of(struct measurement *measurement, enum latency latency)
{
    struct metric_summary *const all[LATENCIES] = {&measurement->report.ttft, &measurement->report.tpot,
                                                   &measurement->report.itl, &measurement->report.e2e};
    return all[latency];
}

static const struct metric_summary unknown = {
    .count = 0, .mean_ns = -1, .p50_ns = -1, .p90_ns = -1, .p95_ns = -1, .p99_ns = -1, .max_ns = -1};

/* Of what was noted request by request, in place of what the tool says. */
static void summarize(struct reading *reading)
{
    for (int k = 0; k < LATENCIES; k++) {
        struct stats_values *values = &reading->values[k];
        int128 sum = 0;
        if (values->count == 0)
            continue;
        stats_sort(values->items, values->count);
        for (size_t i = 0; i < values->count; i++)
            sum += values->items[i];
        *latency_of(reading->measurement, (enum latency)k) =
            (struct metric_summary){.count = values->count,
                                    .mean_ns = (int64_t)(sum / (int128)values->count),
                                    .p50_ns = stats_percentile(values->items, values->count, 500),
                                    .p90_ns = stats_percentile(values->items, values->count, 900),
                                    .p95_ns = stats_percentile(values->items, values->count, 950),
                                    .p99_ns = stats_percentile(values->items, values->count, 990),
                                    .max_ns = values->items[values->count - 1]};
    }
}

/* ---- vLLM and SGLang --------------------------------------------------------------------------------------------- */

/* What is printed of one latency: mean_ttft_ms, median_ttft_ms, p99_ttft_ms ... */
static bool read_printed(struct reading *reading, const json_t *result, enum latency latency, const char *name)
{
    struct metric_summary found = unknown;
    const struct {
        const char *statistic;
        int64_t *ns;
    } statistics[] = {{"mean", &found.mean_ns}, {"median", &found.p50_ns}, {"p50", &found.p50_ns},
                      {"p90", &found.p90_ns},   {"p95", &found.p95_ns},    {"p99", &found.p99_ns},
                      {"max", &found.max_ns}};
    for (size_t k = 0; k < sizeof statistics / sizeof *statistics; k++) {
        char key[64];
        int64_t ns;
        snprintf(key, sizeof key, "%s_%s_ms", statistics[k].statistic, name);
        if (!read_ns(reading, result, key, MILLISECOND, &ns))
            return false;
        if (ns >= 0) {
            *statistics[k].ns = ns;
            found.count = 1;
        }
    }
    if (found.count > 0)
        *latency_of(reading->measurement, latency) = found;
    return true;
}

/* Arrays of as many items as there are requests. NULL: the file does not have it. */
static bool read_array(struct reading *reading, const json_t *result, const char *key, size_t count,
                       const json_t **array)
{
    *array = json_object_get(result, key);
    if (*array == NULL || json_is_null(*array)) {
        *array = NULL;
        return true;
    }
    if (!json_is_array(*array) || (count > 0 && json_array_size(*array) != count))
        return wrong(reading, key, "an array with an item for every request");
    return true;
}

/* Every request: seconds to the first token, and of the gaps after it. One that failed has an error, and zeros. */
static bool read_detailed(struct reading *reading, const json_t *result)
{
    const json_t *ttfts, *itls, *outputs, *errors;
    if (!read_array(reading, result, "ttfts", 0, &ttfts) || ttfts == NULL)
        return !reading->error->set;
    size_t count = json_array_size(ttfts);
    if (!read_array(reading, result, "itls", count, &itls) ||
        !read_array(reading, result, "output_lens", count, &outputs) ||
        !read_array(reading, result, "errors", count, &errors))
        return false;
    for (size_t i = 0; i < count; i++) {
        const json_t *gaps = json_array_get(itls, i);
        const char *said = json_string_value(json_array_get(errors, i));
        double ttft = json_number_value(json_array_get(ttfts, i));
        double after = 0;
        json_int_t tokens = json_integer_value(json_array_get(outputs, i));
        if (!json_is_number(json_array_get(ttfts, i)) || ttft < 0 || ttft > 1e9)
            return wrong(reading, "ttfts", "seconds");
        reading->requests++;
        if ((said != NULL && *said != '\0') || (ttft <= 0 && json_array_size(gaps) == 0)) {
            reading->failed++;
            continue;
        }
        for (size_t g = 0; g < json_array_size(gaps); g++) {
            double gap = json_number_value(json_array_get(gaps, g));
            if (!json_is_number(json_array_get(gaps, g)) || gap < 0 || gap > 1e9)
                return wrong(reading, "itls", "seconds");
            stats_add(&reading->values[ITL], (int64_t)llround(gap * SECOND));
            after += gap;
        }
        stats_add(&reading->values[TTFT], (int64_t)llround(ttft * SECOND));
        stats_add(&reading->values[E2E], (int64_t)llround((ttft + after) * SECOND));
        if (tokens > 1)
            stats_add(&reading->values[TPOT], (int64_t)llround(after / (double)(tokens - 1) * SECOND));
    }
    return true;
}

static bool read_bench(struct reading *reading, const json_t *result)
{
    struct measurement *m = reading->measurement;
    struct run_report *report = &m->report;
    uint64_t asked;
    bool sglang = json_object_get(result, "mean_e2e_latency_ms") != NULL ||
                  json_object_get(result, "total_output_tokens_retokenized") != NULL ||
                  json_object_get(result, "server_info") != NULL;
    m->tool = sglang ? "sglang.bench_serving" : "vllm bench serve";
    m->results++;
    if (!read_count(reading, result, "completed", 1, &report->completed) ||
        !read_count(reading, result, "failed", 1, &report->failed) ||
        !read_count(reading, result, "num_prompts", 1, &asked) ||
        !read_count(reading, result, "total_input_tokens", 1, &report->prompt_tokens) ||
        !read_count(reading, result, "total_output_tokens", 1, &report->output_tokens) ||
        !read_count(reading, result, "request_throughput", 1e6, &m->requests_micro_per_s) ||
        !read_count(reading, result, "output_throughput", 1e6, &m->output_tokens_micro_per_s) ||
        !read_ns(reading, result, "duration", SECOND, &report->duration_ns) ||
        !read_printed(reading, result, TTFT, "ttft") || !read_printed(reading, result, TPOT, "tpot") ||
        !read_printed(reading, result, ITL, "itl") || !read_printed(reading, result, E2E, "e2el") ||
        !read_printed(reading, result, E2E, "e2e_latency") || !read_detailed(reading, result))
        return false;
    if (reading->requests > 0) {
        asked = reading->requests;
        report->failed = reading->failed;
    }
    if (report->completed != COUNT_UNKNOWN && report->failed != COUNT_UNKNOWN)
        asked = report->completed + report->failed;
    else if (asked != COUNT_UNKNOWN && report->completed != COUNT_UNKNOWN && asked >= report->completed)
        report->failed = asked - report->completed;
    report->requests = asked;
    return true;
}

/* ---- AIPerf and GenAI-Perf --------------------------------------------------------------------------------------- */

/* {"value": 5.0, "unit": "ms"}, or an array of values. */
static bool note_metric(struct reading *reading, const json_t *metrics, const char *name, enum latency latency)
{
    const json_t *metric = json_object_get(metrics, name);
    const json_t *value = json_object_get(metric, "value");
    double each_ns = unit_ns(json_object_get(metric, "unit"));
    if (metric == NULL)
        return true;
    if (each_ns <= 0 || value == NULL)
        return wrong(reading, name, "{\"value\": number or array, \"unit\": \"ns\", \"us\", \"ms\" or \"s\"}");
    for (size_t i = 0; i < (json_is_array(value) ? json_array_size(value) : 1); i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
        double ns = json_number_value(one) * each_ns;
        if (!json_is_number(one) || !(ns >= 0 && ns < 9e18))
            return wrong(reading, name, "times of 0 or more");
        stats_add(&reading->values[latency], (int64_t)llround(ns));
    }
    return true;
}

static uint64_t tokens_of(const json_t *metrics, const char *name)
{
    double tokens = json_number_value(json_object_get(json_object_get(metrics, name), "value"));
    return tokens > 0 && tokens < 1e12 ? (uint64_t)llround(tokens) : 0;
}

static void note_time(struct reading *reading, int64_t from_ns, int64_t to_ns)
{
    reading->first_ns = reading->requests == 1 ? from_ns : min_i64(reading->first_ns, from_ns);
    reading->last_ns = reading->requests == 1 ? to_ns : max_i64(reading->last_ns, to_ns);
}

/* A line of profile_export.jsonl. */
static bool read_record(struct reading *reading, const json_t *record)
{
    const json_t *metadata = json_object_get(record, "metadata");
    const json_t *metrics = json_object_get(record, "metrics");
    const json_t *failure = json_object_get(record, "error");
    const char *phase = json_string_value(json_object_get(metadata, "benchmark_phase"));
    reading->measurement->tool = "aiperf";
    reading->measurement->results = 1;
    if (phase != NULL && strcmp(phase, "profiling") != 0) {
        reading->warmup++;
        return true;
    }
    reading->requests++;
    note_time(reading, json_integer_value(json_object_get(metadata, "request_start_ns")),
              json_integer_value(json_object_get(metadata, "request_end_ns")));
    if (json_is_true(json_object_get(metadata, "was_cancelled")) ||
        json_integer_value(json_object_get(failure, "code")) == 499) {
        reading->aborted++;
        return true;
    }
    if (failure != NULL && !json_is_null(failure)) {
        reading->failed++;
        return true;
    }
    reading->prompt_tokens += tokens_of(metrics, "input_sequence_length");
    reading->output_tokens += tokens_of(metrics, "output_sequence_length");
    return note_metric(reading, metrics, "time_to_first_token", TTFT) &&
           note_metric(reading, metrics, "inter_token_latency", TPOT) &&
           note_metric(reading, metrics, "inter_chunk_latency", ITL) &&
           note_metric(reading, metrics, "request_latency", E2E);
}

/* {"experiments": [{"requests": [{"timestamp": ns, "response_timestamps": [ns, ...]}]}]}. The last response of a stream
 * may say only that it has ended. */
static bool read_experiments(struct reading *reading, const json_t *file)
{
    size_t e, i;
    json_t *experiment, *request;
    reading->measurement->tool = "genai-perf";
    reading->measurement->results = 1;
    json_array_foreach(json_object_get(file, "experiments"), e, experiment)
    {
        json_array_foreach(json_object_get(experiment, "requests"), i, request)
        {
            const json_t *times = json_object_get(request, "response_timestamps");
            const json_t *texts = json_object_get(request, "response_outputs");
            int64_t start_ns = json_integer_value(json_object_get(request, "timestamp"));
            size_t count = json_array_size(times);
            if (start_ns <= 0 || !json_is_array(times))
                return wrong(reading, "requests", "objects with timestamp and response_timestamps in nanoseconds");
            const char *last =
                count == 0 ? NULL : json_string_value(json_object_get(json_array_get(texts, count - 1), "response"));
            if (count > 1 && last != NULL && strstr(last, "[DONE]") != NULL && strchr(last, '{') == NULL)
                count--;
            reading->requests++;
            reading->failed += count == 0;
            int64_t before_ns = start_ns;
            for (size_t k = 0; k < count; k++) {
                int64_t ns = json_integer_value(json_array_get(times, k));
                if (ns < before_ns)
                    return wrong(reading, "response_timestamps", "ascending nanoseconds after timestamp");
                stats_add(&reading->values[k == 0 ? TTFT : ITL], ns - before_ns);
                before_ns = ns;
            }
            if (count > 0)
                stats_add(&reading->values[E2E], before_ns - start_ns);
            note_time(reading, start_ns, before_ns);
        }
    }
    return true;
}

/* {"time_to_first_token": {"unit": "ms", "avg": ..., "p50": ...}, ...} */
static bool read_export(struct reading *reading, const json_t *file)
{
    static const struct {
        const char *name;
        enum latency latency;
    } latencies[] = {{"time_to_first_token", TTFT},
                     {"inter_token_latency", TPOT},
                     {"inter_chunk_latency", ITL},
                     {"request_latency", E2E}};
    struct measurement *m = reading->measurement;
    m->tool = "aiperf or genai-perf";
    m->results = 1;
    for (size_t k = 0; k < sizeof latencies / sizeof *latencies; k++) {
        const json_t *metric = json_object_get(file, latencies[k].name);
        double each_ns = unit_ns(json_object_get(metric, "unit"));
        struct metric_summary found = unknown;
        if (metric == NULL)
            continue;
        if (each_ns <= 0)
            return wrong(reading, latencies[k].name, "a unit of time");
        if (!read_ns(reading, metric, "avg", each_ns, &found.mean_ns) ||
            !read_ns(reading, metric, "p50", each_ns, &found.p50_ns) ||
            !read_ns(reading, metric, "p90", each_ns, &found.p90_ns) ||
            !read_ns(reading, metric, "p95", each_ns, &found.p95_ns) ||
            !read_ns(reading, metric, "p99", each_ns, &found.p99_ns) ||
            !read_ns(reading, metric, "max", each_ns, &found.max_ns))
            return false;
        found.count = 1;
        *latency_of(m, latencies[k].latency) = found;
    }
    const json_t *duration = json_object_get(file, "benchmark_duration");
    double each_ns = unit_ns(json_object_get(duration, "unit"));
    if (duration != NULL && each_ns <= 0)
        return wrong(reading, "benchmark_duration", "a unit of time");
    if (!read_ns(reading, duration, "avg", each_ns, &m->report.duration_ns) ||
        !read_count(reading, json_object_get(file, "request_count"), "avg", 1, &m->report.completed) ||
        !read_count(reading, json_object_get(file, "error_request_count"), "avg", 1, &m->report.failed) ||
        !read_count(reading, json_object_get(file, "request_throughput"), "avg", 1e6, &m->requests_micro_per_s) ||
        !read_count(reading, json_object_get(file, "output_token_throughput"), "avg", 1e6,
                    &m->output_tokens_micro_per_s))
        return false;
    if (m->report.completed != COUNT_UNKNOWN)
        m->report.requests = m->report.completed + (m->report.failed == COUNT_UNKNOWN ? 0 : m->report.failed);
    return true;
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static bool has_latency(const json_t *result)
{
    static const char *const keys[] = {"ttfts",          "mean_ttft_ms", "median_ttft_ms",    "mean_tpot_ms",
                                       "median_tpot_ms", "mean_itl_ms",  "request_throughput"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        if (json_object_get(result, keys[k]) != NULL)
            return true;
    return false;
}

static void begin(struct measurement *m)
{
    struct run_report *report = &m->report;
    memset(report, 0, sizeof *report);
    report->requests = report->completed = report->failed = report->aborted = report->rejected = COUNT_UNKNOWN;
    report->prompt_tokens = report->output_tokens = COUNT_UNKNOWN;
    report->duration_ns = -1;
    report->ttft = report->tpot = report->itl = report->e2e = unknown;
    m->requests_micro_per_s = m->output_tokens_micro_per_s = COUNT_UNKNOWN;
}

static bool read_document(struct reading *reading, const json_t *document)
{
    if (json_is_object(json_object_get(document, "metadata")) && json_is_object(json_object_get(document, "metrics")))
        return read_record(reading, document);
    if (json_is_array(json_object_get(document, "experiments")))
        return read_experiments(reading, document);
    if (json_is_object(json_object_get(document, "time_to_first_token")) ||
        json_is_object(json_object_get(document, "request_latency")))
        return read_export(reading, document);
    if (!has_latency(document)) {
        user_error_set(reading->error, reading->measurement->file, reading->line, NULL,
                       "no result of a benchmark that is known: expected what vllm bench serve, sglang.bench_serving, "
                       "aiperf or genai-perf write");
        return false;
    }
    begin(reading->measurement);
    for (int k = 0; k < LATENCIES; k++)
        reading->values[k].count = 0;
    reading->requests = reading->failed = 0;
    return read_bench(reading, document);
}

/* What stands request by request says the counts as well. */
static void finish(struct reading *reading)
{
    struct measurement *m = reading->measurement;
    struct run_report *report = &m->report;
    summarize(reading);
    if (reading->last_ns > 0) {
        report->requests = reading->requests;
        report->failed = reading->failed;
        report->aborted = reading->aborted;
        report->completed = reading->requests - reading->failed - reading->aborted;
        report->has_warmup = reading->warmup > 0;
        report->warmup_requests = reading->warmup;
        report->duration_ns = reading->last_ns - reading->first_ns;
        if (reading->prompt_tokens > 0)
            report->prompt_tokens = reading->prompt_tokens;
        if (reading->output_tokens > 0)
            report->output_tokens = reading->output_tokens;
    }
    if (report->duration_ns <= 0)
        return;
    if (m->requests_micro_per_s == COUNT_UNKNOWN && report->completed != COUNT_UNKNOWN)
        m->requests_micro_per_s =
            mul_div_floor_u64(report->completed, UINT64_C(1000000000000000), (uint64_t)report->duration_ns);
    if (m->output_tokens_micro_per_s == COUNT_UNKNOWN && report->output_tokens != COUNT_UNKNOWN)
        m->output_tokens_micro_per_s =
            mul_div_floor_u64(report->output_tokens, UINT64_C(1000000000000000), (uint64_t)report->duration_ns);
}

bool measurement_read(const char *path, struct measurement *measurement, struct user_error *error)
{
    struct reading reading = {.measurement = measurement, .error = error, .line = 1};
    size_t size = 0;
    *measurement = (struct measurement){.file = path};
    begin(measurement);
    char *bytes = input_all(path, FILE_BYTES_MAX, &size, error);
    if (bytes == NULL)
        return false;
    char *text = python_json(bytes, &size);
    free(bytes);
    bool good = true;
    for (size_t at = 0; good;) {
        for (; at < size && strchr(" \t\r\n", text[at]) != NULL; at++)
            reading.line += text[at] == '\n';
        if (at == size)
            break;
        json_error_t where;
        json_t *document = json_loadb(text + at, size - at, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &where);
        if (document == NULL) {
            user_error_set(error, path, reading.line + where.line - 1, NULL, "%s", where.text);
            good = false;
            break;
        }
        good = read_document(&reading, document);
        json_decref(document);
        reading.documents++;
        for (size_t end = at + (size_t)where.position; at < end; at++)
            reading.line += text[at] == '\n';
    }
    if (good && reading.documents == 0) {
        user_error_set(error, path, 1, NULL, "is empty: expected the result of a benchmark");
        good = false;
    }
    if (good)
        finish(&reading);
    for (int k = 0; k < LATENCIES; k++)
        free(reading.values[k].items);
    free(text);
    return good;
}
