/* See lone_node.h. */
#include "support/lone_node.h"

#include "base/arith.h"
#include "base/limits.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- Lines ------------------------------------------------------------------------------------------------------ */

__attribute__((format(printf, 2, 3))) static void say(struct lone_node *lone, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(lone->text + lone->used, sizeof lone->text - lone->used, format, arguments);
    va_end(arguments);
    assert_true(length >= 0 && (size_t)length < sizeof lone->text - lone->used);
    lone->used += (size_t)length;
}

/* "0-3,7": consecutive numbers as ranges. */
static void say_pages(struct lone_node *lone, const uint32_t *pages, uint32_t count)
{
    if (count == 0)
        say(lone, "none");
    for (uint32_t i = 0; i < count;) {
        uint32_t last = i;
        while (last + 1 < count && pages[last + 1] == pages[last] + 1)
            last++;
        say(lone, "%s%" PRIu32, i > 0 ? "," : "", pages[i]);
        if (last > i)
            say(lone, "-%" PRIu32, pages[last]);
        i = last + 1;
    }
}

static const char *message_name(uint16_t kind)
{
    static const char *const names[] = {
        [MESSAGE_REQUEST] = "request",   [MESSAGE_ABORT] = "abort",         [MESSAGE_FIRST_TOKEN] = "first_token",
        [MESSAGE_FINISHED] = "finished", [MESSAGE_FAILED] = "failed",       [MESSAGE_REJECTED] = "rejected",
        [MESSAGE_ABORTED] = "aborted",   [MESSAGE_PREFILLED] = "prefilled", [MESSAGE_PREFILL] = "prefill",
        [MESSAGE_ACCEPTED] = "accepted", [MESSAGE_NACK] = "nack",           [MESSAGE_CANCEL] = "cancel",
        [MESSAGE_QUIESCED] = "quiesced", [MESSAGE_HELLO] = "hello",
    };
    return names[kind];
}

/* ---- Operations ------------------------------------------------------------------------------------------------- */

static struct lone_node *lone_of(struct runtime *rt)
{
    struct lone_node *lone = (struct lone_node *)(void *)rt;
    assert_true(lone->inside);
    return lone;
}

static void op_timer_set(struct runtime *rt, uint32_t slot, int64_t at_ns)
{
    struct lone_node *lone = lone_of(rt);
    assert_true(slot < TIMERS_MAX);
    if (at_ns == TIME_NEVER)
        say(lone, "timer %" PRIu32 " off\n", slot);
    else
        say(lone, "timer %" PRIu32 " at %" PRId64 "\n", slot, at_ns);
}

static void say_change(struct lone_node *lone, const struct step_change *change)
{
    switch ((enum step_change_kind)change->kind) {
    case STEP_CHUNK:
        say(lone, " chunk r%" PRIu32 " %" PRIu32 "+%" PRIu32, change->request, change->start, change->tokens);
        break;
    case STEP_JOIN:
        say(lone, " join r%" PRIu32 " @%" PRIu32, change->request, change->start);
        break;
    case STEP_PAGES:
        say(lone, " pages r%" PRIu32 " %" PRIu32 "+%" PRIu32, change->request, change->page_first, change->page_count);
        break;
    case STEP_LEAVE:
        say(lone, " leave r%" PRIu32, change->request);
        break;
    }
}

static void op_launch(struct runtime *rt, const struct step_launch *launch)
{
    struct lone_node *lone = lone_of(rt);
    uint64_t work = 0;
    assert_false(lone->launched);
    assert_true(launch->repeat_max >= 1);
    lone->launched = true;
    lone->launch = launch->ticket;
    lone->repeat_max = launch->repeat_max;
    say(lone, "launch %" PRIu32 " x%" PRIu32, launch->ticket, launch->repeat_max);
    for (uint32_t g = 0; g < launch->group_count; g++) {
        const struct step_group *group = &launch->groups[g];
        work += group->decode_sequences + group->prefill_tokens;
        assert_true(group->prefill_tokens == 0 || launch->repeat_max == 1);
        if (group->decode_sequences + group->prefill_sequences > 0)
            say(lone, " g%" PRIu32, g);
        if (group->decode_sequences > 0)
            say(lone, " decode %" PRIu32 "/%" PRIu64, group->decode_sequences, group->decode_context);
        if (group->prefill_sequences > 0)
            say(lone, " prefill %" PRIu32 "/%" PRIu64 "+%" PRIu64, group->prefill_sequences, group->prefill_tokens,
                group->prefill_context);
    }
    assert_true(work > 0);
    for (uint32_t i = 0; i < launch->change_count; i++)
        say_change(lone, &launch->changes[i]);
    say(lone, "\n");
}

static void op_launch_end(struct runtime *rt, uint32_t ticket)
{
    say(lone_of(rt), "end %" PRIu32 "\n", ticket);
}

static void op_write_post(struct runtime *rt, const struct paged_write *write)
{
    struct lone_node *lone = lone_of(rt);
    assert_true(write->ticket < LONE_WRITES && !lone->posted[write->ticket]);
    lone->posted[write->ticket] = true;
    lone->writes++;
    say(lone, "write t%" PRIu32 " n%" PRIu32 " r%" PRIu32 " e%" PRIu32 " 0x%08" PRIx32 " units %" PRIu32 "+%" PRIu32,
        write->ticket, write->destination, write->request, write->epoch, write->immediate, write->unit_first,
        write->unit_count);
    if (write->gate == STEP_NONE)
        say(lone, " no gate");
    else
        say(lone, " gate %" PRIu32, write->gate);
    if (write->unit_count > 0) {
        say(lone, " ");
        say_pages(lone, write->source_pages, write->source_page_count);
        say(lone, ">");
        say_pages(lone, write->destination_pages, write->destination_page_count);
    }
    if (write->tail_writes > 0)
        say(lone, " tail %" PRIu32 "@%" PRIu32, write->tail_writes, write->tail_destination_slot);
    say(lone, "\n");
}

static void op_write_stop(struct runtime *rt, uint32_t ticket)
{
    say(lone_of(rt), "stop t%" PRIu32 "\n", ticket);
}

static void op_immediate_expect(struct runtime *rt, uint32_t immediate, uint64_t count)
{
    say(lone_of(rt), "expect 0x%08" PRIx32 " %" PRIu64 "\n", immediate, count);
}

static void say_prefill(struct lone_node *lone, const struct message *m)
{
    uint32_t pages[REQUEST_PAGES_MAX];
    wire_pages(m, pages);
    say(lone, " e%" PRIu32 " tokens %" PRIu32 " first %" PRIu32 " pages ", m->epoch, m->prompt_tokens, m->first_token);
    say_pages(lone, pages, m->page_count);
    say(lone, " 0x%08" PRIx32 " tail %" PRIu32 " group %" PRIu16, m->immediate, m->tail_slot, m->group);
}

static void op_send(struct runtime *rt, uint32_t node, const void *bytes, size_t length)
{
    struct lone_node *lone = lone_of(rt);
    struct message m;
    assert_true(length <= rt->limits.message_bytes);
    assert_true(wire_decode(bytes, length, &m));
    say(lone, "send n%" PRIu32 " %s", node, message_name(m.kind));
    if (m.kind != MESSAGE_HELLO)
        say(lone, " r%" PRIu32, m.request);
    switch ((enum message_kind)m.kind) {
    case MESSAGE_REQUEST:
        say(lone, " to n%" PRIu32 " attempt %" PRIu32 " produced %" PRIu32 "%s", m.peer, m.attempt, m.produced,
            m.flags & FLAG_RESUMED ? " resumed" : "");
        break;
    case MESSAGE_PREFILL:
        say_prefill(lone, &m);
        break;
    case MESSAGE_FIRST_TOKEN:
    case MESSAGE_FINISHED:
        say(lone, " produced %" PRIu32, m.produced);
        break;
    case MESSAGE_FAILED:
        say(lone, " reason %" PRIu16 " produced %" PRIu32, m.reason, m.produced);
        break;
    case MESSAGE_REJECTED:
        say(lone, " reason %" PRIu16, m.reason);
        break;
    case MESSAGE_NACK:
        say(lone, " e%" PRIu32 " reason %" PRIu16, m.epoch, m.reason);
        break;
    case MESSAGE_ACCEPTED:
    case MESSAGE_CANCEL:
    case MESSAGE_QUIESCED:
        say(lone, " e%" PRIu32, m.epoch);
        break;
    case MESSAGE_HELLO:
        say(lone, " %" PRIu32, m.incarnation);
        break;
    case MESSAGE_ABORT:
    case MESSAGE_ABORTED:
    case MESSAGE_PREFILLED:
        break;
    }
    say(lone, "\n");
}

static void op_trace(struct runtime *rt, const struct trace_record *record)
{
    struct lone_node *lone = lone_of(rt);
    assert_non_null(trace_kind_name(record->kind));
    assert_int_equal(record->node, rt->node);
    if (!lone->traces)
        return;
    say(lone, "trace %s", trace_kind_name(record->kind));
    if (record->request != TRACE_NO_REQUEST)
        say(lone, " r%" PRIu32, record->request);
    say(lone, " %" PRIu64 " %" PRIu64 "\n", record->a, record->b);
}

static const struct runtime_ops lone_ops = {
    .timer_set = op_timer_set,
    .launch = op_launch,
    .launch_end = op_launch_end,
    .write_post = op_write_post,
    .write_stop = op_write_stop,
    .immediate_expect = op_immediate_expect,
    .send = op_send,
    .trace = op_trace,
};

/* ---- The node --------------------------------------------------------------------------------------------------- */

void lone_make(struct lone_node *lone, const struct node_config *config)
{
    memset(lone, 0, sizeof *lone);
    lone->runtime.ops = &lone_ops;
    lone->runtime.node = config->node;
    lone->runtime.limits = (struct runtime_limits){.writes_in_flight = LONE_WRITES, .message_bytes = MESSAGE_BYTES_MAX};
    size_t size = node_size(config, &lone->runtime.limits);
    lone->memory = aligned_alloc(64, size);
    assert_non_null(lone->memory);
    memset(lone->memory, 0, size);
    lone->node = node_make(config, &lone->runtime, lone->memory, size);
    lone_event(lone, &(struct event){.kind = EVENT_START});
    assert_calls(lone, "");
}

void lone_free(struct lone_node *lone)
{
    free(lone->memory);
}

void lone_event(struct lone_node *lone, const struct event *event)
{
    lone->inside = true;
    node_handle(lone->node, event);
    lone->inside = false;
}

void lone_message(struct lone_node *lone, uint32_t source, const struct message *message, const uint64_t *blocks,
                  const uint32_t *pages)
{
    unsigned char *bytes = malloc(MESSAGE_BYTES_MAX);
    assert_non_null(bytes);
    struct message numbered = *message;
    if (message->kind == MESSAGE_REQUEST && message->number == 0)
        numbered.number = ++lone->requests;
    size_t length = wire_encode(&numbered, blocks, pages, bytes, MESSAGE_BYTES_MAX);
    lone_event(lone, &(struct event){.kind = EVENT_MESSAGE, .id = source, .count = length, .data = bytes});
    free(bytes); /* rule 5: the node must not have kept a pointer */
}

void lone_steps_done(struct lone_node *lone, uint64_t steps)
{
    assert_true(lone->launched && steps >= 1 && steps <= lone->repeat_max);
    lone->launched = false;
    lone_event(lone, &(struct event){.kind = EVENT_STEPS_DONE, .id = lone->launch, .count = steps});
}

void lone_write_done(struct lone_node *lone, uint32_t ticket, enum write_status status)
{
    assert_true(ticket < LONE_WRITES && lone->posted[ticket]);
    lone->posted[ticket] = false;
    lone->writes--;
    lone_event(lone, &(struct event){.kind = EVENT_WRITE_DONE, .id = ticket, .status = (uint16_t)status});
}

void lone_all_written(struct lone_node *lone)
{
    bool posted[LONE_WRITES];
    memcpy(posted, lone->posted, sizeof posted);
    for (uint32_t ticket = 0; ticket < LONE_WRITES; ticket++)
        if (posted[ticket])
            lone_write_done(lone, ticket, WRITE_OK);
}

void lone_immediate(struct lone_node *lone, uint32_t immediate, uint64_t count)
{
    lone_event(lone, &(struct event){.kind = EVENT_IMMEDIATE, .id = immediate, .count = count});
}

void lone_timer(struct lone_node *lone, uint32_t slot)
{
    lone_event(lone, &(struct event){.kind = EVENT_TIMER, .id = slot});
}

void lone_peer_lost(struct lone_node *lone, uint32_t peer, enum peer_status status, uint32_t incarnation)
{
    lone_event(lone,
               &(struct event){.kind = EVENT_PEER_LOST, .id = peer, .status = (uint16_t)status, .count = incarnation});
}

void lone_about(struct lone_node *lone, uint32_t source, enum message_kind kind, uint32_t request, uint32_t epoch,
                uint32_t reason)
{
    struct message message = {.kind = (uint16_t)kind, .request = request, .epoch = epoch, .reason = (uint16_t)reason};
    lone_message(lone, source, &message, NULL, NULL);
}

struct message lone_request_of(uint32_t id, uint32_t prompt_tokens, uint32_t output_tokens)
{
    return (struct message){
        .kind = MESSAGE_REQUEST,
        .request = id,
        .peer = PREFILLER,
        .prompt_tokens = prompt_tokens,
        .output_tokens = output_tokens,
        .deadline_ns = TIME_NEVER,
    };
}

struct message lone_prefill_of(const struct small_cluster *cluster, uint32_t request, uint32_t epoch, uint32_t tokens,
                               uint32_t first)
{
    const struct kv_geometry *geometry = &cluster->config[DECODER].geometry;
    return (struct message){
        .kind = MESSAGE_PREFILL,
        .request = request,
        .epoch = epoch,
        .prompt_tokens = tokens,
        .first_token = first,
        .immediate = 0x00100000 + epoch,
        .tail_slot = 3,
        .deadline_ns = TIME_NEVER,
        .page_count = kv_pages(geometry, tokens) - first / geometry->page_tokens,
        .geometry_hash = kv_geometry_hash(geometry),
    };
}

void lone_prefill(struct lone_node *lone, const struct message *message, const uint64_t *blocks)
{
    uint32_t pages[1024];
    assert_true(message->page_count <= sizeof pages / sizeof *pages);
    for (uint32_t i = 0; i < message->page_count; i++)
        pages[i] = 100 + i;
    lone_message(lone, DECODER, message, blocks, pages);
}

void lone_run_dry(struct lone_node *lone)
{
    while (lone->launched)
        lone_steps_done(lone, lone->repeat_max);
}

void assert_lone_empty(const struct lone_node *lone)
{
    struct node_stats stats = node_stats(lone->node);
    assert_int_equal(stats.requests_live, 0);
    assert_int_equal(stats.waiting, 0);
    assert_int_equal(stats.running, 0);
    assert_int_equal(stats.transfers, 0);
    assert_int_equal(stats.quarantined, 0);
    assert_int_equal(stats.queued_tokens, 0);
    assert_int_equal(stats.pages_held, 0);
    assert_int_equal(stats.pages_free, stats.pages_total);
    assert_int_equal(stats.decode_sequences, 0);
    assert_int_equal(stats.decode_context, 0);
    assert_int_equal(lone->writes, 0);
}

void lone_hello(struct lone_node *lone, uint32_t source, uint32_t incarnation)
{
    struct message message = {.kind = MESSAGE_HELLO, .incarnation = incarnation};
    lone_message(lone, source, &message, NULL, NULL);
}

void assert_calls_at(struct lone_node *lone, const char *lines, const char *file, int line)
{
    if (strcmp(lone->text, lines) != 0) {
        print_error("%s:%d: the node called\n%sand should have called\n%s", file, line, lone->text, lines);
        _fail(file, line);
    }
    lone_forget(lone);
}

void lone_forget(struct lone_node *lone)
{
    lone->used = 0;
    lone->text[0] = '\0';
}

/* ---- The small cluster ------------------------------------------------------------------------------------------ */

struct kv_geometry small_geometry(uint16_t tensor, uint16_t heads, uint16_t page_tokens)
{
    return (struct kv_geometry){
        .layers = 2,
        .kv_heads = heads,
        .planes = 2,
        .page_tokens = page_tokens,
        .head_bytes = 256,
        .layout = LAYOUT_HND,
        .parallelism = {.tensor = tensor, .data = 1, .expert = 1, .pipeline = 1},
        .stage_layer_first = {0, 2},
    };
}

void small_cluster_make(struct small_cluster *cluster)
{
    static const enum node_role roles[] = {ROLE_FRONT, ROLE_PREFILL, ROLE_DECODE, ROLE_PREFILL, ROLE_MIXED};
    memset(cluster, 0, sizeof *cluster);
    for (uint32_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        cluster->config[i] = (struct node_config){
            .node = i,
            .role = roles[i],
            .seed = 1,
            .front = FRONT,
            .geometry = small_geometry(1, 2, 16),
            .group_count = 1,
            .pages_per_group = 64,
            .requests_max = 16,
            .request_tokens_max = 1024,
            .request_blocks_max = 16,
            .prefix_block_tokens = 32,
            .scheduler =
                {.queue = QUEUE_FCFS, .token_budget = 64, .batch_max = 8, .headroom_tokens = 16, .repeat_max = 64},
            .messenger = {.deadline_ns = NS_PER_MS, .attempts_max = 3, .handoffs_max = 4},
            .decode_router = ROUTER_ROUND_ROBIN,
            .prefill_router = ROUTER_ROUND_ROBIN,
        };
    }
    small_cluster_link(cluster);
}

static struct peer_config peer_of(const struct small_cluster *cluster, uint32_t node)
{
    const struct node_config *config = &cluster->config[node];
    return (struct peer_config){
        .node = node,
        .role = config->role,
        .group_count = config->group_count,
        .pages_per_group = config->pages_per_group,
        .geometry = config->geometry,
    };
}

static void acquaint(struct node_config *config, const struct peer_config *peers, uint32_t count)
{
    config->peers = peers;
    config->peer_count = count;
}

void small_cluster_link(struct small_cluster *cluster)
{
    for (uint32_t i = 0; i < 3; i++)
        cluster->peers_of_front[i] = peer_of(cluster, PREFILLER + i);
    cluster->peers_of_mixed_front[0] = peer_of(cluster, MIXED);
    cluster->peers_of_prefiller[0] = cluster->peers_of_decoder[0] = cluster->peers_of_mixed[0] =
        peer_of(cluster, FRONT);
    cluster->peers_of_prefiller[1] = peer_of(cluster, DECODER);
    cluster->peers_of_decoder[1] = peer_of(cluster, PREFILLER);
    cluster->peers_of_decoder[2] = peer_of(cluster, PREFILLER_TOO);
    acquaint(&cluster->config[FRONT], cluster->peers_of_front, 3);
    acquaint(&cluster->config[PREFILLER], cluster->peers_of_prefiller, 2);
    acquaint(&cluster->config[DECODER], cluster->peers_of_decoder, 3);
    acquaint(&cluster->config[PREFILLER_TOO], cluster->peers_of_prefiller, 2);
    acquaint(&cluster->config[MIXED], cluster->peers_of_mixed, 1);
}
