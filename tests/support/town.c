/* See town.h. */
#include "support/town.h"

#include "base/arith.h"
#include "base/limits.h"
#include "sim/checkers/checkers.h"
#include "sim/checkers/oracle.h"
#include "sim/checkers/shadow.h"
#include "support/lone_node.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Characters of the log that a failure shows. */
#define TOLD_MAX 40000u

/* Operations know their runtime alone; tests run one town at a time. */
static struct town *town_now;

/* The mishap of the next towns, and whether the last one met it. */
static struct mishap next_mishap;
static bool mishap_wanted, mishap_struck;
static struct town_cast last_cast;
static struct edge_counts last_edges;

/* ---- Between nodes and runtimes ---------------------------------------------------------------------------------- */

static void op_write_post(struct runtime *rt, const struct paged_write *write)
{
    struct paged_write passed = *write;
    if (town_now->meets)
        mishap_post(&town_now->mishaps, rt->node, &passed);
    town_now->ops->write_post(rt, &passed);
}

static void op_send(struct runtime *rt, uint32_t node, const void *bytes, size_t length)
{
    if (town_now->meets)
        mishap_send(&town_now->mishaps, &bytes, &length);
    town_now->ops->send(rt, node, bytes, length);
}

/* A node as a participant of the simulation. */
static void handle(void *self, const struct event *event)
{
    struct town_seat *seat = self;
    struct event passed = *event;
    if (seat->town->meets)
        passed = mishap_event(&seat->town->mishaps, seat->node, event);
    node_handle(seat->town->nodes[seat->node], &passed);
}

static struct participant participant_of(struct town *town, uint32_t node)
{
    town->seats[node] = (struct town_seat){town, node};
    return (struct participant){.handle = handle, .self = &town->seats[node]};
}

static void after(void *self, int64_t now_ns, uint32_t node, const struct event *event)
{
    struct town *town = self;
    (void)now_ns;
    (void)event;
    edges_look(&town->views[node], town->config.nodes[node].role, town->nodes[node], &town->edges);
}

static const char *role_name(enum node_role role)
{
    static const char *const names[] = {
        [ROLE_FRONT] = "front", [ROLE_PREFILL] = "prefill", [ROLE_DECODE] = "decode", [ROLE_MIXED] = "mixed"};
    return names[role];
}

/* What `a` and `b` of a record say, in the form that people count in. */
static void tell_values(char *text, size_t size, const struct trace_record *record)
{
    uint32_t high = (uint32_t)(record->a >> 32), low = (uint32_t)record->a;
    if (record->kind == TRACE_WRITE)
        snprintf(text, size, "units %" PRIu32 "+%" PRIu32 " epoch %" PRIu64, high, low, record->b);
    else if (record->kind == TRACE_BATCH)
        snprintf(text, size, "group %" PRIu32 " decode %" PRIu32 " prefill %" PRIu64, high, low, record->b);
    else if (record->kind == TRACE_CHUNK)
        snprintf(text, size, "%" PRIu64 "+%" PRIu64, record->a, record->b);
    else if (record->kind == TRACE_ARMED)
        snprintf(text, size, "0x%08" PRIx64 " %" PRIu64, record->a, record->b);
    else
        snprintf(text, size, "%" PRIu64 " %" PRIu64, record->a, record->b);
}

static void traced(void *self, int64_t now_ns, const struct trace_record *record)
{
    struct town *town = self;
    char name[24], request[16] = "", values[80];
    bool end = record->kind == TRACE_FINISHED || record->kind == TRACE_REJECTED || record->kind == TRACE_FAILED ||
               record->kind == TRACE_ABORTED;
    assert_true(record->kind < TOWN_KINDS);
    town->kinds[record->kind]++;
    if (end) {
        assert_true(record->request < TOWN_REQUESTS_MAX);
        town->ends[record->request]++;
    }
    snprintf(name, sizeof name, "%s-%u", role_name(town->config.nodes[record->node].role), record->node);
    if (record->request != TRACE_NO_REQUEST)
        snprintf(request, sizeof request, " r%" PRIu32, record->request);
    tell_values(values, sizeof values, record);
    size_t room = sizeof town->text - town->text_used;
    int length = snprintf(town->text + town->text_used, room, "%6" PRId64 ".%03d %-9s %s%s %s\n", now_ns / 1000,
                          (int)(now_ns % 1000), record->node == 0 ? "front" : name, trace_kind_name(record->kind),
                          request, values);
    assert_true(length > 0);
    if ((size_t)length >= room) {
        town->text[town->text_used] = '\0';
        town->text_overflow = true; /* long runs are not told as stories */
    } else {
        town->text_used += (size_t)length;
    }
}

/* ---- Making one -------------------------------------------------------------------------------------------------- */

struct town_config town_config_of(uint32_t prefill, uint32_t decode, uint32_t mixed)
{
    struct town_config config = {
        .node_count = 1 + prefill + decode + mixed,
        .cost = {.decode_fixed_ns = 19000, .decode_base_ns = 1000, .prefill_token_ns = 1000, .layers = 4},
        .message_ns = 5000,
        .watcher_ns = 1000,
        .detection = {.suspect_ns = 300 * NS_PER_US, .fence_ns = 200 * NS_PER_US},
    };
    assert_true(config.node_count <= TOWN_NODES_MAX);
    for (uint32_t i = 0; i < config.node_count; i++) {
        struct kv_geometry geometry = small_geometry(1, 2, 16);
        geometry.layers = 4;
        geometry.stage_layer_first[1] = 4;
        config.nodes[i] = (struct node_config){
            .role = i == 0                  ? ROLE_FRONT
                    : i <= prefill          ? ROLE_PREFILL
                    : i <= prefill + decode ? ROLE_DECODE
                                            : ROLE_MIXED,
            .seed = 1,
            .geometry = geometry,
            .group_count = 1,
            .pages_per_group = 64,
            .requests_max = i == 0 ? TOWN_REQUESTS_MAX : 64,
            .request_tokens_max = 1024,
            .request_blocks_max = 16,
            .prefix_block_tokens = 32,
            .scheduler =
                {.queue = QUEUE_FCFS, .token_budget = 64, .batch_max = 8, .headroom_tokens = 16, .repeat_max = 64},
            .messenger = {.deadline_ns = 100 * NS_PER_MS, .attempts_max = 3, .handoffs_max = 8},
            .decode_router = ROUTER_ROUND_ROBIN,
            .prefill_router = ROUTER_ROUND_ROBIN,
        };
    }
    return config;
}

static void introduce(struct town *town, uint32_t node)
{
    struct town_config *config = &town->config;
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->node_count; i++) {
        const struct node_config *other = &config->nodes[i];
        if (i == node || (node != 0 && i != 0 && other->role == config->nodes[node].role))
            continue;
        town->peers[node][count++] = (struct peer_config){
            .node = i,
            .role = other->role,
            .group_count = other->group_count,
            .pages_per_group = other->pages_per_group,
            .geometry = other->geometry,
        };
    }
    config->nodes[node].node = node;
    config->nodes[node].front = 0;
    config->nodes[node].peers = town->peers[node];
    config->nodes[node].peer_count = count;
    if (config->plain)
        config->nodes[node].scheduler.repeat_max = 1;
}

static void settle_in(struct town *town, uint32_t node)
{
    const struct node_config *config = &town->config.nodes[node];
    struct runtime *rt = sim_runtime(town->sim, node);
    size_t size = node_size(config, &rt->limits);
    /* Writes of a dead predecessor may still land, along plans that lie in its memory. */
    if (town->memory[node] != NULL) {
        assert_true(town->retired_count < sizeof town->retired / sizeof *town->retired);
        town->retired[town->retired_count++] = town->memory[node];
    }
    town->memory[node] = aligned_alloc(64, size);
    assert_non_null(town->memory[node]);
    memset(town->memory[node], 0, size);
    town->nodes[node] = node_make(config, rt, town->memory[node], size);
    checkers_watch(town->checkers, node, town->nodes[node]);
}

static struct sim_node_config host_of(const struct town *town, uint32_t node)
{
    struct sim_node_config host = {
        .network = {.ranks = kv_ranks(&town->config.nodes[node].geometry.parallelism), .nvlink_domain = node},
        .device = probe_device(&town->config.cost),
        .group_count = town->config.nodes[node].group_count,
    };
    host.network.hardware.gpus_per_node = 8;
    host.network.hardware.message_ns = town->config.message_ns;
    host.network.hardware.watcher_ns = town->config.watcher_ns;
    host.network.hardware.poll_ns = 500;
    host.network.hardware.nic = (struct nic){.name = "town",
                                             .base_ns = 2000,
                                             .bytes_per_s = UINT64_C(10000000000),
                                             .gap_ps = 100000,
                                             .knee_permille = 1750,
                                             .posting_ps = 100000,
                                             .queue_depth = 256};
    return host;
}

static void end_node(struct town *town, uint32_t node, bool lingering);
static void come_back(struct sim *sim, void *self, uint64_t node);
static void abort_request(struct sim *sim, void *self, uint64_t id);

static void mishap_dies(void *self, uint32_t node, bool lingering)
{
    end_node(self, node, lingering);
}

static void mishap_comes_back(void *self, uint32_t node, int64_t delay_ns)
{
    struct town *town = self;
    sim_call_at(town->sim, sim_now_ns(town->sim) + delay_ns,
                (struct sim_call){.run = come_back, .self = town, .argument = node});
}

static void mishap_leaves(void *self, uint32_t request)
{
    abort_request(((struct town *)self)->sim, self, request);
}

void town_mishap(const struct mishap *mishap)
{
    mishap_wanted = mishap != NULL;
    if (mishap != NULL)
        next_mishap = *mishap;
}

bool town_mishap_struck(void)
{
    return mishap_struck;
}

struct town_cast town_cast(void)
{
    return last_cast;
}

struct edge_counts town_edges(void)
{
    return last_edges;
}

static void meet(struct town *town, const struct mishap *mishap)
{
    town->meets = true;
    mishap_make(&town->mishaps, mishap, town->sim,
                &(struct mishap_actions){town, mishap_dies, mishap_comes_back, mishap_leaves});
}

void town_meets(struct town *town, const struct mishap *mishap)
{
    if (!town->unlucky)
        meet(town, mishap);
}

/* What happens is then not as told. */
static void expect_mishap(struct town *town)
{
    town->unlucky = true;
    snprintf(town->label, sizeof town->label, "%s %u of %u", mishap_name(next_mishap.kind), (unsigned)next_mishap.nth,
             (unsigned)next_mishap.subject);
    meet(town, &next_mishap);
}

void town_make(struct town *town, const struct town_config *config)
{
    struct sim_node_config hosts[TOWN_NODES_MAX];
    memset(town, 0, sizeof *town);
    town_now = town;
    town->config = *config;
    snprintf(town->label, sizeof town->label, "%s", config->label == NULL ? "town" : config->label);
    for (uint32_t i = 0; mishap_wanted && mishap_is_late(next_mishap.kind) && i < config->node_count; i++)
        town->config.nodes[i].messenger.deadline_ns = MISHAP_DEADLINE_NS;
    for (uint32_t i = 0; i < config->node_count; i++)
        introduce(town, i);
    for (uint32_t i = 0; i < config->node_count; i++)
        hosts[i] = host_of(town, i);
    town->sim = sim_make(&(struct sim_config){
        .seed = 1,
        .shuffle_seed = config->shuffle_seed,
        .plain = config->plain,
        .poison = true,
        .node_count = config->node_count,
        .nodes = hosts,
        .limits = {.writes_in_flight = config->writes_in_flight == 0 ? 64 : config->writes_in_flight,
                   .message_bytes = MESSAGE_BYTES_MAX},
        .detection = config->detection,
    });
    town->checkers = checkers_make(town->sim, config->node_count, 1);
    town->oracle = oracle_make(town->sim, town->config.nodes, config->node_count, town->checkers);
    town->shadow = shadow_make(town->sim, town->config.nodes, config->node_count, town->oracle, town->checkers);
    town->ops = sim_runtime(town->sim, 0)->ops;
    town->own_ops = *town->ops;
    town->own_ops.write_post = op_write_post;
    town->own_ops.send = op_send;
    if (mishap_wanted)
        expect_mishap(town);
    sim_listen(town->sim, &(struct sim_listener){.self = town, .trace = traced, .after = after});
    for (uint32_t i = 0; i < config->node_count; i++) {
        sim_runtime(town->sim, i)->ops = &town->own_ops;
        settle_in(town, i);
        sim_attach(town->sim, i, participant_of(town, i));
    }
    sim_start(town->sim);
}

void town_free(struct town *town)
{
    mishap_struck = town->unlucky && town->mishaps.struck;
    last_cast = town->cast;
    last_cast.node_count = town->config.node_count;
    last_edges = town->edges;
    sim_free(town->sim);
    checkers_free(town->checkers);
    oracle_free(town->oracle);
    shadow_free(town->shadow);
    for (uint32_t i = 0; i < town->config.node_count; i++)
        free(town->memory[i]);
    for (uint32_t i = 0; i < town->retired_count; i++)
        free(town->retired[i]);
}

/* ---- What happens ------------------------------------------------------------------------------------------------ */

static void call_at(struct town *town, int64_t at_us, void (*run)(struct sim *, void *, uint64_t), void *self,
                    uint64_t argument)
{
    sim_call_at(town->sim, at_us * NS_PER_US, (struct sim_call){.run = run, .self = self, .argument = argument});
}

static void arrive(struct sim *sim, void *self, uint64_t argument)
{
    (void)argument;
    sim_deliver(sim, 0, &(struct event){.kind = EVENT_ARRIVAL, .status = ARRIVAL_NEW, .data = self});
    free(self);
}

void town_arrives(struct town *town, int64_t at_us, const struct request_spec *request)
{
    struct request_spec *copy = malloc(sizeof *copy);
    assert_non_null(copy);
    *copy = *request;
    assert_true(town->cast.request_count < TOWN_REQUESTS_MAX);
    town->cast.requests[town->cast.request_count++] = request->id;
    call_at(town, at_us, arrive, copy, 0);
}

void town_prompt(struct town *town, int64_t at_us, uint32_t id, uint32_t prompt_tokens, uint32_t output_tokens)
{
    struct request_spec request = {
        .id = id, .prompt_tokens = prompt_tokens, .output_tokens = output_tokens, .deadline_ns = TIME_NEVER};
    town_arrives(town, at_us, &request);
}

static void abort_request(struct sim *sim, void *self, uint64_t id)
{
    (void)self;
    struct request_spec request = {.id = (uint32_t)id};
    sim_deliver(sim, 0, &(struct event){.kind = EVENT_ARRIVAL, .status = ARRIVAL_ABORT, .data = &request});
}

void town_aborts(struct town *town, int64_t at_us, uint32_t id)
{
    call_at(town, at_us, abort_request, town, id);
}

static void end_node(struct town *town, uint32_t node, bool lingering)
{
    if (!sim_alive(town->sim, node))
        return;
    checkers_watch(town->checkers, node, NULL);
    town->views[node].count = 0;
    if (lingering)
        sim_kill_lingering(town->sim, node);
    else
        sim_kill(town->sim, node);
}

static void die(struct sim *sim, void *self, uint64_t node)
{
    (void)sim;
    end_node(self, (uint32_t)node, false);
}

void town_dies(struct town *town, int64_t at_us, uint32_t node)
{
    call_at(town, at_us, die, town, node);
}

static void come_back(struct sim *sim, void *self, uint64_t node)
{
    struct town *town = self;
    if (sim_alive(sim, (uint32_t)node))
        return;
    settle_in(town, (uint32_t)node);
    sim_restart(sim, (uint32_t)node, participant_of(town, (uint32_t)node));
}

void town_returns(struct town *town, int64_t at_us, uint32_t node)
{
    call_at(town, at_us, come_back, town, node);
}

void town_until(struct town *town, int64_t at_us)
{
    enum sim_status status = sim_advance(town->sim, at_us * NS_PER_US);
    assert_true(status == SIM_TIME || status == SIM_IDLE);
    assert_null(checkers_failure(town->checkers));
}

void town_run(struct town *town)
{
    enum sim_status status = sim_advance(town->sim, TIME_NEVER - 1);
    if (status == SIM_IDLE) {
        checkers_drained(town->checkers);
        oracle_drained(town->oracle);
    }
    const char *failure = checkers_failure(town->checkers);
    if (failure != NULL || status != SIM_IDLE) {
        char text[4096];
        sim_describe(town->sim, text, sizeof text);
        size_t tail = town->text_used < TOLD_MAX ? 0 : town->text_used - TOLD_MAX;
        fprintf(stderr, "%s\n%s\n", town->text + tail, text); /* cmocka cuts what is long */
        fail_msg("%s: %s", town->label, failure == NULL ? "something is pending for ever" : failure);
    }
    for (uint32_t i = 0; i < town->cast.request_count; i++)
        if (town->ends[town->cast.requests[i]] == 0) /* 12 */
            fail_msg("%s: request %u has no end", town->label, (unsigned)town->cast.requests[i]);
}

void expect_trace_at(struct town *town, const char *lines, const char *file, int line)
{
    assert_false(town->text_overflow);
    if (!town->unlucky && strcmp(town->text, lines) != 0) {
        fprintf(stderr, "%s:%d: it happened so\n%sand should have happened so\n%s", file, line, town->text, lines);
        _fail(file, line);
    }
    town->text_used = 0;
    town->text[0] = '\0';
}
