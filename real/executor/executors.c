/* See executors.h. */
#define _GNU_SOURCE
#include "real/executor/executors.h"

#include "base/arith.h"
#include "real/device/device_reach.h"
#include "real/memory/descriptors.h"
#include "real/executor/executor.h"
#include "real/fabric/lifeline.h"
#include "real/memory/shared_memory.h"

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

    pthread_t thread;
    bool thread_runs;
    _Atomic uint32_t work; /* launches handed over; the thread waits on it */
    atomic_bool quit;
    atomic_bool end;  /* the repetition in progress */
    atomic_bool over; /* the launch in hand: what follows belongs to the loop */

    /* The launch in hand. */
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

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    CHECK(memory != NULL);
    return memory;
}

/* ---- The device thread ------------------------------------------------------------------------------------------- */

static bool trouble(struct executors *executors, const char *text)
{
    snprintf(executors->trouble, sizeof executors->trouble, "%s", text);
    executors->outcome.trouble = executors->trouble;
    return false;
}

/* Waits until all ranks have replied. */
static bool replied(struct executors *executors)
{
    struct mailbox *mailbox = executors->mailbox;
    uint32_t done;
    while ((done = atomic_load_explicit(&mailbox->done, memory_order_acquire)) < executors->setup.ranks) {
        if (atomic_load_explicit(&mailbox->abandon, memory_order_relaxed))
            return trouble(executors, "an executor died");
        word_wait(&mailbox->done, done, WAIT_NS);
    }
    for (uint32_t r = 0; r < executors->setup.ranks; r++)
        if (mailbox_reply(mailbox, r)->status != REPLY_OK)
            return trouble(executors, mailbox_reply(mailbox, r)->status == REPLY_BAD_COMMAND
                                          ? "an executor could not read its command"
                                          : "an executor gave up a step");
    return true;
}

static bool command(struct executors *executors, enum mailbox_kind kind, uint64_t counter_base, uint32_t part)
{
    struct mailbox *mailbox = executors->mailbox;
    size_t first = kind == MAILBOX_REPEAT ? 0 : executors->parts[part];
    size_t end = kind == MAILBOX_REPEAT ? 0 : executors->parts[part + 1];
    atomic_store_explicit(&mailbox->done, 0, memory_order_relaxed);
    mailbox->kind = kind;
    mailbox->counter_base = counter_base;
    mailbox->change_bytes = end - first;
    if (end > first)
        memcpy(mailbox_changes(mailbox), executors->bytes + first, end - first);
    atomic_fetch_add_explicit(&mailbox->command, 1, memory_order_release);
    word_wake(&mailbox->command);
    return replied(executors);
}

static void collect_tokens(struct executors *executors)
{
    for (uint32_t r = 0; r < executors->setup.ranks; r++) {
        uint32_t count = min_u32(mailbox_reply(executors->mailbox, r)->token_count, executors->setup.sequences_max);
        uint32_t used = executors->outcome.token_count;
        if (used + count > executors->token_room) {
            executors->token_room = 2 * executors->token_room + count;
            executors->tokens = realloc(executors->tokens, executors->token_room * sizeof *executors->tokens);
            CHECK(executors->tokens != NULL);
        }
        if (count > 0)
            memcpy(executors->tokens + used, mailbox_tokens(executors->mailbox, r), count * sizeof *executors->tokens);
        executors->outcome.token_count += count;
    }
}

/* One step, and the tick that says that its tails are stored. */
static bool run_step(struct executors *executors, enum mailbox_kind kind, uint32_t step)
{
    uint64_t layers = executors->setup.architecture.layers;
    uint64_t base = executors->counter_base + step * (layers + 1);
    if (!command(executors, kind, base, executors->part_count - 1))
        return false;
    executors->end_ns[step] = clock_now_ns();
    executors->outcome.steps = step + 1;
    for (uint32_t g = 0; g < executors->setup.groups; g++)
        atomic_store_explicit(&executors->mailbox->layer_counters[g], base + layers + 1, memory_order_release);
    collect_tokens(executors);
    return true;
}

static void run_launch(struct executors *executors)
{
    executors->outcome = (struct steps_outcome){.ticket = executors->ticket, .start_ns = clock_now_ns()};
    bool good = true;
    for (uint32_t part = 0; part + 1 < executors->part_count && good; part++)
        good = command(executors, MAILBOX_CHANGES, executors->counter_base, part);
    for (uint32_t step = 0; good && step < executors->repeat_max; step++) {
        if (step > 0 && atomic_load_explicit(&executors->end, memory_order_acquire))
            break;
        good = run_step(executors, step == 0 ? MAILBOX_STEP : MAILBOX_REPEAT, step);
    }
    executors->outcome.end_ns = executors->end_ns;
    executors->outcome.tokens = executors->tokens;
}

static void *device_thread(void *self)
{
    struct executors *executors = self;
    uint32_t seen = 0;
    while (!atomic_load(&executors->quit)) {
        uint32_t work = atomic_load_explicit(&executors->work, memory_order_acquire);
        if (work == seen) {
            word_wait(&executors->work, seen, WAIT_NS);
            continue;
        }
        seen = work;
        run_launch(executors);
        atomic_store_explicit(&executors->over, true, memory_order_release);
        uint64_t one = 1;
        CHECK(write(executors->done_fd, &one, sizeof one) == sizeof one);
    }
    return NULL;
}

/* ---- The loop's side --------------------------------------------------------------------------------------------- */

/* Where the next `bytes` go: in the part that is being filled, or in a new one. */
static unsigned char *place(struct executors *executors, size_t used, size_t bytes)
{
    if (used + bytes - executors->parts[executors->part_count - 1] > MAILBOX_CHANGES_BYTES) {
        CHECK(executors->part_count < PARTS_MAX && bytes <= MAILBOX_CHANGES_BYTES);
        executors->parts[executors->part_count++] = used;
    }
    return executors->bytes + used;
}

static void encode(struct executors *executors, const struct step_launch *launch, const struct step_given *given,
                   uint32_t given_count)
{
    size_t need = 0;
    for (uint32_t i = 0; i < launch->change_count; i++)
        need += step_change_bytes(&launch->changes[i]);
    for (uint32_t i = 0; i < given_count; i++)
        need += step_given_bytes(&given[i]);
    if (need > executors->bytes_room) {
        free(executors->bytes);
        executors->bytes = allocate(need, 1);
        executors->bytes_room = need;
    }
    size_t used = 0;
    executors->parts[0] = 0;
    executors->part_count = 1;
    for (uint32_t i = 0; i < launch->change_count; i++)
        used += step_change_encode(&launch->changes[i], place(executors, used, step_change_bytes(&launch->changes[i])));
    for (uint32_t i = 0; i < given_count; i++)
        used += step_given_encode(&given[i], place(executors, used, step_given_bytes(&given[i])));
    executors->parts[executors->part_count] = used;
}

static void launch(void *self, const struct step_launch *launch, const struct step_given *given, uint32_t given_count,
                   uint64_t counter_base)
{
    struct executors *executors = self;
    CHECK(launch->repeat_max >= 1);
    if (launch->repeat_max > executors->end_room) {
        free(executors->end_ns);
        executors->end_ns = allocate(launch->repeat_max, sizeof *executors->end_ns);
        executors->end_room = launch->repeat_max;
    }
    executors->ticket = launch->ticket;
    executors->repeat_max = launch->repeat_max;
    executors->counter_base = counter_base;
    encode(executors, launch, given, given_count);
    atomic_store(&executors->over, false);
    atomic_store_explicit(&executors->end, false, memory_order_release);
    atomic_fetch_add_explicit(&executors->work, 1, memory_order_release);
    word_wake(&executors->work);
}

static void end(void *self)
{
    struct executors *executors = self;
    atomic_store_explicit(&executors->end, true, memory_order_release);
}

static const struct steps_outcome *outcome(void *self)
{
    struct executors *executors = self;
    uint64_t count;
    bool signalled = read(executors->done_fd, &count, sizeof count) == sizeof count;
    return signalled && atomic_load_explicit(&executors->over, memory_order_acquire) ? &executors->outcome : NULL;
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
    word_wake(&executors->mailbox->done);
    word_wake(&executors->mailbox->command);
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
    int64_t until_ns = clock_now_ns() + DEVICE_MAKE_NS;
    uint32_t done;
    while ((done = atomic_load_explicit(&mailbox->done, memory_order_acquire)) < executors->setup.ranks) {
        word_wait(&mailbox->done, done, WAIT_NS);
        for (uint32_t r = 0; r < executors->setup.ranks; r++) {
            if (mailbox_reply(mailbox, r)->status != REPLY_OK)
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
        if (mailbox_reply(mailbox, r)->status != REPLY_OK) {
            user_error_set(error, NULL, 0, NULL, "rank %u: %s", r, mailbox_reply(mailbox, r)->error.text);
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
    atomic_store(&executors->mailbox->done, 0);
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
    CHECK(pthread_create(&executors->thread, NULL, device_thread, executors) == 0);
    pthread_setname_np(executors->thread, "device");
    executors->thread_runs = true;
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
    if (executors->thread_runs) {
        atomic_store(&executors->quit, true);
        word_wake(&executors->work);
        pthread_join(executors->thread, NULL);
    }
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
    free(executors->bytes);
    free(executors->end_ns);
    free(executors->tokens);
    free(executors);
}
