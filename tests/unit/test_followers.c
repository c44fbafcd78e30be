/* Rows of a trace that wait for others: when they come, and that such a trace has no windows. */
#include "base/arith.h"
#include "world/load/trace_reader.h"
#include "world/load/workload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_rows_that_wait(void **state)
{
    (void)state;
    static const char text[] =
        "{\"request_id\": \"r1\", \"timestamp\": 1000, \"input_length\": 20, \"output_length\": 5}\n"
        "{\"request_id\": \"r2\", \"timestamp\": 1100, \"wait_for\": [\"r1\"], \"tool_wait_ms\": 2500,"
        " \"input_length\": 21, \"output_length\": 5}\n"
        "{\"session_id\": 7, \"timestamp\": 900, \"input_length\": 22, \"output_length\": 5}\n"
        "{\"session_id\": 7, \"delay\": 200, \"input_length\": 23, \"output_length\": 5}\n"
        "{\"timestamp\": 90000, \"wait_for\": [\"r1\", \"r2\"], \"input_length\": 24, \"output_length\": 5}\n";
    struct user_error error = {.set = false};
    struct trace_options options = {.format = TRACE_FORMAT_MOONCAKE_JSONL};
    struct trace_file *trace = trace_file_read_memory(text, strlen(text), "agents.jsonl", &options, &error);
    assert_non_null(trace);
    struct load load = {.arrivals = ARRIVAL_TRACE, .trace = options, .trace_repeat = 1};
    struct workload *workload = workload_create(&load, 3, trace, &error);
    assert_non_null(workload);
    assert_true(workload_follows(workload));
    struct workload_item item;
    /* The first of the file that waits for none is at 900 ms, which is time 0; r1 comes 100 ms later. */
    assert_int_equal(workload_next_ns(workload), 0);
    assert_true(workload_next(workload, &item));
    assert_int_equal(item.spec.prompt_tokens, 22);
    assert_int_equal(workload_next_ns(workload), 100 * NS_PER_MS);
    assert_true(workload_next(workload, &item));
    assert_int_equal(item.spec.prompt_tokens, 20);
    assert_int_equal(workload_next_ns(workload), TIME_NEVER); /* all that are left wait */
    workload_answered(workload, 0, 3 * NS_PER_S);             /* the turn before: 200 ms after its answer */
    assert_int_equal(workload_next_ns(workload), 3200 * NS_PER_MS);
    workload_answered(workload, 1, 600 * NS_PER_MS); /* r1: r2 follows 2.5 s after its end, its own time is past */
    assert_int_equal(workload_next_ns(workload), 3100 * NS_PER_MS);
    assert_true(workload_next(workload, &item));
    assert_int_equal(item.spec.prompt_tokens, 21);
    assert_true(workload_next(workload, &item));
    assert_int_equal(item.spec.prompt_tokens, 23);
    assert_int_equal(workload_conversation(workload, 3), 2); /* its row, sorted behind the turn before it */
    /* The last waits for both, and for its own time. */
    assert_int_equal(workload_next_ns(workload), TIME_NEVER);
    workload_answered(workload, 2, 4 * NS_PER_S);
    assert_int_equal(workload_next_ns(workload), 89100 * NS_PER_MS);
    assert_true(workload_next(workload, &item));
    assert_int_equal(item.spec.prompt_tokens, 24);
    assert_int_equal(workload_next_ns(workload), TIME_NEVER);
    workload_free(workload);
    /* It has no other windows, and is played once. */
    load.trace_repeat = 2;
    assert_null(workload_create(&load, 1, trace, &error));
    assert_non_null(strstr(error.text, "requests of the trace wait for others"));
    trace_file_free(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_that_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
