/* See answers.h. */
#include "real/runtime/answers.h"

#include "base/arith.h"
#include "messenger/wire.h"

#include <stdlib.h>
#include <string.h>

/* Requests kept before it is worth looking which of them have ended. */
#define SWEEP_AT_LEAST 64u

struct answer {
    uint32_t request;
    uint32_t count; /* tokens produced, from the end of the prompt on */
    uint32_t room;
    uint32_t *tokens;
    struct device_prompt prompt; /* its blocks are owned */
    uint64_t *blocks;
};

struct answers {
    struct answers_config config;
    struct answer *answers; /* in no particular order */
    uint32_t count;
    uint32_t room;
    uint32_t sweep_at;
    uint32_t *places; /* by request, ids being dense: index plus one; 0: not kept */
    uint32_t place_room;
    struct step_given *given;
    uint32_t given_room;
    uint32_t *tokens; /* of `given` */
    size_t token_room;
};

static void *grown(void *items, size_t count, size_t size)
{
    void *memory = realloc(items, count * size);
    CHECK(memory != NULL);
    return memory;
}

struct answers *answers_make(const struct answers_config *config)
{
    struct answers *answers = calloc(1, sizeof *answers);
    CHECK(answers != NULL);
    answers->config = *config;
    answers->sweep_at = SWEEP_AT_LEAST;
    return answers;
}

static void release(struct answer *answer)
{
    free(answer->tokens);
    free(answer->blocks);
}

void answers_free(struct answers *answers)
{
    if (answers == NULL)
        return;
    for (uint32_t i = 0; i < answers->count; i++)
        release(&answers->answers[i]);
    free(answers->answers);
    free(answers->places);
    free(answers->given);
    free(answers->tokens);
    free(answers);
}

uint32_t answers_kept(const struct answers *answers)
{
    return answers->count;
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

static struct answer *find(const struct answers *answers, uint32_t request)
{
    if (request >= answers->place_room || answers->places[request] == 0)
        return NULL;
    return &answers->answers[answers->places[request] - 1];
}

/* Drops all that have ended. What is kept doubles before it is looked at again, so that a request pays for a constant
 * number of looks. */
static void sweep(struct answers *answers)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < answers->count; i++) {
        struct answer *answer = &answers->answers[i];
        if (answers->config.serves(answers->config.self, answer->request)) {
            answers->answers[kept] = *answer;
            answers->places[answer->request] = ++kept;
        } else {
            answers->places[answer->request] = 0;
            release(answer);
        }
    }
    answers->count = kept;
    answers->sweep_at = max_u32(SWEEP_AT_LEAST, 2 * kept);
}

static void name_place(struct answers *answers, uint32_t request)
{
    if (request >= answers->place_room) {
        uint32_t room = max_u32(request + 1, answers->place_room * 2);
        answers->places = grown(answers->places, room, sizeof *answers->places);
        memset(answers->places + answers->place_room, 0, (room - answers->place_room) * sizeof *answers->places);
        answers->place_room = room;
    }
    answers->places[request] = answers->count;
}

/* The message's request, kept from now on. */
static struct answer *keep(struct answers *answers, const struct message *m, uint32_t prompt_tokens)
{
    struct answer *answer = find(answers, m->request);
    if (answer != NULL)
        return answer;
    if (answers->count >= answers->sweep_at)
        sweep(answers);
    if (answers->count == answers->room) {
        answers->room = max_u32(16, answers->room * 2);
        answers->answers = grown(answers->answers, answers->room, sizeof *answers->answers);
    }
    answer = &answers->answers[answers->count++];
    *answer = (struct answer){.request = m->request};
    answer->prompt = (struct device_prompt){
        .tokens = prompt_tokens, .seed = m->token_seed, .block_tokens = m->block_tokens, .block_count = m->block_count};
    if (m->block_tokens == 0)
        answer->prompt.block_count = 0;
    if (answer->prompt.block_count > 0) {
        answer->blocks = grown(NULL, m->block_count, sizeof *answer->blocks);
        wire_blocks(m, answer->blocks);
        answer->prompt.blocks = answer->blocks;
    }
    name_place(answers, m->request);
    return answer;
}

static void reserve(struct answer *answer, uint32_t count)
{
    if (count <= answer->room)
        return;
    answer->room = max_u32(count, max_u32(16, answer->room * 2));
    answer->tokens = grown(answer->tokens, answer->room, sizeof *answer->tokens);
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

/* Produced tokens that go with a message. */
static uint32_t needed(const struct message *m)
{
    switch (m->kind) {
    case MESSAGE_REQUEST:
    case MESSAGE_FAILED:
        return m->produced;
    case MESSAGE_PREFILL:
        return m->produced == 0 ? 0 : m->produced - 1;
    default:
        return 0;
    }
}

uint32_t answers_sent(struct answers *answers, const void *message, size_t length, const uint32_t **tokens)
{
    struct message m;
    if (!wire_decode(message, length, &m))
        return 0;
    uint32_t count = needed(&m);
    struct answer *answer = m.kind == MESSAGE_REQUEST ? keep(answers, &m, m.prompt_tokens) : find(answers, m.request);
    if (count == 0)
        return 0;
    /* The node counts no token that has not been produced here, or that has not come here with its request. */
    CHECK(answer != NULL && answer->count >= count);
    *tokens = answer->tokens;
    return count;
}

bool answers_heard(struct answers *answers, const void *message, size_t length, const uint32_t *tokens, uint32_t count)
{
    struct message m;
    if (!wire_decode(message, length, &m))
        return count == 0; /* the node counts it as malformed */
    if (count != needed(&m))
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (tokens[i] >= answers->config.vocab)
            return false;
    struct answer *answer = find(answers, m.request);
    if (m.kind == MESSAGE_REQUEST) {
        if (answers->config.serves(answers->config.self, m.request))
            return true; /* it came twice: the first is being served */
        answer = keep(answers, &m, m.prompt_tokens);
    } else if (m.kind == MESSAGE_PREFILL) {
        if (m.prompt_tokens == UINT32_MAX || m.produced > m.prompt_tokens)
            return count == 0;
        answer = keep(answers, &m, m.prompt_tokens + 1 - m.produced);
    } else if (m.kind != MESSAGE_FAILED || answer == NULL) {
        return true;
    }
    reserve(answer, count);
    if (count > 0)
        memcpy(answer->tokens, tokens, count * sizeof *tokens);
    /* Whoever goes on does so from these alone. A prefiller may at the same time still serve a decoder that had more of
     * them, and whose loss it has not heard of. */
    answer->count = m.kind == MESSAGE_PREFILL ? max_u32(answer->count, count) : count;
    return true;
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

uint32_t answers_produced(struct answers *answers, const struct device_token *tokens, uint32_t count,
                          struct device_token *fresh)
{
    uint32_t fresh_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct answer *answer = find(answers, tokens[i].request);
        if (answer == NULL || tokens[i].position < answer->prompt.tokens + answer->count)
            continue;
        CHECK(tokens[i].position == answer->prompt.tokens + answer->count);
        reserve(answer, answer->count + 1);
        answer->tokens[answer->count++] = tokens[i].token;
        fresh[fresh_count++] = tokens[i];
    }
    return fresh_count;
}

/* Whether a device reads other tokens at [first, end) than those of the request's seed. */
static bool differ(const struct answer *answer, uint32_t first, uint32_t end)
{
    const struct device_prompt *prompt = &answer->prompt;
    return end > prompt->tokens || (uint64_t)first < (uint64_t)prompt->block_count * prompt->block_tokens;
}

static uint32_t token_at(const struct answers *answers, const struct answer *answer, uint32_t position)
{
    if (position < answer->prompt.tokens)
        return device_prompt_token_at(&answer->prompt, position, answers->config.vocab);
    CHECK(position - answer->prompt.tokens < answer->count);
    return answer->tokens[position - answer->prompt.tokens];
}

const struct step_given *answers_given(struct answers *answers, const struct step_launch *launch, uint32_t *count)
{
    size_t used = 0;
    *count = 0;
    for (uint32_t i = 0; i < launch->change_count; i++) {
        const struct step_change *change = &launch->changes[i];
        if (change->kind != STEP_CHUNK && change->kind != STEP_JOIN)
            continue;
        const struct answer *answer = find(answers, change->request);
        uint32_t tokens = change->kind == STEP_CHUNK ? change->tokens : 1;
        CHECK(answer != NULL);
        if (!differ(answer, change->start, change->start + tokens))
            continue;
        if (*count == answers->given_room) {
            answers->given_room = max_u32(16, answers->given_room * 2);
            answers->given = grown(answers->given, answers->given_room, sizeof *answers->given);
        }
        if (answers->token_room - used < tokens) {
            answers->token_room = 2 * answers->token_room + tokens;
            answers->tokens = grown(answers->tokens, answers->token_room, sizeof *answers->tokens);
        }
        for (uint32_t k = 0; k < tokens; k++)
            answers->tokens[used++] = token_at(answers, answer, change->start + k);
        answers->given[(*count)++] =
            (struct step_given){.sequence = change->sequence, .first = change->start, .count = tokens};
    }
    used = 0;
    for (uint32_t i = 0; i < *count; used += answers->given[i++].count)
        answers->given[i].tokens = answers->tokens + used;
    return answers->given;
}
