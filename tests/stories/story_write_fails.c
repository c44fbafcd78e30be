/* Writes that fail: the prefiller stops, tells the decoder when nothing is posted any more, and both give back all. */
#include "support/story.h"
#include "support/town.h"

static struct town town;

static void the_first_write_fails(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    town_make(&town, &config);
    town_meets(&town, &(struct mishap){.kind = MISHAP_WRITE_FAILED, .nth = 1});
    town_prompt(&town, 0, 7, 100, 1);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

/* All bytes have landed, and the prefiller is told that the last write failed: the count decides, the refusal is late.
 */
static void the_last_write_landed_and_failed(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    town_make(&town, &config);
    town_meets(&town, &(struct mishap){.kind = MISHAP_WRITE_IN_ERROR, .nth = 1});
    town_prompt(&town, 0, 7, 40, 1);
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_write_fails),
        cmocka_unit_test(the_last_write_landed_and_failed),
    };
    return run_stories(argc, argv, tests);
}
