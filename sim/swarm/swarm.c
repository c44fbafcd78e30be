/* See swarm.h. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "sim/swarm/swarm.h"

#include "base/arith.h"
#include "host/interrupt.h"
#include "host/memory.h"
#include "host/clock.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOBS_MAX 256

/* What a worker leaves behind, however it ends. */
struct worker {
    atomic_bool busy; /* with `seed` */
    atomic_ullong seeds;
    uint64_t seed;
    uint64_t events;
    uint64_t failed_seed;
    bool failed;
    struct seed_result result;
    struct coverage coverage;
};

struct shared {
    atomic_ullong next;   /* of the seeds, counted from the first */
    atomic_ullong lowest; /* that failed, likewise; ULLONG_MAX: none */
    atomic_bool stop;
    struct worker workers[JOBS_MAX];
};

struct process {
    pid_t id; /* 0: it has ended */
    FILE *report;
};

/* ---- Worker ------------------------------------------------------------------------------------------------------ */

static void note_failure(struct shared *shared, unsigned long long index)
{
    unsigned long long lowest = atomic_load(&shared->lowest);
    while (index < lowest && !atomic_compare_exchange_weak(&shared->lowest, &lowest, index)) {
    }
}

static void work(const struct swarm_options *options, struct shared *shared, struct worker *worker)
{
    struct drawn *drawn = memory_zeroed(1, sizeof *drawn);
    signal(SIGALRM, SIG_DFL);
    while (!atomic_load(&shared->stop)) {
        unsigned long long index = atomic_fetch_add(&shared->next, 1);
        if ((options->seeds > 0 && index >= options->seeds) || index > atomic_load(&shared->lowest))
            break;
        worker->seed = options->first + index;
        atomic_store(&worker->busy, true);
        alarm(SEED_SECONDS_MAX);
        fuzz_draw(worker->seed, drawn);
        struct seed_result result;
        seed_run(drawn, &worker->coverage, options->sabotage, &result);
        worker->events += result.events;
        if (seed_failed(&result) && !worker->failed) {
            worker->failed = true;
            worker->failed_seed = worker->seed;
            worker->result = result;
            note_failure(shared, index);
        }
        atomic_store(&worker->busy, false);
        atomic_fetch_add(&worker->seeds, 1);
    }
    free(drawn);
}

static void start(const struct swarm_options *options, struct shared *shared, struct process *process,
                  struct worker *worker)
{
    process->report = tmpfile();
    fflush(NULL);
    process->id = fork();
    CHECK(process->id >= 0);
    if (process->id != 0)
        return;
    if (process->report != NULL)
        dup2(fileno(process->report), STDERR_FILENO);
    work(options, shared, worker);
    _exit(0);
}

/* ---- Parent ------------------------------------------------------------------------------------------------------ */

/* A worker that ended within a seed has found a bug, of the harder kind. What it is, running the seed apart says. */
static void reap(const struct swarm_options *options, struct shared *shared, struct process *process,
                 struct worker *worker, bool *interrupted)
{
    int status = 0;
    if (process->id == 0 || waitpid(process->id, &status, WNOHANG) != process->id)
        return;
    process->id = 0;
    if (process->report != NULL)
        fclose(process->report);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM)) {
        *interrupted = true;
        return;
    }
    CHECK(atomic_load(&worker->busy));
    if (!worker->failed) {
        worker->failed = true;
        worker->failed_seed = worker->seed;
        worker->result = (struct seed_result){.crashed = true};
        note_failure(shared, worker->seed - options->first);
    }
}

static uint64_t seeds_done(const struct shared *shared, uint32_t jobs)
{
    uint64_t seeds = 0;
    for (uint32_t i = 0; i < jobs; i++)
        seeds += atomic_load(&shared->workers[i].seeds);
    return seeds;
}

static void wait_for_all(const struct swarm_options *options, struct shared *shared, struct process *processes,
                         uint32_t jobs, struct swarm_result *result)
{
    int64_t start_ns = clock_now_ns();
    uint64_t told = 0;
    for (uint32_t running = jobs; running > 0;) {
        running = 0;
        for (uint32_t i = 0; i < jobs; i++) {
            reap(options, shared, &processes[i], &shared->workers[i], &result->interrupted);
            running += processes[i].id != 0;
        }
        bool late = options->seconds > 0 && clock_now_ns() - start_ns >= options->seconds * NS_PER_S;
        if (interrupt_requested())
            result->interrupted = true;
        if (late || result->interrupted)
            atomic_store(&shared->stop, true);
        if (options->progress != NULL) {
            uint64_t done = seeds_done(shared, jobs);
            options->progress(options->self, done - told);
            told = done;
        }
        struct timespec pause = {.tv_nsec = 2 * NS_PER_MS};
        if (running > 0)
            nanosleep(&pause, NULL);
    }
    result->wall_ns = clock_now_ns() - start_ns;
}

static void collect(const struct shared *shared, uint32_t jobs, struct swarm_result *result)
{
    result->seeds = seeds_done(shared, jobs);
    for (uint32_t i = 0; i < jobs; i++) {
        const struct worker *worker = &shared->workers[i];
        result->events += worker->events;
        coverage_add(&result->coverage, &worker->coverage);
        if (!worker->failed || (result->failed && worker->failed_seed > result->seed))
            continue;
        result->failed = true;
        result->seed = worker->failed_seed;
        result->failure = worker->result;
    }
}

void swarm_run(const struct swarm_options *options, struct swarm_result *result)
{
    struct process processes[JOBS_MAX] = {{0}};
    uint32_t jobs = max_u32(1, min_u32(options->jobs, JOBS_MAX));
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    memset(result, 0, sizeof *result);
    atomic_store(&shared->lowest, ~0ULL);
    for (uint32_t i = 0; i < jobs; i++)
        start(options, shared, &processes[i], &shared->workers[i]);
    wait_for_all(options, shared, processes, jobs, result);
    collect(shared, jobs, result);
    munmap(shared, sizeof *shared);
    if (!result->failed || !result->failure.crashed)
        return;
    struct drawn *drawn = memory_zeroed(1, sizeof *drawn);
    fuzz_draw(result->seed, drawn);
    seed_run_apart(drawn, options->sabotage, &result->failure);
    free(drawn);
}
