/* See live_backend.h. */
#define _POSIX_C_SOURCE 200809L
#include "live/live_backend.h"

#include "base/arith.h"
#include "host/interrupt.h"
#include "host/memory.h"
#include "live/load_client.h"
#include "host/clock.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Between two looks for Ctrl-C. */
#define TURN_MAX_NS (100 * 1000000)

/* A client that is later than that, for one in a hundred of its requests or of its looks, has measured itself. */
#define SEND_DELAY_MAX_NS (5 * 1000000)
#define DEAF_MAX_NS (5 * 1000000)

#define SAID_MAX 8 /* different errors that are told in full */

/* A request under way, by its id. */
struct asked {
    uint32_t id;
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    int64_t last_ns; /* of its last token */
    struct asked *next;
};

struct said {
    enum exchange_end end;
    long status;
    char why[160];
    uint64_t times;
};

struct live {
    struct run *run;
    const struct live_options *options;
    struct load_client *client;
    struct prompt_format format;
    char *url;
    char *model;
    int64_t start_ns;
    int64_t wake_ns;
    int64_t due_ns; /* of what is being delivered */
    int64_t itl_from_ns;
    uint64_t trace_hash;
    uint64_t events;
    bool begun;

    struct asked **table;
    uint32_t table_size;
    uint32_t under_way;
    uint32_t *ended; /* whose clients are to be answered */
    uint32_t ended_count;
    uint32_t ended_room;

    uint64_t *itl;
    uint64_t *delays; /* from the load's time to the sending, in the buckets of run_record.h */
    uint64_t *deaf;   /* how long a look at what had come took */
    uint64_t ends[EXCHANGE_END_COUNT];
    struct said said[SAID_MAX];
    uint32_t said_count;
    uint64_t chunks;
    uint64_t tokens;
    uint64_t lengths_differ; /* answers with another number of tokens than was asked for */
    uint64_t prompts_told;
    uint64_t prompts_differ; /* ... of prompts, as the endpoint counts them */
    int64_t prompt_excess;
    uint64_t uncounted; /* answers whose tokens nobody but this client counted */
};

static int64_t now_ns(const void *self)
{
    const struct live *live = self;
    return live->begun ? clock_now_ns() - live->start_ns : 0;
}

static uint32_t live_count(const void *self)
{
    return recorder_live(((const struct live *)self)->run->recorder);
}

static void trace(struct live *live, int64_t at_ns, enum trace_kind kind, uint32_t request, uint64_t a, uint64_t b)
{
    struct trace_record record = {.kind = (uint16_t)kind, .request = request, .a = a, .b = b};
    live->trace_hash = trace_hash_fold(live->trace_hash, at_ns, &record);
    live->events++;
    run_trace(live->run, at_ns, &record);
}

/* ---- Under way --------------------------------------------------------------------------------------------------- */

static struct asked **place(struct live *live, uint32_t id)
{
    struct asked **at = &live->table[id % live->table_size];
    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

static void forget(struct live *live, struct asked **at)
{
    struct asked *asked = *at;
    *at = asked->next;
    live->under_way--;
    free(asked);
}

static void on_tokens(void *self, uint32_t id, uint32_t count, int64_t at_ns)
{
    struct live *live = self;
    struct asked *asked = *place(live, id);
    int64_t now = at_ns - live->start_ns;
    CHECK(asked != NULL);
    bool first = asked->last_ns == TIME_NEVER;
    if (first)
        trace(live, now, TRACE_FIRST_TOKEN, id, 0, 0);
    if (now >= live->itl_from_ns) {
        if (!first)
            live->itl[itl_bucket(now - asked->last_ns)]++;
        live->itl[0] += count - 1;
    }
    asked->last_ns = now;
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

static uint8_t reason_of(enum exchange_end end)
{
    return (uint8_t)(ENDPOINT_OVERLOAD + (int)end - (int)EXCHANGE_OVERLOAD);
}

static void note(struct live *live, const struct exchange_result *result)
{
    uint32_t i = 0;
    while (i < live->said_count && (live->said[i].end != result->end || live->said[i].status != result->status ||
                                    strncmp(live->said[i].why, result->why, sizeof live->said[i].why - 1) != 0))
        i++;
    if (i == SAID_MAX)
        return;
    struct said *said = &live->said[i];
    if (i == live->said_count) {
        live->said_count++;
        *said = (struct said){.end = result->end, .status = result->status};
        snprintf(said->why, sizeof said->why, "%s", result->why);
    }
    said->times++;
}

static void count_answer(struct live *live, const struct asked *asked, const struct reply *reply, uint32_t tokens)
{
    live->chunks += reply->chunks;
    live->tokens += tokens;
    live->lengths_differ += tokens != asked->output_tokens;
    live->uncounted += reply->usage_tokens == 0;
    if (reply->prompt_tokens == 0)
        return;
    live->prompts_told++;
    live->prompts_differ += reply->prompt_tokens != asked->prompt_tokens;
    live->prompt_excess += (int64_t)reply->prompt_tokens - (int64_t)asked->prompt_tokens;
}

static void on_ended(void *self, uint32_t id, const struct exchange_result *result, int64_t at_ns)
{
    struct live *live = self;
    struct asked **at = place(live, id);
    struct asked *asked = *at;
    const struct reply *reply = result->reply;
    int64_t now = at_ns - live->start_ns;
    CHECK(asked != NULL);
    live->ends[result->end]++;
    if (result->end == EXCHANGE_COMPLETE) {
        uint32_t tokens = reply->usage_tokens > 0 ? reply->usage_tokens : reply->tokens;
        /* Tokens that only the last usage tells of: when they came nobody knows but that it was by now. */
        if (asked->last_ns == TIME_NEVER)
            on_tokens(live, id, 1, at_ns);
        count_answer(live, asked, reply, tokens);
        int64_t last_ns = asked->last_ns;
        forget(live, at);
        trace(live, last_ns, TRACE_FINISHED, id, tokens, 0);
    } else {
        note(live, result);
        forget(live, at);
        bool rejected = result->end == EXCHANGE_OVERLOAD || result->end == EXCHANGE_REFUSED;
        trace(live, now, rejected ? TRACE_REJECTED : TRACE_FAILED, id, reason_of(result->end), 0);
    }
}

/* ---- Arrivals ---------------------------------------------------------------------------------------------------- */

static void grow_table(struct live *live)
{
    uint32_t size = live->table_size == 0 ? 1024 : 2 * live->table_size;
    struct asked **before = live->table;
    uint32_t count = live->table_size;
    live->table = memory_zeroed(size, sizeof(struct asked *));
    live->table_size = size;
    for (uint32_t i = 0; i < count; i++)
        while (before[i] != NULL) {
            struct asked *asked = before[i];
            before[i] = asked->next;
            asked->next = live->table[asked->id % size];
            live->table[asked->id % size] = asked;
        }
    free(before);
}

static void leave(struct live *live, uint32_t id)
{
    struct asked **at = place(live, id);
    if (*at == NULL)
        return; /* it has its answer */
    load_client_abort(live->client, id);
    forget(live, at);
    trace(live, now_ns(live), TRACE_ABORTED, id, 0, 0);
}

static void arrive(void *self, const struct event *event)
{
    struct live *live = self;
    const struct request_spec *spec = event->data;
    if (event->status == ARRIVAL_ABORT) {
        leave(live, event->id);
        return;
    }
    if (live->under_way >= live->table_size)
        grow_table(live);
    struct asked *asked = memory_get(sizeof *asked);
    *asked = (struct asked){.id = spec->id,
                            .prompt_tokens = spec->prompt_tokens,
                            .output_tokens = spec->output_tokens,
                            .last_ns = TIME_NEVER};
    struct asked **at = place(live, spec->id);
    asked->next = *at;
    *at = asked;
    live->under_way++;
    size_t length;
    char *body = prompt_body(&live->format, spec, &length);
    load_client_send(live->client, spec->id, body, length);
    int64_t sent_ns = now_ns(live);
    int64_t due_ns = live->due_ns == TIME_NEVER ? sent_ns : min_i64(live->due_ns, sent_ns);
    live->delays[itl_bucket(sent_ns - due_ns)]++;
    trace(live, due_ns, TRACE_ARRIVED, spec->id, spec->prompt_tokens, spec->output_tokens);
    trace(live, sent_ns, TRACE_RECEIVED, spec->id, 0, 0);
}

static void wake(void *self, int64_t at_ns)
{
    ((struct live *)self)->wake_ns = at_ns;
}

static void answer_soon(void *self, uint32_t request)
{
    struct live *live = self;
    if (live->ended_count == live->ended_room) {
        live->ended_room = max_u32(64, 2 * live->ended_room);
        live->ended = memory_resized(live->ended, live->ended_room * sizeof *live->ended);
    }
    live->ended[live->ended_count++] = request;
}

static void count_from(void *self, int64_t from_ns)
{
    ((struct live *)self)->itl_from_ns = from_ns;
}

/* ---- Turns ------------------------------------------------------------------------------------------------------- */

static void deliver(struct live *live)
{
    while (live->ended_count > 0) {
        live->due_ns = now_ns(live);
        run_answer(live->run, live->ended[--live->ended_count]);
    }
    while (live->wake_ns <= now_ns(live)) {
        live->due_ns = live->wake_ns;
        run_feed(live->run);
    }
    live->due_ns = TIME_NEVER;
}

static bool turn(void *self)
{
    struct live *live = self;
    if (interrupt_requested()) {
        live->run->stopped = true;
        return false;
    }
    if (!live->begun) {
        live->begun = true;
        run_notice(live->run, "prompts have --salt %" PRIu64, live->options->salt);
        live->start_ns = clock_now_ns();
        run_begin(live->run);
    }
    deliver(live);
    if (run_fed(live->run) && live_count(live) == 0)
        return false;
    int64_t until_ns = time_add(clock_now_ns(), TURN_MAX_NS);
    if (live->wake_ns != TIME_NEVER)
        until_ns = min_i64(until_ns, time_add(live->start_ns, live->wake_ns));
    int64_t busy_ns = load_client_turn(live->client, until_ns);
    live->deaf[itl_bucket(max_i64(0, busy_ns))]++;
    return true;
}

/* ---- What it came to --------------------------------------------------------------------------------------------- */

static int64_t at_permille(const uint64_t *buckets, uint32_t permille)
{
    uint64_t all = 0;
    for (uint32_t b = 0; b < ITL_BUCKETS; b++)
        all += buckets[b];
    uint64_t rank = (all * permille + 999) / 1000;
    uint64_t below = 0;
    for (uint32_t b = 0; b < ITL_BUCKETS && all > 0; b++) {
        below += buckets[b];
        if (below >= rank)
            return itl_bucket_upper_ns(b);
    }
    return 0;
}

static void sample(const struct live *live, const char *counter, int64_t at_ns, int64_t value)
{
    const struct run_listener *listener = &live->run->config->listener;
    struct sample_row row = {.at_ns = at_ns, .value = value};
    snprintf(row.counter, sizeof row.counter, "%s", counter);
    if (listener->sample != NULL)
        listener->sample(listener->self, &row);
}

/* How late it was, and whether that is in what was measured. */
static void tell_client(const struct live *live, int64_t end_ns)
{
    const struct {
        const char *name;
        const uint64_t *buckets;
    } lags[] = {{"client_send_delay", live->delays}, {"client_deaf", live->deaf}};
    int64_t at[2][3];
    const uint32_t permille[] = {500, 990, 1000};
    for (size_t k = 0; k < 2; k++)
        for (size_t p = 0; p < 3; p++) {
            char counter[48];
            at[k][p] = at_permille(lags[k].buckets, permille[p]);
            snprintf(counter, sizeof counter, "%s_p%" PRIu32 "_ns", lags[k].name, permille[p] / 10);
            sample(live, counter, end_ns, at[k][p]);
        }
    run_notice(live->run,
               "this client sent p50 %.2f, p99 %.2f, at most %.2f ms after the load's times, and did not listen for "
               "p99 %.2f, at most %.2f ms",
               (double)at[0][0] * 1e-6, (double)at[0][1] * 1e-6, (double)at[0][2] * 1e-6, (double)at[1][1] * 1e-6,
               (double)at[1][2] * 1e-6);
    bool valid = at[0][1] <= SEND_DELAY_MAX_NS && at[1][1] <= DEAF_MAX_NS;
    sample(live, "client_valid", end_ns, valid);
    if (!valid)
        run_notice(live->run, "NOT VALID: that is more than %d ms: what was measured is this client, not the endpoint",
                   (int)(SEND_DELAY_MAX_NS / 1000000));
}

static void tell_answers(const struct live *live)
{
    uint64_t complete = live->ends[EXCHANGE_COMPLETE];
    if (live->lengths_differ > 0)
        run_notice(live->run, "%" PRIu64 " of %" PRIu64 " answers have another number of tokens than was asked for",
                   live->lengths_differ, complete);
    if (live->prompts_differ > 0)
        run_notice(live->run,
                   "%" PRIu64 " of %" PRIu64 " prompts have another number of tokens at the endpoint, %+.1f on average",
                   live->prompts_differ, live->prompts_told, (double)live->prompt_excess / (double)live->prompts_told);
    if (live->uncounted > 0)
        run_notice(live->run, "%" PRIu64 " of %" PRIu64 " answers came without usage: a chunk was taken for a token",
                   live->uncounted, complete);
    if (live->chunks > 0 && live->tokens > live->chunks + live->chunks / 20)
        run_notice(live->run, "%.2f tokens a chunk: gaps between tokens are those between chunks, and zeros",
                   (double)live->tokens / (double)live->chunks);
    for (uint32_t i = 0; i < live->said_count; i++) {
        const struct said *said = &live->said[i];
        char status[32] = "";
        if (said->status != 0 && said->status != 200)
            snprintf(status, sizeof status, "status %ld, ", said->status);
        run_notice(live->run, "%" PRIu64 " requests: %s%s%s%s", said->times, status,
                   outcome_reason_text(OUTCOME_FAILED, reason_of(said->end)), said->why[0] != '\0' ? ": " : "",
                   said->why);
    }
}

static void finish(void *self)
{
    (void)self; /* what it came to is told by summarize(), be it whole or not */
}

static void summarize(void *self, struct run_result *result)
{
    struct live *live = self;
    result->summary.trace_hash = live->trace_hash;
    result->summary.event_count = live->events;
    memcpy(result->itl, live->itl, ITL_BUCKETS * sizeof *result->itl);
    /* What stands behind the endpoint is not seen. */
    result->instance_count = 0;
    if (result->summary.arrived > 0) {
        tell_client(live, result->summary.end_ns);
        tell_answers(live);
    }
}

/* ---- Set-up ------------------------------------------------------------------------------------------------------ */

static char *join(const char *endpoint, const char *path)
{
    size_t length = strlen(endpoint);
    while (length > 0 && endpoint[length - 1] == '/')
        length--;
    size_t size = length + strlen(path) + 1;
    char *url = memory_get(size);
    snprintf(url, size, "%.*s%s", (int)length, endpoint, path);
    return url;
}

/* That the endpoint is there is seen before anything is sent; its model has the name that it says. */
static bool find_model(struct live *live, struct user_error *error)
{
    json_error_t why;
    char *url = join(live->options->endpoint, "/models");
    char *body = load_client_get(url, live->options->api_key, live->options->authority, error);
    json_t *models = body == NULL ? NULL : json_loads(body, 0, &why);
    const char *name = json_string_value(json_object_get(json_array_get(json_object_get(models, "data"), 0), "id"));
    if (live->options->model != NULL)
        name = live->options->model;
    if (body != NULL && name == NULL)
        user_error_set(error, NULL, 0, NULL,
                       "%s: names no model in data[0].id; --endpoint ends in /v1, --model names one", url);
    if (!error->set)
        live->model = memory_copy(name);
    json_decref(models);
    free(body);
    free(url);
    return !error->set;
}

static void tear_down(void *self)
{
    struct live *live = self;
    if (live->client != NULL)
        load_client_free(live->client);
    for (uint32_t i = 0; i < live->table_size; i++)
        while (live->table[i] != NULL)
            forget(live, &live->table[i]);
    free(live->table);
    free(live->ended);
    free(live->itl);
    free(live->delays);
    free(live->deaf);
    free(live->url);
    free(live->model);
    free(live);
}

static void *make(struct run *run, struct user_error *error)
{
    const struct live_options *options = run->config->options;
    struct live *live = memory_zeroed(1, sizeof *live);
    live->run = run;
    live->options = options;
    live->wake_ns = live->due_ns = TIME_NEVER;
    live->itl_from_ns = run->load->warmup_requests > 0 ? TIME_NEVER : run->load->warmup_ns;
    live->itl = memory_zeroed(ITL_BUCKETS, sizeof *live->itl);
    live->delays = memory_zeroed(ITL_BUCKETS, sizeof *live->delays);
    live->deaf = memory_zeroed(ITL_BUCKETS, sizeof *live->deaf);
    grow_table(live);
    if (!find_model(live, error)) {
        tear_down(live);
        return NULL;
    }
    uint32_t vocabulary = options->vocabulary != 0 ? options->vocabulary : run->config->scenario->model.vocab;
    live->format = (struct prompt_format){
        .kind = options->prompt, .model = live->model, .vocabulary = max_u32(8, vocabulary), .salt = options->salt};
    live->url = join(options->endpoint, options->prompt == PROMPT_CHAT ? "/chat/completions" : "/completions");
    struct load_client_config config = {
        .url = live->url,
        .api_key = options->api_key,
        .idle_max_s = options->idle_max_s,
        .authority = options->authority,
        .events = {.self = live, .tokens = on_tokens, .ended = on_ended},
    };
    live->client = load_client_make(&config, error);
    if (live->client != NULL)
        return live;
    tear_down(live);
    return NULL;
}

const struct run_backend live_backend = {
    .stored_as = RESULTS_LIVE,
    .record = RECORD_SAMPLES,
    .rows_at_once = true,
    .make = make,
    .free = tear_down,
    .now_ns = now_ns,
    .live = live_count,
    .arrive = arrive,
    .wake = wake,
    .answer_soon = answer_soon,
    .count_from = count_from,
    .turn = turn,
    .end = finish,
    .summarize = summarize,
};
