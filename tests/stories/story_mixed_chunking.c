/* One instance prefills and decodes: a long prompt is cut into chunks that share their steps with the tokens of another. */
#include "support/town.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct town town;

static void a_long_prompt_beside_decode(void **state)
{
    (void)state;
    struct town_config config = town_config_of(0, 0, 1);
    config.nodes[1].scheduler.token_budget = 33;
    town_make(&town, &config);
    town_prompt(&town, 0, 1, 20, 5);
    town_prompt(&town, 10, 2, 90, 2);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

static void an_output_of_one_token_never_decodes(void **state)
{
    (void)state;
    struct town_config config = town_config_of(0, 0, 1);
    town_make(&town, &config);
    town_prompt(&town, 0, 1, 20, 1);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_prompt_beside_decode),
        cmocka_unit_test(an_output_of_one_token_never_decodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
