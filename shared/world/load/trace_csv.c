/* CSV traces: splitting of lines, times and lengths, and the plain format whose header says what is what. See
 * trace_reader.h. */
#define _POSIX_C_SOURCE 200809L

#include "base/arith.h"
#include "base/limits.h"
#include "world/load/trace_format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- Lines ----------------------------------------------------------------------------------------------------- */

/* The bytes of `text` that an error shows: at most 40, never half of a UTF-8 character. */
static int shown(const char *text)
{
    size_t length = strlen(text);
    if (length <= 40)
        return (int)length;
    length = 40;
    while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
        length--;
    return (int)length;
}

bool trace_cells(struct trace_reading *reading, char *line, struct csv_cell *cells, uint32_t *count)
{
    return csv_split(line, cells, TRACE_COLUMNS_MAX, count, reading->name, reading->line, reading->error);
}

/* ---- Numbers and times ----------------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* `count` digits at `*text`, which moves behind them. */
static bool digits(const char **text, int count, uint32_t *value)
{
    *value = 0;
    for (int i = 0; i < count; i++) {
        char c = *(*text)++;
        if (!is_digit(c))
            return false;
        *value = *value * 10 + (uint32_t)(c - '0');
    }
    return true;
}

static bool skip(const char **text, char c)
{
    if (**text != c)
        return false;
    (*text)++;
    return true;
}

/* Days from 1970-01-01 to a date of the Gregorian calendar. */
static int64_t days_since_1970(uint32_t year, uint32_t month, uint32_t day)
{
    static const uint16_t before_month[12] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    uint32_t y = year - 1;
    int64_t leap_days = (int64_t)(y / 4 - y / 100 + y / 400) - (1969 / 4 - 1969 / 100 + 1969 / 400);
    return ((int64_t)year - 1970) * 365 + leap_days + before_month[month - 1] + (leap && month > 2) + day - 1;
}

static uint32_t days_of_month(uint32_t year, uint32_t month)
{
    static const uint8_t days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return month == 2 && leap ? 29 : days[month - 1];
}

/* An optional "Z", "+hh:mm" or "-hh:mm" that ends the text, as seconds to subtract. */
static bool parse_offset(const char *text, int64_t *seconds)
{
    *seconds = 0;
    if (*text == '\0' || strcmp(text, "Z") == 0)
        return true;
    if (*text != '+' && *text != '-')
        return false;
    bool west = *text++ == '-';
    uint32_t hours = 0;
    uint32_t minutes = 0;
    if (!digits(&text, 2, &hours) || !skip(&text, ':') || !digits(&text, 2, &minutes) || *text != '\0')
        return false;
    if (hours > 14 || minutes > 59)
        return false;
    *seconds = (int64_t)(hours * 3600 + minutes * 60) * (west ? -1 : 1);
    return true;
}

bool trace_parse_date(const char *text, int64_t *result_ns)
{
    uint32_t year, month, day, hour, minute, second;
    if (!digits(&text, 4, &year) || !skip(&text, '-') || !digits(&text, 2, &month) || !skip(&text, '-') ||
        !digits(&text, 2, &day))
        return false;
    if (!skip(&text, ' ') && !skip(&text, 'T'))
        return false;
    if (!digits(&text, 2, &hour) || !skip(&text, ':') || !digits(&text, 2, &minute) || !skip(&text, ':') ||
        !digits(&text, 2, &second))
        return false;
    if (year < 1970 || year > 2115 || month < 1 || month > 12 || day < 1 || day > days_of_month(year, month))
        return false;
    if (hour > 23 || minute > 59 || second > 59)
        return false;
    int64_t fraction_ns = 0;
    if (skip(&text, '.')) {
        int64_t unit_ns = NS_PER_S;
        if (!is_digit(*text))
            return false;
        while (is_digit(*text)) {
            if (unit_ns == 1)
                return false;
            unit_ns /= 10;
            fraction_ns += (*text++ - '0') * unit_ns;
        }
    }
    int64_t offset = 0;
    if (!parse_offset(text, &offset))
        return false;
    int64_t seconds = days_since_1970(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - offset;
    if (seconds < 0)
        return false;
    *result_ns = seconds * NS_PER_S + fraction_ns;
    return true;
}

bool trace_parse_decimal(const char *text, int exponent, int64_t *result_ns)
{
    uint128 mantissa = 0;
    int digit_count = 0; /* significant ones: 38 fit 128 bits */
    bool any = false;
    bool point = false;
    for (;; text++) {
        if (*text == '.' && !point) {
            point = true;
            continue;
        }
        if (!is_digit(*text))
            break;
        any = true;
        exponent -= point;
        mantissa = mantissa * 10 + (unsigned)(*text - '0');
        digit_count += mantissa != 0;
        if (digit_count > 38 || exponent < -1000)
            return false;
    }
    if (!any)
        return false;
    if (*text == 'e' || *text == 'E') {
        text++;
        bool negative = *text == '-';
        if (*text == '-' || *text == '+')
            text++;
        int written = 0;
        int length = 0;
        for (; is_digit(*text) && length < 4; text++, length++)
            written = written * 10 + (*text - '0');
        if (length == 0)
            return false;
        exponent += negative ? -written : written;
    }
    if (*text != '\0')
        return false;
    const uint128 limit = (uint128)TRACE_TIME_MAX;
    if (mantissa == 0) {
        *result_ns = 0;
        return true;
    }
    for (; exponent > 0; exponent--) {
        if (mantissa >= limit)
            return false;
        mantissa *= 10;
    }
    uint32_t last = 0; /* the digit divided away last decides the rounding */
    for (; exponent < 0 && (mantissa != 0 || last != 0); exponent++) {
        last = (uint32_t)(mantissa % 10);
        mantissa /= 10;
    }
    mantissa += last >= 5;
    if (mantissa >= limit)
        return false;
    *result_ns = (int64_t)mantissa;
    return true;
}

/* ---- Rows ------------------------------------------------------------------------------------------------------ */

static bool read_time(struct trace_reading *reading, const struct csv_columns *columns, const char *text, int64_t *ns)
{
    static const int exponents[] = {[CSV_TIME_S] = 9, [CSV_TIME_MS] = 6, [CSV_TIME_US] = 3, [CSV_TIME_NS] = 0};
    static const char *const units[] = {[CSV_TIME_S] = "seconds",
                                        [CSV_TIME_MS] = "milliseconds",
                                        [CSV_TIME_US] = "microseconds",
                                        [CSV_TIME_NS] = "nanoseconds"};
    const char *name = columns->arrival_name;
    bool date = columns->time == CSV_TIME_DATE;
    if (*text == '\0')
        return trace_wrong(reading, name, "missing, expected the time of arrival; it is never taken as 0");
    if (date && trace_parse_date(text, ns))
        return true;
    if (date && trace_parse_decimal(text, 0, ns))
        return trace_wrong(reading, name,
                           "%.*s, a number without a unit, expected a date and time; name the column "
                           "arrival_s, arrival_ms, arrival_us or arrival_ns, or say time_unit in the load",
                           shown(text), text);
    if (date)
        return trace_wrong(reading, name,
                           "\"%.*s\", expected a date and time from 1970 to 2115 such as "
                           "2023-11-16 18:15:46.6805900",
                           shown(text), text);
    if (!trace_parse_decimal(text, exponents[columns->time], ns))
        return trace_wrong(reading, name, "\"%.*s\", expected a number of %s, at least 0", shown(text), text,
                           units[columns->time]);
    return true;
}

static bool read_tokens(struct trace_reading *reading, const char *name, const char *text, uint32_t *tokens)
{
    if (*text == '\0')
        return trace_wrong(reading, name, "missing, expected a whole number of tokens from 1 to %d",
                           REQUEST_TOKENS_MAX);
    size_t length = strlen(text);
    uint64_t value = 0;
    bool number = length <= 18;
    for (size_t i = 0; i < length && number; i++) {
        number = is_digit(text[i]);
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    if (!number)
        return trace_wrong(reading, name, "\"%.*s\", expected a whole number of tokens from 1 to %d", shown(text), text,
                           REQUEST_TOKENS_MAX);
    return trace_tokens(reading, name, value, tokens);
}

bool csv_rows(struct trace_reading *reading, const struct csv_columns *columns)
{
    struct csv_cell fields[TRACE_COLUMNS_MAX];
    for (;;) {
        char *line = NULL;
        size_t length = 0;
        enum line_result result = trace_line(reading, &line, &length);
        if (result != LINE_READ)
            return result == LINE_END;
        uint32_t count = 0;
        if (!trace_cells(reading, line, fields, &count))
            return false;
        if (count != columns->count)
            return trace_wrong(reading, NULL, "%" PRIu32 " column%s, expected %" PRIu32 " as in the header", count,
                               count == 1 ? "" : "s", columns->count);
        int64_t arrival_ns = 0;
        uint32_t prompt = 0;
        uint32_t output = 0;
        if (columns->zero_failed && strcmp(fields[columns->output].text, "0") == 0) {
            reading->trace->left_out++;
            continue;
        }
        if (!read_time(reading, columns, fields[columns->arrival].text, &arrival_ns) ||
            !read_tokens(reading, columns->prompt_name, fields[columns->prompt].text, &prompt) ||
            !read_tokens(reading, columns->output_name, fields[columns->output].text, &output) ||
            !trace_tokens_together(reading, columns->output_name, prompt, output) ||
            !trace_row(reading, arrival_ns, prompt, output))
            return false;
    }
}

/* ---- The plain format ------------------------------------------------------------------------------------------ */

enum column_kind { COLUMN_ARRIVAL, COLUMN_PROMPT, COLUMN_OUTPUT, COLUMN_KINDS };

struct column_name {
    const char *name;
    enum column_kind kind;
    enum csv_time time;
};

/* The first name of each kind is the one that errors recommend. */
static const struct column_name column_names[] = {
    {"arrival_s", COLUMN_ARRIVAL, CSV_TIME_S},
    {"arrival_ms", COLUMN_ARRIVAL, CSV_TIME_MS},
    {"arrival_us", COLUMN_ARRIVAL, CSV_TIME_US},
    {"arrival_ns", COLUMN_ARRIVAL, CSV_TIME_NS},
    {"arrived_at", COLUMN_ARRIVAL, CSV_TIME_S},       /* microsoft/vidur's processed traces */
    {"arrival_time_ns", COLUMN_ARRIVAL, CSV_TIME_NS}, /* casys-kaist/LLMServingSim's workloads */
    {"timestamp", COLUMN_ARRIVAL, CSV_TIME_DATE},
    {"prompt_tokens", COLUMN_PROMPT, CSV_TIME_DATE},
    {"input_tokens", COLUMN_PROMPT, CSV_TIME_DATE},
    {"input_length", COLUMN_PROMPT, CSV_TIME_DATE},
    {"num_prefill_tokens", COLUMN_PROMPT, CSV_TIME_DATE},
    {"input_toks", COLUMN_PROMPT, CSV_TIME_DATE},
    {"ContextTokens", COLUMN_PROMPT, CSV_TIME_DATE},
    {"output_tokens", COLUMN_OUTPUT, CSV_TIME_DATE},
    {"generated_tokens", COLUMN_OUTPUT, CSV_TIME_DATE},
    {"output_length", COLUMN_OUTPUT, CSV_TIME_DATE},
    {"num_decode_tokens", COLUMN_OUTPUT, CSV_TIME_DATE},
    {"output_toks", COLUMN_OUTPUT, CSV_TIME_DATE},
    {"GeneratedTokens", COLUMN_OUTPUT, CSV_TIME_DATE},
};

#define COLUMN_NAME_COUNT (sizeof column_names / sizeof column_names[0])

static const struct column_name *find_name(const char *text)
{
    for (size_t i = 0; i < COLUMN_NAME_COUNT; i++)
        if (strcasecmp(column_names[i].name, text) == 0)
            return &column_names[i];
    return NULL;
}

/* Says that no column of a kind is there, and which one was perhaps meant. */
static bool column_missing(struct trace_reading *reading, enum column_kind kind, const struct csv_cell *fields,
                           uint32_t count)
{
    static const char *const wanted[COLUMN_KINDS] = {
        "no column with the time of arrival, expected arrival_s, arrival_ms, arrival_us, arrival_ns or timestamp",
        "no column with the length of the prompt, expected prompt_tokens",
        "no column with the length of the output, expected output_tokens",
    };
    const char *names[COLUMN_NAME_COUNT];
    size_t name_count = 0;
    for (size_t i = 0; i < COLUMN_NAME_COUNT; i++)
        if (column_names[i].kind == kind)
            names[name_count++] = column_names[i].name;
    for (uint32_t i = 0; i < count; i++) {
        if (find_name(fields[i].text) != NULL)
            continue;
        const char *near = nearest_name(fields[i].text, names, name_count);
        if (near != NULL)
            return trace_wrong(reading, NULL, "%s; did you mean %s by \"%.*s\"?", wanted[kind], near,
                               shown(fields[i].text), fields[i].text);
    }
    return trace_wrong(reading, NULL, "%s", wanted[kind]);
}

/* The columns that the load names. */
static bool named_columns(struct trace_reading *reading, const struct csv_cell *fields, uint32_t count,
                          struct csv_columns *columns)
{
    const struct trace_options *options = reading->options;
    const char *const wanted[COLUMN_KINDS] = {options->arrival, options->prompt, options->output};
    uint32_t *const indices[COLUMN_KINDS] = {&columns->arrival, &columns->prompt, &columns->output};
    char *const names[COLUMN_KINDS] = {columns->arrival_name, columns->prompt_name, columns->output_name};
    for (int kind = 0; kind < COLUMN_KINDS; kind++) {
        uint32_t i = 0;
        while (i < count && strcasecmp(fields[i].text, wanted[kind]) != 0)
            i++;
        if (i == count)
            return trace_wrong(reading, wanted[kind], "no such column, and the load's `columns` names it");
        *indices[kind] = i;
        snprintf(names[kind], sizeof columns->arrival_name, "%s", fields[i].text);
    }
    columns->time = (enum csv_time)options->unit;
    return true;
}

/* BurstGPT (HPMLL/BurstGPT): Timestamp,Model,[Session ID,Elapsed time,]Request tokens,Response tokens,... */
static bool burstgpt_columns(const struct csv_cell *fields, uint32_t count, struct csv_columns *columns)
{
    bool model = false;
    *columns = (struct csv_columns){.count = count, .arrival = UINT32_MAX, .prompt = UINT32_MAX, .output = UINT32_MAX};
    for (uint32_t i = 0; i < count; i++) {
        model = model || strcasecmp(fields[i].text, "Model") == 0;
        if (strcasecmp(fields[i].text, "Timestamp") == 0)
            columns->arrival = i;
        if (strcasecmp(fields[i].text, "Request tokens") == 0)
            columns->prompt = i;
        if (strcasecmp(fields[i].text, "Response tokens") == 0)
            columns->output = i;
    }
    columns->time = CSV_TIME_S;
    columns->zero_failed = true;
    snprintf(columns->arrival_name, sizeof columns->arrival_name, "Timestamp");
    snprintf(columns->prompt_name, sizeof columns->prompt_name, "Request tokens");
    snprintf(columns->output_name, sizeof columns->output_name, "Response tokens");
    return model && columns->arrival < count && columns->prompt < count && columns->output < count;
}

static bool find_columns(struct trace_reading *reading, const struct csv_cell *fields, uint32_t count,
                         struct csv_columns *columns)
{
    bool found[COLUMN_KINDS] = {false};
    if (burstgpt_columns(fields, count, columns))
        return true;
    *columns = (struct csv_columns){.count = count};
    if (reading->options->arrival[0] != '\0')
        return named_columns(reading, fields, count, columns);
    uint32_t *const indices[COLUMN_KINDS] = {&columns->arrival, &columns->prompt, &columns->output};
    char *const names[COLUMN_KINDS] = {columns->arrival_name, columns->prompt_name, columns->output_name};
    for (uint32_t i = 0; i < count; i++) {
        const struct column_name *name = find_name(fields[i].text);
        if (name == NULL)
            continue;
        if (found[name->kind])
            return trace_wrong(reading, fields[i].text, "says the same as column %s, expected one of them",
                               names[name->kind]);
        found[name->kind] = true;
        *indices[name->kind] = i;
        snprintf(names[name->kind], sizeof columns->arrival_name, "%s", fields[i].text);
        if (name->kind == COLUMN_ARRIVAL)
            columns->time = name->time == CSV_TIME_DATE ? (enum csv_time)reading->options->unit : name->time;
    }
    for (int kind = 0; kind < COLUMN_KINDS; kind++)
        if (!found[kind])
            return column_missing(reading, (enum column_kind)kind, fields, count);
    for (uint32_t i = 0; i < count; i++)
        if (find_name(fields[i].text) == NULL && !trace_ignored(reading, fields[i].text))
            return false;
    return true;
}

bool trace_csv_read(struct trace_reading *reading)
{
    char *line = NULL;
    size_t length = 0;
    reading->csv = true;
    enum line_result result = trace_line(reading, &line, &length);
    if (result == LINE_FAILED)
        return false;
    if (result == LINE_END)
        return trace_wrong(reading, NULL,
                           "the file is empty, expected a header such as "
                           "arrival_s,prompt_tokens,output_tokens");
    struct csv_cell fields[TRACE_COLUMNS_MAX];
    uint32_t count = 0;
    struct csv_columns columns;
    return trace_cells(reading, line, fields, &count) && find_columns(reading, fields, count, &columns) &&
           csv_rows(reading, &columns);
}
