/* The contract of runtime.h (support/contract.h) over the real runtime: loops, control connections and fabric threads
 * as in instance processes, over shm and tcp; only the steps are a thread that sleeps and ticks. All nodes live in this
 * process, and their loops take turns.
 */
#define _GNU_SOURCE
#include "base/arith.h"
#include "host/build_info.h"
#include "real/runtime/real_runtime.h"
#include "real/cluster/real_world.h"
#include "real/memory/shared_memory.h"
#include "support/contract.h"
#include "host/clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define NODES_AT_MOST 3
#define ADDRESS "127.0.0.1"
#define QUIET_NS (100 * NS_PER_MS) /* longer than any timer of a check ... */
#define QUIET_TURNS 50             /* ... and so many turns without anything, on a machine that was away */
#define MEET_NS (20 * NS_PER_S)

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

struct steps {
    pthread_t thread;
    _Atomic uint32_t work; /* launches handed over */
    atomic_bool end;
    atomic_bool quit;
    int fd;
    _Atomic uint64_t counter; /* of layers */
    struct step_launch launch;
    struct step_group group;
    uint64_t counter_base;
    int64_t *end_ns;
    struct steps_outcome outcome;
};

static void sleep_until(int64_t at_ns)
{
    struct timespec at = {.tv_sec = at_ns / NS_PER_S, .tv_nsec = at_ns % NS_PER_S};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static void run_launch(struct steps *steps)
{
    int64_t at_ns = clock_now_ns();
    int64_t layer_ns = (int64_t)steps->group.prefill_tokens * CONTRACT_PREFILL_TOKEN_NS / CONTRACT_LAYERS;
    uint64_t tick = steps->counter_base;
    steps->outcome = (struct steps_outcome){.ticket = steps->launch.ticket, .start_ns = at_ns};
    for (uint32_t step = 0; step < steps->launch.repeat_max; step++) {
        if (step > 0 && atomic_load(&steps->end))
            break;
        at_ns += steps->group.decode_sequences > 0 ? CONTRACT_DECODE_NS : 0;
        for (uint32_t layer = 0; layer < CONTRACT_LAYERS; layer++) {
            at_ns += layer_ns;
            if (at_ns > clock_now_ns())
                sleep_until(at_ns);
            atomic_store(&steps->counter, ++tick);
        }
        atomic_store(&steps->counter, ++tick); /* tails are stored */
        steps->end_ns[step] = clock_now_ns();
        steps->outcome.steps = step + 1;
    }
    steps->outcome.end_ns = steps->end_ns;
}

static void *steps_main(void *self)
{
    struct steps *steps = self;
    for (uint32_t seen = 0; !atomic_load(&steps->quit);) {
        uint32_t work = atomic_load(&steps->work);
        if (work == seen) {
            word_wait(&steps->work, seen, 50 * NS_PER_MS);
            continue;
        }
        seen = work;
        run_launch(steps);
        uint64_t one = 1;
        if (write(steps->fd, &one, sizeof one) != sizeof one)
            abort();
    }
    return NULL;
}

static void steps_launch(void *self, const struct step_launch *launch, const struct step_given *given,
                         uint32_t given_count, uint64_t counter_base)
{
    struct steps *steps = self;
    (void)given;
    (void)given_count;
    steps->launch = *launch;
    steps->group = launch->groups[0];
    steps->counter_base = counter_base;
    free(steps->end_ns);
    steps->end_ns = calloc(launch->repeat_max, sizeof *steps->end_ns);
    if (steps->end_ns == NULL)
        abort();
    atomic_store(&steps->end, false);
    atomic_fetch_add(&steps->work, 1);
    word_wake(&steps->work);
}

static void steps_end(void *self)
{
    atomic_store(&((struct steps *)self)->end, true);
}

static const struct steps_outcome *steps_outcome(void *self)
{
    struct steps *steps = self;
    uint64_t count;
    return read(steps->fd, &count, sizeof count) == sizeof count ? &steps->outcome : NULL;
}

static const struct stepper_ops steps_ops = {.launch = steps_launch, .end = steps_end, .outcome = steps_outcome};

static void steps_make(struct steps *steps)
{
    steps->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(steps->fd >= 0);
    assert_int_equal(pthread_create(&steps->thread, NULL, steps_main, steps), 0);
}

static void steps_free(struct steps *steps)
{
    atomic_store(&steps->quit, true);
    atomic_store(&steps->end, true);
    word_wake(&steps->work);
    pthread_join(steps->thread, NULL);
    close(steps->fd);
    free(steps->end_ns);
}

/* ---- A node and its surroundings --------------------------------------------------------------------------------- */

struct station {
    struct real_runtime *real;
    struct mesh *mesh;
    struct fabric_thread *fabric;
    struct steps steps;
    struct fabric_rank rank;
    struct kv_memory memory;
    uint32_t up;
};

struct real_world_of_probes {
    uint32_t nodes;
    struct station stations[NODES_AT_MOST];
    struct probe probes[NODES_AT_MOST];
};

static void on_up(void *self, uint32_t node, const struct hello *hello)
{
    (void)node;
    (void)hello;
    ((struct station *)self)->up++;
}

static void on_frame(void *self, uint32_t node, const struct frame *frame)
{
    assert_true(real_runtime_frame(((struct station *)self)->real, node, frame));
}

static void on_down(void *self, uint32_t node, const char *why)
{
    (void)self;
    fail_msg("node %u is down: %s", node, why);
}

static void mesh_start(struct station *station, uint32_t node, uint32_t nodes)
{
    struct user_error error = {.set = false};
    struct mesh_config config = {
        .own = {.protocol = CONTROL_PROTOCOL, .node = node},
        .node_count = nodes,
        .bind = ADDRESS,
        .heartbeat_ns = HEARTBEAT_NS_DEFAULT,
        .heartbeats_missed = 100,
        .listener = {.self = station, .up = on_up, .frame = on_frame, .down = on_down},
    };
    snprintf(config.own.build, sizeof config.own.build, "%s", build_identity);
    control_clock_identity(config.own.clock);
    station->mesh = mesh_make(&config, &error);
    if (station->mesh == NULL)
        fail_msg("%s", error.text);
}

static struct fabric *fabric_start(struct station *station, const char *provider)
{
    struct user_error error = {.set = false};
    station->memory = (struct kv_memory){
        .geometry = {.layers = CONTRACT_LAYERS,
                     .kv_heads = 1,
                     .planes = 1,
                     .page_tokens = 1,
                     .head_bytes = CONTRACT_PAGE_BYTES,
                     .layout = LAYOUT_HND,
                     .parallelism = {.tensor = 1, .data = 1, .expert = 1, .pipeline = 1},
                     .stage_layer_first = {0, CONTRACT_LAYERS}},
        .pages = CONTRACT_PAGES,
        .tail_slots = 1,
        .tail_bytes = CONTRACT_TAIL_BYTES,
    };
    station->rank.bytes = kv_memory_bytes(&station->memory, 0);
    station->rank.memory = aligned_alloc(4096, (station->rank.bytes + 4095) / 4096 * 4096);
    assert_non_null(station->rank.memory);
    memset(station->rank.memory, 0, station->rank.bytes);
    struct fabric *fabric = fabric_make(
        &(struct fabric_config){
            .provider = provider,
            .address = ADDRESS,
            .nics = 1,
            .window = 32,
            .memory = station->memory,
            .rank_count = 1,
            .ranks = &station->rank,
            .layer_counters = &station->steps.counter,
            .group_count = 1,
            .tail_ticks = 1,
            .handoffs_max = UINT32_C(1) << IMMEDIATE_SLOT_BITS,
            .tickets_max = 64,
        },
        &error);
    if (fabric == NULL)
        fail_msg("%s", error.text);
    return fabric;
}

/* Every engine learns every other, before their threads start. */
static void fabrics_meet(struct real_world_of_probes *world, struct fabric **fabrics)
{
    static unsigned char card[FABRIC_CARD_BYTES_MAX];
    struct user_error error = {.set = false};
    for (uint32_t a = 0; a < world->nodes; a++) {
        for (uint32_t b = 0; b < world->nodes; b++) {
            size_t bytes = a == b ? 0 : fabric_card(fabrics[a], b, card, &error);
            if (a != b &&
                (bytes == 0 || !fabric_peer_add(fabrics[b], a, card, bytes, &world->stations[a].memory, &error)))
                fail_msg("%s", error.text);
        }
    }
}

static void turn_all(struct real_world_of_probes *world)
{
    for (uint32_t i = 0; i < world->nodes; i++)
        real_runtime_turn(world->stations[i].real, 0);
    usleep(100);
}

static void meshes_meet(struct real_world_of_probes *world)
{
    int64_t until_ns = clock_now_ns() + MEET_NS;
    for (uint32_t a = 0; a < world->nodes; a++)
        for (uint32_t b = 0; b < a; b++)
            mesh_dial(world->stations[a].mesh, b, ADDRESS, mesh_port(world->stations[b].mesh));
    for (bool met = false; !met;) {
        met = true;
        assert_true(clock_now_ns() < until_ns);
        turn_all(world);
        for (uint32_t i = 0; i < world->nodes; i++)
            met = met && world->stations[i].up == world->nodes - 1;
    }
}

static void *real_make(const struct contract_runtime *runtime, uint32_t nodes, uint64_t seed, struct probe **probes)
{
    (void)seed;
    assert_true(nodes <= NODES_AT_MOST);
    struct real_world_of_probes *world = calloc(1, sizeof *world);
    struct fabric *fabrics[NODES_AT_MOST] = {NULL};
    assert_non_null(world);
    world->nodes = nodes;
    for (uint32_t i = 0; i < nodes; i++) {
        steps_make(&world->stations[i].steps);
        fabrics[i] = fabric_start(&world->stations[i], runtime->name);
        mesh_start(&world->stations[i], i, nodes);
    }
    fabrics_meet(world, fabrics);
    for (uint32_t i = 0; i < nodes; i++) {
        struct station *station = &world->stations[i];
        station->fabric = fabric_thread_start(fabrics[i], false);
        station->real = real_runtime_make(&(struct real_config){
            .node = i,
            .limits = {.writes_in_flight = 64, .message_bytes = MESSAGE_BYTES_MAX},
            .handle = probe_handle,
            .self = &world->probes[i],
            .mesh = station->mesh,
            .fabric = station->fabric,
            .stepper =
                {.ops = &steps_ops, .self = &station->steps, .fd = station->steps.fd, .stride = CONTRACT_LAYERS + 1},
        });
        world->probes[i].rt = real_runtime_seam(station->real);
    }
    meshes_meet(world);
    *probes = world->probes;
    return world;
}

static bool all_quiet(const struct real_world_of_probes *world)
{
    for (uint32_t i = 0; i < world->nodes; i++)
        if (!real_runtime_quiet(world->stations[i].real) || mesh_pending(world->stations[i].mesh) > 0)
            return false;
    return true;
}

/* Until nothing has happened for longer than any timer of a check. */
static void settle(struct real_world_of_probes *world)
{
    uint32_t events = 0;
    uint32_t turns = 0;
    int64_t since_ns = clock_now_ns();
    while (turns < QUIET_TURNS || clock_now_ns() - since_ns < QUIET_NS) {
        turn_all(world);
        uint32_t now = 0;
        for (uint32_t i = 0; i < world->nodes; i++)
            now += world->probes[i].count;
        turns++;
        if (now == events && all_quiet(world))
            continue;
        events = now;
        turns = 0;
        since_ns = clock_now_ns();
    }
}

static void real_run(void *self)
{
    struct real_world_of_probes *world = self;
    int64_t origin_ns = clock_now_ns();
    for (uint32_t i = 0; i < world->nodes; i++)
        real_runtime_origin(world->stations[i].real, origin_ns);
    /* Last first: who expects writes does so before anybody can be asked to write. */
    for (uint32_t i = world->nodes; i > 0; i--)
        real_runtime_deliver(world->stations[i - 1].real, &(struct event){.kind = EVENT_START});
    settle(world);
}

static void real_free(void *self)
{
    struct real_world_of_probes *world = self;
    for (uint32_t i = 0; i < world->nodes; i++)
        for (uint32_t j = 0; j < world->nodes; j++)
            if (i != j)
                mesh_drop(world->stations[i].mesh, j);
    for (uint32_t i = 0; i < world->nodes; i++) {
        struct station *station = &world->stations[i];
        fabric_thread_stop(station->fabric);
        steps_free(&station->steps);
        real_runtime_free(station->real);
        mesh_free(station->mesh);
        free(station->rank.memory);
        probe_free(&world->probes[i]);
    }
    free(world);
}

/* ---- Beyond the contract: a write that failed is over ------------------------------------------------------------ */

#define NEW_OWNER 0x5A

/* Node 1 expects a count; node 0 writes, and says so when the write has failed. Then node 1 uses its pages again. */
static void write_and_tell(struct probe *probe, const struct event *event)
{
    static const uint32_t pages[] = {0, 1, 2, 3, 4, 5, 6, 7};
    if (event->kind == EVENT_START)
        rt_write_post(probe->rt, &(struct paged_write){.ticket = 5,
                                                       .gate = STEP_NONE,
                                                       .destination = 1,
                                                       .immediate = 9,
                                                       .unit_count = CONTRACT_PAGES,
                                                       .source_page_count = CONTRACT_PAGES,
                                                       .destination_page_count = CONTRACT_PAGES,
                                                       .source_pages = pages,
                                                       .destination_pages = pages,
                                                       .plan = probe_plan(CONTRACT_LAYERS, CONTRACT_PAGE_BYTES)});
    if (event->kind == EVENT_WRITE_DONE && event->status == WRITE_FAILED)
        rt_send(probe->rt, 1, "failed", 6);
}

static void use_again(struct probe *probe, const struct event *event)
{
    const struct fabric_rank *rank = probe->context;
    if (event->kind == EVENT_MESSAGE)
        memset(rank->memory, NEW_OWNER, rank->bytes);
}

/* Over tcp; of two ends of shm in one process neither outlives the other (see test_fabric_close). */
static void failed_writes_are_over(void **state)
{
    const struct contract_runtime *runtime = *state;
    uint32_t failures = 0;
    for (uint32_t i = 0; i < 5; i++) {
        struct probe *probes;
        struct real_world_of_probes *world = real_make(runtime, 2, 0, &probes);
        const struct fabric_rank *rank = &world->stations[1].rank;
        memset(world->stations[0].rank.memory, 0x11, world->stations[0].rank.bytes);
        probes[0].act = write_and_tell;
        probes[1].act = use_again;
        probes[1].context = &world->stations[1].rank;
        for (uint32_t n = 2; n > 0; n--) {
            real_runtime_origin(world->stations[n - 1].real, clock_now_ns());
            real_runtime_deliver(world->stations[n - 1].real, &(struct event){.kind = EVENT_START});
        }
        /* In the middle, if it is not over yet. */
        for (uint32_t t = 0; t < i; t++)
            turn_all(world);
        fabric_thread_nic_fail(world->stations[0].fabric, 0);
        settle(world);
        assert_int_equal(probe_count(&probes[0], EVENT_WRITE_DONE), 1);
        if (probe_count(&probes[1], EVENT_MESSAGE) > 0) {
            const unsigned char *bytes = rank->memory;
            uint64_t changed = 0;
            for (uint64_t b = 0; b < rank->bytes; b++)
                changed += bytes[b] != NEW_OWNER;
            assert_int_equal(changed, 0);
            failures++;
        }
        real_free(world);
    }
    print_message("%s: %u of 5 writes failed\n", runtime->name, failures);
}

int main(void)
{
    static struct contract_runtime shm = {
        .name = "shm", .seeds = 1, .real = true, .make = real_make, .run = real_run, .free = real_free};
    static struct contract_runtime tcp = {
        .name = "tcp", .seeds = 1, .real = true, .make = real_make, .run = real_run, .free = real_free};
    const struct CMUnitTest tests[] = {
        CONTRACT_TESTS("shm", &shm),
        CONTRACT_TESTS("tcp", &tcp),
        {"tcp: failed_writes_are_over", failed_writes_are_over, NULL, NULL, &tcp},
    };
    return cmocka_run_group_tests_name("real_contract", tests, NULL, NULL);
}
