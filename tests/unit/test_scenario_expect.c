/* The checks a scenario makes of its own result: what holds, what does not, and what is wrong with the check itself. */
#include "support/scenario_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static json_t *make_result(void)
{
    json_t *result = json_pack("{s:i, s:i, s:f, s:b, s:n, s:s, s:{s:f, s:f}, s:[{s:s, s:f}, {s:s, s:f}]}", "requests",
                               100, "completed", 98, "goodput_per_s", 2.5, "stable", 1, "nothing", "backend", "sim",
                               "ttft_ms", "p50", 120.5, "p95", 480.25, "instances", "name", "prefill-0", "utilization",
                               0.5, "name", "decode-0", "utilization", 0.75);
    assert_non_null(result);
    return result;
}

static enum expect_outcome run(const char *body, const char *function, char *text)
{
    char *field = scenario_text_replace("FUNCTION = function(r)\nBODY\nend,\n  plan = { nodes", "FUNCTION", function);
    char *filled = scenario_text_replace(field, "BODY", body);
    char *source = scenario_text_replace(scenario_text_good, "plan = { nodes", filled);
    struct scenario *s = scenario_text_must_load(source, NULL, 0);
    struct user_error error = {.set = false};
    json_t *result = make_result();
    enum expect_outcome outcome =
        strcmp(function, "expect") == 0 ? scenario_expect(s, result, &error) : scenario_expect_plan(s, result, &error);
    assert_int_equal(outcome != EXPECT_HELD, error.set);
    memcpy(text, error.text, sizeof error.text);
    json_decref(result);
    scenario_free(s);
    free(source);
    free(filled);
    free(field);
    return outcome;
}

static void test_held(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "",
        "check(r.completed == 98 and r.requests == 100, 'counts')",
        "check(r.ttft_ms.p95 == 480.25) check(r.stable) check(r.backend == 'sim')",
        "check(r.nothing == nil, 'null is nil')",
        "check(#r.instances == 2) check(r.instances[2].name == 'decode-0') check(r.instances[3] == nil)",
        "local sum = 0\nfor _, i in ipairs(r.instances) do sum = sum + i.utilization end\ncheck(sum == 1.25)",
    };
    char text[2048];
    for (size_t k = 0; k < sizeof bodies / sizeof bodies[0]; k++) {
        if (run(bodies[k], "expect", text) != EXPECT_HELD)
            fail_msg("%s: %s", bodies[k], text);
    }
}

static void test_failed(void **state)
{
    (void)state;
    char text[2048];
    assert_int_equal(run("check(r.completed == 100, 'all complete')\n"
                         "check(true, 'never seen')\n"
                         "check(r.ttft_ms.p95 < 400, string.format('p95 of %.1f ms', r.ttft_ms.p95))\n"
                         "check(nil)",
                         "expect", text),
                     EXPECT_FAILED);
    assert_string_equal(text, "plan.lua:28: expect: all complete\nplan.lua:30: expect: p95 of 480.2 ms\n"
                              "plan.lua:31: expect: a check does not hold");
    assert_int_equal(run("check(false, 'of a plan')", "expect_plan", text), EXPECT_FAILED);
    assert_string_equal(text, "plan.lua:28: expect_plan: of a plan");
}

/* More failures than fit are cut between two of them. */
static void test_many_failures(void **state)
{
    (void)state;
    char text[2048];
    assert_int_equal(run("for k = 1, 1000 do check(false, 'number ' .. k) end", "expect", text), EXPECT_FAILED);
    assert_non_null(strstr(text, "plan.lua:28: expect: number 1\n"));
    const char *last = strrchr(text, '\n');
    assert_non_null(last);
    assert_int_equal(strncmp(last, "\nplan.lua:28: expect: number ", 29), 0);
    assert_true(strlen(text) > 1000);
}

static void test_broken(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        const char *expected;
    } bad[] = {
        {"check(r.complete == 98)", "plan.lua:28: the result has no 'complete'; did you mean 'completed'?"},
        {"check(r.ttft_ms.p96 < 3)", "plan.lua:28: the result has no 'p96'; did you mean 'p95'?"},
        {"check(r.unheard_of_thing)", "plan.lua:28: the result has no 'unheard_of_thing'"},
        {"r.completed = 100", "plan.lua:28: the result cannot be changed"},
        {"r.instances[1].name = 'x'", "plan.lua:28: the result cannot be changed"},
        {"check()", "plan.lua:28: check takes a condition and a text, as in check(r.failed == 0, 'none fails')"},
        {"while true do end", "plan.lua:28: the scenario ran for too long; is there an endless loop?"},
        {"error('no')", "plan.lua:28: no"},
        {"local x = nil + 1", "plan.lua:28: attempt to perform arithmetic on a nil value"},
    };
    char text[2048];
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        assert_int_equal(run(bad[k].body, "expect", text), EXPECT_BROKEN);
        assert_string_equal(text, bad[k].expected);
    }
}

/* A scenario may be asked again and again, after failures too. */
static void test_again(void **state)
{
    (void)state;
    char *source = scenario_text_replace(scenario_text_good, "plan = { nodes",
                                         "expect = function(r) check(r.completed == 100, 'all') end, plan = { nodes");
    struct scenario *s = scenario_text_must_load(source, NULL, 0);
    assert_true(s->has_expect);
    json_t *good = json_pack("{s:i}", "completed", 100);
    json_t *bad = json_pack("{s:i}", "completed", 99);
    for (int k = 0; k < 3; k++) {
        struct user_error error = {.set = false};
        assert_int_equal(scenario_expect(s, bad, &error), EXPECT_FAILED);
        error = (struct user_error){.set = false};
        assert_int_equal(scenario_expect(s, good, &error), EXPECT_HELD);
        assert_int_equal(scenario_expect_plan(s, bad, &error), EXPECT_HELD); /* it has none */
        assert_false(error.set);
    }
    json_decref(bad);
    json_decref(good);
    scenario_free(s);
    free(source);
}

static void test_check_outside(void **state)
{
    (void)state;
    scenario_text_must_fail("check(true)", NULL, 0, "plan.lua:1: check belongs inside expect = function(r) ... end");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_held),   cmocka_unit_test(test_failed), cmocka_unit_test(test_many_failures),
        cmocka_unit_test(test_broken), cmocka_unit_test(test_again),  cmocka_unit_test(test_check_outside),
    };
    return cmocka_run_group_tests_name("scenario_expect", tests, scenario_text_setup, scenario_text_teardown);
}
