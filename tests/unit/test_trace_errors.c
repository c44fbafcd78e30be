/* Traces that are wrong: the exact text that the user reads. */
#define _POSIX_C_SOURCE 200809L

#include "world/load/trace_reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct bad {
    const char *text;
    const char *expected;
};

static void expect_error(const void *bytes, size_t size, enum trace_format format, const char *expected)
{
    struct user_error error = {.set = false};
    struct trace_file *trace = trace_file_read_memory(
        bytes, size, "load.csv", &(struct trace_options){.format = format, .ignore_count = 1, .ignore = {"text"}},
        &error);
    if (trace != NULL)
        fail_msg("was read, expected: %s", expected);
    assert_true(error.set);
    assert_string_equal(error.text, expected);
}

static void expect_errors(const struct bad *bad, size_t count, enum trace_format format)
{
    for (size_t i = 0; i < count; i++)
        expect_error(bad[i].text, strlen(bad[i].text), format, bad[i].expected);
}

#define AZURE "TIMESTAMP,ContextTokens,GeneratedTokens\n"

static void test_azure(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"", "load.csv: the file is empty, expected the header TIMESTAMP,ContextTokens,GeneratedTokens"},
        {"\n\n", "load.csv:2: the file is empty, expected the header TIMESTAMP,ContextTokens,GeneratedTokens"},
        {AZURE, "load.csv:1: the file has no requests"},
        {"TIMESTAMP,ContextTokens\n",
         "load.csv:1: not the header of an Azure trace, expected TIMESTAMP,ContextTokens,GeneratedTokens; a file with "
         "other columns is plain CSV"},
        {"2023-11-16 18:15:46.6805900,374,44\n",
         "load.csv:1: not the header of an Azure trace, expected TIMESTAMP,ContextTokens,GeneratedTokens; a file with "
         "other columns is plain CSV"},
        {AZURE "2023-11-16 18:15:46.6805900,374,44\n,396,109\n",
         "load.csv:3: TIMESTAMP: missing, expected the time of arrival; it is never taken as 0"},
        {AZURE "2023-11-16 18:15:46,,44\n",
         "load.csv:2: ContextTokens: missing, expected a whole number of tokens from 1 to 2097152"},
        {AZURE "2023-11-16 18:15:46,374,\n",
         "load.csv:2: GeneratedTokens: missing, expected a whole number of tokens from 1 to 2097152"},
        {AZURE "2023-11-16 18:15:46,0,44\n",
         "load.csv:2: ContextTokens: 0, expected a whole number of tokens from 1 to 2097152; "
         "a request that failed has no place in a load"},
        {AZURE "2023-11-16 18:15:46,374,0\n",
         "load.csv:2: GeneratedTokens: 0, expected a whole number of tokens from 1 to 2097152; "
         "a request that failed has no place in a load"},
        {AZURE "2023-11-16 18:15:46,-374,44\n",
         "load.csv:2: ContextTokens: \"-374\", expected a whole number of tokens from 1 to 2097152"},
        {AZURE "2023-11-16 18:15:46,374.5,44\n",
         "load.csv:2: ContextTokens: \"374.5\", expected a whole number of tokens from 1 to 2097152"},
        {AZURE "2023-11-16 18:15:46,2097153,44\n",
         "load.csv:2: ContextTokens: 2097153, expected a whole number of tokens from 1 to 2097152"},
        {AZURE "2023-11-16 18:15:46,99999999999999999999999999,44\n",
         "load.csv:2: ContextTokens: \"99999999999999999999999999\", expected a whole number of tokens from 1 to "
         "2097152"},
        {AZURE "2023-11-16 18:15:46,2097152,1\n",
         "load.csv:2: GeneratedTokens: a prompt of 2097152 and an output of 1 tokens, expected at most 2097152 "
         "together"},
        {AZURE "2023-11-16 18:15:46,374,44,5\n", "load.csv:2: 4 columns, expected 3 as in the header"},
        {AZURE "2023-11-16 18:15:46\n", "load.csv:2: 1 column, expected 3 as in the header"},
        {AZURE "\n2023-11-16 18:15:46,374,44\n",
         "load.csv:2: the line is empty, expected a request; empty lines may only end a file"},
        {AZURE "1700158546,374,44\n",
         "load.csv:2: TIMESTAMP: 1700158546, a number without a unit, expected a date and time; name the column "
         "arrival_s, arrival_ms, arrival_us or arrival_ns, or say time_unit in the load"},
    };
    expect_errors(bad, sizeof bad / sizeof bad[0], TRACE_FORMAT_AZURE_CSV);
}

static void test_dates(void **state)
{
    (void)state;
    static const char *const dates[] = {
        "2023-11-16",
        "2023-11-16 18:15",
        "2023-13-16 18:15:46",
        "2023-00-16 18:15:46",
        "2023-02-29 18:15:46",
        "2100-02-29 18:15:46",
        "2023-11-31 18:15:46",
        "2023-11-00 18:15:46",
        "2023-11-16 24:15:46",
        "2023-11-16 18:60:46",
        "2023-11-16 18:15:60",
        "2023-11-16 18:15:46.",
        "1969-12-31 23:59:59",
        "2116-01-01 00:00:00",
        "16.11.2023 18:15:46",
        "2023-11-16 18:15:46 UTC",
        "2023-11-16x18:15:46",
        "1970-01-01 00:30:00+01:00",
        "2023-11-16 18:15:46+0100",
        "2023-11-16 18:15:46+15:00",
        "2023-11-16 18:15:46.1234567890",
    };
    for (size_t i = 0; i < sizeof dates / sizeof dates[0]; i++) {
        char text[256];
        char expected[256];
        snprintf(text, sizeof text, AZURE "%s,374,44\n", dates[i]);
        snprintf(expected, sizeof expected,
                 "load.csv:2: TIMESTAMP: \"%s\", expected a date and time from 1970 to 2115 such as "
                 "2023-11-16 18:15:46.6805900",
                 dates[i]);
        expect_error(text, strlen(text), TRACE_FORMAT_AZURE_CSV, expected);
    }
}

#define PLAIN "arrival_s,prompt_tokens,output_tokens\n"

static void test_plain(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"", "load.csv: the file is empty, expected a header such as arrival_s,prompt_tokens,output_tokens"},
        {PLAIN, "load.csv:1: the file has no requests"},
        {PLAIN ",1,1\n", "load.csv:2: arrival_s: missing, expected the time of arrival; it is never taken as 0"},
        {PLAIN "\"\",1,1\n", "load.csv:2: arrival_s: missing, expected the time of arrival; it is never taken as 0"},
        {PLAIN "-1,1,1\n", "load.csv:2: arrival_s: \"-1\", expected a number of seconds, at least 0"},
        {PLAIN "NaN,1,1\n", "load.csv:2: arrival_s: \"NaN\", expected a number of seconds, at least 0"},
        {PLAIN "1.2.3,1,1\n", "load.csv:2: arrival_s: \"1.2.3\", expected a number of seconds, at least 0"},
        {PLAIN "1e,1,1\n", "load.csv:2: arrival_s: \"1e\", expected a number of seconds, at least 0"},
        {PLAIN ".,1,1\n", "load.csv:2: arrival_s: \".\", expected a number of seconds, at least 0"},
        {PLAIN "1e300,1,1\n", "load.csv:2: arrival_s: \"1e300\", expected a number of seconds, at least 0"},
        {PLAIN "4611686018.427387904,1,1\n",
         "load.csv:2: arrival_s: \"4611686018.427387904\", expected a number of seconds, at least 0"},
        {PLAIN "0 s,1,1\n", "load.csv:2: arrival_s: \"0 s\", expected a number of seconds, at least 0"},
        {"arrival_ms,prompt_tokens,output_tokens\nx,1,1\n",
         "load.csv:2: arrival_ms: \"x\", expected a number of milliseconds, at least 0"},
        {PLAIN "000000000000000000000000000000000000000\xc3\xbcx,1,1\n",
         "load.csv:2: arrival_s: \"000000000000000000000000000000000000000\", expected a number of seconds, at "
         "least 0"},
        {"time,prompt_tokens,output_tokens\n0,1,1\n",
         "load.csv:1: no column with the time of arrival, expected arrival_s, arrival_ms, arrival_us, arrival_ns or "
         "timestamp"},
        {"arival_s,prompt_tokens,output_tokens\n0,1,1\n",
         "load.csv:1: no column with the time of arrival, expected arrival_s, arrival_ms, arrival_us, arrival_ns or "
         "timestamp; did you mean arrival_s by \"arival_s\"?"},
        {"arrival_s,prompt_token,output_tokens\n0,1,1\n",
         "load.csv:1: no column with the length of the prompt, expected prompt_tokens; did you mean prompt_tokens by "
         "\"prompt_token\"?"},
        {"arrival_s,prompt_tokens,z\n0,1,1\n",
         "load.csv:1: no column with the length of the output, expected output_tokens"},
        {"arrival_s,arrival_ms,prompt_tokens,output_tokens\n0,0,1,1\n",
         "load.csv:1: arrival_ms: says the same as column arrival_s, expected one of them"},
        {"timestamp,prompt_tokens,output_tokens\n12.5,1,1\n",
         "load.csv:2: timestamp: 12.5, a number without a unit, expected a date and time; name the column arrival_s, "
         "arrival_ms, arrival_us or arrival_ns, or say time_unit in the load"},
        {PLAIN "0,\"1,1\n", "load.csv:2: a quoted field does not end on its line, expected a closing '\"'"},
        {PLAIN "0,\"1\"x,1\n", "load.csv:2: 'x' follows a quoted field, expected ',' or the end of the line"},
        {"arrival_s,prompt_tokens,output_tokens,text\n0,1,1,\"a\nb\"\n0,1\n",
         "load.csv:4: 2 columns, expected 4 as in the header"},
        {PLAIN "0,1,1\n0,1\n", "load.csv:3: 2 columns, expected 3 as in the header"},
        {PLAIN "0,1,1\r0,1,1\r",
         "load.csv:2: byte 0x0d in column 6 is not text; expected UTF-8, plain or compressed with xz, gzip or zstd"},
        {"BZh91AY&SY\x01",
         "load.csv:1: byte 0x01 in column 11 is not text; expected UTF-8, plain or compressed with xz, gzip or zstd"},
    };
    expect_errors(bad, sizeof bad / sizeof bad[0], TRACE_FORMAT_CSV);
}

static void test_mooncake(void **state)
{
    (void)state;
    static const struct bad bad[] = {
        {"", "load.csv: the file is empty, expected a JSON object a line"},
        {"[]\n", "load.csv:1: the line is an array, expected an object"},
        {"7\n", "load.csv:1: the line is an integer, expected an object"},
        {"{\"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}\n",
         "load.csv:1: timestamp: missing, expected the time of arrival in milliseconds; it is never taken as 0"},
        {"{\"timestamp\": null, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}\n",
         "load.csv:1: timestamp: null, expected a number of milliseconds"},
        {"{\"timestamp\": \"0\", \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}\n",
         "load.csv:1: timestamp: a string, expected a number of milliseconds"},
        {"{\"timestamp\": -1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}\n",
         "load.csv:1: timestamp: -1, expected milliseconds from 0 to 4611686018426"},
        {"{\"timestamp\": -0.5, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}\n",
         "load.csv:1: timestamp: -0.5, expected milliseconds from 0 to 4611686018426"},
        {"{\"timestamp\": 0, \"output_length\": 1, \"hash_ids\": [0]}\n",
         "load.csv:1: input_length: missing, expected a whole number of tokens from 1 to 2097152"},
        {"{\"timestamp\": 0, \"input_length\": 1.0, \"output_length\": 1, \"hash_ids\": [0]}\n",
         "load.csv:1: input_length: a fraction, expected a whole number of tokens from 1 to 2097152"},
        {"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 0, \"hash_ids\": [0]}\n",
         "load.csv:1: output_length: 0, expected a whole number of tokens from 1 to 2097152; "
         "a request that failed has no place in a load"},
        {"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": -5, \"hash_ids\": [0]}\n",
         "load.csv:1: output_length: -5, expected a whole number of tokens from 1 to 2097152"},
        {"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}\n"
         "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\n",
         "load.csv:2: hash_ids: missing, and there in the lines before"},
        {"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\n"
         "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}\n",
         "load.csv:2: hash_ids: here, and missing in the lines before"},
        {"{\"timestamp\": 0, \"input_length\": 1}\n", "load.csv:1: output_length: missing, expected a whole number of "
                                                      "tokens from 1 to 2097152; with output = ... the "
                                                      "load says how long such answers are"},
        {"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"class\": \"chat\"}\n",
         "load.csv:1: class: is not known; ignore = { \"class\" } in the load passes over it"},
        {"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"wait_for\": [\"x\"]}\n",
         "load.csv:1: wait_for: no earlier line has the request_id 'x'"},
        {"{\"request_id\": \"x\", \"input_length\": 1, \"output_length\": 1, \"wait_for\": [\"x\"]}\n",
         "load.csv:1: wait_for: no earlier line has the request_id 'x'"},
        {"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"tool_wait_ms\": 5}\n",
         "load.csv:1: tool_wait_ms: without wait_for, expected what it counts from"},
        {"{\"delay\": 5, \"input_length\": 1, \"output_length\": 1, \"session_id\": \"a\"}\n",
         "load.csv:1: delay: no earlier line is of session 'a', so that there is no answer to count from"},
        {"{\"delay\": 5, \"input_length\": 1, \"output_length\": 1}\n",
         "load.csv:1: delay: without a session_id, expected whose turn it is"},
        {"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": 0}\n",
         "load.csv:1: hash_ids: an integer, expected an array of integers"},
        {"{\"timestamp\": 0, \"input_length\": 513, \"output_length\": 1, \"hash_ids\": [0]}\n",
         "load.csv:1: hash_ids: 1 block, expected 2 of 512 tokens for a prompt of 513; block = ... in the load says "
         "how large blocks are"},
        {"{\"timestamp\": 0, \"input_length\": 513, \"output_length\": 1, \"hash_ids\": [0, true]}\n",
         "load.csv:1: hash_ids: entry 2 is a truth value, expected an integer"},
        {"{\"timestamp\": 0, \"input_length\": 513, \"output_length\": 1, \"hash_ids\": [0, -7]}\n",
         "load.csv:1: hash_ids: entry 2 is -7, expected at least 0"},
        {"{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}\n{\"timestamp\": 1,\n",
         "load.csv:2: column 16: not JSON: string or '}' expected near end of file"},
        {"{\"timestamp\": 0, \"timestamp\": 1}\n",
         "load.csv:1: column 28: not JSON: duplicate object key near '\"timestamp\"'"},
    };
    expect_errors(bad, sizeof bad / sizeof bad[0], TRACE_FORMAT_MOONCAKE_JSONL);
}

static void test_nul(void **state)
{
    (void)state;
    static const char bytes[] = PLAIN "0,1,1\n0,\0001,1\n";
    expect_error(bytes, sizeof bytes - 1, TRACE_FORMAT_CSV,
                 "load.csv:3: byte 0x00 in column 3 is not text; expected UTF-8, plain or compressed with xz, gzip "
                 "or zstd");
}

static void test_long_line(void **state)
{
    (void)state;
    size_t header = strlen(PLAIN);
    size_t size = header + TRACE_LINE_MAX + 2;
    char *text = malloc(size);
    assert_non_null(text);
    snprintf(text, size, "%s", PLAIN);
    memset(text + header, '1', size - header);
    text[size - 1] = '\n';
    expect_error(text, size, TRACE_FORMAT_CSV, "load.csv:2: the line is longer than 262144 bytes");
    expect_error(text, size - 1, TRACE_FORMAT_CSV, "load.csv:2: the line is longer than 262144 bytes");
    free(text);
}

static void test_many_columns(void **state)
{
    (void)state;
    char text[512] = PLAIN;
    memset(text + strlen(PLAIN), ',', TRACE_COLUMNS_MAX);
    expect_error(text, strlen(text), TRACE_FORMAT_CSV, "load.csv:2: more than 64 columns");
}

static void test_files(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    assert_null(trace_file_read("/no/such/file.csv", &(struct trace_options){.format = TRACE_FORMAT_CSV}, &error));
    assert_string_equal(error.text, "/no/such/file.csv: cannot be read: No such file or directory");
    error.set = false;
    assert_null(trace_file_read("/", &(struct trace_options){.format = TRACE_FORMAT_CSV}, &error));
    assert_string_equal(error.text, "/: cannot be read: Is a directory");

    char path[] = "/tmp/tandem_trace_XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    char expected[256];
    error.set = false;
    assert_null(trace_file_read(path, &(struct trace_options){.format = TRACE_FORMAT_MOONCAKE_JSONL}, &error));
    snprintf(expected, sizeof expected, "%s: the file is empty, expected a JSON object a line", path);
    assert_string_equal(error.text, expected);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_azure),        cmocka_unit_test(test_dates), cmocka_unit_test(test_plain),
        cmocka_unit_test(test_mooncake),     cmocka_unit_test(test_nul),   cmocka_unit_test(test_long_line),
        cmocka_unit_test(test_many_columns), cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests_name("trace_errors", tests, NULL, NULL);
}
