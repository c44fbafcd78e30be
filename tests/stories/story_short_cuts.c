/* Requests that need less than others, and pass over states. */
#include "support/story.h"
#include "support/town.h"

static struct town town;

/* One token to prefill is none to fetch: it needs no prefiller, only a place in the batch. */
static void nothing_to_fetch_and_a_step_is_running(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    config.nodes[2].scheduler.batch_max = 1;
    town_make(&town, &config);
    town_prompt(&town, 0, 1, 1, 3);
    town_prompt(&town, 10, 2, 1, 1);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

/* ... or pages, when the first has given them back. */
static void nothing_to_fetch_and_no_pages(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    config.nodes[2].pages_per_group = 1;
    town_make(&town, &config);
    town_prompt(&town, 0, 1, 1, 3);
    town_prompt(&town, 10, 2, 1, 1);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

/* All of the prompt is cached at the prefiller, and messages are slower than writes: the count is reached before the
 * acceptance is heard. */
static void ready_before_accepted(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    static const uint64_t blocks[] = {101};
    struct request_spec request = {.prompt_tokens = 33,
                                   .output_tokens = 3,
                                   .block_count = 1,
                                   .block_tokens = 32,
                                   .deadline_ns = INT64_MAX,
                                   .blocks = blocks};
    config.nodes[1].scheduler.prefix_cache = 1;
    config.message_ns = 100000;
    town_make(&town, &config);
    town_arrives(&town, 0, &request);
    request.id = 1;
    town_arrives(&town, 1000, &request);
    request.id = 2;
    town_arrives(&town, 1020, &request);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

/* Cached, too, but accepted while a step is running. */
static void cached_and_queued(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    static const uint64_t blocks[] = {101};
    struct request_spec request = {.prompt_tokens = 33,
                                   .output_tokens = 1,
                                   .block_count = 1,
                                   .block_tokens = 32,
                                   .deadline_ns = INT64_MAX,
                                   .blocks = blocks};
    config.nodes[1].scheduler.prefix_cache = 1;
    town_make(&town, &config);
    town_arrives(&town, 0, &request);
    town_prompt(&town, 200, 1, 65, 1);
    request.id = 2;
    town_arrives(&town, 220, &request);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

/* The pool is short, and the youngest has its KV but no place in the batch yet. */
static void preempted_before_it_decoded(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    config.nodes[2].pages_per_group = 4;
    config.nodes[2].scheduler.batch_max = 1;
    town_make(&town, &config);
    town_prompt(&town, 0, 1, 17, 30);
    town_prompt(&town, 1, 2, 17, 4);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_to_fetch_and_a_step_is_running),
        cmocka_unit_test(nothing_to_fetch_and_no_pages),
        cmocka_unit_test(ready_before_accepted),
        cmocka_unit_test(cached_and_queued),
        cmocka_unit_test(preempted_before_it_decoded),
    };
    return run_stories(argc, argv, tests);
}
