/* See reply.h. */
#include "live/reply.h"

#include "base/arith.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static uint32_t count_of(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 && value <= UINT32_MAX ? (uint32_t)value : 0;
}

static void read_usage(struct reply *reply, const json_t *usage)
{
    uint32_t prompt = count_of(usage, "prompt_tokens");
    reply->prompt_tokens = prompt > 0 ? prompt : reply->prompt_tokens;
    reply->usage_tokens = max_u32(reply->usage_tokens, count_of(usage, "completion_tokens"));
}

static bool says(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return (json_is_string(value) && json_string_length(value) > 0) ||
           (json_is_array(value) && json_array_size(value) > 0);
}

static bool choice_says(const json_t *choice)
{
    static const char *const channels[] = {"content", "reasoning_content", "reasoning", "refusal", "tool_calls"};
    const json_t *delta = json_object_get(choice, "delta");
    if (says(choice, "text"))
        return true;
    for (size_t i = 0; i < sizeof channels / sizeof channels[0]; i++)
        if (says(delta, channels[i]))
            return true;
    return false;
}

static void error_text(const json_t *object, char *text, size_t size)
{
    const json_t *error = json_object_get(object, "error");
    const json_t *message = json_is_object(error) ? json_object_get(error, "message") : error;
    if (!json_is_string(message))
        message = json_object_get(object, "message");
    snprintf(text, size, "%s", json_is_string(message) ? json_string_value(message) : "an error without a message");
}

static enum reply_kind take(struct reply *reply, const json_t *object)
{
    size_t i;
    const json_t *choice;
    const json_t *choices = json_object_get(object, "choices");
    if (json_object_get(object, "error") != NULL && !json_is_null(json_object_get(object, "error"))) {
        error_text(object, reply->error, sizeof reply->error);
        return REPLY_ERROR;
    }
    if (!json_is_array(choices))
        return REPLY_UNKNOWN;
    uint32_t told = reply->usage_tokens;
    bool any = false;
    json_array_foreach(choices, i, choice)
    {
        any = any || choice_says(choice);
        reply->finished = reply->finished || json_is_string(json_object_get(choice, "finish_reason"));
    }
    const json_t *usage = json_object_get(object, "usage");
    if (json_is_object(usage))
        read_usage(reply, usage);
    /* A usage alone, at the end, brings no token: it says how many the chunks had. */
    if (json_array_size(choices) == 0)
        return REPLY_NOTHING;
    if (json_is_object(usage))
        reply->new_tokens = reply->usage_tokens - min_u32(reply->usage_tokens, max_u32(told, reply->tokens));
    else
        reply->new_tokens = any ? 1 : 0;
    reply->tokens += reply->new_tokens;
    reply->chunks += reply->new_tokens > 0;
    return reply->new_tokens > 0 ? REPLY_TOKENS : REPLY_NOTHING;
}

enum reply_kind reply_event(struct reply *reply, const char *data, size_t length)
{
    static const char done[] = "[DONE]";
    json_error_t error;
    reply->new_tokens = 0;
    if (length == sizeof done - 1 && memcmp(data, done, length) == 0) {
        reply->done = true;
        return REPLY_DONE;
    }
    json_t *object = json_loadb(data, length, 0, &error);
    enum reply_kind kind = json_is_object(object) ? take(reply, object) : REPLY_UNKNOWN;
    json_decref(object);
    return kind;
}

void reply_error_text(const char *body, size_t length, char *text, size_t size)
{
    json_error_t error;
    json_t *object = json_loadb(body, length, 0, &error);
    if (json_is_object(object))
        error_text(object, text, size);
    else
        snprintf(text, size, "%.*s", (int)min_u64(length, size - 1), body);
    json_decref(object);
    text[strcspn(text, "\r\n")] = '\0';
}
