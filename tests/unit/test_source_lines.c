/* The line of a key, found in the text of a scenario without running it. */
#include "host/source_lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char text[] = "local pool = require 'x' -- pool { a = 1 }\n"                          /* 1 */
                           "local t = { a = 0 }\n"                                                 /* 2 */
                           "return scenario {\n"                                                   /* 3 */
                           "  --[[ a = 9,\n"                                                       /* 4 */
                           "  ]] question = 'a = 1, { b', text = [==[ a = 2, ]] {\n"               /* 5 */
                           "  ]==],\n"                                                             /* 6 */
                           "  f = function(r) local a, b = { c = 1 }, 2 if a == b then\n"          /* 7 */
                           "    for _ = 1, 2 do a = 3 end repeat local c, d until true end end,\n" /* 8 */
                           "  a = 1,\n"                                                            /* 9 */
                           "  nested = {\n"                                                        /* 10 */
                           "    ['b.c'] = 2; [500] = 3,\n"                                         /* 11 */
                           "    first(1, 2), { x = 1,\n"                                           /* 12 */
                           "      y = 2 },\n"                                                      /* 13 */
                           "  },\n"                                                                /* 14 */
                           "  made = pool { x = 1, 'it''s',\n"                                     /* 15 */
                           "    y = \"\\\"}\",\n"                                                  /* 16 */
                           "    z = 2 },\n"                                                        /* 17 */
                           "}\n";

static int find(const char *constructor, int line, const char *a, const char *b, const char *c)
{
    const char *const keys[] = {a, b, c};
    size_t count = c != NULL ? 3 : b != NULL ? 2 : a != NULL ? 1 : 0;
    return source_line_find(text, sizeof text - 1, constructor, line, keys, count);
}

static void test_found(void **state)
{
    (void)state;
    assert_int_equal(find("scenario", 3, "question", NULL, NULL), 5);
    assert_int_equal(find("scenario", 3, "text", NULL, NULL), 5);
    assert_int_equal(find("scenario", 3, "f", NULL, NULL), 7);
    assert_int_equal(find("scenario", 3, "a", NULL, NULL), 9);
    assert_int_equal(find("scenario", 3, "nested", "b.c", NULL), 11);
    assert_int_equal(find("scenario", 3, "nested", "500", NULL), 11);
    assert_int_equal(find("scenario", 3, "nested", "1", NULL), 12);
    assert_int_equal(find("scenario", 3, "nested", "2", "x"), 12);
    assert_int_equal(find("scenario", 3, "nested", "2", "y"), 13);
    assert_int_equal(find("scenario", 3, "made", "z", NULL), 17);
    assert_int_equal(find("pool", 15, "y", NULL, NULL), 16);
}

static void test_absent(void **state)
{
    (void)state;
    assert_int_equal(find("scenario", 3, NULL, NULL, NULL), 3);
    assert_int_equal(find("scenario", 3, "absent", NULL, NULL), 3);
    assert_int_equal(find("scenario", 3, "b", NULL, NULL), 3);       /* only inside f */
    assert_int_equal(find("scenario", 3, "nested", "z", NULL), 10);  /* the deepest that is there */
    assert_int_equal(find("scenario", 3, "question", "z", NULL), 5); /* no table */
    assert_int_equal(find("other", 3, "a", NULL, NULL), 3);
    assert_int_equal(find("scenario", 99, "a", NULL, NULL), 99);
}

/* The text may end anywhere. */
static void test_cut(void **state)
{
    (void)state;
    const char *const keys[] = {"made", "z"};
    for (size_t length = 0; length < sizeof text; length++) {
        int line = source_line_find(text, length, "scenario", 3, keys, 2);
        assert_true(line >= 3 && line <= 17);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_absent),
        cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests_name("source_lines", tests, NULL, NULL);
}
