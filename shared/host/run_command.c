/* See run_command.h. */
#include "host/run_command.h"

#include "host/report_run.h"

#include <stdlib.h>
#include <string.h>

/* ---- What was given ---------------------------------------------------------------------------------------------- */

bool scenario_sets_read(const struct arguments *arguments, struct scenario_sets *sets, struct user_error *error)
{
    size_t cursor = 0;
    const char *text;
    *sets = (struct scenario_sets){.count = 0};
    while ((text = argument_next(arguments, "set", &cursor)) != NULL) {
        if (sets->count == SETS_MAX) {
            user_error_set(error, NULL, 0, NULL, "--set: more than %d", SETS_MAX);
            return false;
        }
        size_t size = strlen(text) + 1;
        char *copy = malloc(size);
        if (copy == NULL) {
            user_error_set(error, NULL, 0, NULL, "out of memory");
            return false;
        }
        sets->texts[sets->count] = memcpy(copy, text, size);
        if (!scenario_override_split(copy, &sets->sets[sets->count++], error))
            return false;
    }
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

/* ---- The answer -------------------------------------------------------------------------------------------------- */

int run_tell(struct results *store, int64_t run, struct scenario *scenario, const struct scenario_override *overrides,
             size_t override_count, const struct command_context *command, const struct output *output, json_t *answers,
             struct user_error *error)
{
    struct run_report report;
    if (!results_run_read(store, run, &report, error))
        return EXIT_USER;
    json_t *json = run_report_json(&report);
    if (output->format == OUTPUT_JSON)
        json_array_append(answers, json);
    else
        report_run(&report, output);
    run_report_free(&report);
    struct user_error failed = {.set = false};
    enum expect_outcome outcome = scenario_expect(scenario, json, &failed);
    json_decref(json);
    if (outcome == EXPECT_HELD)
        return EXIT_OK;
    if (outcome == EXPECT_BROKEN) {
        *error = failed;
        return EXIT_USER;
    }
    for (size_t k = 0; k < override_count; k++)
        fprintf(command->err, "%s%s=%s%s", k == 0 ? "with " : ", ", overrides[k].path, overrides[k].value,
                k + 1 == override_count ? ":\n" : "");
    fprintf(command->err, "%s\n", failed.text);
    return EXIT_WORSE;
}

/* ---- Backends ---------------------------------------------------------------------------------------------------- */

const struct option run_options[] = {
    {"backend", "sim|real", "simulate it (sim), or run it with processes and a fabric (real)", OPTION_CHOICE},
    {"set", "PATH=VALUE", "change a value of the scenario", OPTION_LIST},
    {"seed", "N", "of the run (the scenario's)", OPTION_INTEGER},
    {"record", "LIST", "store these too: transfers, steps, or both with a comma", OPTION_TEXT},
    {"db", "FILE", "the results database (tandem.db)", OPTION_TEXT},
    {"format", OUTPUT_FORMATS, "of the answer", OPTION_CHOICE},
    {"threads", "N", "sim: of a sweep (one a processor)", OPTION_INTEGER},
    {"provider", "NAME", "real: of libfabric: shm, tcp, net, verbs, efa (the best that works)", OPTION_TEXT},
    {"device", "host|cuda", "real: what computes the steps (host)", OPTION_CHOICE},
    {"bind", "ADDRESS", "real: own IPv4 address, or its network (10.0.0.0/24); default 127.0.0.1", OPTION_TEXT},
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
        if (name == NULL || strcmp(backends[i].name, name) == 0)
            return &backends[i];
    return NULL; /* the option's choices are the table's names */
}

int run_by_backend(const struct backend *backends, size_t count, const struct command_context *command,
                   const struct arguments *arguments, struct user_error *error)
{
    const struct backend *chosen = find_backend(backends, count, argument_text(arguments, "backend"));
    if (chosen == NULL || chosen->run == NULL) {
        user_error_set(error, NULL, 0, NULL, "--backend %s: %s", argument_text(arguments, "backend"),
                       chosen == NULL ? "this program does not know it" : chosen->absent);
        return EXIT_USER;
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; &backends[i] != chosen && backends[i].alone[k] != NULL; k++) {
            if (!argument_given(arguments, backends[i].alone[k]))
                continue;
            user_error_set(error, NULL, 0, NULL, "--%s is for --backend %s", backends[i].alone[k], backends[i].name);
            return EXIT_USER;
        }
    }
    return chosen->run(command, arguments, error);
}
