/* A decoder dies. The prefiller stops writing to it, and the front hands its requests to the other one. */
#include "support/town.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct town town;

static void a_decoder_dies(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 2, 0);
    town_make(&town, &config);
    town_prompt(&town, 0, 7, 100, 2);
    town_dies(&town, 50, 2);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

static void a_decoder_dies_after_the_first_token(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 2, 0);
    town_make(&town, &config);
    town_prompt(&town, 0, 7, 17, 40);
    town_dies(&town, 100, 2);
    town_run(&town);
    /* The client keeps what it has: the first token is not told twice. */
    expect_trace(&town, "");
    town_free(&town);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_decoder_dies),
        cmocka_unit_test(a_decoder_dies_after_the_first_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
