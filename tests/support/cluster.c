/* See cluster.h. */
#include "support/cluster.h"

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

/* Operations know their runtime alone; tests run one cluster at a time. */
static struct cluster *cluster_now;

/* The fault of the next clusters, and whether the last one met it. */
static struct injected_fault next_fault;
static bool injection_wanted, injection_struck;
static struct cluster_cast last_cast;
static struct edge_counts last_edges;

/* ---- Between nodes and runtimes ---------------------------------------------------------------------------------- */

static void op_write_post(struct runtime *rt, const struct paged_write *write)
{
    struct paged_write passed = *write;
    if (cluster_now->meets)
        injection_post(&cluster_now->injection, rt->node, &passed);
    cluster_now->ops->write_post(rt, &passed);
}

static void op_send(struct runtime *rt, uint32_t node, const void *bytes, size_t length)
{
    if (cluster_now->meets)
        injection_send(&cluster_now->injection, &bytes, &length);
    cluster_now->ops->send(rt, node, bytes, length);
}

/* A node as a participant of the simulation. */
static void handle(void *self, const struct event *event)
{
    struct cluster_seat *seat = self;
    struct event passed = *event;
    if (seat->cluster->meets)
        passed = injection_event(&seat->cluster->injection, seat->node, event);
    node_handle(seat->cluster->nodes[seat->node], &passed);
}

static struct participant participant_of(struct cluster *cluster, uint32_t node)
{
    cluster->seats[node] = (struct cluster_seat){cluster, node};
    return (struct participant){.handle = handle, .self = &cluster->seats[node]};
}

static void after(void *self, int64_t now_ns, uint32_t node, const struct event *event)
{
    struct cluster *cluster = self;
    (void)now_ns;
    (void)event;
    edges_look(&cluster->views[node], cluster->config.nodes[node].role, cluster->nodes[node], &cluster->edges);
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
    struct cluster *cluster = self;
    char name[24], request[16] = "", values[80];
    bool end = record->kind == TRACE_FINISHED || record->kind == TRACE_REJECTED || record->kind == TRACE_FAILED ||
               record->kind == TRACE_ABORTED;
    assert_true(record->kind < CLUSTER_KINDS);
    cluster->kinds[record->kind]++;
    if (end) {
        assert_true(record->request < CLUSTER_REQUESTS_MAX);
        cluster->ends[record->request]++;
    }
    snprintf(name, sizeof name, "%s-%u", role_name(cluster->config.nodes[record->node].role), record->node);
    if (record->request != TRACE_NO_REQUEST)
        snprintf(request, sizeof request, " r%" PRIu32, record->request);
    tell_values(values, sizeof values, record);
    size_t room = sizeof cluster->text - cluster->text_used;
    int length = snprintf(cluster->text + cluster->text_used, room, "%6" PRId64 ".%03d %-9s %s%s %s\n", now_ns / 1000,
                          (int)(now_ns % 1000), record->node == 0 ? "front" : name, trace_kind_name(record->kind),
                          request, values);
    assert_true(length > 0);
    if ((size_t)length >= room) {
        cluster->text[cluster->text_used] = '\0';
        cluster->text_overflow = true; /* long runs are not told as stories */
    } else {
        cluster->text_used += (size_t)length;
    }
}

/* ---- Making one -------------------------------------------------------------------------------------------------- */

struct cluster_config cluster_config_of(uint32_t prefill, uint32_t decode, uint32_t mixed)
{
    struct cluster_config config = {
        .node_count = 1 + prefill + decode + mixed,
        .cost = {.decode_fixed_ns = 19000, .decode_base_ns = 1000, .prefill_token_ns = 1000, .layers = 4},
        .message_ns = 5000,
        .watcher_ns = 1000,
        .detection = {.suspect_ns = 300 * NS_PER_US, .fence_ns = 200 * NS_PER_US},
    };
    assert_true(config.node_count <= CLUSTER_NODES_MAX);
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
            .requests_max = i == 0 ? CLUSTER_REQUESTS_MAX : 64,
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

static void introduce(struct cluster *cluster, uint32_t node)
{
    struct cluster_config *config = &cluster->config;
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->node_count; i++) {
        const struct node_config *other = &config->nodes[i];
        if (i == node || (node != 0 && i != 0 && other->role == config->nodes[node].role))
            continue;
        cluster->peers[node][count++] = (struct peer_config){
            .node = i,
            .role = other->role,
            .group_count = other->group_count,
            .pages_per_group = other->pages_per_group,
            .geometry = other->geometry,
        };
    }
    config->nodes[node].node = node;
    config->nodes[node].front = 0;
    config->nodes[node].peers = cluster->peers[node];
    config->nodes[node].peer_count = count;
    if (config->plain)
        config->nodes[node].scheduler.repeat_max = 1;
}

static void settle_in(struct cluster *cluster, uint32_t node)
{
    const struct node_config *config = &cluster->config.nodes[node];
    struct runtime *rt = sim_runtime(cluster->sim, node);
    size_t size = node_size(config, &rt->limits);
    /* Writes of a dead predecessor may still land, along plans that lie in its memory. */
    if (cluster->memory[node] != NULL) {
        assert_true(cluster->retired_count < sizeof cluster->retired / sizeof *cluster->retired);
        cluster->retired[cluster->retired_count++] = cluster->memory[node];
    }
    cluster->memory[node] = aligned_alloc(64, size);
    assert_non_null(cluster->memory[node]);
    memset(cluster->memory[node], 0, size);
    cluster->nodes[node] = node_make(config, rt, cluster->memory[node], size);
    checkers_watch(cluster->checkers, node, cluster->nodes[node]);
}

static struct sim_node_config host_of(const struct cluster *cluster, uint32_t node)
{
    struct sim_node_config host = {
        .network = {.ranks = kv_ranks(&cluster->config.nodes[node].geometry.parallelism), .nvlink_domain = node},
        .device = probe_device(&cluster->config.cost),
        .group_count = cluster->config.nodes[node].group_count,
    };
    host.network.hardware.gpus_per_node = 8;
    host.network.hardware.message_ns = cluster->config.message_ns;
    host.network.hardware.watcher_ns = cluster->config.watcher_ns;
    host.network.hardware.poll_ns = 500;
    host.network.hardware.nic = (struct nic){.name = "cluster",
                                             .base_ns = 2000,
                                             .bytes_per_s = UINT64_C(10000000000),
                                             .gap_ps = 100000,
                                             .knee_permille = 1750,
                                             .posting_ps = 100000,
                                             .queue_depth = 256};
    return host;
}

static void end_node(struct cluster *cluster, uint32_t node, bool lingering);
static void come_back(struct sim *sim, void *self, uint64_t node);
static void abort_request(struct sim *sim, void *self, uint64_t id);

static void injection_dies(void *self, uint32_t node, bool lingering)
{
    end_node(self, node, lingering);
}

static void injection_comes_back(void *self, uint32_t node, int64_t delay_ns)
{
    struct cluster *cluster = self;
    sim_call_at(cluster->sim, sim_now_ns(cluster->sim) + delay_ns,
                (struct sim_call){.run = come_back, .self = cluster, .argument = node});
}

static void injection_leaves(void *self, uint32_t request)
{
    abort_request(((struct cluster *)self)->sim, self, request);
}

void cluster_fault(const struct injected_fault *fault)
{
    injection_wanted = fault != NULL;
    if (fault != NULL)
        next_fault = *fault;
}

bool cluster_fault_struck(void)
{
    return injection_struck;
}

struct cluster_cast cluster_cast(void)
{
    return last_cast;
}

struct edge_counts cluster_edges(void)
{
    return last_edges;
}

static void meet(struct cluster *cluster, const struct injected_fault *fault)
{
    cluster->meets = true;
    injection_make(&cluster->injection, fault, cluster->sim,
                   &(struct injection_actions){cluster, injection_dies, injection_comes_back, injection_leaves});
}

void cluster_meets(struct cluster *cluster, const struct injected_fault *fault)
{
    if (!cluster->unlucky)
        meet(cluster, fault);
}

/* What happens is then not as told. */
static void expect_fault(struct cluster *cluster)
{
    cluster->unlucky = true;
    snprintf(cluster->label, sizeof cluster->label, "%s %u of %u", injection_name(next_fault.kind),
             (unsigned)next_fault.nth, (unsigned)next_fault.subject);
    meet(cluster, &next_fault);
}

void cluster_make(struct cluster *cluster, const struct cluster_config *config)
{
    struct sim_node_config hosts[CLUSTER_NODES_MAX];
    memset(cluster, 0, sizeof *cluster);
    cluster_now = cluster;
    cluster->config = *config;
    snprintf(cluster->label, sizeof cluster->label, "%s", config->label == NULL ? "cluster" : config->label);
    for (uint32_t i = 0; injection_wanted && injection_is_late(next_fault.kind) && i < config->node_count; i++)
        cluster->config.nodes[i].messenger.deadline_ns = INJECT_DEADLINE_NS;
    for (uint32_t i = 0; i < config->node_count; i++)
        introduce(cluster, i);
    for (uint32_t i = 0; i < config->node_count; i++)
        hosts[i] = host_of(cluster, i);
    cluster->sim = sim_make(&(struct sim_config){
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
    cluster->checkers = checkers_make(cluster->sim, config->node_count, 1);
    cluster->oracle = oracle_make(cluster->sim, cluster->config.nodes, config->node_count, cluster->checkers);
    cluster->shadow =
        shadow_make(cluster->sim, cluster->config.nodes, config->node_count, cluster->oracle, cluster->checkers);
    cluster->ops = sim_runtime(cluster->sim, 0)->ops;
    cluster->own_ops = *cluster->ops;
    cluster->own_ops.write_post = op_write_post;
    cluster->own_ops.send = op_send;
    if (injection_wanted)
        expect_fault(cluster);
    sim_listen(cluster->sim, &(struct sim_listener){.self = cluster, .trace = traced, .after = after});
    for (uint32_t i = 0; i < config->node_count; i++) {
        sim_runtime(cluster->sim, i)->ops = &cluster->own_ops;
        settle_in(cluster, i);
        sim_attach(cluster->sim, i, participant_of(cluster, i));
    }
    sim_start(cluster->sim);
}

void cluster_free(struct cluster *cluster)
{
    injection_struck = cluster->unlucky && cluster->injection.struck;
    last_cast = cluster->cast;
    last_cast.node_count = cluster->config.node_count;
    last_edges = cluster->edges;
    sim_free(cluster->sim);
    checkers_free(cluster->checkers);
    oracle_free(cluster->oracle);
    shadow_free(cluster->shadow);
    for (uint32_t i = 0; i < cluster->config.node_count; i++)
        free(cluster->memory[i]);
    for (uint32_t i = 0; i < cluster->retired_count; i++)
        free(cluster->retired[i]);
}

/* ---- What happens ------------------------------------------------------------------------------------------------ */

static void call_at(struct cluster *cluster, int64_t at_us, void (*run)(struct sim *, void *, uint64_t), void *self,
                    uint64_t argument)
{
    sim_call_at(cluster->sim, at_us * NS_PER_US, (struct sim_call){.run = run, .self = self, .argument = argument});
}

static void arrive(struct sim *sim, void *self, uint64_t argument)
{
    (void)argument;
    sim_deliver(sim, 0, &(struct event){.kind = EVENT_ARRIVAL, .status = ARRIVAL_NEW, .data = self});
    free(self);
}

void cluster_arrives(struct cluster *cluster, int64_t at_us, const struct request_spec *request)
{
    struct request_spec *copy = malloc(sizeof *copy);
    assert_non_null(copy);
    *copy = *request;
    assert_true(cluster->cast.request_count < CLUSTER_REQUESTS_MAX);
    cluster->cast.requests[cluster->cast.request_count++] = request->id;
    call_at(cluster, at_us, arrive, copy, 0);
}

void cluster_prompt(struct cluster *cluster, int64_t at_us, uint32_t id, uint32_t prompt_tokens, uint32_t output_tokens)
{
    struct request_spec request = {
        .id = id, .prompt_tokens = prompt_tokens, .output_tokens = output_tokens, .deadline_ns = TIME_NEVER};
    cluster_arrives(cluster, at_us, &request);
}

static void abort_request(struct sim *sim, void *self, uint64_t id)
{
    (void)self;
    struct request_spec request = {.id = (uint32_t)id};
    sim_deliver(sim, 0, &(struct event){.kind = EVENT_ARRIVAL, .status = ARRIVAL_ABORT, .data = &request});
}

void cluster_aborts(struct cluster *cluster, int64_t at_us, uint32_t id)
{
    call_at(cluster, at_us, abort_request, cluster, id);
}

static void end_node(struct cluster *cluster, uint32_t node, bool lingering)
{
    if (!sim_alive(cluster->sim, node))
        return;
    checkers_watch(cluster->checkers, node, NULL);
    cluster->views[node].count = 0;
    if (lingering)
        sim_kill_lingering(cluster->sim, node);
    else
        sim_kill(cluster->sim, node);
}

static void die(struct sim *sim, void *self, uint64_t node)
{
    (void)sim;
    end_node(self, (uint32_t)node, false);
}

void cluster_dies(struct cluster *cluster, int64_t at_us, uint32_t node)
{
    call_at(cluster, at_us, die, cluster, node);
}

static void come_back(struct sim *sim, void *self, uint64_t node)
{
    struct cluster *cluster = self;
    if (sim_alive(sim, (uint32_t)node))
        return;
    settle_in(cluster, (uint32_t)node);
    sim_restart(sim, (uint32_t)node, participant_of(cluster, (uint32_t)node));
}

void cluster_returns(struct cluster *cluster, int64_t at_us, uint32_t node)
{
    call_at(cluster, at_us, come_back, cluster, node);
}

void cluster_until(struct cluster *cluster, int64_t at_us)
{
    enum sim_status status = sim_advance(cluster->sim, at_us * NS_PER_US);
    assert_true(status == SIM_TIME || status == SIM_IDLE);
    assert_null(checkers_failure(cluster->checkers));
}

void cluster_run(struct cluster *cluster)
{
    enum sim_status status = sim_advance(cluster->sim, TIME_NEVER - 1);
    if (status == SIM_IDLE) {
        checkers_drained(cluster->checkers);
        oracle_drained(cluster->oracle);
    }
    const char *failure = checkers_failure(cluster->checkers);
    if (failure != NULL || status != SIM_IDLE) {
        char text[4096];
        sim_describe(cluster->sim, text, sizeof text);
        size_t tail = cluster->text_used < TOLD_MAX ? 0 : cluster->text_used - TOLD_MAX;
        fprintf(stderr, "%s\n%s\n", cluster->text + tail, text); /* cmocka cuts what is long */
        fail_msg("%s: %s", cluster->label, failure == NULL ? "something is pending for ever" : failure);
    }
    for (uint32_t i = 0; i < cluster->cast.request_count; i++)
        if (cluster->ends[cluster->cast.requests[i]] == 0) /* 12 */
            fail_msg("%s: request %u has no end", cluster->label, (unsigned)cluster->cast.requests[i]);
}

void expect_trace_at(struct cluster *cluster, const char *lines, const char *file, int line)
{
    assert_false(cluster->text_overflow);
    if (!cluster->unlucky && strcmp(cluster->text, lines) != 0) {
        fprintf(stderr, "%s:%d: it happened so\n%sand should have happened so\n%s", file, line, cluster->text, lines);
        _fail(file, line);
    }
    cluster->text_used = 0;
    cluster->text[0] = '\0';
}
