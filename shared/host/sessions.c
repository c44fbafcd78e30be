/* See sessions.h. */
#include "host/sessions.h"

#include "base/arith.h"
#include "base/limits.h"
#include "host/trace_reader.h"

#include <stdlib.h>
#include <string.h>

#define NO_REQUEST UINT32_MAX

struct session {
    uint64_t seed;
    uint32_t turns_left; /* the one in hand included */
    uint32_t request;    /* that is under way; NO_REQUEST: the user thinks */
    int64_t turn_ns;     /* of the next turn, while the user thinks */
    uint64_t said;       /* tokens of the turns before */
    uint32_t answer;     /* tokens of the answer under way */
    struct rng lengths;
};

struct sessions {
    const struct load *load;
    uint64_t seed;
    struct rng arrivals;
    struct rng turns;
    uint64_t begun;   /* conversations so far */
    int64_t begin_ns; /* of the next one */
    uint64_t mean_gap_ns;
    uint32_t count; /* conversations that go on, in no order */
    uint32_t capacity;
    struct session *items;
    uint64_t blocks[REQUEST_BLOCKS_MAX];
};

uint64_t sessions_tokens_max(const struct load *load)
{
    return load->session_system_tokens +
           (uint64_t)load->session_turns.high * ((uint64_t)load->prompt.high + load->output.high);
}

uint64_t sessions_prompt_mean_milli(const struct load *load, uint64_t prompt_milli, uint64_t output_milli,
                                    uint64_t turns_milli)
{
    uint64_t before_milli = turns_milli > 1000 ? (turns_milli - 1000) / 2 : 0;
    return (uint64_t)load->session_system_tokens * 1000 + prompt_milli +
           mul_div_floor_u64(before_milli, prompt_milli + output_milli, 1000);
}

static void next_begins(struct sessions *sessions)
{
    int64_t gap_ns = (int64_t)rng_exponential(&sessions->arrivals, sessions->mean_gap_ns);
    sessions->begin_ns = time_add(sessions->begin_ns, gap_ns);
}

struct sessions *sessions_make(const struct load *load, uint64_t seed)
{
    struct sessions *sessions = calloc(1, sizeof *sessions);
    CHECK(sessions != NULL);
    sessions->load = load;
    sessions->seed = seed;
    sessions->arrivals = rng_stream(seed, 0, RNG_ARRIVALS);
    sessions->turns = rng_stream(seed, 1, RNG_ARRIVALS);
    /* Requests come at the load's rate: conversations at that over the mean number of turns. */
    sessions->mean_gap_ns = min_u64((UINT64_C(1) << 56) - 1,
                                    mul_div_floor_u64(length_mean_milli(&load->session_turns),
                                                      UINT64_C(1000) * (uint64_t)NS_PER_S, load->rate_micro_per_s));
    next_begins(sessions);
    return sessions;
}

void sessions_free(struct sessions *sessions)
{
    if (sessions == NULL)
        return;
    free(sessions->items);
    free(sessions);
}

/* The conversation whose next turn comes first; of equal times the one that began first. NULL: none is thinking. */
static struct session *first_thinking(const struct sessions *sessions)
{
    struct session *first = NULL;
    for (uint32_t i = 0; i < sessions->count; i++) {
        struct session *session = &sessions->items[i];
        if (session->request != NO_REQUEST)
            continue;
        if (first == NULL || session->turn_ns < first->turn_ns ||
            (session->turn_ns == first->turn_ns && session->seed < first->seed))
            first = session;
    }
    return first;
}

int64_t sessions_next_ns(const struct sessions *sessions)
{
    const struct session *first = first_thinking(sessions);
    return first == NULL ? sessions->begin_ns : min_i64(first->turn_ns, sessions->begin_ns);
}

static struct session *begin(struct sessions *sessions)
{
    if (sessions->count == sessions->capacity) {
        sessions->capacity = max_u32(64, sessions->capacity * 2);
        sessions->items = realloc(sessions->items, sessions->capacity * sizeof *sessions->items);
        CHECK(sessions->items != NULL);
    }
    struct session *session = &sessions->items[sessions->count++];
    uint64_t number = sessions->begun++;
    *session = (struct session){
        .seed = number,
        .turns_left = length_draw(&sessions->load->session_turns, &sessions->turns),
        .request = NO_REQUEST,
        .lengths = rng_stream(sessions->seed, number, RNG_PROMPT_LENGTH),
    };
    next_begins(sessions);
    return session;
}

/* Names of the blocks of the first `tokens` tokens. */
static void name_blocks(struct sessions *sessions, const struct session *session, uint32_t tokens,
                        struct request_spec *spec)
{
    uint32_t size = sessions->load->session_block_tokens;
    uint32_t count = ceil_div_u32(tokens, size);
    uint64_t own = trace_block_hash(trace_block_hash(0, sessions->seed), session->seed + 1);
    uint64_t before = 0;
    CHECK(count <= REQUEST_BLOCKS_MAX);
    for (uint32_t b = 0; b < count; b++) {
        bool shared = (uint64_t)(b + 1) * size <= sessions->load->session_system_tokens;
        uint32_t filled = min_u32(size, tokens - b * size);
        uint64_t content = shared ? b : trace_block_hash(own, (uint64_t)b * size + filled);
        before = trace_block_hash(before, content);
        sessions->blocks[b] = before;
    }
    spec->block_count = count;
    spec->block_tokens = size;
    spec->blocks = sessions->blocks;
}

void sessions_take(struct sessions *sessions, uint32_t id, struct request_spec *spec)
{
    const struct load *load = sessions->load;
    struct session *session = first_thinking(sessions);
    if (session == NULL || sessions->begin_ns <= session->turn_ns)
        session = begin(sessions);
    uint32_t words = length_draw(&load->prompt, &session->lengths);
    session->answer = length_draw(&load->output, &session->lengths);
    session->said += words;
    session->request = id;
    spec->prompt_tokens = (uint32_t)(load->session_system_tokens + session->said);
    spec->output_tokens = session->answer;
    name_blocks(sessions, session, spec->prompt_tokens, spec);
}

void sessions_answered(struct sessions *sessions, uint32_t id, int64_t now_ns)
{
    uint32_t at = 0;
    while (at < sessions->count && sessions->items[at].request != id)
        at++;
    CHECK(at < sessions->count);
    struct session *session = &sessions->items[at];
    session->said += session->answer;
    session->request = NO_REQUEST;
    if (--session->turns_left == 0) {
        *session = sessions->items[--sessions->count];
        return;
    }
    uint64_t think_ns = rng_exponential(&session->lengths, (uint64_t)sessions->load->session_think_ns);
    session->turn_ns = time_add(now_ns, (int64_t)think_ns);
}
