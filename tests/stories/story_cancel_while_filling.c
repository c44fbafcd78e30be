/* The client goes away while its KV is being sent. The decoder keeps the pages until the prefiller has confirmed that nothing
 * is posted any more; only then is the abort complete. */
#include "support/town.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct town town;

static void a_cancel_while_filling(void **state)
{
    (void)state;
    struct town_config config = town_config_of(1, 1, 0);
    town_make(&town, &config);
    town_prompt(&town, 0, 7, 200, 3);
    town_aborts(&town, 100, 7);
    town_until(&town, 99);
    expect_trace(&town, "");
    /* The abort reaches the decoder, its cancel the prefiller, which is in the second chunk: what is posted goes out, the
     * prefiller answers, and the step ends on pages that nobody wants. */
    town_run(&town);
    expect_trace(&town, "");
    town_free(&town);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cancel_while_filling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
