/* The comparison with golden files: it must see every difference, or every golden test would be blind. */
#define _POSIX_C_SOURCE 200809L

#include "support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/tandem-golden-XXXXXX";
static char message[512];

static int make_file(void **state)
{
    (void)state;
    int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static bool equal_after_blessing(const char *blessed, const char *text)
{
    message[0] = '\0';
    assert_true(golden_equal(path, blessed, true, message, sizeof message));
    return golden_equal(path, text, false, message, sizeof message);
}

static void equal_texts_pass(void **state)
{
    (void)state;
    assert_true(equal_after_blessing("", ""));
    assert_true(equal_after_blessing("one\ntwo\n", "one\ntwo\n"));
    assert_true(equal_after_blessing("no newline", "no newline"));
}

static void every_difference_is_seen(void **state)
{
    (void)state;
    assert_false(equal_after_blessing("one\ntwo\n", "one\nTwo\n"));
    assert_non_null(strstr(message, ":2: differs"));
    assert_non_null(strstr(message, "expected: two\n"));
    assert_non_null(strstr(message, "got:      Two"));
    assert_false(equal_after_blessing("one\n", "one"));
    assert_false(equal_after_blessing("one", "one\n"));
    assert_false(equal_after_blessing("one\n", "one\ntwo\n"));
    assert_false(equal_after_blessing("one\ntwo\n", "one\n"));
    assert_false(equal_after_blessing("", "\n"));
}

static void long_texts_are_read_whole(void **state)
{
    (void)state;
    static char text[20001], changed[20001];
    memset(text, 'x', sizeof text - 1);
    for (size_t i = 99; i < sizeof text - 1; i += 100)
        text[i] = '\n';
    memcpy(changed, text, sizeof text);
    changed[sizeof text - 3] = 'y';
    assert_true(equal_after_blessing(text, text));
    assert_false(equal_after_blessing(text, changed));
    assert_non_null(strstr(message, ":200: differs"));
}

static void a_missing_file_fails(void **state)
{
    (void)state;
    assert_false(golden_equal("/nonexistent/golden.txt", "", false, message, sizeof message));
    assert_non_null(strstr(message, "scripts/bless makes it"));
    assert_false(golden_equal("/nonexistent/golden.txt", "", true, message, sizeof message));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_texts_pass),
        cmocka_unit_test(every_difference_is_seen),
        cmocka_unit_test(long_texts_are_read_whole),
        cmocka_unit_test(a_missing_file_fails),
    };
    return cmocka_run_group_tests_name("golden", tests, make_file, remove_file);
}
