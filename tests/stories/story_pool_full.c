/* The decoder has no pages for a second request: it waits, holding nothing, and nothing is dropped. */
#include "support/town.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct town town;

static void a_full_pool_makes_a_request_wait(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    config.nodes[2].pages_per_group = 10;
    town_make(&town, &config);
    town_prompt(&town, 0, 1, 100, 4);
    town_prompt(&town, 1, 2, 100, 4);
    town_until(&town, 20);
    expect_trace(&town, "");
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_pool_makes_a_request_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
