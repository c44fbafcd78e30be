/* See message_profiler.h. The other process is a child that sends back what it gets. */
#define _GNU_SOURCE
#include "real/calibrate/message_profiler.h"

#include "base/arith.h"
#include "host/build_info.h"
#include "host/interrupt.h"
#include "host/stats.h"
#include "real/runtime/real_runtime.h"
#include "real/cluster/real_world.h"
#include "real/fabric/lifeline.h"
#include "real/memory/shared_memory.h"
#include "host/clock.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PINGS 200u
#define MESSAGE_BYTES 128u      /* as the protocol's own, page lists included */
#define REST_NS (1 * NS_PER_MS) /* between pings: both loops are asleep when the next one comes */
#define TURN_NS (20 * NS_PER_MS)
#define GIVE_UP_NS (10 * NS_PER_S)

struct station {
    struct real_runtime *real;
    uint32_t peer;
    bool echoes;
    bool lost;
    bool answered;
    int64_t sent_ns;
    int64_t took_ns;
};

static void handle(void *self, const struct event *event)
{
    static const unsigned char body[MESSAGE_BYTES];
    struct station *station = self;
    struct runtime *seam = real_runtime_seam(station->real);
    if (event->kind == EVENT_TIMER) {
        station->sent_ns = seam->now_ns;
        rt_send(seam, station->peer, body, sizeof body);
    } else if (event->kind == EVENT_MESSAGE && station->echoes) {
        rt_send(seam, station->peer, event->data, event->count);
    } else if (event->kind == EVENT_MESSAGE) {
        station->took_ns = seam->now_ns - station->sent_ns;
        station->answered = true;
    }
}

static void on_up(void *self, uint32_t node, const struct hello *hello)
{
    (void)self;
    (void)node;
    (void)hello;
}

static void on_frame(void *self, uint32_t node, const struct frame *frame)
{
    struct station *station = self;
    if (frame->kind == FRAME_MESSAGE && !real_runtime_frame(station->real, node, frame))
        station->lost = true;
}

static void on_down(void *self, uint32_t node, const char *why)
{
    (void)node;
    (void)why;
    ((struct station *)self)->lost = true;
}

static struct mesh *make_mesh(struct station *station, uint32_t node, const unsigned char *token, const char *address,
                              struct user_error *error)
{
    struct mesh_config config = {
        .own = {.protocol = CONTROL_PROTOCOL, .node = node},
        .node_count = 2,
        .bind = address,
        .heartbeat_ns = HEARTBEAT_NS_DEFAULT,
        .heartbeats_missed = HEARTBEATS_MISSED_DEFAULT,
        .listener = {.self = station, .up = on_up, .frame = on_frame, .down = on_down},
    };
    memcpy(config.own.token, token, CONTROL_TOKEN_BYTES);
    snprintf(config.own.build, sizeof config.own.build, "%s", build_identity);
    control_clock_identity(config.own.clock);
    return mesh_make(&config, error);
}

static void make_runtime(struct station *station, uint32_t node, struct mesh *mesh)
{
    station->peer = 1 - node;
    station->real = real_runtime_make(&(struct real_config){
        .node = node,
        .limits = real_world_limits(),
        .handle = handle,
        .self = station,
        .mesh = mesh,
    });
    real_runtime_origin(station->real, clock_now_ns());
}

static _Noreturn void echo(const char *address, uint16_t port, const unsigned char *token)
{
    struct user_error error = {.set = false};
    struct station station = {.echoes = true};
    struct mesh *mesh = make_mesh(&station, 1, token, address, &error);
    if (mesh == NULL)
        _exit(1);
    make_runtime(&station, 1, mesh);
    mesh_dial(mesh, 0, address, port);
    while (!station.lost)
        real_runtime_turn(station.real, TURN_NS);
    _exit(0);
}

/* Turns the loop until `done`. False when that takes too long. */
static bool turn_until(struct station *station, struct mesh *mesh, bool (*done)(const struct station *, struct mesh *))
{
    int64_t until_ns = clock_now_ns() + GIVE_UP_NS;
    while (!done(station, mesh) && !station->lost && !interrupt_requested() && clock_now_ns() < until_ns)
        real_runtime_turn(station->real, TURN_NS);
    return done(station, mesh);
}

static bool connected(const struct station *station, struct mesh *mesh)
{
    (void)station;
    return mesh_up(mesh, 1);
}

static bool answered(const struct station *station, struct mesh *mesh)
{
    (void)mesh;
    return station->answered;
}

static bool ping(struct station *station, struct mesh *mesh, int64_t *message_ns)
{
    int64_t ns[PINGS];
    if (!turn_until(station, mesh, connected))
        return false;
    for (uint32_t i = 0; i < PINGS; i++) {
        struct timespec rest = {.tv_nsec = REST_NS};
        nanosleep(&rest, NULL);
        station->answered = false;
        real_runtime_deliver(station->real, &(struct event){.kind = EVENT_TIMER});
        if (!turn_until(station, mesh, answered))
            return false;
        ns[i] = station->took_ns / 2;
    }
    stats_sort(ns, PINGS);
    *message_ns = max_i64(1, stats_percentile(ns, PINGS, 500));
    return true;
}

bool message_profiler(const char *address, int64_t *message_ns, struct user_error *error)
{
    struct station station = {.echoes = false};
    unsigned char token[CONTROL_TOKEN_BYTES];
    FILE *random = fopen("/dev/urandom", "rb");
    CHECK(random != NULL && fread(token, sizeof token, 1, random) == 1);
    fclose(random);
    struct mesh *mesh = make_mesh(&station, 0, token, address, error);
    if (mesh == NULL)
        return false;
    fflush(NULL);
    pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0) {
        end_with_parent(parent);
        echo(address, mesh_port(mesh), token);
    }
    make_runtime(&station, 0, mesh);
    bool good = child > 0 && ping(&station, mesh, message_ns);
    if (!good && !interrupt_requested())
        user_error_set(error, NULL, 0, NULL, "control messages to another process at %s were not answered", address);
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    real_runtime_free(station.real);
    mesh_free(mesh);
    return good;
}
