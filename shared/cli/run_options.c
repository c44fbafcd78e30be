/* See run_command.h. */
#define _XOPEN_SOURCE 700 /* realpath */

#include "cli/run_options.h"

#include "cli/report_run.h"
#include "host/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- What was given ---------------------------------------------------------------------------------------------- */

/* Takes `text`, which it owns. */
static bool add_set(struct scenario_sets *sets, char *text, struct user_error *error)
{
    if (sets->count == SETS_MAX) {
        user_error_set(error, NULL, 0, NULL, "--set: more than %d", SETS_MAX);
        free(text);
        return false;
    }
    sets->texts[sets->count] = text;
    return scenario_override_split(text, &sets->sets[sets->count++], error);
}

/* NAME=FILE becomes hardware.NAME=/absolute/FILE: it is stored with the run, which may be asked for from elsewhere. */
static bool add_hardware(struct scenario_sets *sets, const char *text, struct user_error *error)
{
    size_t name = strcspn(text, "=");
    if (name == 0 || text[name] == '\0' || text[name + 1] == '\0') {
        user_error_set(error, NULL, 0, NULL, "--hardware %s: must have the form NAME=FILE, as in host=build/host.lua",
                       text);
        return false;
    }
    char *path = realpath(text + name + 1, NULL);
    if (path == NULL) {
        user_error_set(error, NULL, 0, NULL, "--hardware %s: %s", text, strerror(errno));
        return false;
    }
    size_t size = strlen(OVERRIDE_HARDWARE) + name + strlen(path) + 2;
    char *set = memory_get(size);
    if (set != NULL)
        snprintf(set, size, OVERRIDE_HARDWARE "%.*s=%s", (int)name, text, path);
    free(path);
    return add_set(sets, set, error);
}

static char *copy_text(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = memory_get(size);
    return copy == NULL ? NULL : memcpy(copy, text, size);
}

bool scenario_sets_read(const struct arguments *arguments, struct scenario_sets *sets, struct user_error *error)
{
    size_t cursor = 0;
    const char *text;
    *sets = (struct scenario_sets){.count = 0};
    while ((text = argument_next(arguments, "set", &cursor)) != NULL)
        if (!add_set(sets, copy_text(text), error))
            return false;
    cursor = 0;
    while (argument_offered(arguments, "hardware") && (text = argument_next(arguments, "hardware", &cursor)) != NULL)
        if (!add_hardware(sets, text, error))
            return false;
    return true;
}

void scenario_sets_free(struct scenario_sets *sets)
{
    for (size_t k = 0; k < SETS_MAX; k++)
        free(sets->texts[k]);
}

const char *database_path(const struct arguments *arguments)
{
    const char *path = argument_text(arguments, "db");
    return path == NULL ? "tandem.db" : path;
}

bool run_record_read(const struct arguments *arguments, uint32_t *record, struct user_error *error)
{
    const char *text = argument_text(arguments, "record");
    *record = 0;
    while (text != NULL && *text != '\0') {
        size_t length = strcspn(text, ",");
        if (length == strlen("transfers") && strncmp(text, "transfers", length) == 0) {
            *record |= RECORD_TRANSFERS;
        } else if (length == strlen("steps") && strncmp(text, "steps", length) == 0) {
            *record |= RECORD_STEPS;
        } else {
            user_error_set(error, NULL, 0, NULL, "--record: %.*s is unknown; transfers and steps can be stored",
                           (int)length, text);
            return false;
        }
        text += length + (text[length] == ',');
    }
    return true;
}

uint32_t run_params(const struct scenario_override *sets, size_t count, struct results_param *params)
{
    uint32_t kept = 0;
    for (size_t k = 0; k < count; k++) {
        bool last = true;
        for (size_t later = k + 1; later < count; later++)
            last = last && strcmp(sets[later].path, sets[k].path) != 0;
        if (last)
            params[kept++] = (struct results_param){sets[k].path, sets[k].value};
    }
    return kept;
}

uint32_t run_replay_param(int64_t replay_of, char text[24], struct results_param *param)
{
    if (replay_of == 0)
        return 0;
    snprintf(text, 24, "%" PRId64, replay_of);
    *param = (struct results_param){RESULTS_REPLAY_PARAM, text};
    return 1;
}

/* ---- The answer -------------------------------------------------------------------------------------------------- */

static void tell_overrides(const struct scenario_override *overrides, size_t count, FILE *err)
{
    for (size_t k = 0; k < count; k++)
        fprintf(err, "%s%s=%s%s", k == 0 ? "with " : ", ", overrides[k].path, overrides[k].value,
                k + 1 == count ? ":\n" : "");
}

/* A line for each target that is missed, and one where nothing was served at all. False: there was one. */
static bool run_tell_targets(const struct run_report *report, const struct scenario_override *overrides, size_t count,
                             FILE *err)
{
    bool nothing = report->requests > 0 && report->completed == 0 && report->aborted < report->requests;
    bool good = !nothing && run_report_met(report);
    if (good)
        return true;
    tell_overrides(overrides, count, err);
    if (nothing)
        fprintf(err, "nothing was served; ");
    for (uint32_t k = 0; nothing && k < report->ending_count; k++)
        fprintf(err, "%s%" PRIu64 " of %" PRIu64 " requests %s: %s", k == 0 ? "" : "; ", report->endings[k].requests,
                report->requests, report->endings[k].outcome == OUTCOME_REJECTED ? "rejected" : "failed",
                outcome_reason_text(report->endings[k].outcome, report->endings[k].reason));
    if (nothing)
        fputc('\n', err);
    for (uint32_t t = 0; t < report->target_count; t++)
        report_missed_target(report, &report->targets[t], err);
    uint64_t asked = report->attainment_asked_permille;
    if (report->met_all_targets * 1000 < report->counted * asked)
        fprintf(err,
                "target missed: %" PRIu64 " of %" PRIu64 " requests were within all targets at once, %.1f %%, and "
                "%.1f %% are asked for\n",
                report->met_all_targets, report->counted,
                100.0 * (double)report->met_all_targets / (double)report->counted, (double)asked / 10.0);
    return false;
}

int run_tell(struct results *store, int64_t run, struct scenario *scenario, const struct scenario_override *overrides,
             size_t override_count, const struct command_context *command, const struct output *output, json_t *answers,
             struct user_error *error)
{
    struct run_report report;
    if (!results_run_read(store, run, &report, error))
        return EXIT_USER;
    json_t *json = run_report_json(&report);
    if (output->format == OUTPUT_JSON || override_count > 0)
        json_array_append(answers, json);
    else
        report_run(&report, output);
    bool met = run_tell_targets(&report, overrides, override_count, command->err);
    run_report_free(&report);
    struct user_error failed = {.set = false};
    enum expect_outcome outcome = scenario_expect(scenario, json, &failed);
    json_decref(json);
    if (outcome == EXPECT_HELD)
        return met ? EXIT_OK : EXIT_WORSE;
    if (outcome == EXPECT_BROKEN) {
        *error = failed;
        return EXIT_USER;
    }
    tell_overrides(overrides, override_count, command->err);
    fprintf(command->err, "%s\n", failed.text);
    return EXIT_WORSE;
}

/* ---- Backends ---------------------------------------------------------------------------------------------------- */

const struct option run_options[] = {
    {"backend", "sim|real", "simulate it (sim), or run it with processes and a fabric (real)", OPTION_CHOICE},
    {"set", "PATH=VALUE", "change a value of the scenario", OPTION_LIST},
    HARDWARE_OPTION,
    {"seed", "N", "of the run (the scenario's)", OPTION_INTEGER},
    {"record", "LIST", "store these too: transfers, steps, or both with a comma", OPTION_TEXT},
    {"db", "FILE", "the results database (tandem.db)", OPTION_TEXT},
    {"format", OUTPUT_FORMATS, "of the answer", OPTION_CHOICE},
    {"threads", "N", "sim: of a sweep (one a processor)", OPTION_INTEGER},
    {"provider", "NAME", "real: of libfabric: shm, tcp, net, verbs, efa (default auto: the best that works)",
     OPTION_TEXT},
    {"device", "host|cuda", "real: what computes the steps (host)", OPTION_CHOICE},
    {"bind", "ADDRESS,...", "real: own IPv4 address, or its network (10.0.0.0/24), a NIC; default 127.0.0.1",
     OPTION_TEXT},
    {"nics", "N", "real: endpoints an instance writes over (one a rank)", OPTION_INTEGER},
    {"window", "N", "real: writes in flight an endpoint (64)", OPTION_INTEGER},
    {"heartbeats", "N", "real: missed, of 200 ms, until a node is lost (10)", OPTION_INTEGER},
    {"limit", "SECONDS", "real: end a run that takes longer (600)", OPTION_INTEGER},
    {"verify", NULL, "real: compare digests of all KV before and after its transfer", OPTION_FLAG},
    {"tokens", "FILE", "real: write the tokens as request,position,token", OPTION_TEXT},
    {"record-events", "FOLDER", "real: write down what each node was told and did", OPTION_TEXT},
    {NULL, NULL, NULL, OPTION_FLAG},
};

static const struct backend *find_backend(const struct backend *backends, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(backends[i].name, name) == 0)
            return &backends[i];
    return NULL; /* the option's choices are the table's names */
}

const struct backend *backend_choose(const struct backend *backends, size_t count, const char *otherwise,
                                     const struct arguments *arguments, struct user_error *error)
{
    const char *name = argument_text(arguments, "backend");
    name = name == NULL ? otherwise : name;
    const struct backend *chosen = find_backend(backends, count, name);
    if (chosen == NULL || chosen->run == NULL) {
        user_error_set(error, NULL, 0, NULL, "--backend %s: %s", name,
                       chosen == NULL ? "this program does not know it" : chosen->absent);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; &backends[i] != chosen && backends[i].alone[k] != NULL; k++) {
            if (!argument_given(arguments, backends[i].alone[k]))
                continue;
            user_error_set(error, NULL, 0, NULL, "--%s is for --backend %s", backends[i].alone[k], backends[i].name);
            return NULL;
        }
    }
    return chosen;
}

int run_by_backend(const struct backend *backends, size_t count, const struct command_context *command,
                   const struct arguments *arguments, struct user_error *error)
{
    const struct backend *chosen = backend_choose(backends, count, backends[0].name, arguments, error);
    return chosen == NULL ? EXIT_USER : chosen->run(command, arguments, error);
}
