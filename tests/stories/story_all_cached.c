/* A prompt of which everything is cached at the prefiller: no forward pass, and all of its pages are sent. */
#include "support/town.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct town town;

static void everything_is_cached(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    static const uint64_t blocks[] = {101, 102};
    struct request_spec request = {.prompt_tokens = 65,
                                   .output_tokens = 2,
                                   .block_count = 2,
                                   .block_tokens = 32,
                                   .deadline_ns = INT64_MAX,
                                   .blocks = blocks};
    config.nodes[1].scheduler.prefix_cache = 1;
    town_make(&town, &config);
    town_arrives(&town, 0, &request);
    town_until(&town, 900);
    assert_int_equal(town.ends[0], 1);
    expect_trace(&town, "");
    /* The same prompt again. */
    request.id = 1;
    town_arrives(&town, 1000, &request);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

static void everything_is_cached_at_the_decoder(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    static const uint64_t blocks[] = {101, 102};
    struct request_spec request = {.prompt_tokens = 65,
                                   .output_tokens = 1,
                                   .block_count = 2,
                                   .block_tokens = 32,
                                   .deadline_ns = INT64_MAX,
                                   .blocks = blocks};
    config.nodes[2].scheduler.prefix_cache = 1;
    town_make(&town, &config);
    town_arrives(&town, 0, &request);
    town_until(&town, 900);
    expect_trace(&town, "");
    /* The same prompt again: nobody is asked. */
    request.id = 1;
    town_arrives(&town, 1000, &request);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_cached),
        cmocka_unit_test(everything_is_cached_at_the_decoder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
