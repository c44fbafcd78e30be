/* Results of benchmarks, as each tool writes them: units, failures and percentiles. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run/compare/measurement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA TANDEM_SOURCE_DIR "/tests/data/benchmarks/"
#define MS INT64_C(1000000)

static struct measurement m;

static void read_file(const char *name)
{
    char path[512];
    struct user_error error = {.set = false};
    snprintf(path, sizeof path, DATA "%s", name);
    if (!measurement_read(path, &m, &error))
        fail_msg("%s", error.text);
}

static void check(const struct metric_summary *metric, uint64_t count, int64_t mean_ns, int64_t p50_ns, int64_t p99_ns)
{
    assert_int_equal(metric->count, count);
    assert_int_equal(metric->mean_ns, mean_ns);
    assert_int_equal(metric->p50_ns, p50_ns);
    assert_int_equal(metric->p99_ns, p99_ns);
}

/* Arrays are seconds and win over what is printed; the failed request is in no latency. */
static void vllm_with_every_request(void **state)
{
    (void)state;
    read_file("vllm.json");
    assert_string_equal(m.tool, "vllm bench serve");
    assert_int_equal(m.report.requests, 4);
    assert_int_equal(m.report.completed, 3);
    assert_int_equal(m.report.failed, 1);
    assert_int_equal(m.report.prompt_tokens, 3000);
    assert_int_equal(m.report.duration_ns, 2000 * MS);
    assert_int_equal(m.requests_micro_per_s, 1500000);
    assert_int_equal(m.output_tokens_micro_per_s, 6000000);
    check(&m.report.ttft, 3, 100 * MS, 100 * MS, 150 * MS);
    check(&m.report.itl, 9, 140 * MS / 9, 10 * MS, 30 * MS);
    check(&m.report.tpot, 3, 50 * MS / 3, 20 * MS, 20 * MS); /* 20, 10, 20 */
    check(&m.report.e2e, 3, 440 * MS / 3, 160 * MS, 190 * MS);
}

/* Lines are appended: the last one counts. What is not said is not known. */
static void sglang_takes_the_last_line(void **state)
{
    (void)state;
    read_file("sglang.jsonl");
    assert_string_equal(m.tool, "sglang.bench_serving");
    assert_int_equal(m.results, 2);
    assert_int_equal(m.report.completed, 8);
    assert_true(m.report.failed == COUNT_UNKNOWN && m.report.requests == COUNT_UNKNOWN);
    check(&m.report.ttft, 1, 120250000, 100 * MS, 250 * MS);
    check(&m.report.tpot, 1, 9 * MS, -1, -1);
    check(&m.report.itl, 1, -1, 8500000, -1);
    assert_int_equal(m.report.itl.max_ns, 44 * MS);
    check(&m.report.e2e, 1, 300500000, -1, -1);
    assert_int_equal(m.report.e2e.p90_ns, 400 * MS);
}

static void aiperf_line_by_line(void **state)
{
    (void)state;
    read_file("aiperf.jsonl");
    assert_string_equal(m.tool, "aiperf");
    assert_int_equal(m.report.warmup_requests, 1);
    assert_int_equal(m.report.requests, 3);
    assert_int_equal(m.report.completed, 1);
    assert_int_equal(m.report.failed, 1);
    assert_int_equal(m.report.aborted, 1);
    assert_int_equal(m.report.prompt_tokens, 100);
    assert_int_equal(m.report.output_tokens, 3);
    assert_int_equal(m.report.duration_ns, 2000 * MS);
    check(&m.report.ttft, 1, 50 * MS, 50 * MS, 50 * MS);
    check(&m.report.tpot, 1, 25 * MS, 25 * MS, 25 * MS);
    check(&m.report.itl, 2, 25 * MS, 20 * MS, 30 * MS);
    check(&m.report.e2e, 1, 100 * MS, 100 * MS, 100 * MS);
    assert_int_equal(m.requests_micro_per_s, 500000);
}

static void aiperf_in_sum(void **state)
{
    (void)state;
    read_file("aiperf-summary.json");
    assert_int_equal(m.report.completed, 250);
    assert_int_equal(m.report.duration_ns, 20000 * MS);
    assert_int_equal(m.requests_micro_per_s, 12500000);
    assert_int_equal(m.output_tokens_micro_per_s, 1600000000);
    check(&m.report.ttft, 1, 80500000, 75 * MS, 180 * MS);
    check(&m.report.tpot, 1, 9500000, 9 * MS, 14 * MS);
    check(&m.report.e2e, 1, 1300 * MS, -1, -1);
    assert_int_equal(m.report.itl.count, 0);
}

/* The end of a stream is no token. */
static void genai_perf_in_nanoseconds(void **state)
{
    (void)state;
    read_file("genai-perf.json");
    assert_int_equal(m.report.requests, 2);
    assert_int_equal(m.report.failed, 1);
    check(&m.report.ttft, 1, 2000, 2000, 2000);
    check(&m.report.itl, 2, 2500, 2000, 3000);
    check(&m.report.e2e, 1, 7000, 7000, 7000);
    assert_int_equal(m.report.tpot.count, 0);
}

/* What a saved file with the summary alone says: vLLM's of 2025-09. */
static void little_is_known_of_a_summary(void **state)
{
    (void)state;
    read_file("vllm-summary.json");
    assert_int_equal(m.report.requests, 500);
    assert_true(m.report.completed == COUNT_UNKNOWN && m.report.duration_ns < 0);
    assert_int_equal(m.requests_micro_per_s, 21800000);
    check(&m.report.ttft, 1, 3961200000, -1, -1);
    check(&m.report.tpot, 1, -1, 7150000, -1);
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *said;
    } cases[] = {
        {"", ":1: is empty"},
        {"{\"mean_ttft_ms\": 1.0}\n{", ":2: "},
        {"{\"mean_ttft_ms\": \"fast\"}", ":1: mean_ttft_ms: expected a time"},
        {"{\"mean_ttft_ms\": -1}", ":1: mean_ttft_ms: expected a time"},
        {"{\"ttfts\": [0.1, 0.2], \"itls\": [[]]}", ":1: itls: expected an array with an item for every request"},
        {"{\"ttfts\": [0.1], \"itls\": [[-1]]}", ":1: itls: expected seconds"},
        {"\n\n{\"latency\": 3}", ":3: no result of a benchmark that is known: expected what vllm bench serve"},
        {"[1]", ":1: no result of a benchmark"},
        {"{\"time_to_first_token\": {\"unit\": \"fortnights\", \"avg\": 1}}",
         "time_to_first_token: expected a unit of time"},
        {"{\"metadata\": {}, \"metrics\": {\"request_latency\": {\"value\": 1}}}",
         "request_latency: expected {\"value\""},
        {"{\"experiments\": [{\"requests\": [{\"timestamp\": 5, \"response_timestamps\": [4]}]}]}",
         "response_timestamps: expected ascending"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char path[] = "/tmp/tandem-measurement-XXXXXX";
        struct user_error error = {.set = false};
        int file = mkstemp(path);
        assert_true(file >= 0);
        assert_int_equal(write(file, cases[k].text, strlen(cases[k].text)), strlen(cases[k].text));
        close(file);
        assert_false(measurement_read(path, &m, &error));
        unlink(path);
        if (strstr(error.text, cases[k].said) == NULL)
            fail_msg("'%s' is not in '%s'", cases[k].said, error.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vllm_with_every_request),   cmocka_unit_test(sglang_takes_the_last_line),
        cmocka_unit_test(aiperf_line_by_line),       cmocka_unit_test(aiperf_in_sum),
        cmocka_unit_test(genai_perf_in_nanoseconds), cmocka_unit_test(little_is_known_of_a_summary),
        cmocka_unit_test(what_is_wrong_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
