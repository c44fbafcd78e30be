/* Plans of a recorded trace: what its windows are for, and that the answer is the whole trace's. */
#include "base/arith.h"
#include "sim/plan/plan_internal.h"
#include "support/scenarios.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct scenario *make_scenario(uint32_t requests)
{
    struct scenario *scenario = malloc(sizeof *scenario);
    assert_non_null(scenario);
    scenario_llama_70b(scenario, 1, 1, 4, requests);
    for (uint32_t p = 0; p < 2; p++)
        scenario->pools[p].hardware.gpus_per_node = 4;
    scenario->plan = (struct plan_space){.goal = PLAN_HIGHEST_RATE, .requests = requests, .seeds = 2};
    scenario->load.arrivals = ARRIVAL_TRACE;
    return scenario;
}

/* Requests a second each, but for a burst in which they come eight times as fast: it is in the last tenth alone. */
static void make_bursty(struct trace_file *trace, uint32_t count)
{
    *trace = (struct trace_file){.count = count};
    trace->arrival_ns = calloc(count, sizeof *trace->arrival_ns);
    trace->prompt_tokens = calloc(count, sizeof *trace->prompt_tokens);
    trace->output_tokens = calloc(count, sizeof *trace->output_tokens);
    assert_non_null(trace->arrival_ns);
    assert_non_null(trace->prompt_tokens);
    assert_non_null(trace->output_tokens);
    int64_t at_ns = 0;
    for (uint32_t i = 0; i < count; i++) {
        at_ns += i < count * 9 / 10 ? NS_PER_S : NS_PER_S / 8;
        trace->arrival_ns[i] = at_ns;
        trace->prompt_tokens[i] = 1000 + i * 37 % 1000;
        trace->output_tokens[i] = 50 + i * 11 % 50;
    }
}

static void free_bursty(struct trace_file *trace)
{
    free(trace->arrival_ns);
    free(trace->prompt_tokens);
    free(trace->output_tokens);
}

/* Windows see the burst or do not; the answer is what all of the trace gives, which a search over all of it finds. A
 * trace that the seeds would cover is not cut at all. */
static void a_burst_counts_by_what_the_whole_trace_gives(void **state)
{
    (void)state;
    struct trace_file trace;
    struct user_error error = {.set = false};
    uint64_t rates[2];
    make_bursty(&trace, 2000);
    for (uint32_t whole = 0; whole < 2; whole++) {
        struct scenario *scenario = make_scenario(whole ? 1000 : 300);
        struct plan_options options = {.threads = 1};
        struct plan_result result;
        if (plan_search(scenario, &trace, &options, &result, &error) != PLAN_DONE)
            fail_msg("plan: %s", error.text);
        const struct plan_candidate *item = &result.items[0];
        assert_true(result.whole_trace);
        assert_int_equal(result.requests, 2000);
        assert_int_equal(item->whole_done, !whole);
        assert_int_equal(item->seeds, whole ? 1 : 2);
        if (!whole) /* the first window lies before the burst, the last one within */
            assert_true(item->seed_micro_per_s[0] > 2 * item->seed_micro_per_s[1]);
        rates[whole] = item->rate_micro_per_s;
        plan_result_free(&result);
        free(scenario);
    }
    assert_in_range(rates[0], rates[1] - rates[1] / 20, rates[1] + rates[1] / 20);
    free_bursty(&trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_counts_by_what_the_whole_trace_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
