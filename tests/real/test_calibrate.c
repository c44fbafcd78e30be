/* Calibration on this machine: that it measures, and that what it finds is in order. Times are whatever they are. */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/command.h"
#include "real/calibrate/calibrate.h"
#include "real/calibrate/message_profiler.h"
#include "cli/real/commands_real.h"
#include "cli/real/run_real.h"
#include "support/real_run.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GQA TANDEM_SOURCE_DIR "/scenarios/real-gqa-2p2d.lua"
#define MLA TANDEM_SOURCE_DIR "/scenarios/real-mla-dp.lua"

/* ---- Profilers ------------------------------------------------------------------------------------------------------
 */

static void assert_rises(const struct step_grid *grid)
{
    for (uint32_t r = 0; r < grid->row_count; r++) {
        for (uint32_t c = 0; c < grid->column_count; c++) {
            assert_true(grid->ns[r][c] > 0);
            assert_true(r == 0 || grid->ns[r][c] >= grid->ns[r - 1][c]);
            assert_true(c == 0 || grid->ns[r][c] >= grid->ns[r][c - 1]);
        }
    }
    /* A hundred times the work takes longer, whatever else the machine does. */
    if (grid->row_count > 0)
        assert_true(grid->ns[grid->row_count - 1][grid->column_count - 1] > grid->ns[0][0]);
}

static void steps_of_both_kinds(void **state)
{
    (void)state;
    struct step_plan *plan = calloc(1, sizeof *plan);
    assert_non_null(plan);
    struct user_error error = {.set = false};
    assert_true(step_plan_add(plan, GQA, NULL, 0, "host", &error));
    assert_int_equal(plan->count, 2);
    assert_string_equal(plan->item[0].name, "tiny-gqa TP2");
    assert_string_equal(plan->item[1].name, "tiny-gqa TP1");
    assert_true(step_plan_add(plan, GQA, NULL, 0, "host", &error)); /* nothing new */
    assert_int_equal(plan->count, 2);
    assert_true(step_plan_add(plan, MLA, NULL, 0, "host", &error));
    assert_int_equal(plan->count, 4);
    /* Two collective ranks, one rank, and two attention groups. */
    static const uint32_t measured[] = {0, 1, 3};
    for (size_t k = 0; k < sizeof measured / sizeof *measured; k++) {
        struct step_job *job = &plan->item[measured[k]];
        struct step_quality quality;
        struct user_error why = {.set = false};
        bool prefills = measured[k] == 0;
        if (!step_profiler(job, 2, NULL, &quality, &why))
            fail_msg("%s: %s", job->name, why);
        assert_int_equal(job->table.prefill.row_count > 0, prefills);
        assert_int_equal(job->table.decode.row_count > 0, !prefills);
        assert_int_equal(quality.cells_measured + quality.cells_filled, step_job_launches(job));
        assert_rises(&job->table.prefill);
        assert_rises(&job->table.decode);
        assert_true(job->table.first_layer_ns > 0);
    }
    free(plan);
}

static void fabric_of_both_providers(void **state)
{
    (void)state;
    static const char *const names[] = {"shm", "tcp"};
    for (size_t k = 0; k < 2; k++) {
        struct fabric_times times;
        struct nic nic = {0};
        struct user_error why = {.set = false};
        const struct fabric_profiler_config config = {
            .provider = names[k], .address = "127.0.0.1", .window = 32, .turns = 1};
        if (!fabric_profiler(&config, NULL, &times, &why))
            fail_msg("%s: %s", names[k], why);
        assert_string_equal(times.provider, names[k]);
        for (size_t s = 0; s < FABRIC_SIZES; s++) {
            assert_true(times.single[s].ps > 0 && times.stream[s].ps > 0);
            assert_true(s == 0 || times.single[s].bytes > times.single[s - 1].bytes);
        }
        assert_true(times.posting_ps > 0 && times.posting_ps <= times.stream[0].ps);
        assert_true(times.watcher_ns >= 0 && times.poll_ns >= 0);
        /* Which takes longer is the machine's affair: on a busy one a lone write takes as long as its turn is away. */
        if (nic_fit(times.single, FABRIC_SIZES, times.stream, FABRIC_SIZES, &nic, &why))
            assert_true(nic.bytes_per_s > 0 && nic.gap_ps >= 0 && nic.base_ns >= 0);
        else
            assert_non_null(strstr(why.text, "is the machine busy?"));
    }
}

static void messages(void **state)
{
    (void)state;
    int64_t message_ns = 0;
    struct user_error why = {.set = false};
    if (!message_profiler("127.0.0.1", &message_ns, &why))
        fail_msg("%s", why.text);
    assert_in_range(message_ns, 1, INT64_C(1000000000));
    assert_false(message_profiler("no address", &message_ns, &why));
    assert_string_equal(why.text, "'no address' is not an IPv4 address");
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

#define WORDS_MAX 24

/* Runs `tandem calibrate` with a line of words; what it wrote is in *out and *err, the caller's. */
static int run_line(const char *line, char **out, char **err)
{
    static const struct command *const list[] = {&command_calibrate, NULL};
    char text[1024];
    char *words[WORDS_MAX + 1];
    int count = 0;
    snprintf(text, sizeof text, "tandem calibrate %s", line);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
        assert_true(count < WORDS_MAX);
        words[count++] = word;
    }
    words[count] = NULL;
    size_t out_size;
    size_t err_size;
    FILE *out_file = open_memstream(out, &out_size);
    FILE *err_file = open_memstream(err, &err_size);
    int status = command_main(count, words, list, out_file, err_file);
    fclose(out_file);
    fclose(err_file);
    return status;
}

/* What is said behind the warning of a busy machine, which may be there. */
static const char *without_warning(const char *err)
{
    const char *end = strchr(err, '\n');
    return strncmp(err, "warning: the machine is busy (", 30) == 0 && end != NULL ? end + 1 : err;
}

static void what_is_wrong_is_said_before_anything_is_measured(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *err;
    } cases[] = {
        {"--in-run", "--in-run: names no scenario to run\n"},
        {"--repeat 0", "--repeat: 0 is not between 1 and 101\n"},
        {"--misfit 200000", "--misfit: 200000 is not between 0 and 100000 percent\n"},
        {"--window 5000", "--window: 5000 is not between 1 and 4096\n"},
        {"--base hardware.nothing",
         "require 'hardware.nothing': there is no hardware/nothing.lua in . or " TANDEM_SOURCE_DIR "/scenarios\n"},
        {"--out /nowhere/profile.lua", "/nowhere/profile.lua: cannot be written: No such file or directory\n"},
        {"--out " GQA, GQA ": is there and no profile of tandem calibrate; --force overwrites it\n"},
        {"nothing.lua", "nothing.lua: cannot be read: No such file or directory\n"},
        {"--provder shm", "tandem calibrate has no option --provder; nearest: --provider\n"},
        {"--provider carrier-pigeon",
         "fabric: no provider \"carrier-pigeon\"; known: efa, verbs, tcp, net, shm, auto; present here: "},
    };
    char folder[] = "/tmp/tandem-calibrate-XXXXXX";
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char *out;
        char *err;
        int status = run_line(cases[k].line, &out, &err);
        if (strncmp(without_warning(err), cases[k].err, strlen(cases[k].err)) != 0)
            fail_msg("%s: %s", cases[k].line, err);
        assert_string_equal(out, "");
        assert_int_equal(status, EXIT_USER);
        free(out);
        free(err);
    }
    /* And nothing is left. */
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* Both tables were corrected by a run of the scenario, and messages come from it. */
static void assert_corrected(const char *path)
{
    static const char *const lines[] = {
        "--   tiny-gqa TP2, prefill: x ", "--   tiny-gqa TP1, decode: x ",
        "--   messages: medians of 60 of the front and of 60 that waited for a count\n"};
    char text[16384];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (strstr(text, lines[i]) == NULL)
            fail_msg("not in the profile: %s", lines[i]);
}

static void a_whole_calibration(void **state)
{
    (void)state;
    char folder[] = "/tmp/tandem-calibrate-XXXXXX";
    char line[512];
    char path[128];
    char *out;
    char *err;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/measured.lua", folder);
    snprintf(line, sizeof line,
             "--out %s --repeat 1 --misfit 100000 --provider shm --name here --format json --in-run --set "
             "load.rate=per_second(200) %s",
             path, GQA);
    /* What it measures on a machine that does other things is told and not to be written; here it is to be. */
    int status = run_line(line, &out, &err);
    assert_string_equal(without_warning(err), "");
    assert_int_equal(status, EXIT_OK);
    json_t *json = json_loads(out, 0, NULL);
    assert_non_null(json);
    assert_string_equal(json_string_value(json_object_get(json, "profile")), path);
    assert_string_equal(json_string_value(json_object_get(json, "name")), "here");
    assert_int_equal(json_array_size(json_object_get(json, "steps")), 2);
    assert_int_equal(json_array_size(json_object_get(json, "writes")), FABRIC_SIZES);
    assert_string_equal(json_string_value(json_object_get(json_object_get(json, "machine"), "provider")), "shm");
    assert_true(json_number_value(json_object_get(json_object_get(json, "machine"), "message_us")) > 0);
    json_decref(json);
    free(out);
    free(err);
    /* Each of the 60 requests is a message of the front, and makes a decoder arm a count. */
    assert_corrected(path);
    struct stat status_of;
    assert_int_equal(stat(path, &status_of), 0);
    assert_true(status_of.st_size > 1000);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* no part of a file is left beside it */
}

/* No fit is without any error: nothing is written, and what it was and what is allowed are told. */
static void a_fit_that_misses_is_not_written(void **state)
{
    (void)state;
    char folder[] = "/tmp/tandem-calibrate-XXXXXX";
    char line[256];
    char *out;
    char *err;
    assert_non_null(mkdtemp(folder));
    snprintf(line, sizeof line, "--out %s/measured.lua --misfit 0 --provider shm", folder);
    assert_int_equal(run_line(line, &out, &err), EXIT_USER);
    assert_string_equal(out, "");
    assert_non_null(strstr(err, "no profile is written: the fits miss the measured writes by "));
    assert_non_null(strstr(err, "on average, and --misfit allows 0 %"));
    assert_int_equal(rmdir(folder), 0);
    free(out);
    free(err);
}

int main(int argc, char **argv)
{
    int status;
    if (run_real_role(argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_is_said_before_anything_is_measured),
        cmocka_unit_test(messages),
        cmocka_unit_test(fabric_of_both_providers),
        cmocka_unit_test(steps_of_both_kinds),
        cmocka_unit_test(a_whole_calibration),
        cmocka_unit_test(a_fit_that_misses_is_not_written),
    };
    return cmocka_run_group_tests_name("calibrate", tests, NULL, NULL);
}
