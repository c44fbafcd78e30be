/* Suites: what a file says is what is run, and errors name line, key and the nearest name. */
#include "run/suite.h"

#include "support/scenario_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct suite *load(const char *text, struct user_error *error)
{
    scenario_text_write("own.lua", text, strlen(text));
    *error = (struct user_error){.set = false};
    return suite_load("own.lua", error);
}

static void a_suite_is_what_it_says(void **state)
{
    (void)state;
    struct user_error error;
    scenario_text_write("plan.lua", scenario_text_good, strlen(scenario_text_good));
    struct suite *suite =
        load("return suite {\n"
             "  question = 'Is it as it was?', seeds = 3, tolerance = percent(2.5),\n"
             "  cases = {\n"
             "    case { scenario = 'plan.lua' },\n"
             "    case { name = 'other', scenario = 'w1-llama-70b.lua', seeds = 7, first_seed = 40,\n"
             "      tolerance = percent(0), watch = { 'e2e.p99.9', 'spans.prefill.mean', 'goodput' },\n"
             "      set = { ['load.rate'] = per_second(8), ['load.requests'] = 20 } },\n"
             "  },\n"
             "}\n",
             &error);
    if (suite == NULL)
        fail_msg("%s", error.text);
    assert_int_equal(suite->case_count, 2);
    const struct suite_case *one = &suite->cases[0];
    assert_string_equal(one->name, "plan");
    assert_string_equal(one->scenario, "plan.lua");
    assert_int_equal(one->seeds, 3);
    assert_int_equal(one->first_seed, 1);
    assert_int_equal(one->tolerance_permille, 25);
    assert_int_equal(one->set_count, 0);
    assert_int_equal(one->watch_count, 5);
    assert_string_equal(one->watch[1].name, "ttft.p95");
    assert_int_equal(one->watch[1].kind, WATCH_TTFT);
    assert_int_equal(one->watch[1].percentile_permille, 950);
    const struct suite_case *two = &suite->cases[1];
    assert_string_equal(two->name, "other");
    assert_non_null(strstr(two->scenario, "/scenarios/w1-llama-70b.lua")); /* of the shipped ones */
    assert_int_equal(two->seeds, 7);
    assert_int_equal(two->first_seed, 40);
    assert_int_equal(two->tolerance_permille, 0);
    assert_int_equal(two->set_count, 2);
    assert_string_equal(two->sets[0].path, "load.rate");
    assert_string_equal(two->sets[0].value, "per_second(8)");
    assert_string_equal(two->sets[1].value, "20");
    assert_int_equal(two->watch[0].percentile_permille, 999);
    assert_int_equal(two->watch[1].kind, WATCH_SPAN);
    assert_int_equal(two->watch[1].span, 3);
    assert_int_equal(two->watch[1].percentile_permille, WATCH_MEAN);
    assert_true(two->watch[2].more_is_better && !two->watch[1].more_is_better);
    suite_free(suite);
}

static void wrong(const char *text, const char *expected)
{
    struct user_error error;
    struct suite *suite = load(text, &error);
    if (suite != NULL)
        fail_msg("loaded; expected: %s", expected);
    assert_string_equal(error.text, expected);
}

#define ONE(body) "return suite {\n  question = 'x',\n  cases = {\n    case { scenario = 'plan.lua',\n" body " } } }\n"

static void errors_name_line_and_key(void **state)
{
    (void)state;
    scenario_text_write("plan.lua", scenario_text_good, strlen(scenario_text_good));
    wrong("return scenario { }\n", "own.lua: must end with: return suite { ... }");
    wrong("return suite {\n  question = 'x',\n  csaes = {},\n}\n",
          "own.lua:3: csaes: unknown key; did you mean 'cases'?");
    wrong("return suite {\n  question = 'x',\n  cases = {},\n}\n", "own.lua:3: cases: at least one entry is wanted");
    wrong("return suite {\n  question = 'x',\n  seeds = 0,\n  cases = {},\n}\n",
          "own.lua:3: seeds: must be at least 1, not 0");
    wrong(ONE("tolerance = 1"),
          "own.lua:5: cases.1.tolerance: a share is wanted, not the bare number 1: write it as in percent(1)");
    wrong(ONE("watch = { 'ttfp.p95' }"),
          "own.lua:5: cases.1.watch: nothing is called 'ttfp.p95'; did you mean 'ttft'?");
    wrong(ONE("watch = { 'ttft' }"),
          "own.lua:5: cases.1.watch: 'ttft': a statistic is wanted after the name, as in ttft.p95 or ttft.mean");
    wrong(ONE("watch = { 'spans.prefil.p50' }"),
          "own.lua:5: cases.1.watch: nothing is called 'spans.prefil.p50'; did you mean 'spans.prefill'?");
    wrong(ONE("watch = { 'ttft.p101' }"),
          "own.lua:5: cases.1.watch: 'ttft.p101': a statistic is wanted after the name, as in ttft.p95 or ttft.mean");
    wrong(ONE("sedes = 3"), "own.lua:5: cases.1.sedes: unknown key; did you mean 'seeds'?");
    wrong("return suite {\n  question = 'x',\n  cases = {\n    case { scenario = 'plna.lua' } } }\n",
          "own.lua:4: cases.1.scenario: plna.lua is neither beside the suite nor among the shipped scenarios");
    wrong("return suite {\n  question = 'x',\n  cases = {\n    case { scenario = 'plan.lua' },\n"
          "    case { scenario = 'plan.lua' } } }\n",
          "own.lua:5: cases.2.name: case 1 is called 'plan' too; give one of them another name");
    wrong("return suite {\n  question = 'x',\n  cases = { { scenario = 'plan.lua' } } }\n",
          "own.lua:3: cases.1: case { ... } is wanted, not a table");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_suite_is_what_it_says),
        cmocka_unit_test(errors_name_line_and_key),
    };
    return cmocka_run_group_tests(tests, scenario_text_setup, scenario_text_teardown);
}
