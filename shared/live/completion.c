/* See completion.h. */
#include "live/completion.h"

#include "base/arith.h"
#include "base/limits.h"
#include "host/memory.h"
#include "world/load/trace_reader.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a chat template adds to a message: its role and two marks. */
#define MESSAGE_TOKENS 4

#define TEXT_BYTES_PER_TOKEN 4

static bool refuse(struct user_error *error, const char *text)
{
    user_error_set(error, NULL, 0, NULL, "%s", text);
    return false;
}

/* ---- Prompts ----------------------------------------------------------------------------------------------------- */

static bool add_token(struct completion_ask *ask, uint32_t token)
{
    uint32_t count = ask->prompt_tokens;
    if (count >= REQUEST_TOKENS_MAX)
        return false;
    if ((count & (count - 1)) == 0)
        ask->tokens = memory_resized(ask->tokens, max_u32(16, 2 * count) * sizeof *ask->tokens);
    ask->tokens[ask->prompt_tokens++] = token;
    return true;
}

static bool add_text(struct completion_ask *ask, const char *text, size_t length)
{
    for (size_t at = 0; at < length; at += TEXT_BYTES_PER_TOKEN) {
        uint32_t token = 0;
        for (size_t i = at; i < length && i < at + TEXT_BYTES_PER_TOKEN; i++)
            token = token << 8 | (unsigned char)text[i];
        if (!add_token(ask, token))
            return false;
    }
    return true;
}

static bool add_ids(struct completion_ask *ask, const json_t *ids, struct user_error *error)
{
    size_t i;
    const json_t *id;
    json_array_foreach(ids, i, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > UINT32_MAX)
            return refuse(error, "prompt: token ids must be integers from 0 on");
        if (!add_token(ask, (uint32_t)json_integer_value(id)))
            return refuse(error, "prompt: too long");
    }
    return true;
}

/* Text, ids, or a list of one of them. */
static bool read_prompt(struct completion_ask *ask, const json_t *prompt, struct user_error *error)
{
    if (json_is_array(prompt) && json_array_size(prompt) > 0 && !json_is_integer(json_array_get(prompt, 0))) {
        if (json_array_size(prompt) > 1)
            return refuse(error, "prompt: one prompt a request is served here, and this is a list of several");
        prompt = json_array_get(prompt, 0);
    }
    if (json_is_array(prompt) && !add_ids(ask, prompt, error))
        return false;
    if (!json_is_array(prompt) && !json_is_string(prompt))
        return refuse(error, "prompt: must be text or a list of token ids");
    if (json_is_string(prompt) && !add_text(ask, json_string_value(prompt), json_string_length(prompt)))
        return refuse(error, "prompt: too long");
    return ask->prompt_tokens > 0 || refuse(error, "prompt: must have at least one token");
}

static bool read_content(struct completion_ask *ask, const json_t *content)
{
    size_t i;
    const json_t *part;
    if (json_is_string(content))
        return add_text(ask, json_string_value(content), json_string_length(content));
    json_array_foreach(content, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        if (json_is_string(text) && !add_text(ask, json_string_value(text), json_string_length(text)))
            return false;
    }
    return true;
}

static bool read_messages(struct completion_ask *ask, const json_t *messages, struct user_error *error)
{
    size_t i;
    const json_t *message;
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return refuse(error, "messages: must be a list of at least one message");
    json_array_foreach(messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        if (role == NULL)
            return refuse(error, "messages: each must be an object with a role");
        bool room = true;
        for (uint32_t t = 0; t < MESSAGE_TOKENS && room; t++)
            room = add_token(ask, UINT32_MAX - (unsigned char)role[0]);
        if (!room || !read_content(ask, json_object_get(message, "content")))
            return refuse(error, "messages: too long");
    }
    return true;
}

/* ---- The rest ---------------------------------------------------------------------------------------------------- */

static bool read_flag(const json_t *object, const char *key, bool *flag, struct user_error *error)
{
    const json_t *value = json_object_get(object, key);
    *flag = json_is_true(value);
    if (value == NULL || json_is_boolean(value) || json_is_null(value))
        return true;
    user_error_set(error, NULL, 0, NULL, "%s: must be true or false", key);
    return false;
}

/* 0: absent. */
static bool read_count(const json_t *object, const char *key, json_int_t least, uint32_t *count,
                       struct user_error *error)
{
    const json_t *value = json_object_get(object, key);
    *count = 0;
    if (value == NULL || json_is_null(value))
        return true;
    if (json_is_integer(value) && json_integer_value(value) >= least &&
        json_integer_value(value) <= REQUEST_TOKENS_MAX) {
        *count = (uint32_t)json_integer_value(value);
        return true;
    }
    user_error_set(error, NULL, 0, NULL, "%s: must be an integer from %d to %d", key, (int)least, REQUEST_TOKENS_MAX);
    return false;
}

static bool read_lengths(struct completion_ask *ask, const json_t *object, struct user_error *error)
{
    uint32_t completion_tokens;
    uint32_t least;
    uint32_t choices;
    if (!read_count(object, "max_tokens", 1, &ask->output_tokens, error) ||
        !read_count(object, "max_completion_tokens", 1, &completion_tokens, error) ||
        !read_count(object, "min_tokens", 0, &least, error) || !read_count(object, "n", 1, &choices, error))
        return false;
    if (choices > 1)
        return refuse(error, "n: one answer a request is served here");
    if (ask->chat && completion_tokens > 0)
        ask->output_tokens = completion_tokens;
    /* vLLM's default. */
    if (!ask->chat && ask->output_tokens == 0)
        ask->output_tokens = 16;
    return ask->output_tokens == 0 || least <= ask->output_tokens ||
           refuse(error, "min_tokens: must not be greater than max_tokens");
}

static bool read_object(struct completion_ask *ask, const json_t *object, struct user_error *error)
{
    bool ignore_eos;
    if (!json_is_object(object))
        return refuse(error, "the body must be a JSON object");
    const json_t *model = json_object_get(object, "model");
    if (model != NULL && !json_is_string(model))
        return refuse(error, "model: must be text");
    if (model != NULL && json_string_length(model) >= sizeof ask->model)
        return refuse(error, "model: too long");
    if (model != NULL)
        memcpy(ask->model, json_string_value(model), json_string_length(model) + 1);
    const json_t *options = json_object_get(object, "stream_options");
    /* An answer always has the length that was asked for: there is no end of sequence to be ignored. */
    return read_flag(object, "stream", &ask->stream, error) && read_flag(object, "ignore_eos", &ignore_eos, error) &&
           read_flag(options, "include_usage", &ask->include_usage, error) &&
           read_flag(options, "continuous_usage_stats", &ask->continuous_usage, error) &&
           read_lengths(ask, object, error) &&
           (ask->chat ? read_messages(ask, json_object_get(object, "messages"), error)
                      : read_prompt(ask, json_object_get(object, "prompt"), error));
}

bool completion_read(const char *body, size_t length, bool chat, struct completion_ask *ask, struct user_error *error)
{
    json_error_t wrong;
    *ask = (struct completion_ask){.chat = chat};
    json_t *object = json_loadb(body, length, JSON_REJECT_DUPLICATES, &wrong);
    if (object == NULL) {
        user_error_set(error, NULL, 0, NULL, "the body is not JSON: %s", wrong.text);
        return false;
    }
    bool good = read_object(ask, object, error);
    json_decref(object);
    return good;
}

void completion_ask_free(struct completion_ask *ask)
{
    free(ask->tokens);
    ask->tokens = NULL;
}

uint64_t *completion_blocks(const struct completion_ask *ask, uint32_t block_tokens, uint32_t *count)
{
    *count = ceil_div_u32(ask->prompt_tokens, block_tokens);
    uint64_t *blocks = memory_get(*count * sizeof *blocks);
    uint64_t hash = 0;
    for (uint32_t i = 0; i < ask->prompt_tokens; i++) {
        hash = trace_block_hash(hash, ask->tokens[i]);
        blocks[i / block_tokens] = hash;
    }
    return blocks;
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static json_t *usage_of(const struct completion_ask *ask, const struct completion_part *part)
{
    uint32_t output = part->first + part->tokens;
    return json_pack("{s:i,s:i,s:i,s:{s:i}}", "prompt_tokens", (int)ask->prompt_tokens, "completion_tokens",
                     (int)output, "total_tokens", (int)(ask->prompt_tokens + output), "prompt_tokens_details",
                     "cached_tokens", (int)part->cached_tokens);
}

/* One word a token. */
static char *words(const struct completion_part *part)
{
    static const char *const word[] = {" and", " then", " the", " two", " of", " them", " went", " on"};
    enum { WORDS = sizeof word / sizeof word[0], LONGEST = 5 };
    char *text = memory_get((size_t)part->tokens * LONGEST + 1);
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < part->tokens; i++) {
        const char *next = word[(part->id + part->first + i) % WORDS];
        memcpy(text + at, next, strlen(next) + 1);
        at += strlen(next);
    }
    return text;
}

static json_t *frame(const struct completion_ask *ask, const struct completion_part *part, const char *object)
{
    char id[48];
    snprintf(id, sizeof id, "%s-%016" PRIx64, ask->chat ? "chatcmpl" : "cmpl", part->id);
    return json_pack("{s:s,s:s,s:I,s:s}", "id", id, "object", object, "created", (json_int_t)part->created_unix_s,
                     "model", part->model);
}

static char *dump(json_t *json)
{
    char *text = memory_given(json_dumps(json, JSON_COMPACT));
    json_decref(json);
    return text;
}

static const char *stream_object(const struct completion_ask *ask)
{
    return ask->chat ? "chat.completion.chunk" : "text_completion";
}

char *completion_chunk(const struct completion_ask *ask, const struct completion_part *part)
{
    json_t *json = frame(ask, part, stream_object(ask));
    char *text = words(part);
    json_t *reason = part->last ? json_string("length") : json_null();
    json_t *choice;
    if (ask->chat && part->first == 0)
        choice = json_pack("{s:i,s:{s:s,s:s},s:o}", "index", 0, "delta", "role", "assistant", "content", text,
                           "finish_reason", reason);
    else if (ask->chat)
        choice = json_pack("{s:i,s:{s:s},s:o}", "index", 0, "delta", "content", text, "finish_reason", reason);
    else
        choice = json_pack("{s:i,s:s,s:o}", "index", 0, "text", text, "finish_reason", reason);
    json_object_set_new(json, "choices", json_pack("[o]", choice));
    if (part->usage)
        json_object_set_new(json, "usage", usage_of(ask, part));
    free(text);
    return dump(json);
}

char *completion_usage_chunk(const struct completion_ask *ask, const struct completion_part *part)
{
    json_t *json = frame(ask, part, stream_object(ask));
    json_object_set_new(json, "choices", json_array());
    json_object_set_new(json, "usage", usage_of(ask, part));
    return dump(json);
}

char *completion_answer(const struct completion_ask *ask, const struct completion_part *part)
{
    json_t *json = frame(ask, part, ask->chat ? "chat.completion" : "text_completion");
    char *text = words(part);
    json_t *choice = ask->chat ? json_pack("{s:i,s:{s:s,s:s},s:s}", "index", 0, "message", "role", "assistant",
                                           "content", text, "finish_reason", "length")
                               : json_pack("{s:i,s:s,s:s}", "index", 0, "text", text, "finish_reason", "length");
    json_object_set_new(json, "choices", json_pack("[o]", choice));
    json_object_set_new(json, "usage", usage_of(ask, part));
    free(text);
    return dump(json);
}

char *completion_error(int status, const char *type, const char *message)
{
    return dump(json_pack("{s:{s:s,s:s,s:n,s:i}}", "error", "message", message, "type", type, "param", "code", status));
}
