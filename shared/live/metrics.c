/* See metrics.h. */
#define _POSIX_C_SOURCE 200809L
#include "live/metrics.h"

#include "host/memory.h"

#include <inttypes.h>
#include <stdio.h>

/* Upper bounds in microseconds: one row for all histograms, over what gaps between tokens and whole requests span. */
static const int64_t bounds_us[] = {
    1000,   2500,   5000,    10000,   25000,   50000,   75000,    100000,   150000,   200000,    300000,
    500000, 750000, 1000000, 2500000, 5000000, 7500000, 10000000, 20000000, 40000000, 100000000, 600000000,
};
#define BOUNDS (sizeof bounds_us / sizeof bounds_us[0])

void histogram_add(struct histogram *histogram, int64_t value_ns, uint64_t times)
{
    uint32_t at = 0;
    while (at < BOUNDS && value_ns > bounds_us[at] * 1000)
        at++;
    histogram->bucket[at] += times;
    histogram->count += times;
    histogram->sum_ns += value_ns * (int64_t)times;
}

static void value_text(FILE *file, const char *model, const char *name, const char *kind, uint64_t value)
{
    fprintf(file, "# TYPE vllm:%s %s\nvllm:%s{model_name=\"%s\"} %" PRIu64 "\n", name, kind, name, model, value);
}

static void histogram_text(FILE *file, const char *model, const char *name, const struct histogram *histogram)
{
    uint64_t below = 0;
    fprintf(file, "# TYPE vllm:%s histogram\n", name);
    for (uint32_t i = 0; i < BOUNDS; i++) {
        below += histogram->bucket[i];
        fprintf(file, "vllm:%s_bucket{model_name=\"%s\",le=\"%" PRId64 ".%06" PRId64 "\"} %" PRIu64 "\n", name, model,
                bounds_us[i] / 1000000, bounds_us[i] % 1000000, below);
    }
    fprintf(file, "vllm:%s_bucket{model_name=\"%s\",le=\"+Inf\"} %" PRIu64 "\n", name, model, histogram->count);
    fprintf(file, "vllm:%s_sum{model_name=\"%s\"} %" PRId64 ".%09" PRId64 "\n", name, model,
            histogram->sum_ns / 1000000000, histogram->sum_ns % 1000000000);
    fprintf(file, "vllm:%s_count{model_name=\"%s\"} %" PRIu64 "\n", name, model, histogram->count);
}

char *metrics_text(const struct live_metrics *metrics, const char *model)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = memory_given(open_memstream(&text, &size));
    uint64_t used = metrics->pages_total == 0 ? 0 : metrics->pages_held * 1000000 / metrics->pages_total;
    value_text(file, model, "num_requests_running", "gauge", metrics->running);
    value_text(file, model, "num_requests_waiting", "gauge", metrics->waiting);
    fprintf(file,
            "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{model_name=\"%s\"} %" PRIu64 ".%06" PRIu64
            "\n",
            model, used / 1000000, used % 1000000);
    value_text(file, model, "num_preemptions_total", "counter", metrics->preemptions);
    value_text(file, model, "prompt_tokens_total", "counter", metrics->prompt_tokens);
    value_text(file, model, "generation_tokens_total", "counter", metrics->generation_tokens);
    value_text(file, model, "prefix_cache_queries_total", "counter", metrics->prefix_queries);
    value_text(file, model, "prefix_cache_hits_total", "counter", metrics->prefix_hits);
    const struct {
        const char *reason;
        uint64_t count;
    } ends[] = {{"length", metrics->completed}, {"abort", metrics->aborted}, {"error", metrics->failed}};
    fprintf(file, "# TYPE vllm:request_success_total counter\n");
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        fprintf(file, "vllm:request_success_total{model_name=\"%s\",finished_reason=\"%s\"} %" PRIu64 "\n", model,
                ends[i].reason, ends[i].count);
    histogram_text(file, model, "time_to_first_token_seconds", &metrics->ttft);
    histogram_text(file, model, "inter_token_latency_seconds", &metrics->itl);
    histogram_text(file, model, "e2e_request_latency_seconds", &metrics->e2e);
    /* Not an engine's: how far the simulation was behind the clock at worst. */
    fprintf(file, "# TYPE tandem:lag_max_seconds gauge\ntandem:lag_max_seconds %" PRIu64 ".%06" PRIu64 "\n",
            metrics->lag_max_us / 1000000, metrics->lag_max_us % 1000000);
    fclose(file);
    return memory_given(text);
}
