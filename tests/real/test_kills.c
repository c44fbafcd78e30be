/* Kill -9 a process at a random point of a run: a prefiller, a decoder, one rank of either, or the launcher.
 *
 * The others finish; requests that were lost fail with a reason, or run again elsewhere where the policy lets them
 * (messenger.attempts_max), and what was produced is right, token by token; pages that a dead prefiller might still
 * write stay in quarantine until it is fenced, and all pages come back (the launcher judges that, exit status 129); no
 * process and no shared memory is left; the database is sound; and every survivor's recording, given to a new node,
 * makes the same calls again. After the launcher's death all of it is gone but a sound database without the run.
 *
 * One thing may go otherwise, over shm alone: a process that dies inside a lock which the provider keeps in shared
 * memory takes it along, and a survivor whose fabric thread never comes back says so and ends itself. Then two
 * instances are lost; the requests still end, and nothing is left. The table counts these survivors.
 *
 * A few in the tests, more with TANDEM_LONG=1; TANDEM_KILLS=N makes N of them (scripts/kills). Each prints its seed;
 * TANDEM_KILL_SEED=S starts there. A point is how much of its recording the front has written, so that it means the
 * same on a slow machine.
 */
#define _GNU_SOURCE
#include "base/rng.h"
#include "base/trace.h"
#include "model/kv_geometry.h"
#include "cli/real/run_real.h"
#include "real/memory/shared_memory.h"
#include "support/real_run.h"
#include "host/clock.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SCENARIO "tests/data/real-kills.lua"
#define REQUESTS 24u
#define PREFILLERS 2u /* nodes 1 and 2; 3 and 4 decode */
#define INSTANCES 4u
#define PAGE_TOKENS 16u
#define START_MS 400u /* of a launcher that is killed before its run has begun */

enum victim { PREFILLER, DECODER, PREFILLER_RANK, DECODER_RANK, LAUNCHER, VICTIM_COUNT };
static const char *const victim_names[VICTIM_COUNT] = {"prefiller", "decoder", "prefiller's rank", "decoder's rank",
                                                       "launcher"};
static const char *const provider_names[] = {"shm", "tcp"};
enum { PROVIDERS = 2 };

struct tally {
    uint32_t kills;
    uint32_t requests;
    uint32_t completed;
    uint32_t again; /* of the completed: at the second attempt or later */
    uint32_t failed;
    uint32_t rejected;
    uint32_t quarantined; /* hand-offs whose pages waited for a fence */
    uint32_t pages;       /* of these, freed by it */
    uint32_t locked_out;  /* runs in which a survivor could not fence the dead and ended itself */
    int64_t took_ns;
};
static struct tally tallies[VICTIM_COUNT][PROVIDERS];
static int64_t whole_bytes; /* what the front of an undisturbed run writes */

static int64_t number(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtoll(text, NULL, 10);
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

struct choice {
    enum victim victim;
    uint32_t provider;
    uint32_t attempts_max;
    char texts[2][64];
    const char *options[8];
};

/* By seed, so that any run of ten consecutive ones kills everybody over every provider, and the next ten do it under
 * the other policy. */
static void choose(struct choice *choice, uint64_t seed)
{
    choice->provider = (uint32_t)(seed % PROVIDERS);
    choice->victim = (enum victim)(seed / PROVIDERS % VICTIM_COUNT);
    choice->attempts_max = seed / ((uint64_t)PROVIDERS * VICTIM_COUNT) % 2 == 0 ? 3 : 1;
    snprintf(choice->texts[0], sizeof choice->texts[0], "--provider=%s", provider_names[choice->provider]);
    snprintf(choice->texts[1], sizeof choice->texts[1], "--set=messenger.attempts_max=%" PRIu32, choice->attempts_max);
    const char *const options[] = {choice->texts[0], choice->texts[1], "--heartbeats=25", "--limit=600", NULL};
    memcpy(choice->options, options, sizeof options);
}

/* ---- What became of it ------------------------------------------------------------------------------------------- */

/* Of one survivor: hand-offs in quarantine, and what the fence gave back. */
struct heard {
    uint32_t quarantined;
    uint32_t fenced;
    uint32_t pages;
    uint32_t prompts[REQUESTS];
};

static void hear(void *self, int64_t now_ns, const struct trace_record *record)
{
    (void)now_ns;
    struct heard *heard = self;
    if (record->request >= REQUESTS)
        return;
    if (record->kind == TRACE_ARRIVED)
        heard->prompts[record->request] = (uint32_t)record->a;
    heard->quarantined += record->kind == TRACE_QUARANTINED;
    heard->fenced += record->kind == TRACE_FENCED;
    if (record->kind == TRACE_FENCED)
        heard->pages += (heard->prompts[record->request] + PAGE_TOKENS - 1) / PAGE_TOKENS;
}

/* Whether a survivor had to end itself, which only the locks of shm can make it do. */
static bool locked_out(const struct real_run *run, const struct choice *choice)
{
    return strcmp(provider_names[choice->provider], "shm") == 0 &&
           real_run_logged(run, "a lost peer cannot be fenced: the fabric's provider does not return");
}

static void survivors(const struct real_run *run, const struct choice *choice, uint32_t victim_node,
                      struct tally *tally)
{
    struct heard heard = {0};
    for (uint32_t node = 0; node <= INSTANCES; node++)
        if (node != victim_node)
            assert_true(real_run_replay(run, SCENARIO, choice->options, node, hear, &heard) > 0);
    if (locked_out(run, choice)) {
        assert_true(heard.quarantined >= heard.fenced);
        tally->locked_out++;
    } else {
        if (heard.quarantined != heard.fenced)
            real_run_show_log(run);
        assert_int_equal(heard.quarantined, heard.fenced);
    }
    tally->quarantined += heard.quarantined;
    tally->pages += heard.pages;
}

/* Every request has an end: an answer, a reason. Under a policy of one attempt nothing runs again; under one of more,
 * what a single death took is served by those who live. */
static void ends(const struct real_run *run, const struct choice *choice, struct tally *tally)
{
    struct run_report report;
    real_run_read(run, &report);
    assert_int_equal(report.requests, REQUESTS);
    assert_int_equal(report.completed + report.failed + report.rejected, REQUESTS);
    tally->requests += REQUESTS;
    tally->completed += (uint32_t)report.completed;
    tally->failed += (uint32_t)report.failed;
    tally->rejected += (uint32_t)report.rejected;
    run_report_free(&report);
    uint32_t again = (uint32_t)real_run_query(run, "SELECT count(*) FROM request WHERE outcome = 1 AND attempts > 1");
    tally->again += again;
    assert_int_equal(real_run_query(run, "SELECT count(*) FROM request WHERE outcome <> 1 AND reason = 0"), 0);
    if (choice->attempts_max == 1)
        assert_int_equal(real_run_query(run, "SELECT count(*) FROM request WHERE attempts > 1"), 0);
    else if (!locked_out(run, choice))
        assert_int_equal(real_run_query(run, "SELECT count(*) FROM request WHERE outcome <> 1"), 0);
    assert_true(real_run_check_tokens(run, SCENARIO, choice->options) > 0);
}

/* The place of the victim among the run's processes. */
static uint32_t draw_victim(const struct real_run *run, enum victim victim, struct rng *rng)
{
    uint32_t instance = (uint32_t)rng_below(rng, INSTANCES / 2);
    uint32_t ranks[REAL_RUN_PROCESSES_MAX];
    uint32_t count = 0;
    if (victim == DECODER || victim == DECODER_RANK)
        instance += PREFILLERS;
    if (victim == PREFILLER || victim == DECODER)
        return instance;
    for (uint32_t i = run->instance_count; i < run->process_count; i++)
        if (run->owner[i] == instance)
            ranks[count++] = i;
    assert_true(count > 0);
    return ranks[rng_below(rng, count)];
}

/* A launcher dies: all who belong to it end by themselves. Now and then before they are all there. */
static void kill_launcher(struct real_run *run, struct rng *rng)
{
    if (rng_below(rng, 4) == 0) {
        usleep((useconds_t)rng_below(rng, START_MS * 1000));
        real_run_look(run);
    } else {
        assert_true(real_run_processes(run, INSTANCES));
        real_run_recorded(run, (int64_t)rng_below(rng, (uint64_t)whole_bytes));
    }
    assert_int_equal(kill(run->launcher, SIGKILL), 0);
    int exit = real_run_wait(run, 128 + SIGKILL);
    assert_true(exit == 128 + SIGKILL || exit == 0); /* it may have been quicker */
    real_run_left_nothing(run);
    if (real_run_has_database(run)) {
        real_run_database_sound(run);
        assert_int_equal(real_run_stored(run), exit == 0 ? 1 : 0);
    }
}

static bool kill_process(struct real_run *run, const struct choice *choice, struct rng *rng, struct tally *tally)
{
    assert_true(real_run_processes(run, INSTANCES));
    assert_true(real_run_started(run));
    real_run_look(run); /* now every rank is there */
    uint32_t victim = draw_victim(run, choice->victim, rng);
    int64_t point = (int64_t)rng_below(rng, (uint64_t)whole_bytes * 9 / 10);
    bool there = real_run_recorded(run, point);
    usleep((useconds_t)rng_below(rng, 2000));
    if (!there)
        return false; /* over before that point; its processes are gone, and their numbers may be others' */
    assert_int_equal(kill(run->processes[victim], SIGKILL), 0);
    uint32_t node = 1 + (victim < run->instance_count ? victim : run->owner[victim]);
    printf("  node %" PRIu32 " at %" PRId64 " of about %" PRId64 " bytes\n", node, point, whole_bytes);
    assert_int_equal(real_run_wait(run, 0), 0);
    ends(run, choice, tally);
    survivors(run, choice, node, tally);
    real_run_database_sound(run);
    real_run_left_nothing(run);
    return true;
}

static void measure(void)
{
    struct choice choice;
    struct real_run run;
    choose(&choice, 0);
    real_run_start(&run, SCENARIO, choice.options);
    assert_int_equal(real_run_wait(&run, 0), 0);
    whole_bytes = real_run_recorded_bytes(&run);
    assert_true(whole_bytes > 2048);
    real_run_free(&run);
}

static void kill_one(void **state)
{
    uint64_t seed = *(const uint64_t *)*state;
    struct rng rng = rng_stream(seed, 0, RNG_FAULTS);
    struct choice choice;
    choose(&choice, seed);
    struct tally *tally = &tallies[choice.victim][choice.provider];
    if (whole_bytes == 0)
        measure();
    for (bool done = false; !done;) {
        struct real_run run;
        printf("seed %" PRIu64 ": a %s over %s, at most %" PRIu32 " attempts\n", seed, victim_names[choice.victim],
               provider_names[choice.provider], choice.attempts_max);
        fflush(stdout);
        int64_t start_ns = clock_now_ns();
        real_run_start(&run, SCENARIO, choice.options);
        if (choice.victim == LAUNCHER) {
            kill_launcher(&run, &rng);
            done = true;
        } else {
            done = kill_process(&run, &choice, &rng, tally);
        }
        if (done)
            tally->took_ns += clock_now_ns() - start_ns;
        else
            real_run_wait(&run, 0);
        real_run_free(&run);
    }
    tally->kills++;
}

static void print_row(const char *victim, const char *provider, const struct tally *tally)
{
    printf("%-17s %-9s %5" PRIu32 " %9" PRIu32 " %10" PRIu32 " %9" PRIu32 " %7" PRIu32 " %9" PRIu32 " %12" PRIu32
           " %6" PRIu32 " %10" PRIu32 " %7.1f\n",
           victim, provider, tally->kills, tally->requests, tally->completed, tally->again, tally->failed,
           tally->rejected, tally->quarantined, tally->pages, tally->locked_out,
           tally->kills == 0 ? 0.0 : (double)(tally->took_ns / tally->kills) / 1e9);
}

static void print_table(void)
{
    struct tally sum = {0};
    printf("\n%-17s %-9s %5s %9s %10s %9s %7s %9s %12s %6s %10s %7s\n", "killed", "provider", "kills", "requests",
           "completed", "run again", "failed", "rejected", "quarantined", "pages", "locked out", "s each");
    for (uint32_t victim = 0; victim < VICTIM_COUNT; victim++) {
        for (uint32_t provider = 0; provider < PROVIDERS; provider++) {
            const struct tally *tally = &tallies[victim][provider];
            print_row(victim_names[victim], provider_names[provider], tally);
            sum.kills += tally->kills;
            sum.requests += tally->requests;
            sum.completed += tally->completed;
            sum.again += tally->again;
            sum.failed += tally->failed;
            sum.rejected += tally->rejected;
            sum.quarantined += tally->quarantined;
            sum.pages += tally->pages;
            sum.locked_out += tally->locked_out;
            sum.took_ns += tally->took_ns;
        }
    }
    print_row("all", "", &sum);
}

int main(int argc, char **argv)
{
    int status;
    if (run_real_role(argc, argv, &status))
        return status;
    uint64_t first = (uint64_t)number("TANDEM_KILL_SEED", 1);
    size_t count = (size_t)number("TANDEM_KILLS", getenv("TANDEM_LONG") != NULL ? 20 : 3);
    uint64_t *seeds = calloc(count, sizeof *seeds);
    char(*names)[32] = calloc(count, sizeof *names);
    struct CMUnitTest *tests = calloc(count, sizeof *tests);
    if (count == 0 || seeds == NULL || names == NULL || tests == NULL)
        return 2;
    for (size_t i = 0; i < count; i++) {
        seeds[i] = first + i;
        snprintf(names[i], sizeof names[i], "kill_%" PRIu64, seeds[i]);
        tests[i] = (struct CMUnitTest){.name = names[i], .test_func = kill_one, .initial_state = &seeds[i]};
    }
    int failed = _cmocka_run_group_tests("kills", tests, count, NULL, NULL);
    print_table();
    printf("%zu kills, %d of them not survived as they must be\n", count, failed);
    free(tests);
    free(names);
    free(seeds);
    return failed;
}
