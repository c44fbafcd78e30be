/* Prefillers that refuse: the decoder gives back what it held, and the front tries again or tells the client. */
#include "support/story.h"
#include "support/town.h"

static struct town town;

/* The prefiller has a place for one request. */
static void a_full_table_is_tried_again(void **state)
{
    (void)state;
    struct town_config config = town_config_of(2, 1, 0);
    config.nodes[1].requests_max = 1;
    town_make(&town, &config);
    town_prompt(&town, 0, 1, 40, 1);
    town_prompt(&town, 0, 2, 40, 1);
    town_prompt(&town, 0, 3, 40, 1);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

/* The prefiller does not know the layout that the decoder says it has: the client is told, nobody tries again. */
static void an_unknown_layout_is_the_clients_to_know(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    town_make(&town, &config);
    town_meets(&town, &(struct mishap){.kind = MISHAP_GEOMETRY_REFUSED, .nth = 1});
    town_prompt(&town, 0, 1, 40, 1);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_table_is_tried_again),
        cmocka_unit_test(an_unknown_layout_is_the_clients_to_know),
    };
    return run_stories(argc, argv, tests);
}
