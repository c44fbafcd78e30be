/* Tokens that requests go on from: which messages take them along, which launches come with them, and when they are
 * forgotten.
 */
#include "real/runtime/answers.h"

#include "base/arith.h"
#include "messenger/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB 1000
#define PROMPT 10

static uint32_t live_below; /* requests [live_below, live_end) live */
static uint32_t live_end;

static bool serves(void *self, uint32_t request)
{
    (void)self;
    return request >= live_below && request < live_end;
}

static struct answers *make(void)
{
    live_below = live_end = 0; /* nothing lives */
    return answers_make(&(struct answers_config){.vocab = VOCAB, .serves = serves});
}

static struct message message_of(enum message_kind kind, uint32_t request, uint32_t produced)
{
    struct message m = {.kind = (uint16_t)kind, .request = request, .produced = produced, .token_seed = request + 7};
    m.prompt_tokens = kind == MESSAGE_PREFILL ? PROMPT + produced - 1 : PROMPT;
    return m;
}

static size_t encode(const struct message *m, const uint64_t *blocks, unsigned char *bytes)
{
    return wire_encode(m, blocks, NULL, bytes, 1024);
}

static bool heard(struct answers *answers, enum message_kind kind, uint32_t request, uint32_t produced,
                  const uint32_t *tokens, uint32_t count)
{
    unsigned char bytes[1024];
    struct message m = message_of(kind, request, produced);
    return answers_heard(answers, bytes, encode(&m, NULL, bytes), tokens, count);
}

static uint32_t sent(struct answers *answers, enum message_kind kind, uint32_t request, uint32_t produced,
                     const uint32_t **tokens)
{
    unsigned char bytes[1024];
    struct message m = message_of(kind, request, produced);
    return answers_sent(answers, bytes, encode(&m, NULL, bytes), tokens);
}

static uint32_t produce(struct answers *answers, uint32_t request, uint32_t position, uint32_t token)
{
    struct device_token fresh;
    return answers_produced(answers, &(struct device_token){.request = request, .position = position, .token = token},
                            1, &fresh);
}

/* The tokens that come with one change; their number is the change's. */
static const struct step_given *given(struct answers *answers, const struct step_change *change, uint32_t *count)
{
    return answers_given(answers, &(struct step_launch){.change_count = 1, .changes = change}, count);
}

/* Preempted on a decoder: the prefiller gets all but the last token, and a launch here the last. Then the transfer
 * fails, and everything goes to the front and from there to another decoder. */
static void tokens_follow_their_request(void **state)
{
    (void)state;
    struct answers *decoder = make();
    struct answers *prefiller = make();
    struct answers *front = make();
    const uint32_t *tokens = NULL;
    uint32_t count;
    assert_int_equal(sent(front, MESSAGE_REQUEST, 3, 0, &tokens), 0);
    assert_true(heard(decoder, MESSAGE_REQUEST, 3, 0, NULL, 0));
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(produce(decoder, 3, PROMPT + i, 100 + i), 1);
    assert_int_equal(sent(decoder, MESSAGE_PREFILL, 3, 5, &tokens), 4);
    assert_memory_equal(tokens, ((const uint32_t[]){100, 101, 102, 103}), 16);
    assert_false(heard(prefiller, MESSAGE_PREFILL, 3, 5, tokens, 3));
    assert_false(heard(prefiller, MESSAGE_PREFILL, 3, 5, NULL, 0));
    assert_false(heard(prefiller, MESSAGE_PREFILL, 3, 5, ((const uint32_t[]){1, 2, 3, VOCAB}), 4));
    assert_true(heard(prefiller, MESSAGE_PREFILL, 3, 5, tokens, 4));

    const struct step_change first = {.kind = STEP_CHUNK, .sequence = 6, .request = 3, .tokens = PROMPT};
    given(prefiller, &first, &count);
    assert_int_equal(count, 0); /* the seed gives all of it */
    const struct step_change rest = {.kind = STEP_CHUNK, .sequence = 6, .request = 3, .start = PROMPT - 1, .tokens = 5};
    const struct step_given *list = given(prefiller, &rest, &count);
    assert_int_equal(count, 1);
    assert_int_equal(list->sequence, 6);
    assert_int_equal(list->first, PROMPT - 1);
    assert_int_equal(list->count, 5);
    assert_int_equal(list->tokens[0], device_prompt_token(10, PROMPT - 1, VOCAB));
    assert_memory_equal(list->tokens + 1, tokens, 16);
    const struct step_change join = {.kind = STEP_JOIN, .request = 3, .start = PROMPT + 4, .tokens = 5};
    list = given(decoder, &join, &count);
    assert_int_equal(count, 1);
    assert_int_equal(list->count, 1);
    assert_int_equal(list->tokens[0], 104);

    assert_int_equal(sent(decoder, MESSAGE_FAILED, 3, 5, &tokens), 5);
    assert_true(heard(front, MESSAGE_FAILED, 3, 5, tokens, 5));
    assert_int_equal(sent(front, MESSAGE_REQUEST, 3, 5, &tokens), 5);
    struct answers *other = make();
    assert_true(heard(other, MESSAGE_REQUEST, 3, 5, tokens, 5));
    assert_int_equal(given(other, &join, &count)->tokens[0], 104);
    assert_int_equal(produce(other, 3, PROMPT + 5, 105), 1);
    assert_int_equal(sent(other, MESSAGE_FAILED, 3, 6, &tokens), 6);
    assert_int_equal(tokens[5], 105);
    answers_free(decoder);
    answers_free(prefiller);
    answers_free(front);
    answers_free(other);
}

/* What follows a chunk in mid-prompt, and what a sequence that is computed again yields on the way, is no news. */
static void only_news_is_an_answer(void **state)
{
    (void)state;
    struct answers *mixed = make();
    assert_true(heard(mixed, MESSAGE_REQUEST, 1, 0, NULL, 0));
    assert_int_equal(produce(mixed, 1, PROMPT - 3, 9), 0);
    assert_int_equal(produce(mixed, 1, PROMPT, 11), 1);
    assert_int_equal(produce(mixed, 1, PROMPT + 1, 12), 1);
    assert_int_equal(produce(mixed, 1, PROMPT, 13), 0);
    assert_int_equal(produce(mixed, 2, PROMPT, 13), 0); /* of a request that is not here */
    const uint32_t *tokens;
    assert_int_equal(sent(mixed, MESSAGE_FAILED, 1, 2, &tokens), 2);
    assert_int_equal(tokens[0], 11);
    answers_free(mixed);
}

/* A request that starts again starts from what comes with it; one that comes twice while it lives changes nothing. */
static void a_second_attempt_begins_where_it_is_told_to(void **state)
{
    (void)state;
    struct answers *decoder = make();
    static const uint32_t two[] = {21, 22};
    const uint32_t *tokens;
    assert_true(heard(decoder, MESSAGE_REQUEST, 1, 2, two, 2));
    assert_int_equal(produce(decoder, 1, PROMPT + 2, 23), 1);
    live_end = 2;
    assert_true(heard(decoder, MESSAGE_REQUEST, 1, 0, NULL, 0));
    assert_int_equal(sent(decoder, MESSAGE_FAILED, 1, 3, &tokens), 3);
    live_end = 0;
    assert_true(heard(decoder, MESSAGE_REQUEST, 1, 0, NULL, 0));
    assert_int_equal(produce(decoder, 1, PROMPT, 31), 1);
    assert_int_equal(sent(decoder, MESSAGE_FAILED, 1, 1, &tokens), 1);
    assert_int_equal(tokens[0], 31);
    answers_free(decoder);
}

/* Equal blocks give equal tokens, whatever the seeds; behind them each prompt is its own. */
static void blocks_give_their_own_tokens(void **state)
{
    (void)state;
    struct answers *decoder = make();
    static const uint64_t blocks[] = {0xabc, 0xdef};
    unsigned char bytes[1024];
    uint32_t kept[2][PROMPT];
    for (uint32_t request = 0; request < 2; request++) {
        struct message m = message_of(MESSAGE_REQUEST, request, 0);
        m.block_tokens = 4;
        m.block_count = 2;
        assert_true(answers_heard(decoder, bytes, encode(&m, blocks, bytes), NULL, 0));
        const struct step_change chunk = {.kind = STEP_CHUNK, .request = request, .tokens = PROMPT};
        uint32_t count;
        const struct step_given *list = given(decoder, &chunk, &count);
        assert_int_equal(count, 1);
        memcpy(kept[request], list->tokens, sizeof kept[request]);
        const struct step_change join = {.kind = STEP_JOIN, .request = request, .start = PROMPT - 1};
        given(decoder, &join, &count);
        assert_int_equal(count, 0); /* its last token lies in no block */
    }
    assert_memory_equal(kept[0], kept[1], 8 * sizeof kept[0][0]);
    assert_int_equal(kept[0][5], device_prompt_token(0xdef, 5, VOCAB));
    assert_int_equal(kept[0][9], device_prompt_token(7, 9, VOCAB));
    assert_int_equal(kept[1][9], device_prompt_token(8, 9, VOCAB));
    answers_free(decoder);
}

static void what_has_ended_is_forgotten(void **state)
{
    (void)state;
    struct answers *decoder = make();
    static const uint32_t one[] = {5};
    for (uint32_t i = 0; i < 10000; i++) {
        live_below = i < 20 ? 0 : i - 20; /* those before this one, twenty at a time */
        live_end = i;
        assert_true(heard(decoder, MESSAGE_REQUEST, i, 1, one, 1));
        assert_true(answers_kept(decoder) <= 128);
    }
    const uint32_t *tokens;
    for (uint32_t i = 9980; i < 10000; i++)
        assert_int_equal(sent(decoder, MESSAGE_FAILED, i, 1, &tokens), 1);
    answers_free(decoder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_follow_their_request),
        cmocka_unit_test(only_news_is_an_answer),
        cmocka_unit_test(a_second_attempt_begins_where_it_is_told_to),
        cmocka_unit_test(blocks_give_their_own_tokens),
        cmocka_unit_test(what_has_ended_is_forgotten),
    };
    return cmocka_run_group_tests_name("answers", tests, NULL, NULL);
}
