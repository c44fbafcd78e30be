/* See instance.h. */
#define _GNU_SOURCE
#include "real/cluster/instance_process_internal.h"

#include "base/arith.h"
#include "world/scenario/policy_host.h"
#include "host/exit_status.h"
#include "real/fabric/leftovers.h"
#include "real/fabric/lifeline.h"
#include "real/memory/shared_memory.h"
#include "host/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TURN_NS INT64_C(5000000)
#define IDLE_TURN_NS INT64_C(50000000) /* nobody waits for anything: a machine with few processors has better to do */

/* Records reach the front at least this often, and where there are none, the word that none is missing. */
#define REPORT_NS INT64_C(10000000)
#define IDLE_REPORT_NS INT64_C(100000000)

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    CHECK(memory != NULL);
    return memory;
}

void instance_trouble(void *self, const char *text)
{
    struct instance *instance = self;
    user_error_set(&instance->trouble, NULL, 0, NULL, "%s", text);
}

/* ---- Meeting the others ------------------------------------------------------------------------------------------ */

static void perhaps_ready(struct instance *instance)
{
    if (instance->ready || !instance->all_named || instance->peers_learnt < instance->peers_named)
        return;
    instance->ready = true;
    unsigned char bytes[READY_BYTES_MAX];
    struct frame_writer writer = {.bytes = bytes, .size = sizeof bytes};
    ready_write(&writer, &instance->nics, instance->nics_text);
    CHECK(!writer.full);
    mesh_send(instance->mesh, 0, FRAME_READY, bytes, writer.used);
}

static void on_up(void *self, uint32_t node, const struct hello *hello)
{
    struct instance *instance = self;
    real_runtime_peer_up(instance->real, node, hello->incarnation);
    if (node != 0 && instance->fabric != NULL)
        fabric_thread_card(instance->fabric, node);
}

static void on_report(void *self, struct fabric_report *report)
{
    struct instance *instance = self;
    if (report->error[0] != '\0') {
        user_error_set(&instance->trouble, NULL, 0, NULL, "%s: %s",
                       instance->world->deployment->instances[report->node].name, report->error);
    } else if (report->kind == REPORT_CARD) {
        mesh_send(instance->mesh, report->node, FRAME_CARD, report->card, report->card_bytes);
    } else if (report->kind == REPORT_PEER) {
        instance->peers_learnt++;
        perhaps_ready(instance);
    }
    free(report->card);
}

static void named(struct instance *instance, const struct frame *frame)
{
    struct peer_place place;
    if (!peer_place_read(frame, &place) || place.node == 0 || place.node >= instance->world->deployment->node_count ||
        !real_world_acquainted(instance->world, instance->config->node, place.node) || instance->all_named) {
        instance_trouble(instance, "the front named a peer that makes no sense");
        return;
    }
    instance->peers_named++;
    /* Of two nodes the one with the higher id dials; who comes later dials all that are there. */
    if (place.node < instance->config->node || instance->start->incarnation > 0)
        mesh_dial(instance->mesh, place.node, place.address, place.port);
}

static void answer_clock(struct instance *instance, const struct frame *frame)
{
    struct frame_reader reader = frame_read(frame);
    unsigned char bytes[16];
    struct frame_writer writer = {.bytes = bytes, .size = sizeof bytes};
    write_u64(&writer, read_u64(&reader));
    write_u64(&writer, (uint64_t)clock_now_ns());
    if (read_end(&reader))
        mesh_send(instance->mesh, 0, FRAME_CLOCK_ANSWER, bytes, writer.used);
}

/* What happened to others before this one began: the run began with the front's word, which does not reach all at once,
 * and a peer may have begun and died by now. */
static void tell_losses(struct instance *instance)
{
    for (uint32_t i = 1; i < instance->world->deployment->node_count; i++) {
        if (!real_world_acquainted(instance->world, instance->config->node, i))
            continue;
        if (!mesh_up(instance->mesh, i))
            real_runtime_peer_down(instance->real, i);
        else if (mesh_incarnation(instance->mesh, i) > 0)
            real_runtime_peer_replaced(instance->real, i);
    }
}

static void start_run(struct instance *instance, const struct frame *frame)
{
    struct frame_reader reader = frame_read(frame);
    int64_t origin_ns = (int64_t)read_u64(&reader);
    if (!read_end(&reader) || !instance->ready || instance->started) {
        instance_trouble(instance, "the front started what cannot be started");
        return;
    }
    instance->started = true;
    real_runtime_origin(instance->real, origin_ns);
    real_runtime_deliver(instance->real, &(struct event){.kind = EVENT_START, .count = instance->start->incarnation});
    tell_losses(instance);
}

static void stop_run(struct instance *instance, const struct frame *frame)
{
    struct frame_reader reader = frame_read(frame);
    int64_t within_ns = (int64_t)read_u32(&reader) * 1000000;
    if (!read_end(&reader) || instance->stopping)
        return;
    instance->stopping = true;
    instance->stop_by_ns = clock_now_ns() + within_ns;
    real_runtime_deliver(instance->real, &(struct event){.kind = EVENT_STOP});
}

static void count_from(struct instance *instance, const struct frame *frame)
{
    struct frame_reader reader = frame_read(frame);
    int64_t from_ns = (int64_t)read_u64(&reader);
    if (read_end(&reader) && from_ns >= 0)
        real_runtime_itl_from(instance->real, from_ns);
    else
        instance_trouble(instance, "the front counts from a time that makes no sense");
}

static void front_frame(struct instance *instance, const struct frame *frame)
{
    switch (frame->kind) {
    case FRAME_PEER:
        named(instance, frame);
        break;
    case FRAME_PEERS_END:
        instance->all_named = true;
        perhaps_ready(instance);
        break;
    case FRAME_CLOCK_ASK:
        answer_clock(instance, frame);
        break;
    case FRAME_START:
        start_run(instance, frame);
        break;
    case FRAME_STOP:
        stop_run(instance, frame);
        break;
    case FRAME_COUNT:
        count_from(instance, frame);
        break;
    default:
        instance_trouble(instance, "the front sent a frame that it has no business to send");
        break;
    }
}

static void on_frame(void *self, uint32_t node, const struct frame *frame)
{
    struct instance *instance = self;
    if (frame->kind == FRAME_MESSAGE || frame->kind == FRAME_ANSWERS) {
        if (instance->started && !instance->finished && !real_runtime_frame(instance->real, node, frame))
            instance_trouble(instance, "a node sent a message that makes no sense");
        return;
    }
    if (node == 0) {
        front_frame(instance, frame);
        return;
    }
    bool sense = true;
    if (frame->kind == FRAME_CLOSE || frame->kind == FRAME_CLOSED)
        sense = real_runtime_frame(instance->real, node, frame);
    if (frame->kind == FRAME_CARD && instance->fabric != NULL) {
        struct kv_memory memory = real_world_kv_memory(instance->world, node);
        sense = frame->length <= FABRIC_CARD_BYTES_MAX;
        if (sense)
            fabric_thread_peer(instance->fabric, node, frame->body, frame->length, &memory);
    } else if (frame->kind == FRAME_DIGESTS && instance->verifier != NULL) {
        sense = verifier_digests(instance->verifier, frame);
    }
    if (!sense)
        instance_trouble(instance, "a peer sent a frame that makes no sense");
}

static void on_down(void *self, uint32_t node, const char *why)
{
    struct instance *instance = self;
    char text[512];
    if (node == 0) {
        /* Whoever is left without a front has nobody to serve. A refusal is worth a word; the end of the run, which may
         * come while a replacement is made, is not. */
        if (!instance->started && instance->start->incarnation == 0)
            user_error_set(&instance->trouble, NULL, 0, NULL, "the front: %s", why);
        instance->over = true;
    } else if (!instance->ready) {
        snprintf(text, sizeof text, "%s: %s", instance->world->deployment->instances[node].name, why);
        instance_trouble(instance, text);
    } else if (instance->started && !instance->finished) {
        real_runtime_peer_down(instance->real, node); /* before the start: tell_losses() */
    }
}

/* ---- The node ---------------------------------------------------------------------------------------------------- */

static void handle(void *self, const struct event *event)
{
    struct instance *instance = self;
    real_node_handle(&instance->node, event);
    const char *failure = policy_host_failure(instance->node.policy);
    if (failure != NULL)
        instance_trouble(instance, failure);
}

static void after(void *self, const struct event *event)
{
    struct instance *instance = self;
    if (event->kind != EVENT_STEPS_DONE)
        return;
    struct ledger *ledger = real_runtime_ledger(instance->real);
    ledger->pages_held_peak = max_u64(ledger->pages_held_peak, node_stats(instance->node.node).pages_held);
}

static void written(void *self, const struct paged_write *write)
{
    verifier_written(((struct instance *)self)->verifier, write);
}

static bool landed(void *self, uint32_t immediate, uint64_t count)
{
    return verifier_landed(((struct instance *)self)->verifier, immediate, count);
}

static bool landing(void *self, uint32_t immediate, struct fabric_landing *where)
{
    struct node_landing landing;
    if (!node_landing(((struct instance *)self)->node.node, immediate, &landing))
        return false;
    *where = (struct fabric_landing){.group = landing.group,
                                     .page_count = landing.page_count,
                                     .pages = landing.pages,
                                     .tail_slot = landing.tail_slot};
    return true;
}

static void expected(void *self, uint32_t immediate, uint64_t count)
{
    verifier_expected(((struct instance *)self)->verifier, immediate, count);
}

static void send_digests(void *self, uint32_t node, const void *body, size_t length)
{
    mesh_send(((struct instance *)self)->mesh, node, FRAME_DIGESTS, body, length);
}

static void verified(void *self, uint32_t immediate, uint64_t count)
{
    real_runtime_immediate(((struct instance *)self)->real, immediate, count);
}

static void executor_died(void *self, uint32_t rank)
{
    struct instance *instance = self;
    char text[96];
    snprintf(text, sizeof text, "the executor of rank %u died", rank);
    real_runtime_unwatch(instance->real, executors_death_fd(instance->executors, rank));
    executors_abandon(instance->executors);
    instance_trouble(instance, text);
}

/* ---- Set-up ------------------------------------------------------------------------------------------------------ */

/* The KV regions as this process reaches them. */
static bool make_regions(struct instance *instance, struct user_error *error)
{
    uint32_t ranks = instance->world->deployment->instances[instance->config->node].ranks;
    instance->regions = allocate(ranks, sizeof *instance->regions);
    for (uint32_t r = 0; r < ranks; r++) {
        struct fabric_rank *region = &instance->regions[r];
        region->bytes = kv_memory_bytes(&instance->memory, r);
        region->memory = executors_memory(instance->executors, r);
        if (!executors_have_memory(instance->executors))
            continue;
        region->reach = executors_reach(instance->executors, r, error);
        if (region->reach == NULL)
            return false;
        region->memory = region->reach->address;
    }
    return true;
}

static bool make_fabric(struct instance *instance, struct user_error *error)
{
    const struct real_options *options = instance->start->options;
    uint32_t ranks = instance->world->deployment->instances[instance->config->node].ranks;
    if (!make_regions(instance, error))
        return false;
    struct place *places = allocate(ranks, sizeof *places);
    const char *more[FABRIC_NICS_MAX - 1];
    for (uint32_t i = 0; i < options->more_count; i++)
        more[i] = options->more[i];
    executors_places(instance->executors, places);
    for (uint32_t r = 0; r < ranks; r++)
        if (instance->regions[r].reach != NULL)
            places[r] = place_of_device(instance->regions[r].reach->pci);
    struct fabric_config config = {
        .provider = options->provider,
        .address = options->address,
        .more = more,
        .more_count = options->more_count,
        .nics = options->nics,
        .places = places,
        .window = options->window,
        .memory = instance->memory,
        .rank_count = ranks,
        .ranks = instance->regions,
        .sends_only = instance->config->role == ROLE_PREFILL,
        .layer_counters = executors_counters(instance->executors),
        .group_count = instance->config->group_count,
        .tail_ticks = 1,
        .handoffs_max = instance->config->messenger.handoffs_max,
        .tickets_max = REAL_WRITES_IN_FLIGHT,
    };
    struct fabric *fabric = fabric_make(&config, error);
    if (fabric != NULL && fabric_path(fabric)[0] != '\0')
        fprintf(stderr, "%s: %s\n", instance->world->deployment->instances[instance->config->node].name,
                fabric_path(fabric));
    free(places);
    if (fabric != NULL) {
        instance->nics = *fabric_choice(fabric);
        fabric_choice_text(fabric, instance->nics_text, sizeof instance->nics_text);
    }
    if (fabric != NULL)
        instance->fabric = fabric_thread_start(fabric, instance->start->crowded);
    return fabric != NULL;
}

static void make_verifier(struct instance *instance)
{
    instance->verifier = verifier_make(&(struct verifier_config){
        .memory = instance->memory,
        .ranks = instance->world->deployment->instances[instance->config->node].ranks,
        .regions = instance->regions,
        .self = instance,
        .send = send_digests,
        .complete = verified,
    });
}

static bool make_mesh(struct instance *instance, struct user_error *error)
{
    struct mesh_config config = {
        .node_count = instance->world->deployment->node_count,
        .bind = instance->start->options->address,
        .heartbeat_ns = HEARTBEAT_NS_DEFAULT,
        .heartbeats_missed = instance->start->options->heartbeats_missed,
        .listener = {.self = instance, .up = on_up, .frame = on_frame, .down = on_down},
    };
    real_world_hello(instance->world, instance->config->node, instance->start->token, &config.own);
    config.own.incarnation = instance->start->incarnation;
    instance->mesh = mesh_make(&config, error);
    return instance->mesh != NULL;
}

static bool serves(void *self, uint32_t request)
{
    return node_serves(((struct instance *)self)->node.node, request);
}

static void make_runtime(struct instance *instance)
{
    const struct load *load = &instance->world->scenario->load;
    bool verifies = instance->verifier != NULL;
    struct runtime_limits limits = real_world_limits();
    limits.launches_in_flight = executors_lanes(instance->executors);
    instance->answers = answers_make(
        &(struct answers_config){.vocab = instance->world->scenario->model.vocab, .serves = serves, .self = instance});
    struct real_config config = {
        .node = instance->config->node,
        .answers = instance->answers,
        .limits = limits,
        .handle = handle,
        .self = instance,
        .mesh = instance->mesh,
        .fabric = instance->fabric,
        .stepper = executors_stepper(instance->executors),
        .itl_from_ns = load->warmup_requests > 0 ? TIME_NEVER : load->warmup_ns,
        .produces_first_token = instance->config->role != ROLE_PREFILL && node_prefills(instance->config),
        .listener = {.self = instance,
                     .trace = instance_trace,
                     .before_send = instance_before_send,
                     .steps = instance_steps,
                     .transfer = instance_transfer,
                     .after = after,
                     .written = verifies ? written : NULL,
                     .landing = landing,
                     .landed = verifies ? landed : NULL,
                     .expected = verifies ? expected : NULL,
                     .trouble = instance_trouble},
    };
    instance->real = real_runtime_make(&config);
    real_runtime_on_report(instance->real, on_report, instance);
    uint32_t ranks = instance->world->deployment->instances[instance->config->node].ranks;
    for (uint32_t r = 0; r < ranks; r++)
        real_runtime_watch(instance->real, executors_death_fd(instance->executors, r), executor_died, instance, r);
}

static bool set_up(struct instance *instance, struct user_error *error)
{
    /* First the executors: they are forked while this process has one thread. */
    struct executor_setup setup =
        real_world_executor_setup(instance->world, instance->config->node, instance->start->options->device);
    setup.device_first = instance->start->device_first;
    instance->executors = executors_start(&setup, error);
    if (instance->executors == NULL)
        return false;
    if (real_world_has_fabric(instance->world, instance->config->node)) {
        if (!make_fabric(instance, error))
            return false;
        if (instance->start->options->verify)
            make_verifier(instance);
    }
    if (!make_mesh(instance, error))
        return false;
    make_runtime(instance);
    const struct real_world *world = instance->world;
    instance->node.policy =
        policy_host_make(world->scenario, world->deployment->instances[instance->config->node].pool);
    return real_node_make(&instance->node, instance->config, real_runtime_seam(instance->real),
                          instance->start->options->record_events, instance->start->incarnation, error);
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

/* Everything that was under way has come to its end. */
static bool drained(const struct instance *instance)
{
    struct node_stats stats = node_stats(instance->node.node);
    return stats.requests_live == 0 && stats.transfers == 0 && stats.quarantined == 0 &&
           real_runtime_quiet(instance->real);
}

static void turn(struct instance *instance)
{
    bool idle = instance->started && !instance->stopping && instance->record_count == 0;
    real_runtime_turn(instance->real, idle ? IDLE_TURN_NS : TURN_NS);
    if (instance->finished || !instance->started)
        return;
    int64_t now_ns = real_runtime_now_ns(instance->real);
    if (now_ns - instance->reported_ns >= (instance->record_count > 0 ? REPORT_NS : IDLE_REPORT_NS)) {
        instance->reported_ns = now_ns;
        instance_report(instance, now_ns);
    }
    if (instance->stopping && (drained(instance) || clock_now_ns() > instance->stop_by_ns))
        instance_finish(instance);
}

/* The front hears why, if it still listens. */
static void say_trouble(struct instance *instance)
{
    if (!mesh_up(instance->mesh, 0))
        return;
    mesh_send(instance->mesh, 0, FRAME_TROUBLE, instance->trouble.text, strlen(instance->trouble.text));
    mesh_flush(instance->mesh);
}

static void tear_down(struct instance *instance)
{
    if (!fabric_thread_stop(instance->fabric)) {
        /* Nothing that the thread may touch can be freed. The executors die with their parent, memory with its last
         * user; only what the provider keeps in files is left to remove. */
        leftovers_remove_of(getpid());
        _exit(EXIT_USER);
    }
    executors_stop(instance->executors);
    real_runtime_free(instance->real);
    mesh_free(instance->mesh);
    verifier_free(instance->verifier);
    free(instance->regions);
    answers_free(instance->answers);
    real_node_free(&instance->node);
    check_context_set(NULL);
    free(instance);
}

bool instance_run(const struct instance_start *start, struct user_error *error)
{
    struct instance *instance = allocate(1, sizeof *instance);
    instance->start = start;
    instance->world = start->world;
    instance->config = &start->world->deployment->configs[start->node];
    instance->memory = real_world_kv_memory(start->world, start->node);
    instance->check.seed = start->world->seed;
    check_context_set(&instance->check);
    signal(SIGINT, SIG_IGN); /* a Ctrl-C is for the launcher, which ends its instances in order */
    signal(SIGPIPE, SIG_IGN);
    if (set_up(instance, &instance->trouble)) {
        lifeline_ends_in_order();
        mesh_dial(instance->mesh, 0, start->front_address, start->front_port);
        while (!instance->trouble.set && !instance->over)
            turn(instance);
        if (instance->trouble.set)
            say_trouble(instance);
    }
    bool good = !instance->trouble.set;
    if (!real_node_close(&instance->node) && good) {
        good = false;
        user_error_set(&instance->trouble, NULL, 0, NULL, "the recording could not be written");
    }
    if (!good)
        user_error_set(error, NULL, 0, NULL, "%s", instance->trouble.text);
    tear_down(instance);
    return good;
}
