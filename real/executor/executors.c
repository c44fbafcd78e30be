/* See executors.h. */
#define _GNU_SOURCE
#include "real/executor/executors.h"

#include "base/arith.h"
#include "real/device/device_reach.h"
#include "real/memory/descriptors.h"
#include "real/executor/executor.h"
#include "real/fabric/lifeline.h"
#include "real/memory/shared_memory.h"
#include "host/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_NS INT64_C(50000000)
#define DEVICE_MAKE_NS (180 * NS_PER_S) /* seeding the weights of a model, on a slow and busy machine */
#define KIND_NS (2 * NS_PER_S)          /* for executors to stop before they are killed */

/* Where a launch's changes are cut so that each part fits the mailbox. */
#define PARTS_MAX 256u

/* One launch in flight: of a microbatch. */
struct lane {
    struct executors *executors;
    uint32_t index;
    pthread_t thread;
    bool thread_runs;
    _Atomic uint32_t work; /* launches handed over; the thread waits on it */
    atomic_bool end;       /* the repetition in progress */
    atomic_bool over;      /* the launch in hand: what follows belongs to the loop */
    bool busy;             /* the loop's: a launch is in hand whose outcome it has not got */

    /* The launch in hand. */
    uint32_t number; /* of all the instance's launches */
    uint32_t ticket;
    uint32_t repeat_max;
    uint64_t counter_base;
    unsigned char *bytes;
    size_t bytes_room;
    size_t parts[PARTS_MAX + 1]; /* part i is bytes [parts[i], parts[i + 1]) */
    uint32_t part_count;

    struct steps_outcome outcome;
    int64_t *end_ns;
    uint32_t end_room;
    struct device_token *tokens;
    uint32_t token_room;
    char trouble[320];
};

struct executors {
    struct executor_setup setup;
    struct shared_memory mailbox_memory;
    struct shared_memory collective_memory;
    struct shared_memory *kv; /* where the device has no memory of its own */
    const struct device_ops *ops;
    int *channels; /* to executors whose device has; -1: none, or done with */
    int *shared;   /* what each rank's device has shared: its KV memory, and what its peers want; -1: nothing */
    struct device_reach **reaches;
    struct mailbox *mailbox;
    pid_t *pids;    /* 0: not running */
    int *death_fds; /* -1: none */
    int done_fd;

    struct lane lanes[STAGES_MAX];
    atomic_bool quit;
    _Atomic uint32_t turn;    /* the launch whose commands may be queued: executors take launches in their order */
    pthread_mutex_t queueing; /* of commands */
    uint32_t launches;        /* the loop's: handed over, */
    uint32_t outcomes;        /* and told */
};

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    CHECK(memory != NULL);
    return memory;
}

/* ---- The lanes' threads -------------------------------------------------------------------------------------------
 */

static bool trouble(struct lane *lane, const char *text)
{
    snprintf(lane->trouble, sizeof lane->trouble, "%s", text);
    lane->outcome.trouble = lane->trouble;
    return false;
}

static bool abandoned(const struct executors *executors)
{
    return atomic_load_explicit(&executors->mailbox->abandon, memory_order_relaxed);
}

/* Waits until all ranks have replied. */
static bool replied(struct lane *lane)
{
    struct mailbox *mailbox = lane->executors->mailbox;
    _Atomic uint32_t *replies = &mailbox->lanes[lane->index].done;
    uint32_t done;
    while ((done = atomic_load_explicit(replies, memory_order_acquire)) < mailbox->setup.ranks) {
        if (abandoned(lane->executors))
            return trouble(lane, "an executor died");
        word_wait(replies, done, WAIT_NS);
    }
    for (uint32_t r = 0; r < mailbox->setup.ranks; r++) {
        uint32_t status = mailbox_reply(mailbox, lane->index, r)->status;
        if (status != REPLY_OK)
            return trouble(lane, status == REPLY_BAD_COMMAND ? "an executor could not read its command"
                                                             : "an executor gave up a step");
    }
    return true;
}

static void post(struct lane *lane, enum mailbox_kind kind, uint64_t counter_base, uint32_t part)
{
    struct mailbox *mailbox = lane->executors->mailbox;
    struct mailbox_lane *command = &mailbox->lanes[lane->index];
    size_t first = kind == MAILBOX_REPEAT ? 0 : lane->parts[part];
    size_t end = kind == MAILBOX_REPEAT ? 0 : lane->parts[part + 1];
    atomic_store_explicit(&command->done, 0, memory_order_relaxed);
    command->kind = kind;
    command->counter_base = counter_base;
    command->change_bytes = end - first;
    if (end > first)
        memcpy(mailbox_changes(mailbox, lane->index), lane->bytes + first, end - first);
    pthread_mutex_lock(&lane->executors->queueing);
    uint32_t next = atomic_load_explicit(&mailbox->command, memory_order_relaxed) + 1;
    mailbox->queue[next % MAILBOX_QUEUE] = (uint8_t)lane->index;
    atomic_store_explicit(&mailbox->command, next, memory_order_release);
    pthread_mutex_unlock(&lane->executors->queueing);
    word_wake(&mailbox->command);
}

static bool take_turn(struct lane *lane)
{
    struct executors *executors = lane->executors;
    uint32_t turn;
    while ((turn = atomic_load_explicit(&executors->turn, memory_order_acquire)) != lane->number) {
        if (abandoned(executors))
            return trouble(lane, "an executor died");
        word_wait(&executors->turn, turn, WAIT_NS);
    }
    return true;
}

static void pass_turn(struct lane *lane)
{
    atomic_store_explicit(&lane->executors->turn, lane->number + 1, memory_order_release);
    word_wake(&lane->executors->turn);
}

static void collect_tokens(struct lane *lane)
{
    struct mailbox *mailbox = lane->executors->mailbox;
    for (uint32_t r = 0; r < mailbox->setup.ranks; r++) {
        uint32_t count = min_u32(mailbox_reply(mailbox, lane->index, r)->token_count, mailbox->setup.sequences_max);
        uint32_t used = lane->outcome.token_count;
        if (used + count > lane->token_room) {
            lane->token_room = 2 * lane->token_room + count;
            lane->tokens = realloc(lane->tokens, lane->token_room * sizeof *lane->tokens);
            CHECK(lane->tokens != NULL);
        }
        if (count > 0)
            memcpy(lane->tokens + used, mailbox_tokens(mailbox, lane->index, r), count * sizeof *lane->tokens);
        lane->outcome.token_count += count;
    }
}

/* The tick that says that the step's tails are stored; a later launch may have passed the last stage already. */
static void tick_tails(struct executors *executors, uint64_t ticks)
{
    const struct parallelism *p = &executors->setup.memory.geometry.parallelism;
    for (uint32_t g = 0; g < executors->setup.groups; g++) {
        _Atomic uint64_t *counter = &executors->mailbox->layer_counters[(p->pipeline - 1u) * p->data + g];
        uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);
        while (now < ticks && !atomic_compare_exchange_weak_explicit(counter, &now, ticks, memory_order_release,
                                                                     memory_order_relaxed)) {
        }
    }
}

/* The end of a step that has been posted. */
static bool finish_step(struct lane *lane, uint32_t step)
{
    uint64_t layers = lane->executors->setup.architecture.layers;
    if (!replied(lane))
        return false;
    lane->end_ns[step] = clock_now_ns();
    lane->outcome.steps = step + 1;
    tick_tails(lane->executors, lane->counter_base + step * (layers + 1) + layers + 1);
    collect_tokens(lane);
    return true;
}

/* Changes and the first step are queued one launch after the other; what follows overlaps. */
static bool begin_launch(struct lane *lane)
{
    bool good = take_turn(lane);
    lane->outcome.start_ns = clock_now_ns();
    for (uint32_t part = 0; part + 1 < lane->part_count && good; part++) {
        post(lane, MAILBOX_CHANGES, lane->counter_base, part);
        good = replied(lane);
    }
    if (good)
        post(lane, MAILBOX_STEP, lane->counter_base, lane->part_count - 1);
    pass_turn(lane);
    return good;
}

static void run_launch(struct lane *lane)
{
    uint64_t stride = (uint64_t)lane->executors->setup.architecture.layers + 1;
    lane->outcome = (struct steps_outcome){.ticket = lane->ticket};
    bool good = begin_launch(lane) && finish_step(lane, 0);
    for (uint32_t step = 1; good && step < lane->repeat_max; step++) {
        if (atomic_load_explicit(&lane->end, memory_order_acquire))
            break;
        post(lane, MAILBOX_REPEAT, lane->counter_base + step * stride, 0);
        good = finish_step(lane, step);
    }
    lane->outcome.end_ns = lane->end_ns;
    lane->outcome.tokens = lane->tokens;
}

static void *lane_thread(void *self)
{
    struct lane *lane = self;
    uint32_t seen = 0;
    while (!atomic_load(&lane->executors->quit)) {
        uint32_t work = atomic_load_explicit(&lane->work, memory_order_acquire);
        if (work == seen) {
            word_wait(&lane->work, seen, WAIT_NS);
            continue;
        }
        seen = work;
        run_launch(lane);
        atomic_store_explicit(&lane->over, true, memory_order_release);
        uint64_t one = 1;
        CHECK(write(lane->executors->done_fd, &one, sizeof one) == sizeof one);
    }
    return NULL;
}

/* ---- The loop's side --------------------------------------------------------------------------------------------- */

/* Where the next `bytes` go: in the part that is being filled, or in a new one. */
static unsigned char *place(struct lane *lane, size_t used, size_t bytes)
{
    if (used + bytes - lane->parts[lane->part_count - 1] > MAILBOX_CHANGES_BYTES) {
        CHECK(lane->part_count < PARTS_MAX && bytes <= MAILBOX_CHANGES_BYTES);
        lane->parts[lane->part_count++] = used;
    }
    return lane->bytes + used;
}

static void encode(struct lane *lane, const struct step_launch *launch, const struct step_given *given,
                   uint32_t given_count)
{
    size_t need = 0;
    for (uint32_t i = 0; i < launch->change_count; i++)
        need += step_change_bytes(&launch->changes[i]);
    for (uint32_t i = 0; i < given_count; i++)
        need += step_given_bytes(&given[i]);
    if (need > lane->bytes_room) {
        free(lane->bytes);
        lane->bytes = allocate(need, 1);
        lane->bytes_room = need;
    }
    size_t used = 0;
    lane->parts[0] = 0;
    lane->part_count = 1;
    for (uint32_t i = 0; i < launch->change_count; i++)
        used += step_change_encode(&launch->changes[i], place(lane, used, step_change_bytes(&launch->changes[i])));
    for (uint32_t i = 0; i < given_count; i++)
        used += step_given_encode(&given[i], place(lane, used, step_given_bytes(&given[i])));
    lane->parts[lane->part_count] = used;
}

static void launch(void *self, const struct step_launch *launch, const struct step_given *given, uint32_t given_count,
                   uint64_t counter_base)
{
    struct executors *executors = self;
    CHECK(launch->repeat_max >= 1 && launch->microbatch < executors->setup.lanes);
    struct lane *lane = &executors->lanes[launch->microbatch];
    CHECK(!lane->busy);
    lane->busy = true;
    if (launch->repeat_max > lane->end_room) {
        free(lane->end_ns);
        lane->end_ns = allocate(launch->repeat_max, sizeof *lane->end_ns);
        lane->end_room = launch->repeat_max;
    }
    lane->number = executors->launches++;
    lane->ticket = launch->ticket;
    lane->repeat_max = launch->repeat_max;
    lane->counter_base = counter_base;
    encode(lane, launch, given, given_count);
    atomic_store(&lane->over, false);
    atomic_store_explicit(&lane->end, false, memory_order_release);
    atomic_fetch_add_explicit(&lane->work, 1, memory_order_release);
    word_wake(&lane->work);
}

/* Where several launches are in flight none of them repeats. */
static void end(void *self)
{
    struct executors *executors = self;
    for (uint32_t i = 0; i < executors->setup.lanes; i++)
        atomic_store_explicit(&executors->lanes[i].end, true, memory_order_release);
}

/* In the order of the launches: threads may come to their ends in another. */
static const struct steps_outcome *outcome(void *self)
{
    struct executors *executors = self;
    uint64_t count;
    ssize_t got = read(executors->done_fd, &count, sizeof count);
    (void)got; /* nothing where a later launch has said so before */
    for (uint32_t i = 0; i < executors->setup.lanes; i++) {
        struct lane *lane = &executors->lanes[i];
        if (!lane->busy || lane->number != executors->outcomes ||
            !atomic_load_explicit(&lane->over, memory_order_acquire))
            continue;
        lane->busy = false;
        executors->outcomes++;
        return &lane->outcome;
    }
    return NULL;
}

uint32_t executors_lanes(const struct executors *executors)
{
    return executors->setup.lanes;
}

struct stepper executors_stepper(struct executors *executors)
{
    static const struct stepper_ops ops = {.launch = launch, .end = end, .outcome = outcome};
    return (struct stepper){
        .ops = &ops,
        .self = executors,
        .fd = executors->done_fd,
        .stride = (uint32_t)executors->setup.architecture.layers + 1,
    };
}

void executors_places(const struct executors *executors, struct place *places)
{
    hwloc_topology_t topology = topology_load();
    for (uint32_t r = 0; r < executors->setup.ranks; r++)
        places[r] = place_of_process(topology, executors->pids[r]);
    if (topology != NULL)
        hwloc_topology_destroy(topology);
}

void *executors_memory(struct executors *executors, uint32_t rank)
{
    return executors->kv[rank].at;
}

bool executors_have_memory(const struct executors *executors)
{
    return executors->ops->share != NULL;
}

struct device_reach *executors_reach(struct executors *executors, uint32_t rank, struct user_error *error)
{
    struct device_reach_config config = {
        .descriptor = executors->shared[2 * rank],
        .bytes = kv_memory_bytes(&executors->setup.memory, rank),
        .number = executors->setup.device_first + rank,
    };
    if (executors->reaches[rank] == NULL)
        executors->reaches[rank] = executors->ops->reach(&config, error);
    return executors->reaches[rank];
}

const _Atomic uint64_t *executors_counters(const struct executors *executors)
{
    return executors->mailbox->layer_counters;
}

int executors_death_fd(const struct executors *executors, uint32_t rank)
{
    return executors->death_fds[rank];
}

void executors_abandon(struct executors *executors)
{
    atomic_store(&executors->mailbox->abandon, true);
    for (uint32_t i = 0; i < executors->setup.lanes; i++)
        word_wake(&executors->mailbox->lanes[i].done);
    word_wake(&executors->mailbox->command);
    word_wake(&executors->turn);
}

/* ---- Processes --------------------------------------------------------------------------------------------------- */

static void close_if(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void keep_open(int fd)
{
    if (fd >= 0)
        fcntl(fd, F_SETFD, 0);
}

/* In the child: nothing but calls that are safe after a fork in a process with threads. */
static _Noreturn void become_executor(const struct executors *executors, uint32_t rank, int channel, pid_t parent,
                                      char *const *argv)
{
    end_with_parent(parent);
    keep_open(executors->mailbox_memory.fd);
    keep_open(executors->kv[rank].fd);
    keep_open(executors->collective_memory.fd);
    keep_open(channel);
    execv("/proc/self/exe", argv);
    _exit(127);
}

static bool spawn(struct executors *executors, uint32_t rank, struct user_error *error)
{
    char name[] = "tandem";
    char role[] = "executor";
    char numbers[5][16];
    int channel[2] = {-1, -1};
    if (executors->ops->share != NULL && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) != 0) {
        user_error_set(error, NULL, 0, NULL, "no socket for rank %u: %s", rank, strerror(errno));
        return false;
    }
    const int values[5] = {(int)rank, executors->mailbox_memory.fd, executors->kv[rank].fd,
                           executors->collective_memory.fd, channel[1]};
    for (size_t i = 0; i < 5; i++)
        snprintf(numbers[i], sizeof numbers[i], "%d", values[i]);
    char *argv[] = {name, role, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], NULL};
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0)
        become_executor(executors, rank, channel[1], parent, argv);
    close_if(channel[1]);
    executors->channels[rank] = channel[0];
    if (pid < 0) {
        user_error_set(error, NULL, 0, NULL, "no process for rank %u: %s", rank, strerror(errno));
        return false;
    }
    executors->pids[rank] = pid;
    executors->death_fds[rank] = (int)syscall(SYS_pidfd_open, pid, 0);
    CHECK(executors->death_fds[rank] >= 0);
    return true;
}

/* Every executor makes its device before it listens; the last reply of the first round says that all are there. */
static bool devices_made(struct executors *executors, struct user_error *error)
{
    struct mailbox *mailbox = executors->mailbox;
    _Atomic uint32_t *replies = &mailbox->lanes[0].done;
    int64_t until_ns = clock_now_ns() + DEVICE_MAKE_NS;
    uint32_t done;
    while ((done = atomic_load_explicit(replies, memory_order_acquire)) < executors->setup.ranks) {
        word_wait(replies, done, WAIT_NS);
        for (uint32_t r = 0; r < executors->setup.ranks; r++) {
            if (mailbox_reply(mailbox, 0, r)->status != REPLY_OK)
                done = UINT32_MAX; /* one refused: the others may wait for it in a collective */
            else if (waitpid(executors->pids[r], NULL, WNOHANG) == executors->pids[r])
                executors->pids[r] = 0;
            if (executors->pids[r] == 0 || clock_now_ns() > until_ns) {
                user_error_set(error, NULL, 0, NULL, "rank %u: its executor %s", r,
                               executors->pids[r] == 0 ? "died before its device was made"
                                                       : "took too long to make its device");
                return false;
            }
        }
        if (done == UINT32_MAX)
            break;
    }
    for (uint32_t r = 0; r < executors->setup.ranks; r++) {
        if (mailbox_reply(mailbox, 0, r)->status != REPLY_OK) {
            user_error_set(error, NULL, 0, NULL, "rank %u: %s", r, mailbox_reply(mailbox, 0, r)->error.text);
            return false;
        }
    }
    return true;
}

/* Reads what the devices have shared, and hands to each what its peers have: those of its attention group and stage. */
static bool exchange_memory(struct executors *executors, struct user_error *error)
{
    uint32_t ranks = executors->setup.ranks;
    uint32_t tensor = executors->setup.memory.geometry.parallelism.tensor;
    bool good = true;
    for (uint32_t i = 0; i < 2 * ranks && good; i++) {
        uint32_t kind;
        good = descriptor_receive(executors->channels[i / 2], &kind, &executors->shared[i]) &&
               kind == (i % 2 == 0 ? DEVICE_SHARE_KV : DEVICE_SHARE_PEERS);
    }
    atomic_store(&executors->mailbox->lanes[0].done, 0);
    for (uint32_t r = 0; r < ranks && good; r++) {
        uint32_t first = r / tensor * tensor;
        for (uint32_t peer = first; peer < first + tensor && good; peer++)
            good = descriptor_send(executors->channels[r], peer, executors->shared[2 * peer + 1]);
        good = good && descriptor_send(executors->channels[r], DESCRIPTOR_END, -1);
    }
    if (!good)
        user_error_set(error, NULL, 0, NULL, "an executor died while memory of devices was handed on");
    return good && devices_made(executors, error);
}

static bool make_memory(struct executors *executors, struct user_error *error)
{
    const struct executor_setup *setup = &executors->setup;
    if (!shared_memory_make(&executors->mailbox_memory, "tandem mailbox", mailbox_bytes(setup), error))
        return false;
    executors->mailbox = executors->mailbox_memory.at;
    executors->mailbox->setup = *setup;
    for (uint32_t r = 0; r < setup->ranks && executors->ops->share == NULL; r++)
        if (!shared_memory_make(&executors->kv[r], "tandem kv", kv_memory_bytes(&setup->memory, r), error))
            return false;
    return setup->ranks == 1 || shared_memory_make(&executors->collective_memory, "tandem collective",
                                                   collective_bytes(setup->ranks, setup->collective_floats), error);
}

struct executors *executors_start(const struct executor_setup *setup, struct user_error *error)
{
    struct executors *executors = allocate(1, sizeof *executors);
    executors->setup = *setup;
    CHECK(setup->lanes >= 1 && setup->lanes <= STAGES_MAX);
    CHECK(pthread_mutex_init(&executors->queueing, NULL) == 0);
    for (uint32_t i = 0; i < STAGES_MAX; i++) {
        executors->lanes[i].executors = executors;
        executors->lanes[i].index = i;
    }
    executors->mailbox_memory.fd = -1;
    executors->collective_memory.fd = -1;
    executors->kv = allocate(setup->ranks, sizeof *executors->kv);
    executors->pids = allocate(setup->ranks, sizeof *executors->pids);
    executors->death_fds = allocate(setup->ranks, sizeof *executors->death_fds);
    executors->channels = allocate(setup->ranks, sizeof *executors->channels);
    executors->shared = allocate(2 * (size_t)setup->ranks, sizeof *executors->shared);
    executors->reaches = allocate(setup->ranks, sizeof *executors->reaches);
    for (uint32_t r = 0; r < setup->ranks; r++) {
        executors->channels[r] = -1;
        executors->shared[2 * r] = executors->shared[2 * r + 1] = -1;
        executors->kv[r].fd = -1;
        executors->death_fds[r] = -1;
    }
    executors->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(executors->done_fd >= 0);
    executors->ops = executor_device(setup->device, error);
    bool good = executors->ops != NULL && make_memory(executors, error);
    for (uint32_t r = 0; r < setup->ranks && good; r++)
        good = spawn(executors, r, error);
    good = good && devices_made(executors, error);
    if (good && executors->ops->share != NULL)
        good = exchange_memory(executors, error);
    if (!good) {
        executors_stop(executors);
        return NULL;
    }
    for (uint32_t i = 0; i < setup->lanes; i++) {
        struct lane *lane = &executors->lanes[i];
        CHECK(pthread_create(&lane->thread, NULL, lane_thread, lane) == 0);
        pthread_setname_np(lane->thread, "device");
        lane->thread_runs = true;
    }
    return executors;
}

static void end_process(struct executors *executors, uint32_t rank, int64_t until_ns)
{
    while (executors->pids[rank] > 0) {
        if (waitpid(executors->pids[rank], NULL, WNOHANG) != 0)
            break;
        if (clock_now_ns() > until_ns)
            kill(executors->pids[rank], SIGKILL);
        usleep(1000);
    }
    if (executors->death_fds[rank] >= 0)
        close(executors->death_fds[rank]);
}

void executors_stop(struct executors *executors)
{
    if (executors == NULL)
        return;
    if (executors->mailbox != NULL)
        executors_abandon(executors);
    atomic_store(&executors->quit, true);
    for (uint32_t i = 0; i < STAGES_MAX; i++) {
        struct lane *lane = &executors->lanes[i];
        word_wake(&lane->work);
        if (lane->thread_runs)
            pthread_join(lane->thread, NULL);
        free(lane->bytes);
        free(lane->end_ns);
        free(lane->tokens);
    }
    pthread_mutex_destroy(&executors->queueing);
    int64_t until_ns = clock_now_ns() + KIND_NS;
    for (uint32_t r = 0; r < executors->setup.ranks; r++)
        end_process(executors, r, until_ns);
    for (uint32_t r = 0; r < executors->setup.ranks; r++) {
        if (executors->reaches[r] != NULL)
            executors->reaches[r]->ops->free(executors->reaches[r]);
        close_if(executors->channels[r]);
        close_if(executors->shared[2 * r]);
        close_if(executors->shared[2 * r + 1]);
        shared_memory_free(&executors->kv[r]);
    }
    shared_memory_free(&executors->collective_memory);
    shared_memory_free(&executors->mailbox_memory);
    close(executors->done_fd);
    free(executors->kv);
    free(executors->channels);
    free(executors->shared);
    free(executors->reaches);
    free(executors->pids);
    free(executors->death_fds);
    free(executors);
}
