/* The client goes away at every station of a request. */
#include "support/story.h"
#include "support/town.h"

static struct town town;

static void while_it_waits_for_pages(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    config.nodes[2].pages_per_group = 10;
    town_make(&town, &config);
    town_prompt(&town, 0, 1, 100, 2);
    town_prompt(&town, 1, 2, 100, 2);
    town_aborts(&town, 50, 2);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

/* The cancel crosses the acceptance. */
static void before_the_prefiller_has_answered(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    town_make(&town, &config);
    town_prompt(&town, 0, 7, 40, 1);
    town_aborts(&town, 6, 7);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

/* It never had a page at the prefiller. */
static void while_it_is_queued(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    town_make(&town, &config);
    town_prompt(&town, 0, 1, 65, 1);
    town_prompt(&town, 1, 2, 65, 1);
    town_aborts(&town, 30, 2);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

/* Everything is computed and posted, and not everything has landed. */
static void while_its_pages_drain(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    town_make(&town, &config);
    town_prompt(&town, 0, 7, 65, 1);
    town_aborts(&town, 65, 7);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

/* Its KV is here, the batch is full. */
static void while_it_waits_for_a_place_in_the_batch(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    config.nodes[2].scheduler.batch_max = 1;
    town_make(&town, &config);
    town_prompt(&town, 0, 1, 17, 12);
    town_prompt(&town, 1, 2, 17, 12);
    town_aborts(&town, 100, 2);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

/* It leaves with the end of the step. */
static void while_it_decodes(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    town_make(&town, &config);
    town_prompt(&town, 0, 7, 17, 12);
    town_aborts(&town, 100, 7);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(while_it_waits_for_pages),
        cmocka_unit_test(before_the_prefiller_has_answered),
        cmocka_unit_test(while_it_is_queued),
        cmocka_unit_test(while_its_pages_drain),
        cmocka_unit_test(while_it_waits_for_a_place_in_the_batch),
        cmocka_unit_test(while_it_decodes),
    };
    return run_stories(argc, argv, tests);
}
