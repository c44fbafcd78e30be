/* The control plane: who may join, what a peer's end and silence look like, and that bytes of strangers do no harm. */
#define _GNU_SOURCE
#include "real/control/connection.h"
#include "real/control/mesh.h"
#include "real/memory/shared_memory.h"
#include "real/executor/step_codec.h"
#include "real/cluster/trace_merge.h"
#include "host/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define MS INT64_C(1000000)

struct party {
    struct mesh *mesh;
    uint32_t up;
    uint32_t down;
    uint32_t frames;
    uint32_t frame_bytes;
    char why[256];
};

static void on_up(void *self, uint32_t node, const struct hello *hello)
{
    (void)node;
    (void)hello;
    ((struct party *)self)->up++;
}

static void on_frame(void *self, uint32_t node, const struct frame *frame)
{
    (void)node;
    struct party *party = self;
    party->frames++;
    party->frame_bytes += frame->length;
}

static void on_down(void *self, uint32_t node, const char *why)
{
    (void)node;
    struct party *party = self;
    party->down++;
    snprintf(party->why, sizeof party->why, "%s", why);
}

static struct mesh_config config_of(struct party *party, uint32_t node)
{
    struct mesh_config config = {
        .node_count = 3,
        .bind = "127.0.0.1",
        .heartbeat_ns = 20 * MS,
        .heartbeats_missed = 5,
        .listener = {.self = party, .up = on_up, .frame = on_frame, .down = on_down},
    };
    config.own.node = node;
    memset(config.own.token, 7, sizeof config.own.token);
    memset(config.own.scenario, 'a', 64);
    memset(config.own.build, 'b', 64);
    return config;
}

static void make(struct party *party, const struct mesh_config *config)
{
    struct user_error error = {.set = false};
    party->mesh = mesh_make(config, &error);
    assert_non_null(party->mesh);
}

/* Turns both for a while; only those that tick have a heart. */
static void turn(struct party *a, struct party *b, bool b_ticks, int64_t for_ns)
{
    for (int64_t until_ns = clock_now_ns() + for_ns; clock_now_ns() < until_ns; usleep(1000)) {
        mesh_turn(a->mesh, clock_now_ns());
        mesh_tick(a->mesh, clock_now_ns());
        mesh_flush(a->mesh);
        if (b == NULL)
            continue;
        mesh_turn(b->mesh, clock_now_ns());
        if (b_ticks)
            mesh_tick(b->mesh, clock_now_ns());
        mesh_flush(b->mesh);
    }
}

/* The same until a count is reached, on a machine however busy; the caller judges whether it was. */
static void turn_until(struct party *a, struct party *b, const uint32_t *count, uint32_t reached)
{
    for (uint32_t round = 0; round < 500 && *count < reached && a->down + b->down == 0; round++)
        turn(a, b, true, 20 * MS);
}

static void members_meet_and_talk(void **state)
{
    (void)state;
    struct party front = {.mesh = NULL};
    struct party member = {.mesh = NULL};
    struct mesh_config config = config_of(&front, 0);
    make(&front, &config);
    config = config_of(&member, 2);
    make(&member, &config);
    mesh_dial(member.mesh, 0, "127.0.0.1", mesh_port(front.mesh));
    turn_until(&front, &member, &member.up, 1);
    assert_int_equal(front.up, 1);
    assert_int_equal(member.up, 1);
    assert_true(mesh_up(front.mesh, 2) && mesh_up(member.mesh, 0));
    static unsigned char body[300000];
    for (uint32_t i = 0; i < 20; i++)
        mesh_send(member.mesh, 0, FRAME_MESSAGE, body, sizeof body - i);
    turn_until(&front, &member, &front.frames, 20);
    assert_int_equal(front.down + member.down, 0);
    assert_int_equal(front.frames, 20);
    assert_int_equal(front.frame_bytes, 20 * sizeof body - 190);
    assert_int_equal(front.down + member.down, 0);
    mesh_free(member.mesh);
    turn(&front, NULL, false, 50 * MS);
    assert_int_equal(front.down, 1); /* the end of a connection is seen at once */
    mesh_free(front.mesh);
}

static void strangers_are_refused(void **state)
{
    (void)state;
    static const char *const reasons[] = {"join token", "scenario", "build", "no such node", "no such node"};
    for (uint32_t k = 0; k < 5; k++) {
        struct party front = {.mesh = NULL};
        struct party stranger = {.mesh = NULL};
        struct mesh_config config = config_of(&front, 0);
        make(&front, &config);
        config = config_of(&stranger, 1);
        config.own.token[15] ^= (unsigned char)(k == 0);
        config.own.scenario[3] = k == 1 ? 'x' : 'a';
        config.own.build[63] = k == 2 ? 'x' : 'b';
        if (k == 3) {
            config.own.node = 5;
            config.node_count = 8;
        }
        if (k == 4) { /* says that it is the front itself */
            config.own.node = 0;
            config.node_count = 2;
        }
        make(&stranger, &config);
        mesh_dial(stranger.mesh, k == 4 ? 1 : 0, "127.0.0.1", mesh_port(front.mesh));
        turn(&front, &stranger, true, 100 * MS);
        assert_int_equal(front.up, 0);
        assert_int_equal(stranger.up, 0);
        assert_int_equal(stranger.down, 1);
        assert_non_null(strstr(stranger.why, reasons[k]));
        mesh_free(stranger.mesh);
        mesh_free(front.mesh);
    }
}

static void silence_is_a_loss(void **state)
{
    (void)state;
    struct party front = {.mesh = NULL};
    struct party member = {.mesh = NULL};
    struct mesh_config config = config_of(&front, 0);
    make(&front, &config);
    config = config_of(&member, 1);
    make(&member, &config);
    mesh_dial(member.mesh, 0, "127.0.0.1", mesh_port(front.mesh));
    turn(&front, &member, true, 300 * MS);
    assert_int_equal(front.up, 1);
    assert_int_equal(front.down, 0); /* heartbeats keep it */
    turn(&front, &member, false, 300 * MS);
    assert_int_equal(front.down, 1);
    assert_non_null(strstr(front.why, "nothing was heard"));
    mesh_free(member.mesh);
    mesh_free(front.mesh);
}

/* Turns both for a while, but the messages of b wait. */
static void turn_held(struct party *a, struct party *b, int64_t for_ns)
{
    for (int64_t until_ns = clock_now_ns() + for_ns; clock_now_ns() < until_ns; usleep(1000)) {
        mesh_turn(a->mesh, clock_now_ns());
        mesh_tick(a->mesh, clock_now_ns());
        mesh_flush(a->mesh);
        mesh_turn(b->mesh, clock_now_ns());
        mesh_tick(b->mesh, clock_now_ns());
    }
}

/* Messages may have to wait for a fabric that does not return. Their process is heard all the while, and they do not
 * leave, not even behind others for which the socket had no room. */
static void whose_messages_wait_is_heard(void **state)
{
    (void)state;
    struct party front = {.mesh = NULL};
    struct party member = {.mesh = NULL};
    struct mesh_config config = config_of(&front, 0);
    make(&front, &config);
    config = config_of(&member, 1);
    make(&member, &config);
    mesh_dial(member.mesh, 0, "127.0.0.1", mesh_port(front.mesh));
    turn_until(&front, &member, &member.up, 1);
    static unsigned char body[1000000];
    for (uint32_t i = 0; i < 20; i++)
        mesh_send(member.mesh, 0, FRAME_MESSAGE, body, sizeof body);
    mesh_flush(member.mesh);
    assert_true(mesh_pending(member.mesh) > sizeof body); /* the socket is full */
    mesh_send(member.mesh, 0, FRAME_MESSAGE, body, 100);
    turn_held(&front, &member, 400 * MS);
    for (uint32_t round = 0; round < 500 && front.frames < 20; round++)
        turn_held(&front, &member, 20 * MS);
    assert_int_equal(front.frames, 20);
    turn_held(&front, &member, 200 * MS); /* ten heartbeats, of which five may be missed */
    assert_int_equal(front.down + member.down, 0);
    assert_int_equal(front.frames, 20);
    turn_until(&front, &member, &front.frames, 21);
    assert_int_equal(front.frames, 21);
    assert_int_equal(front.frame_bytes, 20 * sizeof body + 100);
    mesh_free(member.mesh);
    mesh_free(front.mesh);
}

/* A connection on which only heartbeats pass needs no more room than one of them. */
static void heartbeats_take_no_room(void **state)
{
    (void)state;
    int fds[2];
    char taken[64];
    struct connection connection;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    connection_open(&connection, fds[0]);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_true(connection_put_ahead(&connection, FRAME_HEARTBEAT, NULL, 0));
        assert_true(connection_flush(&connection));
        assert_int_equal(read(fds[1], taken, sizeof taken), FRAME_HEADER_BYTES);
    }
    assert_int_equal(connection.out_used, FRAME_HEADER_BYTES);
    connection_close(&connection);
    close(fds[1]);
}

static int dial(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    assert_int_equal(inet_pton(AF_INET, "127.0.0.1", &address.sin_addr), 1);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Whoever sends no greeting is hung up on, and nobody hears of it. */
static void garbage_is_hung_up_on(void **state)
{
    (void)state;
    struct party front = {.mesh = NULL};
    struct mesh_config config = config_of(&front, 0);
    make(&front, &config);
    static const unsigned char inputs[][12] = {
        {0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0},  /* longer than any frame */
        {0, 4, 1, 0, 1, 0, 0, 0},              /* longer than a greeting */
        {4, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4},  /* a hello that is none */
        {4, 0, 0, 0, 14, 0, 0, 0, 1, 2, 3, 4}, /* a message before the greeting */
        {0, 0, 0, 0, 0x55, 0, 0, 0},           /* of no known kind */
        {'G', 'E', 'T', ' ', '/', ' ', 'H', 'T', 'T', 'P', '/', '1'},
    };
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        int fd = dial(mesh_port(front.mesh));
        assert_int_equal(send(fd, inputs[i], sizeof inputs[i], MSG_NOSIGNAL), sizeof inputs[i]);
        turn(&front, NULL, false, 30 * MS);
        char byte;
        ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT);
        assert_true(got == 0 || (got < 0 && errno == ECONNRESET));
        close(fd);
    }
    assert_int_equal(front.up + front.down + front.frames, 0);
    mesh_free(front.mesh);
}

/* ---- Step changes ------------------------------------------------------------------------------------------------ */

static void changes_survive_the_trip(void **state)
{
    (void)state;
    static const struct step_bounds bounds = {2, 8, 1000, 100, 10, 50};
    const uint32_t pages[] = {99, 0, 5};
    const struct step_change change = {.kind = STEP_CHUNK,
                                       .group = 1,
                                       .sequence = 7,
                                       .request = 70000,
                                       .start = 990,
                                       .tokens = 10,
                                       .page_first = 7,
                                       .page_count = 3,
                                       .pages = pages,
                                       .token_seed = UINT64_MAX - 5};
    unsigned char bytes[256];
    size_t length = step_change_encode(&change, bytes);
    assert_int_equal(length, step_change_bytes(&change));
    uint32_t read[10];
    struct step_change back;
    size_t at = 0;
    assert_int_equal(step_change_decode(bytes, length, &at, &bounds, read, 10, &back), STEP_DECODED);
    assert_int_equal(at, length);
    assert_memory_equal(read, pages, sizeof pages);
    assert_int_equal(back.token_seed, change.token_seed);
    assert_int_equal(back.start, 990);
    assert_int_equal(back.page_first, 7);
    assert_int_equal(step_change_decode(bytes, length, &at, &bounds, read, 10, &back), STEP_DECODE_END);
    for (size_t cut = 1; cut < length; cut++) {
        at = 0;
        assert_int_equal(step_change_decode(bytes, cut, &at, &bounds, read, 10, &back), STEP_DECODE_BAD);
    }
    /* A sequence that was preempted joins with tokens behind it. */
    struct step_change join = change;
    join.kind = STEP_JOIN;
    join.tokens = 600;
    at = 0;
    step_change_encode(&join, bytes);
    assert_int_equal(step_change_decode(bytes, length, &at, &bounds, read, 10, &back), STEP_DECODED);
    assert_int_equal(back.tokens, 600);
    step_change_encode(&change, bytes);
    static const struct step_bounds narrow[] = {{1, 8, 1000, 100, 10, 50},
                                                {2, 7, 1000, 100, 10, 50},
                                                {2, 8, 999, 100, 10, 50},
                                                {2, 8, 1000, 99, 10, 50},
                                                {2, 8, 1000, 100, 9, 50}};
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) {
        at = 0;
        assert_int_equal(step_change_decode(bytes, length, &at, &narrow[i], read, 10, &back), STEP_DECODE_BAD);
    }
}

static void given_tokens_survive_the_trip(void **state)
{
    (void)state;
    static const struct step_bounds bounds = {2, 8, 1000, 100, 4, 50};
    const uint32_t tokens[] = {49, 0, 7, 49, 3}; /* more of them than a sequence has pages, none of them a page */
    unsigned char bytes[256];
    uint32_t read[1000];
    struct step_change back;
    size_t at = 0;
    struct step_given given = {.sequence = 7, .first = 995, .count = 5, .tokens = tokens};
    size_t length = step_given_encode(&given, bytes);
    assert_int_equal(length, step_given_bytes(&given));
    assert_int_equal(step_change_decode(bytes, length, &at, &bounds, read, step_list_max(&bounds), &back),
                     STEP_DECODED);
    assert_int_equal(back.kind, STEP_GIVEN);
    assert_int_equal(back.sequence, 7);
    assert_int_equal(back.start, 995);
    assert_int_equal(back.page_count, 5);
    assert_memory_equal(read, tokens, sizeof tokens);
    static const struct step_bounds narrow[] = {
        {2, 7, 1000, 100, 4, 50}, {2, 8, 999, 100, 4, 50}, {2, 8, 1000, 100, 4, 49}};
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) {
        at = 0;
        assert_int_equal(step_change_decode(bytes, length, &at, &narrow[i], read, 1000, &back), STEP_DECODE_BAD);
    }
}

/* ---- Merging records --------------------------------------------------------------------------------------------- */

struct merged {
    uint32_t count;
    int64_t times[16];
    uint16_t nodes[16];
};

static void merged_next(void *self, const struct timed_record *record)
{
    struct merged *merged = self;
    merged->times[merged->count] = record->time_ns;
    merged->nodes[merged->count++] = record->record.node;
}

static void add(struct trace_merge *merge, uint16_t node, int64_t time_ns)
{
    trace_merge_add(merge, node, &(struct timed_record){.time_ns = time_ns, .record = {.node = node}});
}

static void records_come_in_order_of_time(void **state)
{
    (void)state;
    struct merged merged = {.count = 0};
    struct trace_merge *merge = trace_merge_make(3, merged_next, &merged);
    add(merge, 1, 50);
    add(merge, 0, 10);
    add(merge, 0, 60);
    trace_merge_release(merge);
    assert_int_equal(merged.count, 0); /* node 2 may still send something from 0 */
    trace_merge_promise(merge, 2, 55);
    trace_merge_release(merge);
    assert_int_equal(merged.count, 2);
    trace_merge_promise(merge, 1, INT64_MAX); /* gone */
    add(merge, 2, 20);                        /* broke its promise: moved up */
    trace_merge_promise(merge, 2, INT64_MAX);
    trace_merge_release(merge);
    assert_int_equal(merged.count, 4);
    static const int64_t times[] = {10, 50, 55, 60};
    static const uint16_t nodes[] = {0, 1, 2, 0};
    assert_memory_equal(merged.times, times, sizeof times);
    assert_memory_equal(merged.nodes, nodes, sizeof nodes);
    trace_merge_free(merge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_meet_and_talk),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(silence_is_a_loss),
        cmocka_unit_test(whose_messages_wait_is_heard),
        cmocka_unit_test(heartbeats_take_no_room),
        cmocka_unit_test(garbage_is_hung_up_on),
        cmocka_unit_test(changes_survive_the_trip),
        cmocka_unit_test(given_tokens_survive_the_trip),
        cmocka_unit_test(records_come_in_order_of_time),
    };
    return cmocka_run_group_tests_name("control", tests, NULL, NULL);
}
