/* Cells and formats of tables: digits, quoting, alignment; JSON numbers; the line of progress; asking a program to
 * stop. */
#define _POSIX_C_SOURCE 200809L

#include "base/arith.h"
#include "host/interrupt.h"
#include "host/output.h"
#include "host/progress.h"
#include "support/death.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct table *sample_table(void)
{
    struct table *table = table_new("candidates");
    table_column(table, "label", "candidate");
    table_column(table, "count", "count");
    table_column(table, "rate_per_s", "rate /s");
    table_column(table, "why", "why");
    table_row(table);
    table_text(table, "2P3D");
    table_integer(table, INT64_MIN);
    table_fixed(table, -5, 3);
    table_text(table, "\"KV\", then | NIC");
    table_row(table);
    table_text(table, "1P·1D");
    table_integer(table, 7);
    table_fixed(table, INT64_C(123456789012), 6);
    table_none(table);
    table_row(table);
    table_text(table, "mixed");
    return table;
}

static char *written(const char *format, const struct table *table)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    struct output output = output_to(file, format);
    output_table(&output, table);
    fclose(file);
    return text;
}

static void assert_written(const char *format, const char *expected)
{
    struct table *table = sample_table();
    char *text = written(format, table);
    assert_string_equal(text, expected);
    free(text);
    table_free(table);
}

static void plain_columns_are_aligned(void **state)
{
    (void)state;
    assert_written(NULL, "candidates\n"
                         "candidate                 count        rate /s  why\n"
                         "2P3D       -9223372036854775808         -0.005  \"KV\", then | NIC\n"
                         "1P·1D                         7  123456.789012  -\n"
                         "mixed                         -              -  -\n");
}

static void csv_quotes_what_needs_it(void **state)
{
    (void)state;
    assert_written("csv", "# candidates\n"
                          "label,count,rate_per_s,why\n"
                          "2P3D,-9223372036854775808,-0.005,\"\"\"KV\"\", then | NIC\"\n"
                          "1P·1D,7,123456.789012,\n"
                          "mixed,,,\n");
}

static void markdown_escapes_bars(void **state)
{
    (void)state;
    assert_written("md", "**candidates**\n\n"
                         "| candidate | count | rate /s | why |\n"
                         "|---|---:|---:|---|\n"
                         "| 2P3D | -9223372036854775808 | -0.005 | \"KV\", then \\| NIC |\n"
                         "| 1P·1D | 7 | 123456.789012 | - |\n"
                         "| mixed | - | - | - |\n");
}

static void json_is_rows_by_key(void **state)
{
    (void)state;
    assert_written("json", "[\n"
                           "  {\n    \"label\": \"2P3D\",\n    \"count\": -9223372036854775808,\n"
                           "    \"rate_per_s\": -0.005,\n    \"why\": \"\\\"KV\\\", then | NIC\"\n  },\n"
                           "  {\n    \"label\": \"1P·1D\",\n    \"count\": 7,\n"
                           "    \"rate_per_s\": 123456.789012,\n    \"why\": null\n  },\n"
                           "  {\n    \"label\": \"mixed\",\n    \"count\": null,\n"
                           "    \"rate_per_s\": null,\n    \"why\": null\n  }\n"
                           "]\n");
}

static void a_terminal_gets_every_cell(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    struct output output = output_to(file, NULL);
    assert_false(output.terminal);
    output.terminal = true;
    struct table *table = sample_table();
    output_table(&output, table);
    fclose(file);
    static const char *const cells[] = {"candidates", "rate /s", "2P3D", "-9223372036854775808", "-0.005", "mixed"};
    for (size_t k = 0; k < sizeof cells / sizeof *cells; k++)
        assert_non_null(strstr(text, cells[k]));
    free(text);
    table_free(table);
}

static char *laid_out(size_t width, bool terminal, bool bold)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    struct output output = {.file = file, .format = OUTPUT_TEXT, .terminal = terminal, .bold = bold, .width = width};
    struct table *table = table_new(NULL);
    table_column(table, "name", "name");
    table_column(table, "rate", "rate");
    table_column(table, "low", "low");
    table_column_optional(table, 1);
    table_column(table, "bound", "bound by");
    table_column_optional(table, 2);
    table_row(table);
    table_text(table, "two prefill and four decode workers");
    table_integer(table, 31);
    table_integer(table, 30);
    table_text(table, "decode bandwidth");
    table_row_marked(table);
    output_table(&output, table);
    table_free(table);
    fclose(file);
    return text;
}

/* What does not fit is left out by rank; on a terminal that is narrower still words stay whole. */
static void a_narrow_output_leaves_columns_out_and_words_whole(void **state)
{
    (void)state;
    static const struct {
        size_t width;
        bool terminal;
        const char *text;
    } cases[] = {
        {68, false,
         "  name                                 rate  low  bound by\n"
         "> two prefill and four decode workers    31   30  decode bandwidth\n"},
        {60, false,
         "  name                                 rate  low\n> two prefill and four decode workers    31   30\n"},
        {44, false, "  name                                 rate\n> two prefill and four decode workers    31\n"},
        {30, false, "  name                                 rate\n> two prefill and four decode workers    31\n"},
        {30, true, "  name                    rate\n> two prefill and four      31\n  decode workers              \n"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char *text = laid_out(cases[k].width, cases[k].terminal, false);
        assert_string_equal(text, cases[k].text);
        free(text);
    }
    char *text = laid_out(68, true, true);
    assert_non_null(strstr(text, "\033[1m> two prefill"));
    free(text);
}

/* Every decimal number of up to 15 digits survives the way through a double. */
static void json_numbers_have_no_extra_digits(void **state)
{
    (void)state;
    static const struct {
        int64_t value;
        unsigned decimals;
        const char *text;
    } cases[] = {
        {0, 6, "0.0"},
        {1, 6, "1e-6"},
        {100000, 6, "0.1"},
        {300000, 6, "0.3"},
        {12345678, 6, "12.345678"},
        {999999999999999, 6, "999999999.999999"},
        {349385078, 6, "349.385078"},
        {7, 0, "7"},
        {-2500, 3, "-2.5"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        json_t *number = json_fixed(cases[k].value, cases[k].decimals);
        char *text = json_dumps(number, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
        assert_string_equal(text, cases[k].text);
        free(text);
        json_decref(number);
    }
    for (int64_t value = 1; value < INT64_C(1000000000000000); value = value * 7 + 3) {
        json_t *number = json_fixed(value, 6);
        char *text = json_dumps(number, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
        assert_int_equal((int64_t)(strtold(text, NULL) * 1000000.0L + 0.5L), value);
        free(text);
        json_decref(number);
    }
}

static void rounding_goes_half_away_from_zero(void **state)
{
    (void)state;
    assert_int_equal(fixed_round(1499, 6, 3), 1);
    assert_int_equal(fixed_round(1500, 6, 3), 2);
    assert_int_equal(fixed_round(-1499, 6, 3), -1);
    assert_int_equal(fixed_round(-1500, 6, 3), -2);
    assert_int_equal(fixed_round(0, 6, 3), 0);
    assert_int_equal(fixed_round(77, 3, 3), 77);
    assert_int_equal(fixed_round(INT64_MAX, 9, 0), INT64_C(9223372037));
    assert_int_equal(fixed_round(INT64_MIN, 9, 0), -INT64_C(9223372037));
}

static void too_many_cells(void *argument)
{
    struct table *table = table_new(NULL);
    (void)argument;
    table_column(table, "a", "a");
    table_row(table);
    table_integer(table, 1);
    table_integer(table, 2);
}

static void a_row_with_too_many_cells_is_a_bug(void **state)
{
    (void)state;
    assert_check_fails(too_many_cells, NULL, "table->next < table->column_count");
}

static void progress_says_what_is_left(void **state)
{
    (void)state;
    char text[128];
    progress_text(text, sizeof text, "planning", "", 0, 40, 0);
    assert_string_equal(text, "planning  0/40  0 %");
    progress_text(text, sizeof text, "planning", "2P3D", 10, 40, 30 * NS_PER_S);
    assert_string_equal(text, "planning  10/40  25 %  1:30 left  2P3D");
    progress_text(text, sizeof text, "planning", "", 41, 40, 30 * NS_PER_S);
    assert_string_equal(text, "planning  40/40  100 %");
    progress_text(text, sizeof text, "reading", "", 5, 0, NS_PER_S);
    assert_string_equal(text, "reading  5");
    progress_text(text, 12, "planning", "2P3D", 10, 40, 30 * NS_PER_S);
    assert_string_equal(text, "planning  1");
    /* On a pipe, where tests run, nothing is shown; and all of it may be NULL. */
    struct progress *progress = progress_start("x", 2);
    progress_total(progress, 3);
    progress_add(progress, 1);
    progress_note(progress, "note");
    progress_end(progress);
    progress_add(NULL, 1);
    progress_end(NULL);
}

static void interrupted_once(void *argument)
{
    (void)argument;
    interrupt_install();
    if (interrupt_requested())
        exit(3);
    raise(SIGINT);
    exit(interrupt_requested() ? 0 : 4);
}

static void interrupted_twice(void *argument)
{
    interrupt_install();
    raise(SIGINT);
    raise(*(const int *)argument);
    exit(0);
}

static void a_second_signal_kills(void **state)
{
    (void)state;
    char text[256];
    assert_int_equal(death_status(interrupted_once, NULL, text, sizeof text), 0);
    int second = SIGINT;
    assert_int_equal(death_status(interrupted_twice, &second, text, sizeof text), 128 + SIGINT);
    second = SIGTERM;
    assert_int_equal(death_status(interrupted_twice, &second, text, sizeof text), 128 + SIGTERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_columns_are_aligned),
        cmocka_unit_test(csv_quotes_what_needs_it),
        cmocka_unit_test(markdown_escapes_bars),
        cmocka_unit_test(json_is_rows_by_key),
        cmocka_unit_test(a_terminal_gets_every_cell),
        cmocka_unit_test(a_narrow_output_leaves_columns_out_and_words_whole),
        cmocka_unit_test(json_numbers_have_no_extra_digits),
        cmocka_unit_test(rounding_goes_half_away_from_zero),
        cmocka_unit_test(a_row_with_too_many_cells_is_a_bug),
        cmocka_unit_test(progress_says_what_is_left),
        cmocka_unit_test(a_second_signal_kills),
    };
    return cmocka_run_group_tests_name("output", tests, NULL, NULL);
}
