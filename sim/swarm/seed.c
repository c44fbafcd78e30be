/* See seed.h. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "sim/swarm/seed.h"

#include "base/check.h"
#include "host/exit_status.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct listening {
    struct coverage *coverage;
    struct coverage_watch *watch;
    const struct seed_sabotage *sabotage;
};

static void ready(void *self, struct sim *sim, const struct run_nodes *nodes)
{
    struct listening *listening = self;
    if (listening->coverage != NULL)
        listening->watch = coverage_listen(listening->coverage, sim, nodes);
    if (listening->sabotage != NULL)
        listening->sabotage->ready(listening->sabotage->self, sim, nodes);
}

void seed_run(const struct drawn *drawn, struct coverage *coverage, const struct seed_sabotage *sabotage,
              struct seed_result *result)
{
    struct listening listening = {.coverage = coverage, .sabotage = sabotage};
    struct deployment_choice choice = deployment_default(&drawn->scenario);
    struct run_config config = {.scenario = &drawn->scenario,
                                .choice = &choice,
                                .seed = drawn->scenario.seed,
                                .options = &(struct sim_options){.self = &listening, .ready = ready}};
    struct run_result run;
    run_play(&sim_backend, &config, &run);
    result->status = run.status;
    result->crashed = false;
    result->events = run.summary.event_count;
    memcpy(result->text, run.text, sizeof result->text);
    run_result_free(&run);
    coverage_watch_free(listening.watch);
}

/* The child writes its report where the parent can read it. */
static void run_in_child(const struct drawn *drawn, const struct seed_sabotage *sabotage, FILE *report,
                         struct seed_result *shared)
{
    if (report != NULL)
        dup2(fileno(report), STDERR_FILENO);
    signal(SIGALRM, SIG_DFL);
    alarm(SEED_SECONDS_MAX);
    seed_run(drawn, NULL, sabotage, shared);
    _exit(0);
}

static void tell_crash(struct seed_result *result, int status, FILE *report)
{
    result->crashed = true;
    result->status = RUN_COMPLETE;
    result->text[0] = '\0';
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
        snprintf(result->text, sizeof result->text, "it does not end within %d s", SEED_SECONDS_MAX);
        return;
    }
    if (WIFSIGNALED(status))
        snprintf(result->text, sizeof result->text, "signal %d\n", WTERMSIG(status));
    size_t used = strlen(result->text);
    if (report != NULL) {
        rewind(report);
        used += fread(result->text + used, 1, sizeof result->text - 1 - used, report);
    }
    result->text[used] = '\0';
}

void seed_run_apart(const struct drawn *drawn, const struct seed_sabotage *sabotage, struct seed_result *result)
{
    struct seed_result *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    FILE *report = tmpfile();
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        run_in_child(drawn, sabotage, report, shared);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    *result = *shared;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        tell_crash(result, status, report);
    if (report != NULL)
        fclose(report);
    munmap(shared, sizeof *shared);
}

/* Compares what is said, up to the end of its first line, and takes any number for any other. */
static bool same_words(const char *a, const char *b)
{
    static const char digits[] = "0123456789abcdefx";
    for (;;) {
        if (*a >= '0' && *a <= '9' && *b >= '0' && *b <= '9') {
            a += strspn(a, digits);
            b += strspn(b, digits);
            continue;
        }
        if (*a != *b)
            return false;
        if (*a == '\0' || *a == '\n')
            return true;
        a++;
        b++;
    }
}

bool seed_same_failure(const struct seed_result *a, const struct seed_result *b)
{
    if (!seed_failed(a) || !seed_failed(b) || a->crashed != b->crashed || a->status != b->status)
        return false;
    return a->status == RUN_NO_PROGRESS || same_words(a->text, b->text);
}
