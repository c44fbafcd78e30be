/* The form of what users are told, and the nearest known name. */
#include "host/user_error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_form(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    user_error_set(&error, "plan.lua", 14, "pools.prefill.count", "must be at least %d, not %d", 1, 0);
    assert_true(error.set);
    assert_string_equal(error.text, "plan.lua:14: pools.prefill.count: must be at least 1, not 0");
    /* The first error explains the others. */
    user_error_set(&error, "other.lua", 1, NULL, "later");
    assert_string_equal(error.text, "plan.lua:14: pools.prefill.count: must be at least 1, not 0");
    error = (struct user_error){.set = false};
    user_error_set(&error, "plan.lua", 0, NULL, "cannot be read");
    assert_string_equal(error.text, "plan.lua: cannot be read");
    error = (struct user_error){.set = false};
    user_error_set(&error, NULL, 3, "", "%s", "alone: 100%");
    assert_string_equal(error.text, "alone: 100%");
}

static void test_long(void **state)
{
    (void)state;
    char file[3000];
    memset(file, 'f', sizeof file - 1);
    file[sizeof file - 1] = '\0';
    struct user_error error = {.set = false};
    user_error_set(&error, file, 3, "path", "text");
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    error = (struct user_error){.set = false};
    user_error_set(&error, "a", 3, "path", "%s", file);
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    assert_int_equal(strncmp(error.text, "a:3: path: fff", 14), 0);
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const known[] = {"rate", "requests", "warmup", "prompt", "batch_max", "s", "ms"};
    static const struct {
        const char *name;
        const char *nearest;
    } cases[] = {
        {"rat", "rate"},
        {"ratee", "rate"},
        {"rtae", "rate"},
        {"RATE", "rate"},
        {"warm_up", "warmup"},
        {"requets", "requests"},
        {"promt", "prompt"},
        {"batchmax", "batch_max"},
        {"max_batch", NULL},
        {"concurrency", NULL},
        {"", NULL},
        {"m", "s"},
        {"n", "s"},
        {"xyz", NULL},
        {"a_name_that_is_much_longer_than_any_that_is_known_to_the_language_of_scenarios", NULL},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const char *nearest = nearest_name(cases[k].name, known, sizeof known / sizeof known[0]);
        if (cases[k].nearest == NULL) {
            if (nearest != NULL)
                fail_msg("%s: %s", cases[k].name, nearest);
        } else {
            assert_non_null(nearest);
            assert_string_equal(nearest, cases[k].nearest);
        }
    }
    assert_null(nearest_name("rate", known, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_nearest),
    };
    return cmocka_run_group_tests_name("user_error", tests, NULL, NULL);
}
