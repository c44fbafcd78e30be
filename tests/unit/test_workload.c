/* Requests drawn from a load: arrivals, lengths, aborts and ends, to the nanosecond where they are exact and within
 * bounds of their distribution where they are random. */
#include "world/load/workload.h"

#include "world/load/rate_profile.h"

#include "base/arith.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct load generated_load(enum arrival_kind arrivals)
{
    return (struct load){
        .arrivals = arrivals,
        .rate_micro_per_s = 16000000, /* 16/s: a gap of 62.5 ms */
        .concurrency = 3,
        .burst_size = 4,
        .requests = 10,
        .prompt = {.kind = LENGTH_UNIFORM, .low = 512, .high = 2048},
        .output = {.kind = LENGTH_CONSTANT, .low = 128},
    };
}

static struct workload *create(const struct load *load, uint64_t seed, const struct trace_file *trace)
{
    struct user_error error = {.set = false};
    struct workload *workload = workload_create(load, seed, trace, &error);
    if (workload == NULL)
        fail_msg("%s", error.text);
    assert_false(error.set);
    return workload;
}

/* Takes the next item, checks that it was announced, and that ids are dense. */
static struct workload_item take(struct workload *workload, uint32_t id)
{
    struct workload_item item;
    int64_t announced_ns = workload_next_ns(workload);
    assert_true(workload_next(workload, &item));
    assert_int_equal(item.arrival_ns, announced_ns);
    assert_false(item.is_abort);
    assert_int_equal(item.spec.id, id);
    return item;
}

static void expect_end(struct workload *workload)
{
    struct workload_item item;
    assert_int_equal(workload_next_ns(workload), TIME_NEVER);
    assert_false(workload_next(workload, &item));
    assert_false(workload_next(workload, &item));
    workload_free(workload);
}

static void expect_create_error(const struct load *load, const struct trace_file *trace, const char *expected)
{
    struct user_error error = {.set = false};
    assert_null(workload_create(load, 1, trace, &error));
    assert_true(error.set);
    assert_string_equal(error.text, expected);
}

/* ---- Generated arrivals ---------------------------------------------------------------------------------------- */

static void test_uniform_arrivals(void **state)
{
    (void)state;
    struct load load = generated_load(ARRIVAL_UNIFORM);
    load.deadline_ns = 250 * NS_PER_MS;
    struct workload *workload = create(&load, 7, NULL);
    for (uint32_t id = 0; id < 10; id++) {
        struct workload_item item = take(workload, id);
        assert_int_equal(item.arrival_ns, id * INT64_C(62500000));
        assert_int_equal(item.spec.deadline_ns, item.arrival_ns + 250 * NS_PER_MS);
        assert_int_equal(item.spec.output_tokens, 128);
        assert_int_equal(item.spec.block_count, 0);
    }
    expect_end(workload);

    /* A third of a request per second: no rounding adds up. */
    load.rate_micro_per_s = 3000000;
    load.requests = 3000001;
    load.deadline_ns = 0;
    workload = create(&load, 7, NULL);
    struct workload_item item = {.arrival_ns = 0};
    for (uint32_t id = 0; id < load.requests; id++)
        assert_true(workload_next(workload, &item));
    assert_int_equal(item.arrival_ns, 1000000 * NS_PER_S);
    assert_int_equal(item.spec.deadline_ns, TIME_NEVER);
    expect_end(workload);
}

static void test_duration(void **state)
{
    (void)state;
    struct load load = generated_load(ARRIVAL_UNIFORM);
    load.requests = 0;
    load.duration_ns = NS_PER_S;
    struct workload *workload = create(&load, 1, NULL);
    for (uint32_t id = 0; id < 16; id++)
        take(workload, id);
    expect_end(workload);
    load.duration_ns++;
    workload = create(&load, 1, NULL);
    for (uint32_t id = 0; id < 17; id++)
        take(workload, id);
    expect_end(workload);
    load.requests = 5;
    workload = create(&load, 1, NULL);
    for (uint32_t id = 0; id < 5; id++)
        take(workload, id);
    expect_end(workload);
}

/* The gaps' mean is 1 / rate, e^-1 of them exceed the mean, e^-3 three times the mean; 200,000 draws of a fixed seed
 * lie within four standard errors. */
static void test_poisson_statistics(void **state)
{
    (void)state;
    struct load load = generated_load(ARRIVAL_POISSON);
    load.requests = 200000;
    struct workload *workload = create(&load, 42, NULL);
    int64_t last_ns = 0;
    uint32_t above_mean = 0;
    uint32_t above_three = 0;
    uint64_t squares_us = 0;
    for (uint32_t id = 0; id < load.requests; id++) {
        struct workload_item item = take(workload, id);
        int64_t gap_ns = item.arrival_ns - last_ns;
        assert_true(gap_ns >= 0);
        above_mean += gap_ns > 62500000;
        above_three += gap_ns > 187500000;
        squares_us += (uint64_t)(gap_ns / 1000) * (uint64_t)(gap_ns / 1000);
        last_ns = item.arrival_ns;
    }
    expect_end(workload);
    int64_t mean_ns = last_ns / load.requests;
    assert_in_range(mean_ns, 62500000 - 559017, 62500000 + 559017); /* 4 * mean / sqrt(n) */
    assert_in_range(above_mean, 73576 - 863, 73576 + 863);          /* 4 * sqrt(n p (1 - p)) */
    assert_in_range(above_three, 9957 - 389, 9957 + 389);
    /* The second moment is twice the squared mean; its standard error is sqrt(20 / n) of the squared mean. */
    uint64_t second = squares_us / load.requests;
    assert_in_range(second, 7812500000 - 156250000, 7812500000 + 156250000);
}

static void test_poisson_golden(void **state)
{
    (void)state;
    struct load load = generated_load(ARRIVAL_POISSON);
    load.requests = 4;
    static const struct {
        int64_t arrival_ns;
        uint32_t prompt;
    } golden[4] = {{2493315, 666}, {4523471, 1957}, {188429311, 542}, {195822658, 1296}};
    struct workload *workload = create(&load, 1, NULL);
    for (uint32_t id = 0; id < 4; id++) {
        struct workload_item item = take(workload, id);
        assert_int_equal(item.arrival_ns, golden[id].arrival_ns);
        assert_int_equal(item.spec.prompt_tokens, golden[id].prompt);
        assert_int_equal(item.spec.output_tokens, 128);
    }
    expect_end(workload);
}

/* Another rate stretches the same arrivals and changes no length; another seed changes both. */
static void test_streams_are_apart(void **state)
{
    (void)state;
    struct load load = generated_load(ARRIVAL_POISSON);
    load.requests = 1000;
    struct load twice = load;
    twice.rate_micro_per_s *= 2;
    struct load other_prompts = load;
    other_prompts.prompt.kind = LENGTH_CONSTANT;
    struct workload *a = create(&load, 5, NULL);
    struct workload *b = create(&twice, 5, NULL);
    struct workload *c = create(&other_prompts, 5, NULL);
    struct workload *d = create(&load, 6, NULL);
    uint32_t same_as_d = 0;
    for (uint32_t id = 0; id < 1000; id++) {
        struct workload_item at_a = take(a, id);
        struct workload_item at_b = take(b, id);
        struct workload_item at_c = take(c, id);
        struct workload_item at_d = take(d, id);
        assert_in_range(at_a.arrival_ns, 2 * at_b.arrival_ns, 2 * at_b.arrival_ns + 1);
        assert_int_equal(at_a.spec.prompt_tokens, at_b.spec.prompt_tokens);
        assert_int_equal(at_a.spec.token_seed, at_b.spec.token_seed);
        assert_int_equal(at_a.arrival_ns, at_c.arrival_ns);
        assert_int_equal(at_c.spec.prompt_tokens, 512);
        assert_true(at_a.arrival_ns != at_d.arrival_ns && at_a.spec.token_seed != at_d.spec.token_seed);
        same_as_d += at_a.spec.prompt_tokens == at_d.spec.prompt_tokens;
    }
    assert_true(same_as_d < 10);
    expect_end(a);
    expect_end(b);
    expect_end(c);
    expect_end(d);
}

static void test_bursts(void **state)
{
    (void)state;
    /* Groups come as the requests of a Poisson load of a quarter of the rate; the last is cut by the limit. */
    struct load load = generated_load(ARRIVAL_BURST);
    struct load groups = generated_load(ARRIVAL_POISSON);
    groups.rate_micro_per_s /= 4;
    struct workload *burst = create(&load, 9, NULL);
    struct workload *single = create(&groups, 9, NULL);
    struct workload_item group = {.arrival_ns = 0};
    for (uint32_t id = 0; id < 10; id++) {
        if (id % 4 == 0)
            group = take(single, id / 4);
        assert_int_equal(take(burst, id).arrival_ns, group.arrival_ns);
    }
    workload_free(single);
    expect_end(burst);
}

static void test_slowest_rate(void **state)
{
    (void)state;
    /* One request in 1e6 s and a duration that ends at once: the first gap exceeds it, in a burst too. */
    struct load load = generated_load(ARRIVAL_POISSON);
    load.rate_micro_per_s = 1;
    load.requests = 0;
    load.duration_ns = NS_PER_S;
    expect_end(create(&load, 1, NULL));
    load.arrivals = ARRIVAL_BURST;
    load.burst_size = WORKLOAD_TOGETHER_MAX;
    expect_end(create(&load, 1, NULL));
}

/* ---- Lengths --------------------------------------------------------------------------------------------------- */

static void test_uniform_lengths(void **state)
{
    (void)state;
    struct load load = generated_load(ARRIVAL_UNIFORM);
    load.requests = 100000;
    load.prompt = (struct length_distribution){.kind = LENGTH_UNIFORM, .low = 3, .high = 12};
    uint32_t counts[16] = {0};
    struct workload *workload = create(&load, 11, NULL);
    for (uint32_t id = 0; id < load.requests; id++) {
        struct workload_item item = take(workload, id);
        assert_in_range(item.spec.prompt_tokens, 3, 12);
        counts[item.spec.prompt_tokens]++;
    }
    for (uint32_t tokens = 3; tokens <= 12; tokens++)
        assert_in_range(counts[tokens], 10000 - 380, 10000 + 380); /* 4 * sqrt(n p (1 - p)) */
    expect_end(workload);
}

static void test_quantile_lengths(void **state)
{
    (void)state;
    struct load load = generated_load(ARRIVAL_UNIFORM);
    load.requests = 100000;
    load.prompt = (struct length_distribution){
        .kind = LENGTH_QUANTILES,
        .quantile_count = 4,
        .quantile_permille = {0, 500, 900, 1000},
        .quantile_tokens = {100, 1100, 1100, 9100},
    };
    struct workload *workload = create(&load, 12, NULL);
    struct workload_summary summary;
    workload_describe(workload, &summary);
    /* 0.5 * 600 + 0.4 * 1100 + 0.1 * 5100 */
    assert_int_equal(summary.prompt_tokens_mean_milli, 1250000);
    uint64_t sum = 0;
    uint32_t below_600 = 0;
    uint32_t exactly_1100 = 0;
    uint32_t above_5100 = 0;
    for (uint32_t id = 0; id < load.requests; id++) {
        uint32_t tokens = take(workload, id).spec.prompt_tokens;
        assert_in_range(tokens, 100, 9100);
        sum += tokens;
        below_600 += tokens < 600;
        exactly_1100 += tokens == 1100;
        above_5100 += tokens > 5100;
    }
    assert_in_range(sum / load.requests, 1250 - 20, 1250 + 20);
    assert_in_range(below_600, 25000 - 560, 25000 + 560);
    assert_in_range(exactly_1100, 40030 - 620, 40030 + 620); /* the flat part, and the rounded ends beside it */
    assert_in_range(above_5100, 5000 - 276, 5000 + 276);
    expect_end(workload);
}

static void test_quantile_rounding(void **state)
{
    (void)state;
    /* From 1 to 3 tokens evenly: half of all draws are nearest to 2. */
    struct load load = generated_load(ARRIVAL_UNIFORM);
    load.requests = 40000;
    load.prompt = (struct length_distribution){
        .kind = LENGTH_QUANTILES, .quantile_count = 2, .quantile_permille = {0, 1000}, .quantile_tokens = {1, 3}};
    uint32_t counts[4] = {0};
    struct workload *workload = create(&load, 13, NULL);
    for (uint32_t id = 0; id < load.requests; id++)
        counts[take(workload, id).spec.prompt_tokens & 3]++;
    assert_in_range(counts[1], 10000 - 347, 10000 + 347);
    assert_in_range(counts[2], 20000 - 400, 20000 + 400);
    assert_in_range(counts[3], 10000 - 347, 10000 + 347);
    expect_end(workload);
}

/* ---- Closed loop ----------------------------------------------------------------------------------------------- */

static void test_closed_loop(void **state)
{
    (void)state;
    struct load load = generated_load(ARRIVAL_CLOSED);
    load.requests = 5;
    load.deadline_ns = 100;
    struct workload *workload = create(&load, 1, NULL);
    struct workload_item item;
    for (uint32_t id = 0; id < 3; id++)
        assert_int_equal(take(workload, id).arrival_ns, 0);
    assert_int_equal(workload_next_ns(workload), TIME_NEVER);
    assert_false(workload_next(workload, &item));
    assert_true(workload_closed_next(workload, 1000, &item));
    assert_int_equal(item.arrival_ns, 1000);
    assert_int_equal(item.spec.deadline_ns, 1100);
    assert_int_equal(item.spec.id, 3);
    assert_true(workload_closed_next(workload, 1000, &item));
    assert_int_equal(item.spec.id, 4);
    assert_false(workload_closed_next(workload, 2000, &item));
    expect_end(workload);

    /* Fewer requests than clients; a duration; a request that ends before the other clients have begun. */
    load.requests = 2;
    workload = create(&load, 1, NULL);
    take(workload, 0);
    assert_true(workload_closed_next(workload, 0, &item));
    assert_int_equal(item.spec.id, 1);
    expect_end(workload);
    load.requests = 0;
    load.duration_ns = NS_PER_S;
    workload = create(&load, 1, NULL);
    for (uint32_t id = 0; id < 3; id++)
        take(workload, id);
    assert_true(workload_closed_next(workload, NS_PER_S - 1, &item));
    assert_false(workload_closed_next(workload, NS_PER_S, &item));
    expect_end(workload);
}

/* ---- Aborts ---------------------------------------------------------------------------------------------------- */

#define ABORT_REQUESTS 20000

/* Plays a load with aborts: order, each at most once and within its time; returns how many. */
static uint32_t play_aborts(const struct load *load, int64_t *abort_ns)
{
    static int64_t arrival_ns[ABORT_REQUESTS];
    struct workload *workload = create(load, 3, NULL);
    struct workload_item item;
    uint32_t requests = 0;
    uint32_t aborts = 0;
    int64_t last_ns = 0;
    for (uint32_t id = 0; id < ABORT_REQUESTS; id++)
        abort_ns[id] = TIME_NEVER;
    for (;;) {
        int64_t announced_ns = workload_next_ns(workload);
        if (!workload_next(workload, &item))
            break;
        assert_int_equal(item.arrival_ns, announced_ns);
        assert_true(item.arrival_ns >= last_ns);
        last_ns = item.arrival_ns;
        if (!item.is_abort) {
            assert_int_equal(item.spec.id, requests);
            arrival_ns[requests++] = item.arrival_ns;
            continue;
        }
        assert_true(item.spec.id < requests && abort_ns[item.spec.id] == TIME_NEVER);
        abort_ns[item.spec.id] = item.arrival_ns;
        assert_in_range(item.arrival_ns - arrival_ns[item.spec.id], 0, load->abort_after_ns);
        aborts++;
    }
    assert_int_equal(requests, ABORT_REQUESTS);
    expect_end(workload);
    return aborts;
}

static void test_aborts(void **state)
{
    (void)state;
    static int64_t few_ns[ABORT_REQUESTS];
    static int64_t many_ns[ABORT_REQUESTS];
    struct load load = generated_load(ARRIVAL_POISSON);
    load.requests = ABORT_REQUESTS;
    load.abort_after_ns = 10 * NS_PER_S;
    assert_int_equal(play_aborts(&load, few_ns), 0);
    load.abort_permille = 100;
    assert_in_range(play_aborts(&load, few_ns), 2000 - 170, 2000 + 170);
    load.abort_permille = 300;
    assert_in_range(play_aborts(&load, many_ns), 6000 - 260, 6000 + 260);
    for (uint32_t id = 0; id < ABORT_REQUESTS; id++)
        assert_true(few_ns[id] == TIME_NEVER || few_ns[id] == many_ns[id]);
    load.abort_permille = 1000;
    load.abort_after_ns = 0;
    assert_int_equal(play_aborts(&load, many_ns), ABORT_REQUESTS);
}

static void test_aborts_follow_arrivals(void **state)
{
    (void)state;
    /* At one instant all requests of a burst come before any of their aborts, which keep the order of the ids. */
    struct load load = generated_load(ARRIVAL_BURST);
    load.requests = 8;
    load.abort_permille = 1000;
    struct workload *workload = create(&load, 1, NULL);
    struct workload_item item;
    for (uint32_t burst = 0; burst < 2; burst++) {
        for (uint32_t id = 4 * burst; id < 4 * burst + 4; id++)
            take(workload, id);
        for (uint32_t id = 4 * burst; id < 4 * burst + 4; id++)
            assert_true(workload_next(workload, &item) && item.is_abort && item.spec.id == id);
    }
    expect_end(workload);
}

static void test_aborts_in_closed_loop(void **state)
{
    (void)state;
    struct load load = generated_load(ARRIVAL_CLOSED);
    load.concurrency = 1;
    load.requests = 2;
    load.abort_permille = 1000;
    load.abort_after_ns = 0;
    struct workload *workload = create(&load, 1, NULL);
    struct workload_item item;
    take(workload, 0);
    assert_true(workload_next(workload, &item) && item.is_abort && item.spec.id == 0 && item.arrival_ns == 0);
    assert_true(workload_closed_next(workload, 50, &item) && !item.is_abort && item.spec.id == 1);
    assert_int_equal(workload_next_ns(workload), 50);
    assert_true(workload_next(workload, &item) && item.is_abort && item.spec.id == 1 && item.arrival_ns == 50);
    expect_end(workload);
}

/* ---- Traces ---------------------------------------------------------------------------------------------------- */

/* Six requests over 9 s; rows 1 to 4 lie in the window of the tests below, [1 s, 7 s). */
static struct trace_file *make_trace(void)
{
    static const char text[] = "{\"timestamp\":0,\"input_length\":10,\"output_length\":1,\"hash_ids\":[1]}\n"
                               "{\"timestamp\":2000,\"input_length\":20,\"output_length\":2,\"hash_ids\":[2]}\n"
                               "{\"timestamp\":2000,\"input_length\":600,\"output_length\":3,\"hash_ids\":[2,3]}\n"
                               "{\"timestamp\":3000,\"input_length\":40,\"output_length\":4,\"hash_ids\":[4]}\n"
                               "{\"timestamp\":6000,\"input_length\":50,\"output_length\":5,\"hash_ids\":[5]}\n"
                               "{\"timestamp\":9000,\"input_length\":60,\"output_length\":6,\"hash_ids\":[6]}\n";
    struct user_error error = {.set = false};
    struct trace_file *trace = trace_file_read_memory(
        text, strlen(text), "six.jsonl", &(struct trace_options){.format = TRACE_FORMAT_MOONCAKE_JSONL}, &error);
    assert_non_null(trace);
    return trace;
}

static struct load trace_load(void)
{
    return (struct load){
        .arrivals = ARRIVAL_TRACE,
        .trace.format = TRACE_FORMAT_MOONCAKE_JSONL,
        .trace_window_start_ns = NS_PER_S,
        .trace_window_ns = 6 * NS_PER_S,
        .trace_repeat = 1,
    };
}

static void expect_arrivals(struct workload *workload, const int64_t *arrival_ms, const uint32_t *rows, uint32_t count,
                            const struct trace_file *trace)
{
    for (uint32_t id = 0; id < count; id++) {
        struct workload_item item = take(workload, id);
        assert_int_equal(item.arrival_ns, arrival_ms[id] * NS_PER_MS);
        assert_int_equal(item.spec.prompt_tokens, trace->prompt_tokens[rows[id]]);
        assert_int_equal(item.spec.output_tokens, trace->output_tokens[rows[id]]);
        assert_int_equal(item.spec.block_tokens, 512);
        assert_int_equal(item.spec.block_count, trace->block_first[rows[id] + 1] - trace->block_first[rows[id]]);
        assert_ptr_equal(item.spec.blocks, trace->blocks + trace->block_first[rows[id]]);
    }
    expect_end(workload);
}

static void test_trace_as_recorded(void **state)
{
    (void)state;
    struct trace_file *trace = make_trace();
    struct load load = trace_load();
    const uint32_t rows[] = {1, 2, 3, 4};
    expect_arrivals(create(&load, 1, trace), (const int64_t[]){0, 0, 1000, 4000}, rows, 4, trace);
    load.trace_window_start_ns = 0;
    load.trace_window_ns = 0;
    const uint32_t all[] = {0, 1, 2, 3, 4, 5};
    expect_arrivals(create(&load, 1, trace), (const int64_t[]){0, 2000, 2000, 3000, 6000, 9000}, all, 6, trace);
    load.duration_ns = 6 * NS_PER_S;
    struct workload *workload = create(&load, 1, trace);
    struct workload_summary summary;
    workload_describe(workload, &summary);
    assert_int_equal(summary.requests, 4);
    assert_int_equal(summary.span_ns, 6 * NS_PER_S);
    expect_arrivals(workload, (const int64_t[]){0, 2000, 2000, 3000}, all, 4, trace);
    load.requests = 2;
    expect_arrivals(create(&load, 1, trace), (const int64_t[]){0, 2000}, all, 2, trace);
    trace_file_free(trace);
}

static void test_trace_repeats(void **state)
{
    (void)state;
    struct trace_file *trace = make_trace();
    struct load load = trace_load();
    load.trace_repeat = 2;
    const uint32_t rows[] = {1, 2, 3, 4, 1, 2, 3, 4};
    const int64_t twice_ms[] = {0, 0, 1000, 4000, 6000, 6000, 7000, 10000};
    expect_arrivals(create(&load, 1, trace), twice_ms, rows, 8, trace);
    load.requests = 100; /* more than there are */
    struct workload *workload = create(&load, 1, trace);
    struct workload_summary summary;
    workload_describe(workload, &summary);
    assert_int_equal(summary.requests, 8);
    expect_arrivals(workload, twice_ms, rows, 8, trace);
    /* To the end of the file: a turn ends one mean gap, (9 - 2) s / 4, after the last row. So it does where the window
     * is said to be longer than the file. */
    load.requests = 7;
    load.trace_window_ns = 0;
    const uint32_t to_end[] = {1, 2, 3, 4, 5, 1, 2};
    const int64_t arrival_ms[] = {0, 0, 1000, 4000, 7000, 9750, 9750};
    expect_arrivals(create(&load, 1, trace), arrival_ms, to_end, 7, trace);
    load.trace_window_ns = 1000 * NS_PER_S;
    expect_arrivals(create(&load, 1, trace), arrival_ms, to_end, 7, trace);
    /* A quiet end of a window inside the file belongs to it: [1 s, 9 s) takes 8 s. */
    load.trace_window_ns = 8 * NS_PER_S;
    load.requests = 5;
    expect_arrivals(create(&load, 1, trace), (const int64_t[]){0, 0, 1000, 4000, 8000}, rows, 5, trace);
    trace_file_free(trace);
}

static void test_trace_rate(void **state)
{
    (void)state;
    struct trace_file *trace = make_trace();
    struct load load = trace_load();
    /* Four requests in 6 s; at 1/s they take 4 s, so that 1 s becomes 666,666,666.67 ns. */
    load.rate_micro_per_s = 1000000;
    struct workload *workload = create(&load, 1, trace);
    struct workload_summary summary;
    workload_describe(workload, &summary);
    assert_int_equal(summary.requests, 4);
    assert_int_equal(summary.rate_micro_per_s, 1000000);
    assert_int_equal(summary.recorded_rate_micro_per_s, 666666);
    assert_int_equal(summary.span_ns, 4 * NS_PER_S);
    assert_int_equal(summary.prompt_tokens_mean_milli, (20 + 600 + 40 + 50) * 1000 / 4);
    assert_int_equal(summary.output_tokens_mean_milli, 3500);
    assert_int_equal(summary.window_rows, 4);
    assert_int_equal(summary.first_row, 0);
    assert_int_equal(take(workload, 0).arrival_ns, 0);
    assert_int_equal(take(workload, 1).arrival_ns, 0);
    assert_int_equal(take(workload, 2).arrival_ns, 666666666);
    assert_int_equal(take(workload, 3).arrival_ns, 2666666666);
    expect_end(workload);
    /* Three of them, before the fourth comes at 4 s: the rate is that of what is played. */
    load.requests = 3;
    const uint32_t rows[] = {1, 2, 3};
    expect_arrivals(create(&load, 1, trace), (const int64_t[]){0, 0, 750}, rows, 3, trace);
    /* A duration of 3.5 s at 1/s holds three as well. */
    load.requests = 0;
    load.duration_ns = 3500 * NS_PER_MS;
    expect_arrivals(create(&load, 1, trace), (const int64_t[]){0, 0, 750}, rows, 3, trace);
    trace_file_free(trace);
}

/* Seeds begin at different rows of the same circle: every row once a turn, the gaps those that were recorded. */
static void test_trace_rotation(void **state)
{
    (void)state;
    struct trace_file *trace = make_trace();
    struct load load = trace_load();
    const int64_t gap_ms[] = {0, 1000, 3000, 2000}; /* from rows 1, 2, 3, 4 to the next, the last around the end */
    bool began[4] = {false};
    for (uint64_t seed = 0; seed < 64; seed++) {
        struct workload *workload = create(&load, seed, trace);
        struct workload_summary summary;
        workload_describe(workload, &summary);
        assert_true(summary.first_row < 4);
        if (seed == 0)
            assert_int_equal(summary.first_row, 2);
        began[summary.first_row] = true;
        int64_t arrival_ms[4] = {0};
        uint32_t rows[4];
        for (uint32_t i = 0; i < 4; i++) {
            rows[i] = 1 + (summary.first_row + i) % 4;
            if (i > 0)
                arrival_ms[i] = arrival_ms[i - 1] + gap_ms[rows[i - 1] - 1];
        }
        expect_arrivals(workload, arrival_ms, rows, 4, trace);
    }
    assert_true(began[0] && began[1] && began[2] && began[3]);
    trace_file_free(trace);
}

/* The shipped Azure trace as a planner plays it: 2,000 requests at 16/s. Seed 1 begins with the file, others elsewhere,
 * and every one of them offers 16/s: the request that would follow comes at 125 s. */
static void test_azure_at_a_rate(void **state)
{
    (void)state;
    char path[1024];
    struct user_error error = {.set = false};
    snprintf(path, sizeof path, "%s/scenarios/traces/azure-2023-conversation.csv.xz", TANDEM_SOURCE_DIR);
    struct trace_file *trace = trace_file_read(path, &(struct trace_options){.format = TRACE_FORMAT_AZURE_CSV}, &error);
    if (trace == NULL)
        fail_msg("%s", error.text);
    struct load load = {.arrivals = ARRIVAL_TRACE, .rate_micro_per_s = 16000000, .requests = 2000, .trace_repeat = 1};
    uint32_t first_rows[4];
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct workload *workload = create(&load, seed, trace);
        struct workload_summary summary;
        workload_describe(workload, &summary);
        assert_int_equal(summary.requests, 2000);
        assert_int_equal(summary.span_ns, 125 * NS_PER_S);
        assert_int_equal(summary.window_rows, 19366);
        first_rows[seed] = summary.first_row;
        for (uint32_t id = 0; id < 2000; id++) {
            struct workload_item item = take(workload, id);
            uint32_t row = (summary.first_row + id) % 19366;
            assert_int_equal(item.spec.prompt_tokens, trace->prompt_tokens[row]);
            assert_null(item.spec.blocks);
            assert_true(id > 0 ? item.arrival_ns < 125 * NS_PER_S : item.arrival_ns == 0);
        }
        expect_end(workload);
    }
    assert_int_equal(first_rows[1], 0);
    for (int seed = 0; seed < 4; seed++)
        for (int other = 0; other < seed; other++)
            assert_true(first_rows[seed] != first_rows[other]);
    trace_file_free(trace);
}

/* ---- Errors and summaries -------------------------------------------------------------------------------------- */

static void test_errors(void **state)
{
    (void)state;
    struct load load = generated_load(ARRIVAL_POISSON);
    load.requests = 0;
    expect_create_error(&load, NULL, "load: never ends, expected requests or a duration");
    load.duration_ns = 1000000 * NS_PER_S;
    load.rate_micro_per_s = UINT64_C(2000000000);
    expect_create_error(&load, NULL, "load.duration: holds more than 1073741824 requests at this rate");
    load = generated_load(ARRIVAL_POISSON);
    load.rate_micro_per_s = 0;
    expect_create_error(&load, NULL, "load.rate: missing, expected requests per second");
    load.rate_micro_per_s = 1;
    load.requests = 1000;
    expect_create_error(&load, NULL, "load.rate: so low that the last request would come after more than 14 years");
    load = generated_load(ARRIVAL_POISSON);
    load.prompt.low = 0;
    expect_create_error(&load, NULL, "load.prompt: 0 to 2048 tokens, expected 1 to 2097152, ascending");
    load = generated_load(ARRIVAL_POISSON);
    load.prompt.high = 2097152;
    expect_create_error(&load, NULL,
                        "load.output: the longest prompt and the longest output are more than 2097152 tokens");
    load.output = (struct length_distribution){.kind = LENGTH_QUANTILES, .quantile_count = 1, .quantile_tokens = {1}};
    expect_create_error(&load, NULL, "load.output: quantiles must reach from 0 to 1, 2 to 64 of them");
    load.output = (struct length_distribution){
        .kind = LENGTH_QUANTILES, .quantile_count = 2, .quantile_permille = {0, 1000}, .quantile_tokens = {2, 1}};
    expect_create_error(&load, NULL, "load.output: quantiles must ascend, their lengths must not descend");
    load = generated_load(ARRIVAL_CLOSED);
    load.concurrency = 0;
    expect_create_error(&load, NULL, "load.concurrency: expected 1 to 1048576 clients");
    load = generated_load(ARRIVAL_BURST);
    load.burst_size = 0;
    expect_create_error(&load, NULL, "load.burst: expected 1 to 1048576 requests at once");
}

static void test_trace_errors(void **state)
{
    (void)state;
    struct trace_file *trace = make_trace();
    struct load load = trace_load();
    load.trace_window_start_ns = 10 * NS_PER_S;
    expect_create_error(&load, trace,
                        "six.jsonl: load.window: no request arrives in it; the last of the file arrives after 9 s");
    load = trace_load();
    load.trace_repeat = UINT32_MAX;
    expect_create_error(&load, trace, "load.repeat: more than 2147483648 requests, or 146 years, in all");
    load = trace_load();
    load.rate_micro_per_s = 1000000;
    load.requests = 1; /* of the two at one instant */
    expect_create_error(&load, trace,
                        "load.rate: cannot be given: the requests of the trace that are played arrive at one instant");
    trace_file_free(trace);
}

static void test_summary(void **state)
{
    (void)state;
    struct load load = generated_load(ARRIVAL_POISSON);
    struct workload_summary summary;
    struct workload *workload = create(&load, 1, NULL);
    workload_describe(workload, &summary);
    assert_int_equal(summary.requests, 10);
    assert_int_equal(summary.rate_micro_per_s, 16000000);
    assert_int_equal(summary.span_ns, 625 * NS_PER_MS);
    assert_int_equal(summary.prompt_tokens_mean_milli, 1280000);
    assert_int_equal(summary.output_tokens_mean_milli, 128000);
    assert_int_equal(summary.window_rows, 0);
    workload_free(workload);
    load.requests = 0;
    load.duration_ns = 10 * NS_PER_S;
    workload = create(&load, 1, NULL);
    workload_describe(workload, &summary);
    assert_int_equal(summary.requests, 160);
    assert_int_equal(summary.span_ns, 10 * NS_PER_S);
    workload_free(workload);
    load.arrivals = ARRIVAL_CLOSED;
    workload = create(&load, 1, NULL);
    workload_describe(workload, &summary);
    assert_int_equal(summary.requests, 0);
    assert_int_equal(summary.rate_micro_per_s, 0);
    assert_int_equal(summary.span_ns, 0);
    workload_free(workload);
}

/* ---- Profiles ---------------------------------------------------------------------------------------------------- */

static struct rate_profile two_steps(void)
{
    return (struct rate_profile){.count = 3,
                                 .step = {{.lasts_ns = NS_PER_S, .weight = 1000},
                                          {.lasts_ns = NS_PER_S, .weight = 0},
                                          {.lasts_ns = 2 * NS_PER_S, .weight = 3500}}};
}

/* A period of 4 s brings 8,000 parts: an eighth in its first second, nothing in the next. */
static void a_profile_moves_time(void **state)
{
    (void)state;
    static const struct rate_profile none = {.count = 0};
    const struct rate_profile profile = two_steps();
    assert_int_equal(rate_profile_time(&none, 12345), 12345);
    assert_int_equal(rate_profile_time(&profile, 0), 0);
    assert_int_equal(rate_profile_time(&profile, NS_PER_S / 4), NS_PER_S / 2);
    assert_int_equal(rate_profile_time(&profile, NS_PER_S / 2 - 1), NS_PER_S - 2);
    assert_int_equal(rate_profile_time(&profile, NS_PER_S / 2), 2 * NS_PER_S);
    assert_int_equal(rate_profile_time(&profile, 9 * NS_PER_S / 4), 3 * NS_PER_S);
    assert_int_equal(rate_profile_time(&profile, 4 * NS_PER_S), 4 * NS_PER_S);
    assert_int_equal(rate_profile_time(&profile, 400 * NS_PER_S + NS_PER_S / 4), 400 * NS_PER_S + NS_PER_S / 2);
    assert_int_equal(rate_profile_time(&profile, TIME_NEVER), TIME_NEVER);
    int64_t before_ns = 0;
    for (int64_t even_ns = 0; even_ns < 9 * NS_PER_S; even_ns += 12345677) {
        int64_t at_ns = rate_profile_time(&profile, even_ns);
        assert_true(at_ns >= before_ns);
        before_ns = at_ns;
    }
}

/* So many requests as the steps say, the lengths of those that come evenly, and the mean rate that was asked for. */
static void requests_come_by_the_profile(void **state)
{
    (void)state;
    static const enum arrival_kind kinds[] = {ARRIVAL_POISSON, ARRIVAL_UNIFORM, ARRIVAL_BURST, ARRIVAL_SESSIONS};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct load load = generated_load(kinds[k]);
        load.requests = 32000; /* 2,000 s, 500 periods */
        load.concurrency = 0;
        load.session_turns = (struct length_distribution){.kind = LENGTH_CONSTANT, .low = 1, .high = 1};
        load.session_block_tokens = 64;
        struct workload *even = create(&load, 3, NULL);
        load.profile = two_steps();
        struct workload *moved = create(&load, 3, NULL);
        uint32_t counts[4] = {0};
        struct workload_item a, b;
        int64_t last_ns = 0;
        while (workload_next(even, &a)) {
            assert_true(workload_next(moved, &b));
            assert_int_equal(a.spec.prompt_tokens, b.spec.prompt_tokens);
            assert_int_equal(b.arrival_ns, rate_profile_time(&load.profile, a.arrival_ns));
            counts[b.arrival_ns / NS_PER_S % 4]++;
            last_ns = b.arrival_ns;
        }
        assert_false(workload_next(moved, &b));
        assert_in_range(counts[0], 3700, 4300);
        assert_int_equal(counts[1], 0);
        assert_in_range(counts[2], 13200, 14800);
        assert_in_range(counts[3], 13200, 14800);
        assert_in_range(last_ns / NS_PER_S, 1900, 2100);
        workload_free(even);
        workload_free(moved);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uniform_arrivals),
        cmocka_unit_test(test_duration),
        cmocka_unit_test(test_poisson_statistics),
        cmocka_unit_test(test_poisson_golden),
        cmocka_unit_test(test_streams_are_apart),
        cmocka_unit_test(test_bursts),
        cmocka_unit_test(test_slowest_rate),
        cmocka_unit_test(test_uniform_lengths),
        cmocka_unit_test(test_quantile_lengths),
        cmocka_unit_test(test_quantile_rounding),
        cmocka_unit_test(test_closed_loop),
        cmocka_unit_test(test_aborts),
        cmocka_unit_test(test_aborts_follow_arrivals),
        cmocka_unit_test(test_aborts_in_closed_loop),
        cmocka_unit_test(test_trace_as_recorded),
        cmocka_unit_test(test_trace_repeats),
        cmocka_unit_test(test_trace_rate),
        cmocka_unit_test(test_trace_rotation),
        cmocka_unit_test(test_azure_at_a_rate),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_trace_errors),
        cmocka_unit_test(test_summary),
        cmocka_unit_test(a_profile_moves_time),
        cmocka_unit_test(requests_come_by_the_profile),
    };
    return cmocka_run_group_tests_name("workload", tests, NULL, NULL);
}
