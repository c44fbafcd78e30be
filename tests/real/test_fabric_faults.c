/* The transfer engine when things go wrong, over loopback: peers that are killed, stopped or never there, NICs that
 * fail, fences; and engines on threads and in processes of their own. Every test ends within its alarm and leaves
 * /dev/shm as it was. */
#define _POSIX_C_SOURCE 200809L

#include "real/fabric/leftovers.h"
#include "support/fabric_pair.h"

#include "base/arith.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define EVENTS 16
#define STALL_NS (400 * NS_PER_MS)
#define PATIENCE_NS (10 * NS_PER_S)
#define PAGES 32

static const char *const provider_names[] = {"shm", "tcp", NULL};

static struct transfer_plan plan;
static uint32_t all_pages[PAGES];

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* What one side has heard. */
struct heard {
    uint32_t done;
    uint32_t failed;
    uint32_t reached;
    uint32_t peer_errors;
    uint64_t rails_left;
    struct fabric_event last_done;
};

static bool poll_side(struct fabric_side *side, struct heard *heard)
{
    struct fabric_event events[EVENTS];
    bool idle = true;
    uint32_t count = fabric_poll(side->fabric, events, EVENTS, &idle);
    for (uint32_t i = 0; i < count; i++) {
        if (events[i].kind == FABRIC_WRITE_DONE) {
            heard->done++;
            heard->failed += events[i].status == WRITE_FAILED;
            heard->last_done = events[i];
        } else if (events[i].kind == FABRIC_IMMEDIATE) {
            heard->reached++;
        } else {
            heard->peer_errors++;
            heard->rails_left = events[i].count;
        }
    }
    return !idle;
}

/* Writes of 16 KiB, 512 to a prompt of all pages: long enough to be interrupted. */
static struct kv_geometry wide(uint16_t tensor)
{
    return fabric_geometry(4, 8, 2, 256, 16, LAYOUT_HND, (struct parallelism){tensor, 1, 1, 1});
}

static void side_make(struct fabric_side *side, uint32_t node, const char *provider, uint16_t tensor, uint32_t nics)
{
    struct kv_geometry g = wide(tensor);
    fabric_side_make(side, node, provider, &g, PAGES);
    side->config.nics = nics;
    side->config.window = 8;
    side->config.stall_ns = STALL_NS;
}

/* False, with the side freed, where the provider is missing. */
static bool side_open(struct fabric_side *side)
{
    struct user_error error = {.set = false};
    if (fabric_side_open(side, &error))
        return true;
    print_message("left out: %s\n", error.text);
    fabric_side_free(side);
    return false;
}

static struct paged_write write_to(uint32_t node, uint32_t ticket, uint32_t immediate, uint32_t units)
{
    return (struct paged_write){
        .ticket = ticket,
        .gate = STEP_NONE,
        .destination = node,
        .immediate = immediate,
        .unit_count = units,
        .source_page_count = units,
        .destination_page_count = units,
        .source_pages = all_pages,
        .destination_pages = all_pages,
        .plan = &plan,
    };
}

static int set_up(void **state)
{
    (void)state;
    struct kv_geometry g = wide(2);
    for (uint32_t i = 0; i < PAGES; i++)
        all_pages[i] = i;
    alarm(60);
    return transfer_plan_make(&g, 0, &g, 0, 0, &plan) == GEOMETRY_OK ? 0 : -1;
}

/* ---- A peer in a process of its own ------------------------------------------------------------------------------ */

struct child {
    pid_t process;
    int socket;
    uint32_t card_bytes;
    unsigned char *card;
};

static bool read_whole(int file, void *bytes, size_t size)
{
    unsigned char *at = bytes;
    while (size > 0) {
        ssize_t got = read(file, at, size);
        if (got <= 0)
            return false;
        at += got;
        size -= (size_t)got;
    }
    return true;
}

static void write_whole(int file, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    while (size > 0) {
        ssize_t put = write(file, at, size);
        if (put <= 0)
            _exit(3);
        at += put;
        size -= (size_t)put;
    }
}

/* Node 2: gives its card, takes node 1's, then polls until the socket closes. Where `writes`, it keeps writing to node
 * 1 with immediate 7; else it expects `count` of immediate 1, and says by a byte that they are there and whether its
 * memory is right. At 'h' from its parent it answers and stands still, polling nothing, until another byte comes; at
 * 'f' its NIC 1 fails. */
static void child_main(int socket, const char *provider, uint32_t nics, bool writes, uint64_t count)
{
    static struct fabric_side side;
    static unsigned char card[FABRIC_CARD_BYTES_MAX];
    struct user_error error = {.set = false};
    struct heard heard = {0};
    side_make(&side, 2, provider, 2, nics);
    side.config.stall_ns = 30 * NS_PER_S;
    if (!fabric_side_open(&side, &error))
        _exit(4);
    uint32_t size = (uint32_t)fabric_card(side.fabric, 1, card, &error);
    write_whole(socket, &size, sizeof size);
    write_whole(socket, card, size);
    if (!read_whole(socket, &size, sizeof size) || size > sizeof card || !read_whole(socket, card, size) ||
        !fabric_peer_add(side.fabric, 1, card, size, &side.memory, &error))
        _exit(5);
    if (writes)
        fabric_side_paint(&side, 0xBA);
    else
        fabric_expect(side.fabric, 1, count);
    write_whole(socket, "r", 1);
    fcntl(socket, F_SETFL, O_NONBLOCK);
    for (;;) {
        char byte;
        ssize_t got = read(socket, &byte, 1);
        if (got == 0)
            break;
        if (got == 1 && byte == 'h') {
            write_whole(socket, "h", 1);
            fcntl(socket, F_SETFL, 0);
            got = read(socket, &byte, 1);
            fcntl(socket, F_SETFL, O_NONBLOCK);
        }
        if (got == 1 && byte == 'f')
            fabric_nic_fail(side.fabric, 1);
        if (writes && fabric_quiet(side.fabric)) {
            struct paged_write write = write_to(1, 0, 7, PAGES);
            fabric_write(side.fabric, &write, UINT64_MAX);
        }
        if (!poll_side(&side, &heard))
            sched_yield();
        if (heard.reached > 0) {
            heard.reached = 0;
            byte = fabric_side_wrong(&side, 0, all_pages, PAGES * 16) == 0 ? 'y' : 'n';
            write_whole(socket, &byte, 1);
        }
    }
    fabric_side_free(&side);
    _exit(0);
}

/* Forks the peer and reads its card. The child must not inherit an engine: fork before making one. */
static struct child child_start(const char *provider, uint32_t nics, bool writes, uint64_t count)
{
    struct child child = {.process = -1};
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    child.process = fork();
    assert_true(child.process >= 0);
    if (child.process == 0) {
        close(ends[0]);
        child_main(ends[1], provider, nics, writes, count);
    }
    close(ends[1]);
    child.socket = ends[0];
    assert_true(read_whole(child.socket, &child.card_bytes, sizeof child.card_bytes));
    child.card = malloc(child.card_bytes);
    assert_true(read_whole(child.socket, child.card, child.card_bytes));
    return child;
}

static void child_join(struct child *child, struct fabric_side *side)
{
    static unsigned char card[FABRIC_CARD_BYTES_MAX];
    struct user_error error = {.set = false};
    char ready;
    uint32_t size = (uint32_t)fabric_card(side->fabric, 2, card, &error);
    assert_true(size > 0);
    write_whole(child->socket, &size, sizeof size);
    write_whole(child->socket, card, size);
    assert_true(fabric_peer_add(side->fabric, 2, child->card, child->card_bytes, &side->memory, &error));
    assert_true(read_whole(child->socket, &ready, 1));
}

static void child_end(struct child *child, bool kill_it)
{
    int status;
    if (kill_it)
        kill(child->process, SIGKILL);
    close(child->socket);
    assert_int_equal(waitpid(child->process, &status, 0), child->process);
    assert_true(kill_it || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    free(child->card);
    leftovers_remove_of(child->process);
}

/* Whether the provider is here at all. */
static bool provider_here(const char *provider)
{
    static struct fabric_side side;
    side_make(&side, 1, provider, 1, 1);
    if (!side_open(&side))
        return false;
    fabric_side_free(&side);
    return true;
}

/* Two processes: a whole prompt crosses, is counted there, and is right there. */
static void test_processes(void **state)
{
    static struct fabric_side side;
    struct heard heard = {0};
    char answer = 0;
    if (!provider_here(*state))
        return;
    struct child child = child_start(*state, 2, false, transfer_expected(&plan, PAGES, 0));
    side_make(&side, 1, *state, 2, 2);
    assert_true(side_open(&side));
    child_join(&child, &side);
    fabric_side_fill(&side, 0, all_pages, PAGES * 16);
    struct paged_write write = write_to(2, 0, 1, PAGES);
    fabric_write(side.fabric, &write, UINT64_MAX);
    int64_t until_ns = now_ns() + PATIENCE_NS;
    while (heard.done == 0 && now_ns() < until_ns)
        poll_side(&side, &heard);
    assert_int_equal(heard.done, 1);
    assert_int_equal(heard.failed, 0);
    assert_true(read_whole(child.socket, &answer, 1));
    assert_int_equal(answer, 'y');
    fabric_side_free(&side);
    child_end(&child, false);
}

/* A target killed in the middle of a transfer: its tickets end as failed within the stall time, whatever the provider
 * says, and a replacement under the same number can join and be written to. */
static void test_target_killed(void **state)
{
    static struct fabric_side side;
    struct heard heard = {0};
    char answer = 0;
    if (!provider_here(*state))
        return;
    struct child child = child_start(*state, 2, false, UINT64_MAX);
    struct child replacement = child_start(*state, 2, false, transfer_expected(&plan, PAGES, 0));
    side_make(&side, 1, *state, 2, 2);
    assert_true(side_open(&side));
    child_join(&child, &side);
    fabric_side_fill(&side, 0, all_pages, PAGES * 16);
    for (uint32_t t = 0; t < 20; t++) {
        struct paged_write write = write_to(2, t, 9, PAGES);
        fabric_write(side.fabric, &write, UINT64_MAX);
    }
    int64_t until_ns = now_ns() + PATIENCE_NS;
    while (fabric_counters(side.fabric).writes_completed < 100 && now_ns() < until_ns)
        poll_side(&side, &heard);
    kill(child.process, SIGKILL);
    int64_t killed_ns = now_ns();
    while (heard.done < 20 && now_ns() < killed_ns + PATIENCE_NS)
        poll_side(&side, &heard);
    print_message("%s: the last ticket ended %d ms after the kill\n", (const char *)*state,
                  (int)((now_ns() - killed_ns) / NS_PER_MS));
    assert_int_equal(heard.done, 20);
    assert_true(heard.failed > 0);
    assert_true(heard.peer_errors > 0);
    assert_true(fabric_quiet(side.fabric));
    struct fabric_counters c = fabric_counters(side.fabric);
    assert_int_equal(c.writes_posted, c.writes_completed + c.writes_failed);
    fabric_peer_remove(side.fabric, 2);
    child_end(&child, true);

    memset(&heard, 0, sizeof heard);
    child_join(&replacement, &side);
    struct paged_write write = write_to(2, 0, 1, PAGES);
    fabric_write(side.fabric, &write, UINT64_MAX);
    until_ns = now_ns() + PATIENCE_NS;
    while (heard.done == 0 && now_ns() < until_ns)
        poll_side(&side, &heard);
    assert_int_equal(heard.done, 1);
    assert_int_equal(heard.failed, 0);
    assert_true(read_whole(replacement.socket, &answer, 1));
    assert_int_equal(answer, 'y');
    fabric_side_free(&side);
    child_end(&replacement, false);
}

/* A peer that was dead before the first write: providers put writes off for ever, the engine does not. */
static void test_never_there(void **state)
{
    static struct fabric_side side;
    struct heard heard = {0};
    struct user_error error = {.set = false};
    if (!provider_here(*state))
        return;
    struct child child = child_start(*state, 2, false, 1);
    unsigned char *card = malloc(child.card_bytes);
    uint32_t card_bytes = child.card_bytes;
    memcpy(card, child.card, card_bytes);
    child_end(&child, true);
    side_make(&side, 1, *state, 2, 2);
    assert_true(side_open(&side));
    bool added = fabric_peer_add(side.fabric, 2, card, card_bytes, &side.memory, &error);
    free(card);
    assert_true(added);
    struct paged_write write = write_to(2, 0, 1, 1);
    fabric_write(side.fabric, &write, UINT64_MAX);
    int64_t until_ns = now_ns() + PATIENCE_NS;
    while ((heard.done == 0 || heard.peer_errors < 2) && now_ns() < until_ns)
        poll_side(&side, &heard);
    assert_int_equal(heard.failed, 1);
    assert_int_equal(heard.peer_errors, 2);
    assert_int_equal(heard.rails_left, 0);
    fabric_side_free(&side);
}

/* ---- Fences ------------------------------------------------------------------------------------------------------ */

/* A writer stopped in the middle of its writes, fenced, and then let go on: it changes no byte and no count here any
 * more. A third engine, whose card was given before, is not disturbed. */
static void test_fence(void **state)
{
    static struct fabric_side side;
    static struct fabric_side other;
    struct heard heard = {0};
    struct heard others = {0};
    if (!provider_here(*state))
        return;
    struct child child = child_start(*state, 2, true, 0);
    side_make(&side, 1, *state, 2, 2);
    side_make(&other, 3, *state, 2, 2);
    assert_true(side_open(&side) && side_open(&other));
    fabric_side_join(&side, &other);
    fabric_expect(side.fabric, 7, 1000000);
    child_join(&child, &side);
    int64_t until_ns = now_ns() + PATIENCE_NS;
    while (fabric_counters(side.fabric).immediates < 100 && now_ns() < until_ns)
        poll_side(&side, &heard);
    assert_true(fabric_counters(side.fabric).immediates >= 100);
    assert_true(fabric_side_other(&side, FABRIC_BLANK) > 0);

    kill(child.process, SIGSTOP);
    fabric_peer_remove(side.fabric, 2);
    fabric_side_paint(&side, FABRIC_BLANK);
    uint64_t immediates = fabric_counters(side.fabric).immediates;
    kill(child.process, SIGCONT);
    until_ns = now_ns() + STALL_NS;
    while (now_ns() < until_ns)
        poll_side(&side, &heard);
    assert_int_equal(fabric_side_other(&side, FABRIC_BLANK), 0);
    assert_int_equal(fabric_counters(side.fabric).immediates, immediates);

    fabric_side_fill(&other, 0, all_pages, PAGES * 16);
    struct paged_write write = write_to(1, 0, 11, PAGES);
    fabric_expect(side.fabric, 11, transfer_expected(&plan, PAGES, 0));
    fabric_write(other.fabric, &write, UINT64_MAX);
    until_ns = now_ns() + PATIENCE_NS;
    while ((others.done == 0 || heard.reached == 0) && now_ns() < until_ns) {
        poll_side(&side, &heard);
        poll_side(&other, &others);
    }
    assert_int_equal(heard.reached, 1);
    assert_int_equal(others.failed, 0);
    assert_int_equal(fabric_side_wrong(&side, 0, all_pages, PAGES * 16), 0);
    child_end(&child, true);
    fabric_side_free(&side);
    fabric_side_free(&other);
}

/* Removing a peer with writes in flight to it, and with tickets that wait for a layer, ends them all. */
static void test_remove_ends_tickets(void **state)
{
    static struct fabric_side side;
    struct heard heard = {0};
    if (!provider_here(*state))
        return;
    struct child child = child_start(*state, 2, false, UINT64_MAX);
    side_make(&side, 1, *state, 2, 2);
    assert_true(side_open(&side));
    child_join(&child, &side);
    for (uint32_t t = 0; t < 4; t++) {
        struct paged_write write = write_to(2, t, 9, PAGES);
        fabric_write(side.fabric, &write, t < 2 ? UINT64_MAX : 0);
    }
    int64_t until_ns = now_ns() + PATIENCE_NS;
    while (fabric_counters(side.fabric).writes_completed < 20 && now_ns() < until_ns)
        poll_side(&side, &heard);
    poll_side(&side, &heard);
    fabric_peer_remove(side.fabric, 2);
    fabric_peer_remove(side.fabric, 2); /* nobody: nothing happens */
    poll_side(&side, &heard);
    assert_int_equal(heard.done, 4);
    assert_int_equal(heard.failed, 4);
    assert_true(fabric_quiet(side.fabric));
    fabric_side_free(&side);
    child_end(&child, true);
}

/* ---- NICs -------------------------------------------------------------------------------------------------------- */

static uint64_t in_flight(const struct fabric_side *side)
{
    struct fabric_counters counters = fabric_counters(side->fabric);
    return counters.writes_posted - counters.writes_completed - counters.writes_failed;
}

/* Goes on until one ticket is done, and then until the windows of all rails are full towards a peer that stands still:
 * whatever fails then fails in the middle of tickets. */
static void stop_midway(struct fabric_side *side, const struct child *child, struct heard *heard)
{
    char answer = 0;
    int64_t until_ns = now_ns() + PATIENCE_NS;
    while (heard->done == 0 && now_ns() < until_ns)
        poll_side(side, heard);
    write_whole(child->socket, "h", 1);
    assert_true(read_whole(child->socket, &answer, 1));
    assert_int_equal(answer, 'h');
    while (in_flight(side) < side->config.nics * side->config.window && now_ns() < until_ns)
        poll_side(side, heard);
    assert_int_equal(in_flight(side), side->config.nics * side->config.window);
    assert_true(heard->done >= 1 && heard->done < 8 && heard->failed == 0);
}

/* One NIC of four fails on either side: what was posted over it fails its tickets, which still wait for the other NICs;
 * what comes later goes over the NICs that are left, whole and right. */
static void nic_fails(const char *provider, bool at_source)
{
    static struct fabric_side side;
    struct heard heard = {0};
    char answer = 0;
    if (!provider_here(provider))
        return;
    struct child child = child_start(provider, 4, false, transfer_expected(&plan, PAGES, 0));
    side_make(&side, 1, provider, 2, 4);
    side.config.stall_ns = 3 * NS_PER_S; /* the peer stands still for a while, and is not to be given up for that */
    assert_true(side_open(&side));
    child_join(&child, &side);
    fabric_side_fill(&side, 0, all_pages, PAGES * 16);
    for (uint32_t t = 0; t < 8; t++) {
        struct paged_write write = write_to(2, t, 9, PAGES); /* an immediate that nobody expects */
        fabric_write(side.fabric, &write, UINT64_MAX);
    }
    stop_midway(&side, &child, &heard);
    if (at_source)
        fabric_nic_fail(side.fabric, 1);
    write_whole(child.socket, at_source ? "c" : "f", 1);
    int64_t until_ns = now_ns() + PATIENCE_NS;
    while ((heard.done < 8 || heard.peer_errors == 0) && now_ns() < until_ns)
        poll_side(&side, &heard);
    assert_int_equal(heard.done, 8);
    assert_true(heard.failed >= 1 && heard.failed < 8); /* those that had writes there; the others went round it */
    assert_int_equal(heard.peer_errors, 1);
    assert_int_equal(heard.rails_left, 3);

    struct paged_write write = write_to(2, 1, 1, PAGES);
    fabric_write(side.fabric, &write, UINT64_MAX);
    until_ns = now_ns() + PATIENCE_NS;
    while (heard.done < 9 && now_ns() < until_ns)
        poll_side(&side, &heard);
    assert_int_equal(heard.last_done.status, WRITE_OK);
    assert_true(read_whole(child.socket, &answer, 1));
    assert_int_equal(answer, 'y');

    for (uint32_t nic = 0; nic < 4; nic++)
        fabric_nic_fail(side.fabric, nic);
    write = write_to(2, 2, 2, PAGES);
    fabric_write(side.fabric, &write, UINT64_MAX);
    for (uint32_t i = 0; i < 4; i++)
        poll_side(&side, &heard);
    assert_int_equal(heard.last_done.status, WRITE_FAILED);
    assert_int_equal(heard.rails_left, 0);
    fabric_side_free(&side);
    child_end(&child, true);
}

static void test_nic_fails(void **state)
{
    nic_fails(*state, true);
    nic_fails(*state, false);
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

struct worker {
    struct fabric_side side;
    struct heard heard;
    uint32_t done;    /* tickets to wait for */
    uint32_t reached; /* counts to wait for */
    _Atomic uint32_t *unfinished;
};

/* Polls until everybody has what they wait for: a side must be polled for others to write to it. */
static void *work(void *argument)
{
    struct worker *worker = argument;
    bool finished = false;
    int64_t until_ns = now_ns() + 2 * PATIENCE_NS;
    while (now_ns() < until_ns && atomic_load(worker->unfinished) > 0) {
        if (!poll_side(&worker->side, &worker->heard))
            sched_yield();
        if (!finished && worker->heard.done == worker->done && worker->heard.reached == worker->reached) {
            finished = true;
            atomic_fetch_sub(worker->unfinished, 1);
        }
    }
    return NULL;
}

/* Three engines on three threads: two write into the third at once, layers released while they do. */
static void test_threads(void **state)
{
    static struct worker workers[3];
    static uint32_t halves[2][PAGES / 2];
    _Atomic uint32_t unfinished = 3;
    pthread_t threads[3];
    uint64_t count = transfer_expected(&plan, PAGES / 2, 0);
    memset(workers, 0, sizeof workers);
    for (uint32_t i = 0; i < 3; i++) {
        side_make(&workers[i].side, i + 1, *state, 2, 2);
        workers[i].side.config.stall_ns = 0; /* the default */
        if (!side_open(&workers[i].side)) {
            while (i-- > 0)
                fabric_side_free(&workers[i].side);
            return;
        }
        workers[i].unfinished = &unfinished;
    }
    for (uint32_t i = 0; i < 2; i++) {
        fabric_side_join(&workers[i].side, &workers[2].side);
        fabric_side_fill(&workers[i].side, 0, all_pages, PAGES * 16);
        for (uint32_t p = 0; p < PAGES / 2; p++)
            halves[i][p] = 2 * p + i;
        struct paged_write write = write_to(3, 0, i + 1, PAGES / 2);
        write.source_pages = halves[i];
        write.destination_pages = halves[i];
        fabric_expect(workers[2].side.fabric, i + 1, count);
        fabric_write(workers[i].side.fabric, &write, 0);
        workers[i].done = 1;
    }
    workers[2].reached = 2;
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (uint32_t layer = 1; layer <= 4; layer++) {
        struct timespec pause = {.tv_nsec = 2000000};
        nanosleep(&pause, NULL);
        for (uint32_t i = 0; i < 2; i++)
            atomic_store_explicit(&workers[i].side.counters[0], layer, memory_order_release);
    }
    for (uint32_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(unfinished, 0);
    assert_int_equal(workers[0].heard.failed + workers[1].heard.failed, 0);
    assert_int_equal(fabric_side_wrong(&workers[2].side, 0, all_pages, PAGES * 16), 0);
    for (uint32_t i = 0; i < 3; i++)
        fabric_side_free(&workers[i].side);
}

/* ---- Leftovers --------------------------------------------------------------------------------------------------- */

static void touch(const char *path)
{
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(file >= 0);
    close(file);
}

/* Regions of the dead go, those of the living and files of anything else stay. */
static void test_leftovers(void **state)
{
    (void)state;
    char dead[64];
    char alive[64];
    char strange[64];
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    snprintf(dead, sizeof dead, "/dev/shm/%d:0:3", (int)child);
    snprintf(alive, sizeof alive, "/dev/shm/%d:77:3", (int)getpid());
    snprintf(strange, sizeof strange, "/dev/shm/%d:0:3:x", (int)child);
    touch(dead);
    touch(alive);
    touch(strange);
    assert_true(leftovers_remove() >= 1);
    assert_int_equal(access(dead, F_OK), -1);
    assert_int_equal(access(alive, F_OK), 0);
    assert_int_equal(access(strange, F_OK), 0);
    assert_true(leftovers_remove_of(getpid()) >= 1); /* more where a test before has failed */
    assert_int_equal(access(alive, F_OK), -1);
    unlink(strange);
}

int main(void)
{
    int failed = 0;
    for (size_t i = 0; provider_names[i] != NULL; i++) {
        void *provider = (void *)(uintptr_t)provider_names[i];
        const struct CMUnitTest tests[] = {
            {"test_processes", test_processes, set_up, NULL, provider},
            {"test_target_killed", test_target_killed, set_up, NULL, provider},
            {"test_never_there", test_never_there, set_up, NULL, provider},
            {"test_fence", test_fence, set_up, NULL, provider},
            {"test_remove_ends_tickets", test_remove_ends_tickets, set_up, NULL, provider},
            {"test_nic_fails", test_nic_fails, set_up, NULL, provider},
            {"test_threads", test_threads, set_up, NULL, provider},
        };
        failed += cmocka_run_group_tests_name(provider_names[i], tests, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_leftovers)};
    return failed + cmocka_run_group_tests_name("leftovers", tests, NULL, NULL);
}
