/* See workload.h. */
#include "world/load/workload.h"

#include "world/load/rate_profile.h"

#include "base/arith.h"
#include "base/limits.h"
#include "base/rng.h"
#include "world/load/followers.h"
#include "world/load/sessions.h"
#include "host/memory.h"

#include <inttypes.h>
#include <stdlib.h>

/* 1e9 ns times 1e6 millionths: a mean gap in ns is this over the rate in requests per 1e6 s. */
#define NS_MICRO UINT64_C(1000000000000000)

/* No arrival lies beyond: half of what 64 bits hold, 146 years. */
#define ARRIVAL_NS_MAX (INT64_C(1) << 62)

struct abort_entry {
    int64_t at_ns;
    uint32_t id;
};

struct workload {
    struct load load;
    uint64_t seed;
    const struct trace_file *trace;
    const struct workload_arrivals *given; /* NULL: arrivals are drawn */
    struct rng arrivals;
    struct rng prompts;
    struct rng outputs;
    struct rng abort_draws;
    uint64_t *blocks;            /* listed: of the request made last */
    struct sessions *sessions;   /* of a load of conversations, else NULL */
    struct followers *followers; /* of a trace whose rows wait for others, else NULL */
    uint32_t next_id;
    uint32_t requests_max;
    int64_t arrival_next_ns; /* of request next_id; TIME_NEVER: none, or a closed loop waits */
    uint32_t together_left;  /* requests still to come at this very time: of a burst, of the clients of a closed loop */
    int64_t group_ns;        /* when the last group of a Poisson process came */
    uint128 group_rest;      /* below 1 ns, in units of 1 / (rate << 40) ns, so that no rounding adds up */
    /* Trace: */
    uint32_t window_first; /* rows of the file */
    uint32_t window_rows;
    uint32_t rotation;
    int64_t window_start_ns;
    int64_t window_ns;    /* length of the circle */
    int64_t recorded_ns;  /* from the first request played to the one that would follow the last */
    int64_t stretched_ns; /* what it becomes */
    /* Aborts to come, a heap by (time, id): */
    struct abort_entry *aborts;
    uint32_t abort_count;
    uint32_t abort_capacity;
};

/* ---- Lengths --------------------------------------------------------------------------------------------------- */

uint32_t length_draw(const struct length_distribution *lengths, struct rng *rng)
{
    switch (lengths->kind) {
    case LENGTH_CONSTANT:
        return lengths->low;
    case LENGTH_UNIFORM:
        return (uint32_t)rng_between(rng, lengths->low, lengths->high);
    case LENGTH_QUANTILES:
        break;
    }
    /* The inverse of the cumulative distribution at a uniform draw of 2^-32 permille, rounded to the nearest token. */
    const uint64_t one = UINT64_C(1) << 32;
    uint64_t at = rng_below(rng, 1000 * one);
    uint32_t i = 1;
    while (at >= lengths->quantile_permille[i] * one)
        i++;
    uint64_t from = lengths->quantile_permille[i - 1] * one;
    uint64_t width = lengths->quantile_permille[i] * one - from;
    uint64_t low = lengths->quantile_tokens[i - 1];
    uint64_t rise = lengths->quantile_tokens[i] - low;
    return (uint32_t)(low + (rise * (at - from) + width / 2) / width);
}

uint64_t length_mean_milli(const struct length_distribution *lengths)
{
    if (lengths->kind == LENGTH_CONSTANT)
        return (uint64_t)lengths->low * 1000;
    if (lengths->kind == LENGTH_UNIFORM)
        return ((uint64_t)lengths->low + lengths->high) * 500;
    uint64_t twice = 0;
    for (uint32_t i = 1; i < lengths->quantile_count; i++)
        twice += (uint64_t)(lengths->quantile_permille[i] - lengths->quantile_permille[i - 1]) *
                 ((uint64_t)lengths->quantile_tokens[i - 1] + lengths->quantile_tokens[i]);
    return twice / 2;
}

/* The longest length, or 0 and described. */
static uint32_t check_length(const struct length_distribution *lengths, const char *path, struct user_error *error)
{
    uint32_t low = lengths->low;
    uint32_t high = lengths->kind == LENGTH_CONSTANT ? lengths->low : lengths->high;
    if (lengths->kind == LENGTH_QUANTILES) {
        uint32_t count = lengths->quantile_count;
        if (count < 2 || count > SCENARIO_QUANTILES_MAX || lengths->quantile_permille[0] != 0 ||
            lengths->quantile_permille[count - 1] != 1000) {
            user_error_set(error, NULL, 0, path, "quantiles must reach from 0 to 1, 2 to %d of them",
                           SCENARIO_QUANTILES_MAX);
            return 0;
        }
        for (uint32_t i = 1; i < count; i++) {
            if (lengths->quantile_permille[i] <= lengths->quantile_permille[i - 1] ||
                lengths->quantile_tokens[i] < lengths->quantile_tokens[i - 1]) {
                user_error_set(error, NULL, 0, path, "quantiles must ascend, their lengths must not descend");
                return 0;
            }
        }
        low = lengths->quantile_tokens[0];
        high = lengths->quantile_tokens[count - 1];
    }
    if (low < 1 || high < low || high > REQUEST_TOKENS_MAX) {
        user_error_set(error, NULL, 0, path, "%" PRIu32 " to %" PRIu32 " tokens, expected 1 to %d, ascending", low,
                       high, REQUEST_TOKENS_MAX);
        return 0;
    }
    return high;
}

/* ---- Aborts ---------------------------------------------------------------------------------------------------- */

static bool abort_before(const struct abort_entry *a, const struct abort_entry *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->id < b->id;
}

static void abort_push(struct workload *workload, struct abort_entry entry)
{
    if (workload->abort_count == workload->abort_capacity) {
        workload->abort_capacity = workload->abort_capacity == 0 ? 64 : workload->abort_capacity * 2;
        workload->aborts = memory_resized(workload->aborts, workload->abort_capacity * sizeof *workload->aborts);
    }
    uint32_t at = workload->abort_count++;
    while (at > 0 && abort_before(&entry, &workload->aborts[(at - 1) / 2])) {
        workload->aborts[at] = workload->aborts[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    workload->aborts[at] = entry;
}

static struct abort_entry abort_pop(struct workload *workload)
{
    struct abort_entry top = workload->aborts[0];
    struct abort_entry last = workload->aborts[--workload->abort_count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= workload->abort_count)
            break;
        if (child + 1 < workload->abort_count && abort_before(&workload->aborts[child + 1], &workload->aborts[child]))
            child++;
        if (!abort_before(&workload->aborts[child], &last))
            break;
        workload->aborts[at] = workload->aborts[child];
        at = child;
    }
    workload->aborts[at] = last;
    return top;
}

/* Both draws are made for every request, so that a request's fate does not depend on those before it. */
static void draw_abort(struct workload *workload, int64_t arrival_ns, uint32_t id)
{
    if (workload->load.abort_permille == 0)
        return;
    bool aborts = rng_chance(&workload->abort_draws, workload->load.abort_permille, 1000);
    int64_t after_ns = (int64_t)rng_between(&workload->abort_draws, 0, (uint64_t)workload->load.abort_after_ns);
    if (aborts)
        abort_push(workload, (struct abort_entry){.at_ns = time_add(arrival_ns, after_ns), .id = id});
}

/* ---- Arrivals -------------------------------------------------------------------------------------------------- */

/* The next instant of a Poisson process of groups of `size`, so many that their requests come at the load's rate. The
 * gap is an exponential variate of mean 1, in units of 2^-40, times size / rate; what is below 1 ns is carried over. */
static int64_t poisson_next(struct workload *workload, uint32_t size)
{
    uint128 denominator = (uint128)workload->load.rate_micro_per_s << 40;
    uint64_t variate = rng_exponential(&workload->arrivals, UINT64_C(1) << 40);
    uint128 gap = (uint128)variate * NS_MICRO * size + workload->group_rest;
    uint128 gap_ns = gap / denominator;
    workload->group_rest = gap % denominator;
    int64_t step_ns = gap_ns < (uint128)ARRIVAL_NS_MAX ? (int64_t)gap_ns : ARRIVAL_NS_MAX;
    workload->group_ns = time_add(workload->group_ns, step_ns);
    return workload->group_ns;
}

/* Time of the j-th row along the circle, from the start of the window's first turn. */
static int64_t circle_ns(const struct workload *workload, uint64_t j)
{
    CHECK(workload->window_rows > 0);
    uint64_t turn = j / workload->window_rows;
    uint64_t row = j % workload->window_rows;
    return (int64_t)turn * workload->window_ns + workload->trace->arrival_ns[workload->window_first + row] -
           workload->window_start_ns;
}

static int64_t recorded_ns(const struct workload *workload, uint64_t requests)
{
    return circle_ns(workload, workload->rotation + requests) - circle_ns(workload, workload->rotation);
}

static int64_t trace_next(const struct workload *workload)
{
    int64_t from_first_ns = recorded_ns(workload, workload->next_id);
    if (workload->recorded_ns == workload->stretched_ns)
        return from_first_ns;
    return (int64_t)mul_div_floor_u64((uint64_t)from_first_ns, (uint64_t)workload->stretched_ns,
                                      (uint64_t)workload->recorded_ns);
}

static int64_t arrival_of_next(struct workload *workload)
{
    const struct rate_profile *profile = &workload->load.profile;
    if (workload->given != NULL)
        return workload->given->at_ns[workload->next_id];
    switch (workload->load.arrivals) {
    case ARRIVAL_POISSON:
        return rate_profile_time(profile, poisson_next(workload, 1));
    case ARRIVAL_UNIFORM:
        return rate_profile_time(
            profile, (int64_t)mul_div_floor_u64(workload->next_id, NS_MICRO, workload->load.rate_micro_per_s));
    case ARRIVAL_BURST:
        if (workload->together_left == 0) {
            workload->together_left = workload->load.burst_size;
            poisson_next(workload, workload->load.burst_size);
        }
        workload->together_left--;
        return rate_profile_time(profile, workload->group_ns);
    case ARRIVAL_CLOSED:
        if (workload->together_left == 0)
            return TIME_NEVER;
        workload->together_left--;
        return 0;
    case ARRIVAL_LISTED:
        return workload->load.list->item[workload->next_id].at_ns;
    case ARRIVAL_SESSIONS:
        return sessions_next_ns(workload->sessions);
    case ARRIVAL_TRACE:
        break;
    }
    CHECK(workload->load.arrivals == ARRIVAL_TRACE);
    return workload->followers != NULL ? followers_next_ns(workload->followers) : trace_next(workload);
}

static bool over(const struct workload *workload, int64_t arrival_ns)
{
    if (workload->given != NULL)
        return workload->next_id >= workload->given->count;
    return workload->next_id >= workload->requests_max ||
           (workload->load.duration_ns > 0 && arrival_ns >= workload->load.duration_ns);
}

/* Finds out when request next_id arrives. Once a load is over it stays so: arrivals only move on. */
static void look_ahead(struct workload *workload)
{
    workload->arrival_next_ns = TIME_NEVER;
    if (over(workload, 0))
        return;
    int64_t arrival_ns = arrival_of_next(workload);
    if (!over(workload, arrival_ns))
        workload->arrival_next_ns = arrival_ns;
}

static uint64_t token_seed(uint64_t seed, uint32_t id)
{
    return trace_block_hash(trace_block_hash(0, seed), id);
}

/* Blocks of one family are the same in every request; a request's own are nobody else's. */
static void make_listed(struct workload *workload, int64_t arrival_ns, struct request_spec *spec)
{
    const struct listed_request *listed = &workload->load.list->item[spec->id];
    spec->prompt_tokens = listed->prompt_tokens;
    spec->output_tokens = listed->output_tokens;
    if (listed->deadline_ns > 0)
        spec->deadline_ns = time_add(arrival_ns, listed->deadline_ns);
    if (listed->leaves_ns != TIME_NEVER)
        abort_push(workload, (struct abort_entry){.at_ns = time_add(arrival_ns, listed->leaves_ns), .id = spec->id});
    if (workload->blocks == NULL)
        return;
    spec->block_tokens = workload->load.block_tokens;
    spec->block_count = ceil_div_u32(listed->prompt_tokens, spec->block_tokens);
    spec->blocks = workload->blocks;
    uint64_t hash = 0;
    for (uint32_t b = 0; b < spec->block_count; b++) {
        bool shared = listed->family != 0 && b < listed->shared_blocks;
        hash = trace_block_hash(hash, shared ? listed->family : spec->token_seed ^ UINT64_C(1) << 63);
        workload->blocks[b] = hash;
    }
}

/* Makes request next_id. */
static void make_request(struct workload *workload, int64_t arrival_ns, struct workload_item *item)
{
    uint32_t id = workload->next_id++;
    *item = (struct workload_item){.arrival_ns = arrival_ns};
    struct request_spec *spec = &item->spec;
    spec->id = id;
    spec->token_seed = token_seed(workload->seed, id);
    spec->deadline_ns = workload->load.deadline_ns > 0 ? time_add(arrival_ns, workload->load.deadline_ns) : TIME_NEVER;
    const struct trace_file *trace = workload->trace;
    if (trace != NULL) {
        uint64_t row = workload->window_first + ((uint64_t)workload->rotation + id) % workload->window_rows;
        if (trace->waits != NULL)
            row = workload->given != NULL ? workload->given->conversations[id] - 1
                                          : followers_take(workload->followers, id);
        spec->prompt_tokens = trace->prompt_tokens[row];
        spec->output_tokens = trace->output_tokens[row];
        if (spec->output_tokens == 0)
            spec->output_tokens = length_draw(&workload->load.output, &workload->outputs);
        if (trace->block_tokens != 0) {
            spec->block_tokens = trace->block_tokens;
            spec->block_count = narrow_u32(trace->block_first[row + 1] - trace->block_first[row]);
            spec->blocks = trace->blocks + trace->block_first[row];
        }
    } else if (workload->load.arrivals == ARRIVAL_LISTED) {
        make_listed(workload, arrival_ns, spec);
    } else if (workload->sessions != NULL && workload->given != NULL) {
        bool there = sessions_take_again(workload->sessions, workload->given->conversations[id] - 1, spec);
        CHECK(there); /* turns_are_there() */
    } else if (workload->sessions != NULL) {
        sessions_take(workload->sessions, id, spec);
    } else {
        spec->prompt_tokens = length_draw(&workload->load.prompt, &workload->prompts);
        spec->output_tokens = length_draw(&workload->load.output, &workload->outputs);
    }
    draw_abort(workload, arrival_ns, id);
}

bool workload_next(struct workload *workload, struct workload_item *item)
{
    if (workload->abort_count > 0 && workload->aborts[0].at_ns < workload->arrival_next_ns) {
        struct abort_entry entry = abort_pop(workload);
        *item = (struct workload_item){.arrival_ns = entry.at_ns, .is_abort = true};
        item->spec.id = entry.id;
        item->spec.deadline_ns = TIME_NEVER;
        return true;
    }
    if (workload->arrival_next_ns == TIME_NEVER)
        return false;
    make_request(workload, workload->arrival_next_ns, item);
    look_ahead(workload);
    return true;
}

int64_t workload_next_ns(const struct workload *workload)
{
    return workload->abort_count > 0 ? min_i64(workload->aborts[0].at_ns, workload->arrival_next_ns)
                                     : workload->arrival_next_ns;
}

bool workload_closed_next(struct workload *workload, int64_t now_ns, struct workload_item *item)
{
    CHECK(workload->load.arrivals == ARRIVAL_CLOSED && workload->given == NULL);
    if (over(workload, now_ns))
        return false;
    make_request(workload, now_ns, item);
    if (over(workload, 0))
        workload->arrival_next_ns = TIME_NEVER;
    return true;
}

void workload_answered(struct workload *workload, uint32_t id, int64_t now_ns)
{
    if (!workload_follows(workload))
        return;
    if (workload->sessions != NULL)
        sessions_answered(workload->sessions, id, now_ns);
    else
        followers_ended(workload->followers, id, now_ns);
    look_ahead(workload);
}

bool workload_follows(const struct workload *workload)
{
    return (workload->sessions != NULL || workload->followers != NULL) && workload->given == NULL;
}

uint32_t workload_conversation(const struct workload *workload, uint32_t id)
{
    bool follows = workload->trace != NULL && workload->trace->waits != NULL;
    if (workload->sessions == NULL && !follows)
        return 0;
    if (workload->given != NULL)
        return workload->given->conversations[id];
    return follows ? followers_row(workload->followers, id) + 1 : sessions_number(workload->sessions, id) + 1;
}

/* ---- Creation -------------------------------------------------------------------------------------------------- */

/* Requests that arrive within the load's duration at its rate: whole ones, or the one begun as well. */
static uint64_t requests_within(const struct load *load, bool round_up)
{
    uint128 parts = (uint128)(uint64_t)load->duration_ns * load->rate_micro_per_s;
    uint128 requests = (parts + (round_up ? NS_MICRO - 1 : 0)) / NS_MICRO;
    return requests > UINT64_MAX ? UINT64_MAX : (uint64_t)requests;
}

static bool wrong(struct user_error *error, const char *path, const char *text)
{
    user_error_set(error, NULL, 0, path, "%s", text);
    return false;
}

static bool check_common(const struct load *load, struct user_error *error)
{
    if (load->duration_ns < 0 || load->deadline_ns < 0 || load->abort_after_ns < 0)
        return wrong(error, "load", "a duration is negative");
    if (load->duration_ns > ARRIVAL_NS_MAX)
        return wrong(error, "load.duration", "expected at most 146 years");
    if (load->abort_permille > 1000)
        return wrong(error, "load.abort", "more than all requests");
    if (load->requests > WORKLOAD_REQUESTS_MAX)
        return wrong(error, "load.requests", "expected at most 2147483648");
    if (load->rate_micro_per_s > NS_MICRO)
        return wrong(error, "load.rate", "expected at most one request a nanosecond");
    return true;
}

static bool check_sessions(const struct load *load, struct user_error *error)
{
    if (check_length(&load->session_turns, "load.turns", error) == 0)
        return false;
    if (load->session_think_ns < 0 || load->session_block_tokens == 0)
        return wrong(error, "load", "conversations need a time to think and a size of prefix blocks");
    if (load_session_tokens_max(load) > REQUEST_TOKENS_MAX ||
        load_session_tokens_max(load) / load->session_block_tokens >= REQUEST_BLOCKS_MAX)
        return wrong(error, "load.turns", "the last turn of a conversation is longer than a request may be");
    return true;
}

static bool check_generated(const struct load *load, struct user_error *error)
{
    uint32_t prompt = check_length(&load->prompt, "load.prompt", error);
    uint32_t output = prompt != 0 ? check_length(&load->output, "load.output", error) : 0;
    if (output == 0)
        return false;
    if (prompt + output > REQUEST_TOKENS_MAX)
        return wrong(error, "load.output", "the longest prompt and the longest output are more than 2097152 tokens");
    if (load->arrivals == ARRIVAL_SESSIONS && !check_sessions(load, error))
        return false;
    if (load->requests == 0 && load->duration_ns == 0)
        return wrong(error, "load", "never ends, expected requests or a duration");
    if (load->arrivals == ARRIVAL_CLOSED) {
        if (load->concurrency < 1 || load->concurrency > WORKLOAD_TOGETHER_MAX)
            return wrong(error, "load.concurrency", "expected 1 to 1048576 clients");
        return true;
    }
    if (load_is_closed(load))
        return true;
    if (load->rate_micro_per_s == 0)
        return wrong(error, "load.rate", "missing, expected requests per second");
    if (load->arrivals == ARRIVAL_BURST && (load->burst_size < 1 || load->burst_size > WORKLOAD_TOGETHER_MAX))
        return wrong(error, "load.burst", "expected 1 to 1048576 requests at once");
    if (load->requests == 0 && requests_within(load, true) > WORKLOAD_REQUESTS_MAX / 2)
        return wrong(error, "load.duration", "holds more than 1073741824 requests at this rate");
    /* A tenth of all time, so that no run of long gaps reaches its end. */
    uint128 span_ns = (uint128)load->requests * NS_MICRO / load->rate_micro_per_s;
    if (load->duration_ns == 0 && span_ns > (uint128)(ARRIVAL_NS_MAX / 10))
        return wrong(error, "load.rate", "so low that the last request would come after more than 14 years");
    return true;
}

/* The first row of the file that arrives at or after `at_ns`. */
static uint32_t first_row_from(const struct trace_file *trace, int64_t at_ns)
{
    uint32_t low = 0;
    uint32_t high = trace->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (trace->arrival_ns[middle] < at_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool find_window(struct workload *workload, struct user_error *error)
{
    const struct load *load = &workload->load;
    const struct trace_file *trace = workload->trace;
    if (load->trace_window_start_ns < 0 || load->trace_window_ns < 0)
        return wrong(error, "load.window", "a time is negative");
    int64_t end_ns = TIME_NEVER;
    if (load->trace_window_ns > 0)
        end_ns = time_add(load->trace_window_start_ns, load->trace_window_ns);
    workload->window_start_ns = load->trace_window_start_ns;
    workload->window_first = first_row_from(trace, load->trace_window_start_ns);
    workload->window_rows = first_row_from(trace, end_ns) - workload->window_first;
    int64_t file_ns = trace->arrival_ns[trace->count - 1];
    if (workload->window_rows == 0) {
        user_error_set(error, trace->path, 0, "load.window",
                       "no request arrives in it; the last of the file arrives "
                       "after %" PRId64 " s",
                       file_ns / NS_PER_S);
        return false;
    }
    int64_t first_ns = trace->arrival_ns[workload->window_first];
    int64_t last_ns = trace->arrival_ns[workload->window_first + workload->window_rows - 1];
    int64_t gap_ns = workload->window_rows > 1 ? (last_ns - first_ns) / (workload->window_rows - 1) : 0;
    workload->window_ns = last_ns - workload->window_start_ns + gap_ns;
    bool inside = end_ns <= file_ns; /* the file goes on behind the window, which therefore has its full length */
    if (load->trace_window_ns > 0 && (inside || load->trace_window_ns < workload->window_ns))
        workload->window_ns = load->trace_window_ns;
    return true;
}

/* How many of the first `limit` requests arrive within `duration_ns` as recorded: at least the first. */
static uint64_t requests_recorded_within(const struct workload *workload, uint64_t limit, int64_t duration_ns)
{
    uint64_t low = 1;
    uint64_t high = limit;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (recorded_ns(workload, middle) < duration_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How many requests are played, and over what time, before stretching and after. */
static bool find_requests(struct workload *workload, struct user_error *error)
{
    const struct load *load = &workload->load;
    uint64_t turns = load->trace_repeat > 0 ? load->trace_repeat : 1;
    uint64_t requests = turns * workload->window_rows;
    uint128 circles_ns = (uint128)(turns + 1) * (uint64_t)workload->window_ns;
    if (requests > WORKLOAD_REQUESTS_MAX || circles_ns > (uint128)ARRIVAL_NS_MAX)
        return wrong(error, "load.repeat", "more than 2147483648 requests, or 146 years, in all");
    if (load->requests > 0)
        requests = min_u64(requests, load->requests);
    if (load->duration_ns > 0 && load->rate_micro_per_s > 0)
        requests = min_u64(requests, max_u64(requests_within(load, false), 1)); /* their whole span fits */
    if (load->duration_ns > 0 && load->rate_micro_per_s == 0)
        requests = requests_recorded_within(workload, requests, load->duration_ns);
    workload->requests_max = (uint32_t)requests;
    workload->recorded_ns = recorded_ns(workload, requests);
    workload->stretched_ns = workload->recorded_ns;
    if (load->rate_micro_per_s == 0)
        return true;
    if (workload->recorded_ns == 0)
        return wrong(error, "load.rate",
                     "cannot be given: the requests of the trace that are played arrive at one "
                     "instant");
    uint128 stretched_ns = ((uint128)requests * NS_MICRO + load->rate_micro_per_s / 2) / load->rate_micro_per_s;
    if (stretched_ns > (uint128)ARRIVAL_NS_MAX)
        return wrong(error, "load.rate", "so low that the last request would come after more than 146 years");
    workload->stretched_ns = (int64_t)stretched_ns;
    return true;
}

/* Whether each request of a run that is played again is said to be a row of the trace. */
static bool rows_are_there(const struct workload *workload, struct user_error *error)
{
    const struct workload_arrivals *given = workload->given;
    for (uint32_t id = 0; id < given->count; id++)
        if (given->conversations == NULL || given->conversations[id] == 0 ||
            given->conversations[id] > workload->trace->count)
            return wrong(error, "load", "which row of the trace a request was is not known");
    return true;
}

static bool prepare_trace(struct workload *workload, struct user_error *error)
{
    if (!find_window(workload, error))
        return false;
    if (workload->trace->waits != NULL && (workload->load.trace_window_ns > 0 ||
                                           workload->load.trace_window_start_ns > 0 || workload->load.trace_repeat > 1))
        return wrong(error, "load.window", "requests of the trace wait for others: it is played once, from its start");
    if (workload->seed != 1 && workload->trace->waits == NULL) {
        struct rng rng = rng_stream(workload->seed, 0, RNG_TRACE_WINDOW);
        workload->rotation = (uint32_t)rng_below(&rng, workload->window_rows);
    }
    if (!find_requests(workload, error))
        return false;
    if (workload->trace->waits == NULL)
        return true;
    if (workload->given != NULL)
        return rows_are_there(workload, error);
    workload->followers = followers_make(workload->trace, workload->recorded_ns, workload->stretched_ns);
    return true;
}

/* Whether the conversations that the requests of a run are said to belong to have so many turns. */
static bool turns_are_there(const struct workload *workload, struct user_error *error)
{
    const struct workload_arrivals *given = workload->given;
    struct sessions *sessions = sessions_make(&workload->load, workload->seed);
    struct request_spec spec;
    uint32_t id = 0;
    while (id < given->count && given->conversations != NULL && given->conversations[id] > 0 &&
           sessions_take_again(sessions, given->conversations[id] - 1, &spec))
        id++;
    sessions_free(sessions);
    if (id < given->count)
        user_error_set(error, NULL, 0, "load", "of which conversation request %" PRIu32 " is a turn is not known", id);
    return id == given->count;
}

static bool prepare(struct workload *workload, struct user_error *error)
{
    const struct load *load = &workload->load;
    if (!check_common(load, error))
        return false;
    if (load->arrivals == ARRIVAL_TRACE) {
        if (!prepare_trace(workload, error))
            return false;
    } else if (load->arrivals == ARRIVAL_LISTED) {
        workload->requests_max = load->list->count;
        if (load->block_tokens > 0) {
            workload->blocks =
                memory_zeroed(ceil_div_u32(load->prompt.high, load->block_tokens), sizeof *workload->blocks);
        }
    } else {
        if (!check_generated(load, error))
            return false;
        workload->requests_max = load->requests > 0 ? load->requests : WORKLOAD_REQUESTS_MAX;
    }
    if (load->arrivals == ARRIVAL_CLOSED)
        workload->together_left = load->concurrency;
    workload->arrivals = rng_stream(workload->seed, 0, RNG_ARRIVALS);
    workload->prompts = rng_stream(workload->seed, 0, RNG_PROMPT_LENGTH);
    workload->outputs = rng_stream(workload->seed, 0, RNG_OUTPUT_LENGTH);
    workload->abort_draws = rng_stream(workload->seed, 0, RNG_ABORTS);
    if (load->arrivals == ARRIVAL_SESSIONS) {
        if (workload->given != NULL && !turns_are_there(workload, error))
            return false;
        workload->sessions = sessions_make(&workload->load, workload->seed);
    }
    look_ahead(workload);
    return true;
}

struct workload *workload_create(const struct load *load, uint64_t seed, const struct trace_file *trace,
                                 struct user_error *error)
{
    return workload_create_again(load, seed, trace, NULL, error);
}

struct workload *workload_create_again(const struct load *load, uint64_t seed, const struct trace_file *trace,
                                       const struct workload_arrivals *arrivals, struct user_error *error)
{
    CHECK((load->arrivals == ARRIVAL_TRACE) == (trace != NULL));
    struct workload *workload = memory_zeroed(1, sizeof *workload);
    workload->load = *load;
    workload->seed = seed;
    workload->trace = trace;
    workload->given = arrivals;
    if (!prepare(workload, error)) {
        workload_free(workload);
        return NULL;
    }
    return workload;
}

void workload_free(struct workload *workload)
{
    if (workload == NULL)
        return;
    free(workload->aborts);
    free(workload->blocks);
    sessions_free(workload->sessions);
    followers_free(workload->followers);
    free(workload);
}

/* ---- Summary --------------------------------------------------------------------------------------------------- */

static void describe_trace(const struct workload *workload, struct workload_summary *summary)
{
    const struct trace_file *trace = workload->trace;
    uint64_t prompts = 0;
    uint64_t outputs = 0;
    for (uint32_t i = 0; i < workload->window_rows; i++) {
        prompts += trace->prompt_tokens[workload->window_first + i];
        uint32_t output = trace->output_tokens[workload->window_first + i];
        outputs += output > 0 ? output : length_mean_milli(&workload->load.output) / 1000;
    }
    summary->requests = workload->requests_max;
    summary->span_ns = workload->stretched_ns;
    summary->prompt_tokens_mean_milli = mul_div_floor_u64(prompts, 1000, workload->window_rows);
    summary->output_tokens_mean_milli = mul_div_floor_u64(outputs, 1000, workload->window_rows);
    if (workload->recorded_ns > 0)
        summary->recorded_rate_micro_per_s =
            mul_div_floor_u64(workload->requests_max, NS_MICRO, (uint64_t)workload->recorded_ns);
    summary->rate_micro_per_s =
        workload->load.rate_micro_per_s > 0 ? workload->load.rate_micro_per_s : summary->recorded_rate_micro_per_s;
    summary->window_rows = workload->window_rows;
    summary->first_row = workload->rotation;
    summary->out_of_order = trace->out_of_order;
}

void workload_describe(const struct workload *workload, struct workload_summary *summary)
{
    const struct load *load = &workload->load;
    *summary = (struct workload_summary){0};
    if (workload->trace != NULL) {
        describe_trace(workload, summary);
        return;
    }
    summary->prompt_tokens_mean_milli = length_mean_milli(&load->prompt);
    summary->output_tokens_mean_milli = length_mean_milli(&load->output);
    if (load->arrivals == ARRIVAL_SESSIONS)
        summary->prompt_tokens_mean_milli =
            sessions_prompt_mean_milli(load, summary->prompt_tokens_mean_milli, summary->output_tokens_mean_milli,
                                       length_mean_milli(&load->session_turns));
    summary->requests = load->requests;
    if (load_is_closed(load))
        return;
    if (load->arrivals == ARRIVAL_LISTED) {
        summary->span_ns = load->list->item[load->requests - 1].at_ns;
        return;
    }
    summary->rate_micro_per_s = load->rate_micro_per_s;
    uint64_t within = load->duration_ns > 0 ? requests_within(load, true) : UINT64_MAX;
    if (load->requests == 0 || within < load->requests) {
        summary->requests = within;
        summary->span_ns = load->duration_ns;
    } else {
        summary->span_ns = (int64_t)mul_div_floor_u64(load->requests, NS_MICRO, load->rate_micro_per_s);
    }
}
