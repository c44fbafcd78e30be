/* What a server counts, in the text format of Prometheus under the names that vLLM gives them (its docs, "Metrics"), so
 * that dashboards and load testers made for one read the other. */
#ifndef TANDEM_LIVE_METRICS_H
#define TANDEM_LIVE_METRICS_H

#include <stdint.h>

#define METRIC_BUCKETS_MAX 24

struct histogram {
    uint64_t count;
    int64_t sum_ns;
    uint64_t bucket[METRIC_BUCKETS_MAX]; /* not cumulated; the last is above every bound */
};

struct live_metrics {
    /* As they are now. */
    uint64_t running;
    uint64_t waiting;
    uint64_t pages_held;
    uint64_t pages_total;
    uint64_t preemptions;
    uint64_t lag_max_us;
    /* As they came to be. */
    uint64_t prompt_tokens;
    uint64_t generation_tokens;
    uint64_t prefix_queries; /* tokens */
    uint64_t prefix_hits;
    uint64_t completed;
    uint64_t aborted;
    uint64_t failed; /* rejected ones too */
    struct histogram ttft;
    struct histogram itl;
    struct histogram e2e;
};

void histogram_add(struct histogram *histogram, int64_t value_ns, uint64_t times);

/* The caller's to free. */
char *metrics_text(const struct live_metrics *metrics, const char *model);

#endif
