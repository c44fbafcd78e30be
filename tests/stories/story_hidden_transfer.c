/* A transfer hides behind prefill: while a chunk is computed, the pages of the one before it travel. What is exposed of
 * the transfer is no more than the last layer of the last chunk takes. */
#include "support/town.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct town town;

static void a_transfer_hides_behind_prefill(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    town_make(&town, &config);
    town_prompt(&town, 0, 7, 200, 3);
    /* Decoder first: it takes pages for 199 tokens and some headroom, arms the count (13 pages, 4 layers, 2 planes), and only
     * then asks. */
    town_until(&town, 10);
    expect_trace(&town, "");
    /* Four chunks of 64, 64, 64 and 7 tokens; the first three send 4 pages each, the last the page that is not full. */
    town_until(&town, 208);
    expect_trace(&town, "");
    /* The decoder is ready while the prefiller's last completion is still on its way. The last prompt token is the decoder's own
     * first step. */
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transfer_hides_behind_prefill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
