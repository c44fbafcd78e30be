/* The decoder runs out of pages while decoding: the youngest gives its pages up and has its KV computed again. */
#include "support/town.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct town town;

static void the_youngest_recomputes(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    config.nodes[2].pages_per_group = 5;
    town_make(&town, &config);
    town_prompt(&town, 0, 1, 17, 40);
    town_prompt(&town, 1, 2, 17, 20);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_youngest_recomputes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
