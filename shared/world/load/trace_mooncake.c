/* Mooncake's request traces: a JSON object a line, with the ids of the prompt's prefix blocks. See trace_reader.h. */
#include "base/arith.h"
#include "base/limits.h"
#include "world/load/trace_format.h"

#include <inttypes.h>
#include <jansson.h>

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a fraction";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a truth value";
    case JSON_NULL:
        return "null";
    }
    return "nothing";
}

/* Milliseconds to nanoseconds. A fraction is rounded once. */
static bool read_time(struct trace_reading *reading, const json_t *object, int64_t *arrival_ns)
{
    const char *key = "timestamp";
    const json_t *value = json_object_get(object, key);
    if (value == NULL)
        return trace_wrong(reading, key,
                           "missing, expected the time of arrival in milliseconds; it is never "
                           "taken as 0");
    const int64_t limit_ms = TRACE_TIME_MAX / NS_PER_MS;
    if (json_is_integer(value)) {
        json_int_t ms = json_integer_value(value);
        if (ms < 0 || ms >= limit_ms)
            return trace_wrong(reading, key, "%" JSON_INTEGER_FORMAT ", expected milliseconds from 0 to %" PRId64, ms,
                               limit_ms - 1);
        *arrival_ns = ms * NS_PER_MS;
        return true;
    }
    if (json_is_real(value)) {
        double ms = json_real_value(value);
        if (!(ms >= 0 && ms < (double)(limit_ms - 1)))
            return trace_wrong(reading, key, "%g, expected milliseconds from 0 to %" PRId64, ms, limit_ms - 1);
        *arrival_ns = (int64_t)(ms * 1e6 + 0.5);
        return true;
    }
    return trace_wrong(reading, key, "%s, expected a number of milliseconds", type_name(value));
}

static bool read_tokens(struct trace_reading *reading, const json_t *object, const char *key, uint32_t *tokens)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL)
        return trace_wrong(reading, key, "missing, expected a whole number of tokens from 1 to %d", REQUEST_TOKENS_MAX);
    if (!json_is_integer(value))
        return trace_wrong(reading, key, "%s, expected a whole number of tokens from 1 to %d", type_name(value),
                           REQUEST_TOKENS_MAX);
    json_int_t number = json_integer_value(value);
    if (number < 0)
        return trace_wrong(reading, key, "%" JSON_INTEGER_FORMAT ", expected a whole number of tokens from 1 to %d",
                           number, REQUEST_TOKENS_MAX);
    return trace_tokens(reading, key, (uint64_t)number, tokens);
}

static bool read_blocks(struct trace_reading *reading, const json_t *object, uint32_t prompt_tokens)
{
    const char *key = "hash_ids";
    const json_t *value = json_object_get(object, key);
    if (value == NULL)
        return trace_wrong(reading, key,
                           "missing, expected the ids of the prompt's blocks of %d tokens; a trace "
                           "without them is plain CSV",
                           MOONCAKE_BLOCK_TOKENS);
    if (!json_is_array(value))
        return trace_wrong(reading, key, "%s, expected an array of integers", type_name(value));
    size_t count = json_array_size(value);
    uint32_t expected = ceil_div_u32(prompt_tokens, MOONCAKE_BLOCK_TOKENS);
    if (count != expected)
        return trace_wrong(reading, key, "%zu block%s, expected %" PRIu32 " of %d tokens for a prompt of %" PRIu32,
                           count, count == 1 ? "" : "s", expected, MOONCAKE_BLOCK_TOKENS, prompt_tokens);
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(value, i);
        if (!json_is_integer(id))
            return trace_wrong(reading, key, "entry %zu is %s, expected an integer", i + 1, type_name(id));
        json_int_t number = json_integer_value(id);
        if (number < 0)
            return trace_wrong(reading, key, "entry %zu is %" JSON_INTEGER_FORMAT ", expected at least 0", i + 1,
                               number);
        if (!trace_row_block(reading, (uint64_t)number))
            return false;
    }
    return true;
}

static bool read_object(struct trace_reading *reading, const json_t *object)
{
    int64_t arrival_ns = 0;
    uint32_t prompt = 0;
    uint32_t output = 0;
    if (!json_is_object(object))
        return trace_wrong(reading, NULL, "the line is %s, expected an object", type_name(object));
    return read_time(reading, object, &arrival_ns) && read_tokens(reading, object, "input_length", &prompt) &&
           read_tokens(reading, object, "output_length", &output) &&
           trace_tokens_together(reading, "output_length", prompt, output) &&
           trace_row(reading, arrival_ns, prompt, output) && read_blocks(reading, object, prompt);
}

bool trace_mooncake_read(struct trace_reading *reading)
{
    reading->trace->block_tokens = MOONCAKE_BLOCK_TOKENS;
    for (;;) {
        char *line = NULL;
        size_t length = 0;
        enum line_result result = trace_line(reading, &line, &length);
        if (result == LINE_END && reading->line == 0)
            return trace_wrong(reading, NULL, "the file is empty, expected a JSON object a line");
        if (result != LINE_READ)
            return result == LINE_END;
        json_error_t wrong;
        json_t *object = json_loadb(line, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &wrong);
        if (object == NULL)
            return trace_wrong(reading, NULL, "column %d: not JSON: %s", wrong.column, wrong.text);
        bool read = read_object(reading, object);
        json_decref(object);
        if (!read)
            return false;
    }
}
