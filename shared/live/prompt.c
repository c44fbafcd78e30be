/* See prompt.h. */
#include "live/prompt.h"

#include "host/memory.h"
#include "world/load/trace_reader.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX 11 /* of an id, and the comma */

uint32_t prompt_token(const struct prompt_format *format, const struct request_spec *spec, uint32_t index)
{
    uint32_t low = format->vocabulary / 8;
    uint32_t span = format->vocabulary - 2 * low;
    uint32_t block = spec->block_tokens == 0 ? 0 : index / spec->block_tokens;
    bool named = block < spec->block_count;
    uint64_t content = named ? spec->blocks[block] : spec->token_seed;
    uint64_t place = named ? index % spec->block_tokens : index;
    return low + (uint32_t)(trace_block_hash(trace_block_hash(format->salt, content), place) % span);
}

static size_t put_number(char *text, uint32_t number)
{
    char digits[DIGITS_MAX];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    for (size_t i = 0; i < count; i++)
        text[i] = digits[count - 1 - i];
    return count;
}

/* Short words that tokenizers know whole, with the space before them: no two neighbours make a longer one. */
static const char *word(uint32_t token)
{
    static const char *const words[] = {" the", " one", " of", " house", " water", " red", " time", " go",
                                        " day", " two", " is", " and",   " hand",  " new", " old",  " sun"};
    return words[token % (sizeof words / sizeof words[0])];
}

static char *put_prompt(const struct prompt_format *format, const struct request_spec *spec, char *at)
{
    bool ids = format->kind == PROMPT_IDS;
    *at++ = ids ? '[' : '"';
    for (uint32_t i = 0; i < spec->prompt_tokens; i++) {
        uint32_t token = prompt_token(format, spec, i);
        if (ids) {
            if (i > 0)
                *at++ = ',';
            at += put_number(at, token);
        } else {
            size_t length = strlen(word(token));
            memcpy(at, word(token), length);
            at += length;
        }
    }
    *at++ = ids ? ']' : '"';
    return at;
}

char *prompt_body(const struct prompt_format *format, const struct request_spec *spec, size_t *length)
{
    json_t *name = memory_given(json_string(format->model));
    char *model = memory_given(json_dumps(name, JSON_ENCODE_ANY));
    json_decref(name);
    bool chat = format->kind == PROMPT_CHAT;
    size_t room = (size_t)spec->prompt_tokens * DIGITS_MAX + strlen(model) + 512;
    char *body = memory_get(room);
    int head = snprintf(body, room, "{\"model\":%s,%s", model,
                        chat ? "\"messages\":[{\"role\":\"user\",\"content\":" : "\"prompt\":");
    free(model);
    char *at = put_prompt(format, spec, body + head);
    int tail = snprintf(
        at, room - (size_t)(at - body),
        "%s,\"%s\":%" PRIu32 ",\"min_tokens\":%" PRIu32 ",\"ignore_eos\":true,\"temperature\":0,\"stream\":true,"
        "\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}}",
        chat ? "}]" : "", chat ? "max_completion_tokens" : "max_tokens", spec->output_tokens, spec->output_tokens);
    *length = (size_t)(at - body) + (size_t)tail;
    return body;
}
