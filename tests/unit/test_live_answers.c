/* What is read of an endpoint's answers, and what is sent: events wherever reads cut them, chunks that are no tokens,
 * prompts that share what the load shares. */
#include "live/prompt.h"
#include "live/reply.h"
#include "live/sse.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct heard {
    char text[256];
    uint32_t events;
};

static bool on_event(void *self, const char *data, size_t length)
{
    struct heard *heard = self;
    assert_int_equal(strlen(data), length);
    strcat(heard->text, data);
    strcat(heard->text, "|");
    heard->events++;
    return true;
}

/* Two reads, cut at every byte: the same events. */
static void events(void **state)
{
    (void)state;
    static const struct {
        const char *stream;
        const char *events;
    } cases[] = {
        {"data: a\n\ndata: b\n\n", "a|b|"},
        {"data: a\r\n\r\ndata: b\r\n\r\n", "a|b|"},
        {"data: a\r\rdata: b\r\r", "a|b|"},
        {"\xef\xbb\xbf"
         "data: a\n\n",
         "a|"},
        {"data: a\ndata: b\n\n", "a\nb|"},
        {":c\n\ndata:a\nid: 1\n\n:d\ndata\n\n", "a||"},
        {"data:  a\ndatas: b\nevent: x\n\n\n\n", " a|"},
        {"data: \xc3\xa9\xe2\x82\xac\n\n", "\xc3\xa9\xe2\x82\xac|"},
        {"data: a\n\ndata: b\n", "a|"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t cut = 0; cut <= strlen(cases[i].stream); cut++) {
            struct sse_reader reader = {0};
            struct heard heard = {.events = 0};
            assert_true(sse_feed(&reader, cases[i].stream, cut, on_event, &heard));
            assert_true(sse_feed(&reader, cases[i].stream + cut, strlen(cases[i].stream) - cut, on_event, &heard));
            assert_string_equal(heard.text, cases[i].events);
            assert_int_equal(sse_unfinished(&reader), i == 8);
            sse_free(&reader);
        }
}

static void long_events(void **state)
{
    (void)state;
    struct sse_reader reader = {0};
    struct heard heard = {.events = 0};
    size_t length = SSE_EVENT_BYTES_MAX + 1u;
    char *bytes = malloc(length);
    assert_non_null(bytes);
    memset(bytes, 'x', length);
    assert_false(sse_feed(&reader, bytes, length, on_event, &heard));
    free(bytes);
    sse_free(&reader);
}

static enum reply_kind take(struct reply *reply, const char *text)
{
    return reply_event(reply, text, strlen(text));
}

/* vllm#3759, vllm!5895, inference-perf#559: a role is no token, and whatever channel says something is. */
static void first_tokens(void **state)
{
    (void)state;
    struct reply reply = {0};
    assert_int_equal(take(&reply, "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}"),
                     REPLY_NOTHING);
    assert_int_equal(reply.tokens, 0);
    assert_int_equal(take(&reply, "{\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}"), REPLY_TOKENS);
    assert_int_equal(take(&reply, "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}"), REPLY_TOKENS);
    assert_int_equal(take(&reply, "{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}"), REPLY_NOTHING);
    assert_int_equal(reply.tokens, 2);
    assert_true(reply.finished);
}

/* vllm#27485, aiperf!1279, sglang#24254, sglang#7084: usage counts, chunks do not. */
static void counts(void **state)
{
    (void)state;
    struct reply reply = {0};
    take(&reply, "{\"choices\":[{\"text\":\"abc\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}");
    assert_int_equal(reply.new_tokens, 3);
    /* Empty text may be a token, and its text come with the next one. */
    assert_int_equal(take(&reply, "{\"choices\":[{\"text\":\"\"}],\"usage\":{\"completion_tokens\":4}}"), REPLY_TOKENS);
    assert_int_equal(take(&reply, "{\"choices\":[{\"text\":\"x\"}],\"usage\":{\"completion_tokens\":4}}"),
                     REPLY_NOTHING);
    assert_int_equal(reply.tokens, 4);
    assert_int_equal(reply.chunks, 2);
    assert_int_equal(reply.prompt_tokens, 9);
    struct reply last = {0};
    take(&last, "{\"choices\":[{\"text\":\"abc\"}],\"usage\":null}");
    assert_int_equal(take(&last, "{\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":5}}"),
                     REPLY_NOTHING);
    assert_int_equal(last.tokens, 1);
    assert_int_equal(last.usage_tokens, 5);
}

static void errors(void **state)
{
    (void)state;
    struct reply reply = {0};
    char text[64];
    assert_int_equal(take(&reply, "{\"error\":\"plain\"}"), REPLY_ERROR);
    assert_string_equal(reply.error, "plain");
    assert_int_equal(take(&reply, "{\"choices\":[{\"text\":\"a\"}],\"error\":null}"), REPLY_TOKENS);
    assert_int_equal(take(&reply, "{\"usage\":{}}"), REPLY_UNKNOWN);
    assert_int_equal(take(&reply, "7"), REPLY_UNKNOWN);
    assert_int_equal(take(&reply, ""), REPLY_UNKNOWN);
    assert_int_equal(take(&reply, "[DONE]"), REPLY_DONE);
    reply_error_text("{\"message\":\"TRT says\"}", 22, text, sizeof text);
    assert_string_equal(text, "TRT says");
    reply_error_text("<html>\nbad", 10, text, sizeof text);
    assert_string_equal(text, "<html>");
}

/* sglang!15732, vllm#54227: prompts have exactly their length, share what the load shares and nothing else, and are new
 * under another salt. */
static void prompts(void **state)
{
    (void)state;
    const uint64_t blocks[2][3] = {{11, 12, 13}, {11, 12, 99}};
    struct request_spec specs[2] = {
        {.prompt_tokens = 45, .output_tokens = 3, .block_count = 3, .block_tokens = 16, .token_seed = 1},
        {.prompt_tokens = 45, .output_tokens = 3, .block_count = 3, .block_tokens = 16, .token_seed = 2},
    };
    struct prompt_format format = {.kind = PROMPT_IDS, .model = "a \"b\"", .vocabulary = 259, .salt = 5};
    struct prompt_format other = {.kind = PROMPT_IDS, .model = "a", .vocabulary = 259, .salt = 6};
    uint32_t same = 0;
    uint32_t salted = 0;
    for (int i = 0; i < 2; i++)
        specs[i].blocks = blocks[i];
    for (uint32_t t = 0; t < 45; t++) {
        uint32_t token = prompt_token(&format, &specs[0], t);
        assert_in_range(token, 259 / 8, 259 - 259 / 8 - 1);
        if (t < 32)
            assert_int_equal(token, prompt_token(&format, &specs[1], t));
        same += t >= 32 && token == prompt_token(&format, &specs[1], t);
        salted += token == prompt_token(&other, &specs[0], t);
    }
    assert_true(same <= 3 && salted <= 6);
    size_t length;
    char *body = prompt_body(&format, &specs[0], &length);
    json_t *json = json_loadb(body, length, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(json, "prompt")), 45);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(json, "prompt"), 44)),
                     prompt_token(&format, &specs[0], 44));
    assert_string_equal(json_string_value(json_object_get(json, "model")), "a \"b\"");
    assert_int_equal(json_integer_value(json_object_get(json, "max_tokens")), 3);
    json_decref(json);
    free(body);
    format.kind = PROMPT_CHAT;
    body = prompt_body(&format, &specs[0], &length);
    json = json_loadb(body, length, 0, NULL);
    assert_non_null(json_object_get(json_array_get(json_object_get(json, "messages"), 0), "content"));
    json_decref(json);
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events), cmocka_unit_test(long_events), cmocka_unit_test(first_tokens),
        cmocka_unit_test(counts), cmocka_unit_test(errors),      cmocka_unit_test(prompts),
    };
    return cmocka_run_group_tests_name("live_answers", tests, NULL, NULL);
}
