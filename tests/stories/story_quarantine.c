/* Prefillers that are lost at other moments than in the middle of their writes. */
#include "support/story.h"
#include "support/town.h"

static struct town town;

/* Before it has answered: it may have begun to write. */
static void lost_before_it_has_answered(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    town_make(&town, &config);
    town_prompt(&town, 0, 7, 40, 1);
    town_dies(&town, 8, 1);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

/* With a cancel that it will never confirm. */
static void lost_before_it_has_confirmed(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    town_make(&town, &config);
    town_prompt(&town, 0, 7, 200, 1);
    town_dies(&town, 100, 1);
    town_aborts(&town, 150, 7);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lost_before_it_has_answered),
        cmocka_unit_test(lost_before_it_has_confirmed),
    };
    return run_stories(argc, argv, tests);
}
