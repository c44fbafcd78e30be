/* Prompts whose KV just fills a page, and just does not: 15, 16 and 17 tokens are fetched, and none at all. */
#include "support/town.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct town town;

static void one_token_short_of_a_page(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    town_make(&town, &config);
    town_prompt(&town, 0, 1, 16, 1);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

static void exactly_a_page(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    town_make(&town, &config);
    town_prompt(&town, 0, 1, 17, 1);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

static void one_token_more(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    config.nodes[1].scheduler.chunk_tokens = 16; /* the last chunk is one token, and completes nothing but the prompt */
    town_make(&town, &config);
    town_prompt(&town, 0, 1, 18, 1);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

static void a_prompt_of_one_token(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    town_make(&town, &config);
    town_prompt(&town, 0, 1, 1, 1);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_token_short_of_a_page),
        cmocka_unit_test(exactly_a_page),
        cmocka_unit_test(one_token_more),
        cmocka_unit_test(a_prompt_of_one_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
