/* See served.h. */
#define _POSIX_C_SOURCE 200809L
#include "sim/live/served.h"

#include "base/arith.h"
#include "host/memory.h"
#include "serve/token_clock.h"
#include "sim/sim_run.h"
#include "host/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A request, or that its client went away. */
struct sent {
    struct workload_item item;
    uint64_t *blocks;
};

/* A sequence of an instance, by its slot. */
struct member {
    uint32_t request;
    uint32_t microbatch;
    uint32_t group;
    bool decodes;
};

/* A launch in progress: who takes tokens when it ends. */
struct flight {
    uint32_t ticket;
    uint32_t yield;
    uint64_t step;
    bool busy;
    bool *decodes; /* by group */
};

struct node_feed {
    struct member *members;
    uint32_t member_count;
    struct flight *flights; /* by microbatch */
    uint32_t flight_count;
};

struct served {
    struct served_config config;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t start_ns; /* of the wall clock, at virtual time 0; 0: not begun */
    struct sent *sent;
    uint32_t sent_count;
    uint32_t sent_room;
    uint32_t taken; /* of `sent` */
    struct sent current;
    uint32_t next_id;
    uint64_t live;    /* submitted and not ended */
    int64_t close_ns; /* TIME_NEVER: open */
    bool forced;
    struct served_stats stats;

    /* Of the thread in served_run() alone. */
    struct run_nodes nodes;
    struct node_feed *feeds;
    uint64_t preemptions;
};

struct served *served_make(const struct served_config *config)
{
    struct served *served = memory_zeroed(1, sizeof *served);
    pthread_condattr_t attributes;
    served->config = *config;
    served->close_ns = TIME_NEVER;
    CHECK(pthread_mutex_init(&served->lock, NULL) == 0 && pthread_condattr_init(&attributes) == 0);
    CHECK(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    CHECK(pthread_cond_init(&served->changed, &attributes) == 0);
    pthread_condattr_destroy(&attributes);
    return served;
}

void served_free(struct served *served)
{
    for (uint32_t i = served->taken; i < served->sent_count; i++)
        free(served->sent[i].blocks);
    free(served->sent);
    free(served->current.blocks);
    for (uint32_t n = 0; served->feeds != NULL && n < served->nodes.count; n++) {
        for (uint32_t m = 0; m < served->feeds[n].flight_count; m++)
            free(served->feeds[n].flights[m].decodes);
        free(served->feeds[n].flights);
        free(served->feeds[n].members);
    }
    free(served->feeds);
    pthread_cond_destroy(&served->changed);
    pthread_mutex_destroy(&served->lock);
    free(served);
}

static void lock(struct served *served)
{
    CHECK(pthread_mutex_lock(&served->lock) == 0);
}

static void unlock(struct served *served)
{
    CHECK(pthread_mutex_unlock(&served->lock) == 0);
}

/* ---- What is sent ------------------------------------------------------------------------------------------------ */

static void push(struct served *served, const struct sent *sent)
{
    if (served->sent_count == served->sent_room) {
        served->sent_room = served->sent_room == 0 ? 64 : 2 * served->sent_room;
        served->sent = memory_resized(served->sent, served->sent_room * sizeof *served->sent);
    }
    served->sent[served->sent_count++] = *sent;
    CHECK(pthread_cond_signal(&served->changed) == 0);
}

static void push_abort(struct served *served, uint32_t request)
{
    push(served, &(struct sent){.item = {.is_abort = true, .spec = {.id = request, .deadline_ns = TIME_NEVER}}});
}

uint32_t served_submit(struct served *served, const struct request_spec *spec)
{
    struct sent sent = {.item = {.spec = *spec}};
    if (spec->block_count > 0) {
        sent.blocks = memory_get(spec->block_count * sizeof *sent.blocks);
        memcpy(sent.blocks, spec->blocks, spec->block_count * sizeof *sent.blocks);
    }
    sent.item.spec.blocks = sent.blocks;
    sent.item.spec.deadline_ns = TIME_NEVER;
    lock(served);
    uint32_t id = served->next_id++;
    sent.item.spec.id = id;
    served->live++;
    push(served, &sent);
    unlock(served);
    return id;
}

void served_abort(struct served *served, uint32_t request)
{
    lock(served);
    push_abort(served, request);
    unlock(served);
}

void served_close(struct served *served, int64_t grace_ns)
{
    lock(served);
    served->close_ns = time_add(clock_now_ns(), grace_ns);
    CHECK(pthread_cond_signal(&served->changed) == 0);
    unlock(served);
}

void served_read(struct served *served, struct served_stats *stats)
{
    lock(served);
    *stats = served->stats;
    unlock(served);
}

static bool next(void *self, struct workload_item *item)
{
    struct served *served = self;
    free(served->current.blocks);
    served->current.blocks = NULL;
    lock(served);
    bool any = served->taken < served->sent_count;
    if (any)
        served->current = served->sent[served->taken++];
    if (served->taken == served->sent_count)
        served->taken = served->sent_count = 0;
    unlock(served);
    *item = served->current.item;
    return any;
}

static bool closed(void *self)
{
    struct served *served = self;
    lock(served);
    bool over = served->close_ns != TIME_NEVER && served->live == 0 && served->sent_count == 0;
    unlock(served);
    return over;
}

/* ---- Time -------------------------------------------------------------------------------------------------------- */

static void look(struct served *served)
{
    struct served_stats *stats = &served->stats;
    uint32_t lag_us = stats->lag_max_us;
    *stats = (struct served_stats){.preemptions = served->preemptions, .lag_max_us = lag_us};
    for (uint32_t n = 1; n < served->nodes.count; n++) {
        struct node_stats node = node_stats(served->nodes.nodes[n]);
        stats->running += node.running;
        stats->waiting += node.waiting;
        stats->pages_total += node.pages_total;
        stats->pages_held += node.pages_held;
    }
}

/* Of what is left when the grace is over the clients go away, once. A request that has ended is not under way at the
 * front, which drops what is said of it. */
static void force(struct served *served)
{
    served->forced = true;
    uint32_t room = (uint32_t)served->live + 1;
    struct node_sequence *live = memory_zeroed(room, sizeof *live);
    uint32_t count = node_sequences(served->nodes.nodes[0], live, room);
    for (uint32_t i = 0; i < count; i++)
        push_abort(served, live[i].request);
    free(live);
}

static bool pace(void *self, int64_t next_ns, int64_t *until_ns)
{
    struct served *served = self;
    lock(served);
    if (served->start_ns == 0)
        served->start_ns = clock_now_ns();
    look(served);
    int64_t now_ns = clock_now_ns();
    int64_t due_ns = next_ns == TIME_NEVER ? TIME_NEVER : time_add(served->start_ns, next_ns);
    if (due_ns < now_ns)
        served->stats.lag_max_us =
            max_u32(served->stats.lag_max_us, (uint32_t)min_i64((now_ns - due_ns) / 1000, UINT32_MAX));
    while (served->sent_count == 0 && now_ns < due_ns && !(served->close_ns != TIME_NEVER && served->live == 0)) {
        int64_t wake_ns = due_ns;
        if (served->close_ns != TIME_NEVER && !served->forced) {
            if (now_ns >= served->close_ns) {
                force(served);
                break;
            }
            wake_ns = min_i64(wake_ns, served->close_ns);
        }
        if (wake_ns == TIME_NEVER) {
            CHECK(pthread_cond_wait(&served->changed, &served->lock) == 0);
        } else {
            struct timespec at = {.tv_sec = (time_t)(wake_ns / NS_PER_S), .tv_nsec = (long)(wake_ns % NS_PER_S)};
            pthread_cond_timedwait(&served->changed, &served->lock, &at);
        }
        now_ns = clock_now_ns();
    }
    bool over = served->close_ns != TIME_NEVER && served->live == 0 && served->sent_count == 0;
    *until_ns = now_ns - served->start_ns;
    unlock(served);
    return !over;
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

static struct member *member_of(struct node_feed *feed, uint32_t sequence)
{
    if (sequence >= feed->member_count) {
        uint32_t count = max_u32(sequence + 1, 2 * feed->member_count);
        feed->members = memory_resized(feed->members, count * sizeof *feed->members);
        memset(feed->members + feed->member_count, 0, (count - feed->member_count) * sizeof *feed->members);
        feed->member_count = count;
    }
    return &feed->members[sequence];
}

static struct flight *flight_of(struct node_feed *feed, uint32_t microbatch, uint32_t groups)
{
    if (microbatch >= feed->flight_count) {
        feed->flights = memory_resized(feed->flights, (microbatch + 1) * sizeof *feed->flights);
        for (uint32_t m = feed->flight_count; m <= microbatch; m++)
            feed->flights[m] = (struct flight){.decodes = memory_zeroed(groups, sizeof(bool))};
        feed->flight_count = microbatch + 1;
    }
    return &feed->flights[microbatch];
}

static void on_launch(void *self, uint32_t node, const struct step_launch *launch)
{
    struct served *served = self;
    struct node_feed *feed = &served->feeds[node];
    for (uint32_t i = 0; i < launch->change_count; i++) {
        const struct step_change *change = &launch->changes[i];
        if (change->kind == STEP_JOIN)
            *member_of(feed, change->sequence) = (struct member){
                .request = change->request, .microbatch = launch->microbatch, .group = change->group, .decodes = true};
        else if (change->kind == STEP_LEAVE)
            member_of(feed, change->sequence)->decodes = false;
    }
    struct flight *flight = flight_of(feed, launch->microbatch, served->nodes.configs[node].group_count);
    flight->ticket = launch->ticket;
    flight->yield = launch->yield;
    flight->step = launch->step;
    flight->busy = true;
    for (uint32_t g = 0; g < launch->group_count; g++)
        flight->decodes[g] = launch->groups[g].decode_sequences > 0;
}

/* Every sequence of the batch took the same number of tokens: work for each, as its client is told of each. */
static void before_event(void *self, int64_t now_ns, uint32_t node, const struct event *event)
{
    (void)now_ns;
    struct served *served = self;
    struct node_feed *feed = &served->feeds[node];
    if (event->kind != EVENT_STEPS_DONE)
        return;
    for (uint32_t m = 0; m < feed->flight_count; m++) {
        struct flight *flight = &feed->flights[m];
        if (!flight->busy || flight->ticket != event->id)
            continue;
        flight->busy = false;
        uint32_t tokens = (uint32_t)(token_clock(flight->yield, flight->step + event->count) -
                                     token_clock(flight->yield, flight->step));
        for (uint32_t s = 0; s < feed->member_count; s++) {
            const struct member *member = &feed->members[s];
            if (member->decodes && member->microbatch == m && flight->decodes[member->group])
                served->config.listener.tokens(served->config.listener.self, member->request, tokens);
        }
    }
}

static void on_trace(void *self, int64_t now_ns, const struct trace_record *record)
{
    (void)now_ns;
    struct served *served = self;
    served->preemptions += record->kind == TRACE_PREEMPTED;
    if (record->kind == TRACE_FIRST_TOKEN)
        served->config.listener.first(served->config.listener.self, record->request);
}

static bool on_row(void *self, const struct request_row *row, bool met_all_targets)
{
    (void)met_all_targets;
    struct served *served = self;
    lock(served);
    served->live--;
    unlock(served);
    served->config.listener.ended(served->config.listener.self, row);
    return true;
}

/* ---- The run ----------------------------------------------------------------------------------------------------- */

static void ready(void *self, struct sim *sim, const struct run_nodes *nodes)
{
    struct served *served = self;
    served->nodes = *nodes;
    served->feeds = memory_zeroed(nodes->count, sizeof *served->feeds);
    sim_listen(sim,
               &(struct sim_listener){.self = served, .trace = on_trace, .before = before_event, .launch = on_launch});
}

void served_run(struct served *served, struct run_result *result)
{
    const struct served_config *config = &served->config;
    struct sim_options options = {.plain = true, .pace = pace, .ready = ready, .self = served};
    struct run_source source = {
        .self = served,
        .request_tokens_max = config->request_tokens_max,
        .requests_together = config->requests_together,
        .next = next,
        .closed = closed,
    };
    struct run_config run = {
        .scenario = config->scenario,
        .choice = config->choice,
        .seed = config->seed,
        .recorded = config->recorded,
        .source = &source,
        .options = &options,
        .listener = {.self = served, .row = on_row},
    };
    run_play(&sim_backend, &run, result);
}
