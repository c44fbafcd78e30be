/* See run_options.h. */
#define _XOPEN_SOURCE 700 /* realpath */

#include "cli/run_options.h"

#include "base/check.h"
#include "cli/report_run.h"
#include "real/cluster/real_options.h"
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

void run_tell_notice(void *file, const char *text)
{
    fprintf(file, "%s\n", text);
}

/* ---- Backends ---------------------------------------------------------------------------------------------------- */

#define REAL_TEXT(field, name, argument, help, otherwise) {name, argument, "real: " help, OPTION_TEXT},
#define REAL_CHOICE(field, name, argument, help, otherwise) {name, argument, "real: " help, OPTION_CHOICE},
#define REAL_NUMBER(field, name, argument, help, least, most, otherwise)                                               \
    {name, argument, "real: " help, OPTION_INTEGER},
#define REAL_FLAG(field, name, help) {name, NULL, "real: " help, OPTION_FLAG},

const struct option run_options[] = {
    {"backend", "sim|real|live",
     "simulate it (sim), run it with processes and a fabric (real), or send it to an endpoint (live)", OPTION_CHOICE},
    {"set", "PATH=VALUE", "change a value of the scenario", OPTION_LIST},
    HARDWARE_OPTION,
    {"seed", "N", "of the run (the scenario's)", OPTION_INTEGER},
    {"record", "LIST", "store these too: transfers, steps, or both with a comma", OPTION_TEXT},
    {"db", "FILE", "the results database (tandem.db)", OPTION_TEXT},
    {"format", OUTPUT_FORMATS, "of the answer", OPTION_CHOICE},
    {"threads", "N", "sim: of a sweep (one a processor)", OPTION_INTEGER},
    {"endpoint", "URL", "live: of the OpenAI API, as http://host:8000/v1; --backend live is then understood",
     OPTION_TEXT},
    {"model", "NAME", "live: as the endpoint calls it (the first that it names)", OPTION_TEXT},
    {"api-key", "KEY", "live: that the endpoint asks for", OPTION_TEXT},
    {"ca-file", "FILE", "live: certificates to trust (the system's)", OPTION_TEXT},
    {"prompt", "ids|text|chat", "live: token ids, exact (ids); words, about as many, in completions or chats",
     OPTION_CHOICE},
    {"vocabulary", "N", "live: token ids are below it (the scenario's model's)", OPTION_INTEGER},
    {"salt", "N", "live: prompts as another run had them; 0: drawn, so that no cache knows them (0)", OPTION_INTEGER},
    {"idle-max", "SECONDS", "live: an answer of which nothing comes for so long has failed (120)", OPTION_INTEGER},
    REAL_OPTIONS(REAL_TEXT, REAL_CHOICE, REAL_NUMBER, REAL_FLAG){NULL, NULL, NULL, OPTION_FLAG},
};

const struct backend *backend_choose(const char *otherwise, const struct arguments *arguments, struct user_error *error)
{
    const char *name = argument_text(arguments, "backend");
    if (name == NULL)
        name = argument_given(arguments, "endpoint") ? backend_live.name : otherwise;
    size_t at = 0;
    while (strcmp(backends[at]->name, name) != 0)
        CHECK(backends[++at] != NULL); /* the option's choices are the table's names */
    const struct backend *chosen = backends[at];
    if (chosen->run == NULL) {
        user_error_set(error, NULL, 0, NULL, "--backend %s: %s", name, chosen->absent);
        return NULL;
    }
    for (size_t i = 0; backends[i] != NULL; i++) {
        const char *const *alone = backends[i]->alone;
        for (size_t k = 0; i != at && alone[k] != NULL; k++) {
            if (!argument_given(arguments, alone[k]))
                continue;
            user_error_set(error, NULL, 0, NULL, "--%s is for --backend %s", alone[k], backends[i]->name);
            return NULL;
        }
    }
    return chosen;
}
