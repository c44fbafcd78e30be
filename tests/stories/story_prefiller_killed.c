/* A prefiller dies in the middle of a transfer. Its decoder keeps the pages until it is fenced; then the request is tried
 * again with the other prefiller. */
#include "support/town.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct town town;

static void a_prefiller_dies(void **state)
{
    (void)state;
    struct town_config config = town_config_of(2, 1, 0);
    town_make(&town, &config);
    town_prompt(&town, 0, 7, 200, 2);
    town_dies(&town, 100, 1);
    town_until(&town, 99);
    expect_trace(&town, "");
    /* Suspected after 300 us: quarantine. Fenced 200 us later: the pages come back and the front learns of it. */
    town_until(&town, 610);
    expect_trace(&town, "");
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

static void its_replacement_is_there_before_the_fence(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    town_make(&town, &config);
    town_prompt(&town, 0, 7, 40, 1);
    town_dies(&town, 20, 1);
    town_returns(&town, 50, 1);
    town_prompt(&town, 100, 8, 17, 1); /* served by the replacement while its predecessor may still write */
    town_until(&town, 250);
    expect_trace(&town, "");
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefiller_dies),
        cmocka_unit_test(its_replacement_is_there_before_the_fence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
