/* Request traces of the family that Mooncake began: a JSON object a line. See trace_reader.h. */
#include "base/arith.h"
#include "base/limits.h"
#include "world/load/trace_format.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object",    [JSON_ARRAY] = "an array",  [JSON_STRING] = "a string",
        [JSON_INTEGER] = "an integer",  [JSON_REAL] = "a fraction", [JSON_TRUE] = "a truth value",
        [JSON_FALSE] = "a truth value", [JSON_NULL] = "null",
    };
    return names[json_typeof(value)];
}

/* Nanoseconds of the unit that times are in. */
static int64_t unit_ns(const struct trace_reading *reading)
{
    static const int64_t units[] = {NS_PER_MS, NS_PER_S, NS_PER_MS, NS_PER_US, 1};
    return units[reading->options->unit];
}

static const char *unit_name(const struct trace_reading *reading)
{
    static const char *const names[] = {"milliseconds", "seconds", "milliseconds", "microseconds", "nanoseconds"};
    return names[reading->options->unit];
}

/* A number of units of `each_ns`. A fraction is rounded once. */
static bool read_time(struct trace_reading *reading, const char *key, const json_t *value, int64_t each_ns,
                      const char *unit, int64_t *result_ns)
{
    const int64_t limit = TRACE_TIME_MAX / each_ns;
    if (json_is_integer(value)) {
        json_int_t number = json_integer_value(value);
        if (number < 0 || number >= limit)
            return trace_wrong(reading, key, "%" JSON_INTEGER_FORMAT ", expected %s from 0 to %" PRId64, number, unit,
                               limit - 1);
        *result_ns = number * each_ns;
        return true;
    }
    if (json_is_real(value)) {
        double number = json_real_value(value);
        if (!(number >= 0 && number < (double)(limit - 1)))
            return trace_wrong(reading, key, "%g, expected %s from 0 to %" PRId64, number, unit, limit - 1);
        *result_ns = (int64_t)(number * (double)each_ns + 0.5);
        return true;
    }
    return trace_wrong(reading, key, "%s, expected a number of %s", type_name(value), unit);
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

/* A row whose output nobody knows is played where the load says how long outputs are. */
static bool read_output(struct trace_reading *reading, const json_t *object, uint32_t *tokens)
{
    const char *key = "output_length";
    *tokens = 0;
    if (json_object_get(object, key) != NULL || !reading->options->outputs_drawn) {
        if (json_object_get(object, key) == NULL)
            return trace_wrong(
                reading, key,
                "missing, expected a whole number of tokens from 1 to %d; with output = ... the load says "
                "how long such answers are",
                REQUEST_TOKENS_MAX);
        return read_tokens(reading, object, key, tokens);
    }
    return true;
}

static bool read_blocks(struct trace_reading *reading, const json_t *value, uint32_t prompt_tokens)
{
    const char *key = "hash_ids";
    uint32_t together = max_u32(1, reading->options->blocks_together);
    uint32_t size = reading->trace->block_tokens / together;
    if (size == 0 && value == NULL)
        return true;
    if (value == NULL)
        return trace_wrong(reading, key, "missing, and there in the lines before");
    if (size == 0)
        return trace_wrong(reading, key, "here, and missing in the lines before");
    if (!json_is_array(value))
        return trace_wrong(reading, key, "%s, expected an array of integers", type_name(value));
    size_t count = json_array_size(value);
    uint32_t expected = ceil_div_u32(prompt_tokens, size);
    if (count != expected)
        return trace_wrong(reading, key,
                           "%zu block%s, expected %" PRIu32 " of %" PRIu32 " tokens for a prompt of %" PRIu32
                           "; block = ... in the load says how large blocks are",
                           count, count == 1 ? "" : "s", expected, size, prompt_tokens);
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(value, i);
        if (!json_is_integer(id))
            return trace_wrong(reading, key, "entry %zu is %s, expected an integer", i + 1, type_name(id));
        json_int_t number = json_integer_value(id);
        if (number < 0)
            return trace_wrong(reading, key, "entry %zu is %" JSON_INTEGER_FORMAT ", expected at least 0", i + 1,
                               number);
        bool ends = (i + 1) % together == 0 || i + 1 == count;
        if (!trace_row_block(reading, (uint64_t)number, ends))
            return false;
    }
    return true;
}

/* ---- Keys ---------------------------------------------------------------------------------------------------------
 */

static bool check_keys(struct trace_reading *reading, json_t *object)
{
    static const char *const known[] = {
        "timestamp", "delay",        "input_length", "output_length",  "hash_ids", "session_id", "request_id",
        "wait_for",  "tool_wait_ms", "chat_id",      "parent_chat_id", "turn",     "type", /* the last four say nothing
                                                                                              that the others do not */
    };
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        bool found = false;
        for (size_t i = 0; !found && i < sizeof known / sizeof *known; i++)
            found = strcmp(known[i], key) == 0;
        if (!found && !trace_ignored(reading, key))
            return false;
    }
    return true;
}

/* A name is a text or a whole number. */
static bool read_name(struct trace_reading *reading, const char *key, const json_t *value, char *name, size_t size)
{
    if (json_is_string(value))
        snprintf(name, size, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(name, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        return trace_wrong(reading, key, "%s, expected a name", type_name(value));
    return true;
}

static bool read_waits(struct trace_reading *reading, const json_t *waits)
{
    char name[256];
    if (!json_is_array(waits))
        return trace_wrong(reading, "wait_for", "%s, expected an array of the request_id of earlier lines",
                           type_name(waits));
    for (size_t i = 0; i < json_array_size(waits); i++)
        if (!read_name(reading, "wait_for", json_array_get(waits, i), name, sizeof name) ||
            !trace_link_wait(reading, name))
            return false;
    return true;
}

/* What the row has to do with others. */
static bool read_links(struct trace_reading *reading, const json_t *object)
{
    char name[256];
    const json_t *id = json_object_get(object, "request_id");
    const json_t *session = json_object_get(object, "session_id");
    const json_t *delay = json_object_get(object, "delay");
    const json_t *waits = json_object_get(object, "wait_for");
    const json_t *tool = json_object_get(object, "tool_wait_ms");
    int64_t after_ns = 0;
    if (delay != NULL && waits != NULL)
        return trace_wrong(reading, "delay", "beside wait_for, expected one of them");
    if (delay != NULL && session == NULL)
        return trace_wrong(reading, "delay", "without a session_id, expected whose turn it is");
    if (tool != NULL && waits == NULL)
        return trace_wrong(reading, "tool_wait_ms", "without wait_for, expected what it counts from");
    if (delay != NULL && !read_time(reading, "delay", delay, unit_ns(reading), unit_name(reading), &after_ns))
        return false;
    if (tool != NULL && !read_time(reading, "tool_wait_ms", tool, NS_PER_MS, "milliseconds", &after_ns))
        return false;
    if (id != NULL && (!read_name(reading, "request_id", id, name, sizeof name) || !trace_link_name(reading, name)))
        return false;
    if (waits != NULL && !read_waits(reading, waits))
        return false;
    if (session != NULL && (!read_name(reading, "session_id", session, name, sizeof name) ||
                            !trace_link_session(reading, name, delay != NULL)))
        return false;
    if (after_ns > 0)
        trace_link_delay(reading, after_ns);
    return true;
}

static bool read_object(struct trace_reading *reading, json_t *object)
{
    int64_t arrival_ns = -1;
    uint32_t prompt = 0;
    uint32_t output = 0;
    if (!json_is_object(object))
        return trace_wrong(reading, NULL, "the line is %s, expected an object", type_name(object));
    if (!check_keys(reading, object))
        return false;
    const json_t *time = json_object_get(object, "timestamp");
    bool follows = json_object_get(object, "delay") != NULL || json_array_size(json_object_get(object, "wait_for")) > 0;
    if (time == NULL && !follows)
        return trace_wrong(reading, "timestamp", "missing, expected the time of arrival in %s; it is never taken as 0",
                           unit_name(reading));
    if (time != NULL && !read_time(reading, "timestamp", time, unit_ns(reading), unit_name(reading), &arrival_ns))
        return false;
    const json_t *blocks = json_object_get(object, "hash_ids");
    if (reading->trace->count == 0 && blocks != NULL)
        reading->trace->block_tokens =
            trace_block_tokens(reading->options) * max_u32(1, reading->options->blocks_together);
    return read_tokens(reading, object, "input_length", &prompt) && read_output(reading, object, &output) &&
           trace_tokens_together(reading, "output_length", prompt, output) &&
           trace_row(reading, arrival_ns, prompt, output) && read_blocks(reading, blocks, prompt) &&
           read_links(reading, object);
}

bool trace_mooncake_read(struct trace_reading *reading)
{
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
