/* Traces that are right: every format, spelling and compression gives the rows that stand in the file. */
#include "world/load/trace_reader.h"

#include "base/limits.h"

#include <archive.h>
#include <archive_entry.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct row {
    int64_t arrival_ns;
    uint32_t prompt;
    uint32_t output;
};

static struct trace_file *read_bytes(const void *bytes, size_t size, enum trace_format format)
{
    struct user_error error = {.set = false};
    struct trace_file *trace = trace_file_read_memory(
        bytes, size, "trace",
        &(struct trace_options){
            .format = format, .ignore_count = 5, .ignore = {"workload", "x", "note", "model", "text"}},
        &error);
    if (trace == NULL)
        fail_msg("%s", error.text);
    assert_false(error.set);
    return trace;
}

static struct trace_file *read_text(const char *text, enum trace_format format)
{
    return read_bytes(text, strlen(text), format);
}

static void expect_rows(const struct trace_file *trace, const struct row *rows, uint32_t count)
{
    assert_int_equal(trace->count, count);
    uint64_t prompts = 0;
    uint64_t outputs = 0;
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(trace->arrival_ns[i], rows[i].arrival_ns);
        assert_int_equal(trace->prompt_tokens[i], rows[i].prompt);
        assert_int_equal(trace->output_tokens[i], rows[i].output);
        prompts += rows[i].prompt;
        outputs += rows[i].output;
    }
    assert_int_equal(trace->prompt_tokens_sum, prompts);
    assert_int_equal(trace->output_tokens_sum, outputs);
}

static void expect_text(const char *text, enum trace_format format, const struct row *rows, uint32_t count)
{
    struct trace_file *trace = read_text(text, format);
    expect_rows(trace, rows, count);
    trace_file_free(trace);
}

/* The first rows of Azure's 2023 conversation trace, with its line ends and without an end of the last line. */
static const char azure_text[] = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                                 "2023-11-16 18:15:46.6805900,374,44\r\n"
                                 "2023-11-16 18:15:50.9951690,396,109\r\n"
                                 "2023-11-16 18:15:51.2224670,879,55";
static const struct row azure_rows[] = {{0, 374, 44}, {4314579000, 396, 109}, {4541877000, 879, 55}};

static void test_azure(void **state)
{
    (void)state;
    struct trace_file *trace = read_text(azure_text, TRACE_FORMAT_AZURE_CSV);
    expect_rows(trace, azure_rows, 3);
    assert_int_equal(trace->out_of_order, 0);
    assert_int_equal(trace->block_tokens, 0);
    assert_null(trace->block_first);
    assert_null(trace->blocks);
    assert_string_equal(trace->path, "trace");
    trace_file_free(trace);
}

/* To the nearest token, and never to none. */
static void test_scaled(void **state)
{
    (void)state;
    static const struct row rows[] = {{0, 561, 1}, {4314579000, 594, 1}, {4541877000, 1319, 1}};
    const struct trace_options options = {
        .format = TRACE_FORMAT_AZURE_CSV, .prompt_permille = 1500, .output_permille = 10};
    struct user_error error = {.set = false};
    struct trace_file *trace = trace_file_read_memory(azure_text, sizeof azure_text - 1, "trace", &options, &error);
    assert_non_null(trace);
    expect_rows(trace, rows, 3);
    trace_file_free(trace);
    const struct trace_options large = {.format = TRACE_FORMAT_AZURE_CSV, .prompt_permille = 100000000};
    assert_null(trace_file_read_memory(azure_text, sizeof azure_text - 1, "trace", &large, &error));
    assert_non_null(strstr(error.text, "trace:2: "));
}

static void test_dates(void **state)
{
    (void)state;
    /* A leap day, the end of a year, nine decimals, none, a "T", offsets. */
    const char *text = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                       "2024-02-28 23:59:59.999999999,1,1\n"
                       "2024-02-29T00:00:00,2,1\n"
                       "2024-02-29 23:00:00.5Z,3,1\n"
                       "2024-03-01 02:00:00+02:00,4,1\n"
                       "2024-12-31 23:59:59-00:30,5,1\n"
                       "2025-01-01 00:30:00.25,6,1\n";
    const int64_t second = 1000000000;
    const int64_t day = 86400 * second;
    const struct row rows[] = {
        {0, 1, 1},
        {1, 2, 1},
        {23 * 3600 * second + second / 2 + 1, 3, 1},
        {day + 1, 4, 1},
        {307 * day + 1800 * second - second + 1, 5, 1},
        {307 * day + 1800 * second + second / 4 + 1, 6, 1},
    };
    expect_text(text, TRACE_FORMAT_AZURE_CSV, rows, 6);
}

static void test_calendar(void **state)
{
    (void)state;
    /* 2000 was a leap year, 2100 will not be one. */
    static const char *const dates[] = {"1999-12-31", "2000-02-28", "2000-03-01", "2000-12-31", "2001-01-01",
                                        "2004-03-01", "2100-02-28", "2100-03-01", "2101-01-01", "2115-12-31"};
    static const int64_t days[] = {0, 59, 61, 366, 367, 1522, 36584, 36585, 36891, 42368};
    char text[1024];
    size_t used = (size_t)snprintf(text, sizeof text, "timestamp,prompt_tokens,output_tokens\n");
    for (int i = 0; i < 10; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s 12:00:00,1,1\n", dates[i]);
    struct trace_file *trace = read_text(text, TRACE_FORMAT_CSV);
    assert_int_equal(trace->count, 10);
    for (int i = 0; i < 10; i++)
        assert_int_equal(trace->arrival_ns[i], days[i] * INT64_C(86400000000000));
    trace_file_free(trace);
}

static void test_plain_columns(void **state)
{
    (void)state;
    const struct row rows[] = {{0, 10, 70}, {1500000000, 22, 104}};
    expect_text("arrival_s,prompt_tokens,output_tokens\n2,10,70\n3.5,22,104\n", TRACE_FORMAT_CSV, rows, 2);
    expect_text("arrival_ms,prompt_tokens,output_tokens\n0,10,70\n1500,22,104\n", TRACE_FORMAT_CSV, rows, 2);
    expect_text("arrival_us,prompt_tokens,output_tokens\n7,10,70\n1500007,22,104\n", TRACE_FORMAT_CSV, rows, 2);
    expect_text("arrival_ns,prompt_tokens,output_tokens\n0,10,70\n1.5e9,22,104\n", TRACE_FORMAT_CSV, rows, 2);
    expect_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,10,70\n1.5,22,104\n", TRACE_FORMAT_CSV, rows, 2);
    expect_text("workload,arrival_time_ns,input_toks,output_toks\na,5,10,70\nb,1500000005,22,104\n", TRACE_FORMAT_CSV,
                rows, 2);
    expect_text("Timestamp,Input_Tokens,Output_Tokens\n2023-11-16 18:00:00,10,70\n2023-11-16 18:00:01.5,22,104\n",
                TRACE_FORMAT_CSV, rows, 2);
    expect_text("output_tokens,model,arrival_s,prompt_tokens\n70,r1,0,10\n104,\"a, \"\"b\"\"\",1.5,22\n",
                TRACE_FORMAT_CSV, rows, 2);
}

static void test_spelling(void **state)
{
    (void)state;
    const struct row rows[] = {{0, 10, 70}, {1500000000, 22, 104}};
    /* Byte order mark, quotes, blanks around fields, a missing last line end, blank lines at the end. */
    expect_text("\xef\xbb\xbf"
                "arrival_s,prompt_tokens,output_tokens\n0,10,70\n1.5,22,104",
                TRACE_FORMAT_CSV, rows, 2);
    expect_text("\"arrival_s\",\"prompt_tokens\",\"output_tokens\"\r\n"
                "\"0\" , 10,\t70\r\n1.5 ,\"22\", 104 \r\n\r\n  \n\n",
                TRACE_FORMAT_CSV, rows, 2);
}

static void test_decimals(void **state)
{
    (void)state;
    /* Binary floating point would lose the nanoseconds of a time since 1970; a half rounds up. */
    expect_text("arrival_s,prompt_tokens,output_tokens\n"
                "1700158546.680590001,1,1\n"
                "1700158546.6805900024,2,1\n"
                "1700158546.6805900025,3,1\n"
                "1.700158547E9,4,1\n",
                TRACE_FORMAT_CSV, (const struct row[]){{0, 1, 1}, {1, 2, 1}, {2, 3, 1}, {319409999, 4, 1}}, 4);
    expect_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n1e-9,2,1\n.00000001,3,1\n5e-08,4,1\n1.,5,1\n",
                TRACE_FORMAT_CSV,
                (const struct row[]){{0, 1, 1}, {1, 2, 1}, {10, 3, 1}, {50, 4, 1}, {1000000000, 5, 1}}, 5);
    expect_text("arrival_ns,prompt_tokens,output_tokens\n0e999,1,1\n0.4999999999999999999999999999,2,1\n0.5,3,1\n"
                "4611686018427387903,4,1\n",
                TRACE_FORMAT_CSV,
                (const struct row[]){{0, 1, 1}, {0, 2, 1}, {1, 3, 1}, {INT64_C(4611686018427387903), 4, 1}}, 4);
}

static void test_longest_lengths(void **state)
{
    (void)state;
    const struct row rows[] = {{0, REQUEST_TOKENS_MAX - 1, 1}, {0, 1, REQUEST_TOKENS_MAX - 1}};
    expect_text("arrival_s,prompt_tokens,output_tokens\n0,2097151,1\n0,1,2097151\n", TRACE_FORMAT_CSV, rows, 2);
}

static void test_sorting(void **state)
{
    (void)state;
    /* Rows 3 and 5 stand behind a later arrival; of the two at 2 s the first in the file stays first. */
    struct trace_file *trace = read_text("arrival_s,prompt_tokens,output_tokens\n"
                                         "1,11,1\n3,13,1\n2,12,1\n3,14,1\n2,15,1\n",
                                         TRACE_FORMAT_CSV);
    const int64_t second = 1000000000;
    const struct row rows[] = {{0, 11, 1}, {second, 12, 1}, {second, 15, 1}, {2 * second, 13, 1}, {2 * second, 14, 1}};
    expect_rows(trace, rows, 5);
    assert_int_equal(trace->out_of_order, 2);
    trace_file_free(trace);
}

static void test_mooncake(void **state)
{
    (void)state;
    struct trace_file *trace =
        read_text("{\"timestamp\": 0, \"input_length\": 1025, \"output_length\": 52, \"hash_ids\": [46, 47, 48]}\n"
                  "{\"hash_ids\":[46,99],\"output_length\":3,\"input_length\":1024,"
                  "\"timestamp\":3000,\"type\":\"text\"}\n"
                  "{\"timestamp\": 3000.0005, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [99]}\n",
                  TRACE_FORMAT_MOONCAKE_JSONL);
    const struct row rows[] = {{0, 1025, 52}, {3000000000, 1024, 3}, {3000000500, 1, 1}};
    expect_rows(trace, rows, 3);
    assert_int_equal(trace->block_tokens, 512);
    const uint64_t first[] = {0, 3, 5, 6};
    for (int i = 0; i < 4; i++)
        assert_int_equal(trace->block_first[i], first[i]);
    uint64_t shared = trace_block_hash(0, 46);
    assert_int_equal(trace->blocks[0], shared);
    assert_int_equal(trace->blocks[1], trace_block_hash(shared, 47));
    assert_int_equal(trace->blocks[2], trace_block_hash(trace->blocks[1], 48));
    assert_int_equal(trace->blocks[3], shared);
    assert_int_equal(trace->blocks[4], trace_block_hash(shared, 99));
    /* The same id after another block is another block. */
    assert_int_equal(trace->blocks[5], trace_block_hash(0, 99));
    assert_true(trace->blocks[4] != trace->blocks[5]);
    trace_file_free(trace);
}

static void test_mooncake_sorting(void **state)
{
    (void)state;
    struct trace_file *trace =
        read_text("{\"timestamp\": 9, \"input_length\": 600, \"output_length\": 1, \"hash_ids\": [1, 2]}\n"
                  "{\"timestamp\": 5, \"input_length\": 500, \"output_length\": 2, \"hash_ids\": [3]}\n",
                  TRACE_FORMAT_MOONCAKE_JSONL);
    const struct row rows[] = {{0, 500, 2}, {4000000, 600, 1}};
    expect_rows(trace, rows, 2);
    assert_int_equal(trace->block_first[1], 1);
    assert_int_equal(trace->block_first[2], 3);
    assert_int_equal(trace->blocks[0], trace_block_hash(0, 3));
    assert_int_equal(trace->blocks[1], trace_block_hash(0, 1));
    assert_int_equal(trace->blocks[2], trace_block_hash(trace_block_hash(0, 1), 2));
    trace_file_free(trace);
}

static void test_fingerprint(void **state)
{
    (void)state;
    const char *texts[] = {
        "arrival_s,prompt_tokens,output_tokens\n0,10,70\n1,22,104\n",
        "arrival_s,prompt_tokens,output_tokens\n0,10,70\n2,22,104\n",
        "arrival_s,prompt_tokens,output_tokens\n0,10,70\n1,23,104\n",
        "arrival_s,prompt_tokens,output_tokens\n0,10,70\n1,22,105\n",
        "arrival_s,prompt_tokens,output_tokens\n0,10,70\n",
    };
    uint64_t prints[5];
    for (int i = 0; i < 5; i++) {
        struct trace_file *trace = read_text(texts[i], TRACE_FORMAT_CSV);
        prints[i] = trace->fingerprint;
        trace_file_free(trace);
        for (int j = 0; j < i; j++)
            assert_true(prints[j] != prints[i]);
    }
    /* Spelling does not count. */
    struct trace_file *same =
        read_text("arrival_ms,x,input_toks,output_toks\n5,,10,70\n1005,,22,104\n", TRACE_FORMAT_CSV);
    assert_int_equal(same->fingerprint, prints[0]);
    trace_file_free(same);
}

/* Compresses with the named filter into `bytes`; returns how many there are. */
static size_t compress(const char *filter, const char *text, size_t length, char *bytes, size_t size)
{
    struct archive *archive = archive_write_new();
    assert_int_equal(archive_write_set_format_raw(archive), ARCHIVE_OK);
    assert_int_equal(archive_write_add_filter_by_name(archive, filter), ARCHIVE_OK);
    size_t used = 0;
    assert_int_equal(archive_write_open_memory(archive, bytes, size, &used), ARCHIVE_OK);
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_filetype(entry, AE_IFREG);
    assert_int_equal(archive_write_header(archive, entry), ARCHIVE_OK);
    assert_int_equal(archive_write_data(archive, text, length), (la_ssize_t)length);
    assert_int_equal(archive_write_close(archive), ARCHIVE_OK);
    archive_entry_free(entry);
    archive_write_free(archive);
    return used;
}

static const char *const filters[] = {"xz", "gzip", "zstd"};

static void test_compressed(void **state)
{
    (void)state;
    static char bytes[65536];
    for (size_t i = 0; i < 3; i++) {
        size_t used = compress(filters[i], azure_text, strlen(azure_text), bytes, sizeof bytes);
        assert_true(used < sizeof bytes && memcmp(bytes, azure_text, 8) != 0);
        struct trace_file *trace = read_bytes(bytes, used, TRACE_FORMAT_AZURE_CSV);
        expect_rows(trace, azure_rows, 3);
        trace_file_free(trace);
    }
}

#define LONG_ROWS 20000

/* Rows that do not compress to nothing, so that every cut loses some. */
static size_t make_long_text(char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "arrival_ms,prompt_tokens,output_tokens\n");
    uint32_t random = 1;
    for (int i = 0; i < LONG_ROWS; i++) {
        random = random * 1664525 + 1013904223;
        used += (size_t)snprintf(text + used, size - used, "%d,%" PRIu32 ",%" PRIu32 "\n", i * 10, 1 + (random >> 16),
                                 1 + (random >> 24));
    }
    return used;
}

/* What a request said may stand beside its lengths, whatever it holds. */
static void test_quoted(void **state)
{
    (void)state;
    static const struct row rows[] = {{0, 1, 2}, {1000000000, 3, 4}, {2000000000, 5, 6}};
    struct trace_file *trace = read_text("arrival_s,text,prompt_tokens,output_tokens\r\n"
                                         "0,\"a, \"\"b\"\"\r\n\r\nc\",1,2\r\n"
                                         "1, \"\n,\n\" ,3,4\r\n"
                                         "2,5\" disk,5,6\r\n",
                                         TRACE_FORMAT_CSV);
    expect_rows(trace, rows, 3);
    trace_file_free(trace);
}

static void test_truncated(void **state)
{
    (void)state;
    static char text[1 << 20];
    static char bytes[1 << 20];
    size_t length = make_long_text(text, sizeof text);
    for (size_t i = 0; i < 3; i++) {
        size_t used = compress(filters[i], text, length, bytes, sizeof bytes);
        struct trace_file *whole = read_bytes(bytes, used, TRACE_FORMAT_CSV);
        assert_int_equal(whole->count, LONG_ROWS);
        trace_file_free(whole);
        /* Wherever a download stopped, no file passes for a shorter one. */
        size_t step = 1 + used / 31;
        uint32_t lines = 0;
        for (size_t cut = 1; cut < used; cut = cut + step < used || cut == used - 1 ? cut + step : used - 1) {
            struct user_error error = {.set = false};
            struct trace_file *trace =
                trace_file_read_memory(bytes, cut, "cut", &(struct trace_options){.format = TRACE_FORMAT_CSV}, &error);
            if (trace != NULL)
                fail_msg("%s cut to %zu of %zu bytes was read: %u rows", filters[i], cut, used, trace->count);
            assert_true(error.set);
            assert_memory_equal(error.text, "cut:", 4);
            /* Shorter than a header it may pass for text. */
            if (cut > 64)
                assert_non_null(strstr(error.text, ": cannot be read, a compressed file damaged or truncated ("));
            lines += strncmp(error.text, "cut:1", 5) == 0; /* a line further on than what is read at once */
        }
        assert_true(lines > 0);
    }
}

static void test_long_file(void **state)
{
    (void)state;
    /* Lines that straddle the blocks in which a file is read, and a longest line. */
    size_t size = 4 * TRACE_LINE_MAX;
    char *text = malloc(size);
    assert_non_null(text);
    size_t used = (size_t)snprintf(text, size, "arrival_ms,prompt_tokens,output_tokens,note\n");
    uint32_t count = 0;
    for (; used < 2 * TRACE_LINE_MAX; count++)
        used += (size_t)snprintf(text + used, size - used, "%" PRIu32 ",%" PRIu32 ",7,%.*s\n", count, 1 + count % 1000,
                                 (int)(count % 50), "..................................................");
    size_t line = (size_t)snprintf(text + used, size - used, "%" PRIu32 ",5,7,", count);
    memset(text + used + line, 'x', TRACE_LINE_MAX - line);
    text[used + TRACE_LINE_MAX] = '\n';
    struct trace_file *trace = read_bytes(text, used + TRACE_LINE_MAX + 1, TRACE_FORMAT_CSV);
    assert_int_equal(trace->count, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(trace->arrival_ns[i], i * INT64_C(1000000));
        assert_int_equal(trace->prompt_tokens[i], 1 + i % 1000);
    }
    assert_int_equal(trace->prompt_tokens[count], 5);
    trace_file_free(trace);
    free(text);
}

static struct trace_file *read_shipped(const char *name, enum trace_format format)
{
    char path[1024];
    struct user_error error = {.set = false};
    snprintf(path, sizeof path, "%s/scenarios/traces/%s", TANDEM_SOURCE_DIR, name);
    struct trace_file *trace =
        trace_file_read(path,
                        &(struct trace_options){
                            .format = format, .ignore_count = 5, .ignore = {"workload", "x", "note", "model", "text"}},
                        &error);
    if (trace == NULL)
        fail_msg("%s", error.text);
    return trace;
}

/* The shipped traces are what their README says. */
static void test_shipped(void **state)
{
    (void)state;
    struct trace_file *azure = read_shipped("azure-2023-conversation.csv.xz", TRACE_FORMAT_AZURE_CSV);
    assert_int_equal(azure->count, 19366);
    assert_int_equal(azure->out_of_order, 0);
    assert_int_equal(azure->arrival_ns[azure->count - 1], INT64_C(3501721937000));
    assert_int_equal(azure->prompt_tokens_sum, 22361870);
    assert_int_equal(azure->output_tokens_sum, 4088665);
    trace_file_free(azure);

    struct trace_file *mooncake = read_shipped("mooncake-conversation-20min.jsonl.xz", TRACE_FORMAT_MOONCAKE_JSONL);
    assert_int_equal(mooncake->count, 3658);
    assert_int_equal(mooncake->out_of_order, 0);
    assert_true(mooncake->arrival_ns[mooncake->count - 1] < INT64_C(1200000000000));
    assert_int_equal(mooncake->prompt_tokens[0], 6758);
    assert_int_equal(mooncake->block_first[1], 14);
    trace_file_free(mooncake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scaled),
        cmocka_unit_test(test_azure),
        cmocka_unit_test(test_dates),
        cmocka_unit_test(test_calendar),
        cmocka_unit_test(test_plain_columns),
        cmocka_unit_test(test_spelling),
        cmocka_unit_test(test_decimals),
        cmocka_unit_test(test_longest_lengths),
        cmocka_unit_test(test_sorting),
        cmocka_unit_test(test_mooncake),
        cmocka_unit_test(test_mooncake_sorting),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_compressed),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_long_file),
        cmocka_unit_test(test_shipped),
        cmocka_unit_test(test_quoted),
    };
    return cmocka_run_group_tests_name("trace_reader", tests, NULL, NULL);
}
