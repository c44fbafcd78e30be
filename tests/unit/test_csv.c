/* Cells and records of CSV, RFC 4180 and the blanks that people write beyond it. */
#include "host/csv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void expect(const char *record, const char *joined)
{
    char text[256];
    char got[256] = "";
    struct csv_cell cells[8];
    struct user_error error = {.set = false};
    uint32_t count = 0;
    snprintf(text, sizeof text, "%s", record);
    bool good = csv_split(text, cells, 8, &count, "f", 3, &error);
    for (uint32_t i = 0; good && i < count; i++) {
        assert_int_equal(cells[i].length, strlen(cells[i].text));
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s[%s]", i == 0 ? "" : " ", cells[i].text);
    }
    assert_string_equal(good ? got : error.text, joined);
}

static void test_split(void **state)
{
    (void)state;
    expect("", "[]");
    expect(",", "[] []");
    expect("a,b,c", "[a] [b] [c]");
    expect(" a b ,\tc", "[a b] [c]");
    expect("\"a,b\" , \"c \"\"d\"\"\",\"\"", "[a,b] [c \"d\"] []");
    expect("\" a \",5\" x", "[ a ] [5\" x]");
    expect("\"a\nb\",c", "[a\nb] [c]");
    expect("a,\"b", "f:3: a quoted field does not end on its line, expected a closing '\"'");
    expect("a,\"\"\"", "f:3: a quoted field does not end on its line, expected a closing '\"'");
    expect("\"a\"b", "f:3: 'b' follows a quoted field, expected ',' or the end of the line");
    expect("1,2,3,4,5,6,7,8", "[1] [2] [3] [4] [5] [6] [7] [8]");
    expect("1,2,3,4,5,6,7,8,", "f:3: more than 8 columns");
}

static void test_record(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t length;
    } cases[] = {
        {"", SIZE_MAX},        {"a", SIZE_MAX},
        {"a\nb", 1},           {"\n", 0},
        {"\"a\nb\"\nc", 5},    {"a,\"b\"\"\n\",c\nd", 10},
        {"a,5\" x\nb", 6},     {"a, \"\n\" \n", 7},
        {"\"a\n", SIZE_MAX},   {"\"a\"\"\n", SIZE_MAX},
        {"\"a\n\"", SIZE_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (csv_record(cases[i].text, strlen(cases[i].text)) != cases[i].length)
            fail_msg("case %zu: %zu", i, csv_record(cases[i].text, strlen(cases[i].text)));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_split), cmocka_unit_test(test_record)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
