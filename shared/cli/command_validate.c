/* tandem validate: predictions beside measurements, one table for all sources, the rows left out, the worst cases; and
 * the gate that keeps errors from growing unnoticed. */
#include "base/check.h"
#include "world/kernels/csv_table.h"
#include "host/interrupt.h"
#include "host/output.h"
#include "cli/commands.h"
#include "sim/validate/kernels.h"
#include "sim/validate/subjects.h"
#include "sim/validate/validate.h"
#include "host/thread_pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Errors may be this much larger than the accepted ones before the gate closes: a tenth of them, and half a percent. */
#define TOLERANCE_SHARE 10
#define TOLERANCE_PPM INT64_C(5000)

const struct validation_source validation_sources[] = {
    {"kernels", "rows of the measured kernel tables, each left out", false, validate_kernels},
    {"operators", "products and all-reduces that others timed", true, validate_operators},
    {"serving", "InferenceX serving runs", true, validate_serving},
    {"benchmarks", "published runs of whole servers: trtllm-bench, GPUStack, InferenceX by length, MLPerf", false,
     validate_benchmarks},
    {"timestamps", "requests of recorded vLLM servers", true, validate_timestamps},
    {"steps", "Splitwise's prompt and token times", true, validate_steps},
    {"layerwise", "the layer-wise transfer table", true, validate_layerwise},
    {"transfers", "the KV of whole prompts", true, validate_transfers},
    {"nics", "single and paged writes", true, validate_nics},
    {NULL, NULL, false, NULL},
};

/* ---- Tables ----------------------------------------------------------------------------------------------------- */

static void percent(struct table *table, int64_t ppm)
{
    table_fixed(table, fixed_round(ppm, 4, 1), 1);
}

static void target(struct table *table, int64_t ppm)
{
    if (ppm == 0)
        table_none(table);
    else
        percent(table, ppm);
}

static bool meets(const struct validation *v)
{
    return (v->target_median_ppm == 0 || v->median_ppm <= v->target_median_ppm) &&
           (v->target_p90_ppm == 0 || v->p90_ppm <= v->target_p90_ppm);
}

static const char *verdict(const struct validation *v)
{
    if (v->rows == 0)
        return "no rows";
    if (v->target_median_ppm == 0 && v->target_p90_ppm == 0)
        return "";
    return meets(v) ? "yes" : "no";
}

static struct table *summary_table(const struct validation_set *set)
{
    struct table *table = table_new("Errors of predictions");
    const char *const columns[][2] = {{"source", "source"},
                                      {"rows", "rows"},
                                      {"median_percent", "median %"},
                                      {"p90_percent", "p90 %"},
                                      {"bias_percent", "bias %"},
                                      {"target_median_percent", "target"},
                                      {"target_p90_percent", "target p90"},
                                      {"met", "met"},
                                      {"fitted_rows", "fitted on"},
                                      {"constants", "constants"},
                                      {"left_out", "left out"},
                                      {"key", "key"}};
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
        table_column(table, columns[c][0], columns[c][1]);
    for (uint32_t i = 0; i < set->count; i++) {
        const struct validation *v = &set->items[i];
        uint32_t left_out = 0;
        for (uint32_t k = 0; k < v->exclusion_count; k++)
            left_out += v->exclusions[k].rows;
        table_row(table);
        table_text(table, v->source);
        table_integer(table, v->rows);
        if (v->rows == 0) {
            for (int k = 0; k < 3; k++)
                table_none(table);
        } else {
            percent(table, v->median_ppm);
            percent(table, v->p90_ppm);
            percent(table, v->bias_ppm);
        }
        target(table, v->target_median_ppm);
        target(table, v->target_p90_ppm);
        table_text(table, verdict(v));
        table_integer(table, v->fitted);
        table_integer(table, v->constants);
        table_integer(table, left_out);
        table_text(table, v->key);
    }
    return table;
}

static struct table *exclusion_table(const struct validation_set *set)
{
    struct table *table = table_new("Rows left out, by rules that look at no prediction");
    table_column(table, "key", "table");
    table_column(table, "rule", "rule");
    table_column(table, "rows", "rows");
    table_column(table, "why", "why");
    for (uint32_t i = 0; i < set->count; i++) {
        for (uint32_t k = 0; k < set->items[i].exclusion_count; k++) {
            const struct validation_exclusion *e = &set->items[i].exclusions[k];
            table_row(table);
            table_text(table, set->items[i].key);
            table_text(table, e->rule);
            table_integer(table, e->rows);
            table_text(table, e->why);
        }
    }
    return table;
}

static struct table *worst_table(const struct validation_set *set)
{
    struct table *table = table_new("The worst cases");
    table_column(table, "key", "table");
    table_column(table, "case", "case");
    table_column(table, "measured", "measured");
    table_column(table, "predicted", "predicted");
    table_column(table, "unit", "unit");
    table_column(table, "error_percent", "error %");
    for (uint32_t i = 0; i < set->count; i++) {
        for (uint32_t k = 0; k < set->items[i].worst_count; k++) {
            const struct validation_case *one = &set->items[i].worst[k];
            table_row(table);
            table_text(table, set->items[i].key);
            table_text(table, one->label);
            table_fixed(table, fixed_round(one->measured, 6, 3), 3);
            table_fixed(table, fixed_round(one->predicted, 6, 3), 3);
            table_text(table, set->items[i].unit != NULL ? set->items[i].unit : "ms");
            percent(table, one->error_ppm);
        }
    }
    return table;
}

static void print_all(const struct output *output, const struct validation_set *set, bool summary)
{
    struct table *const tables[] = {summary_table(set), worst_table(set), exclusion_table(set)};
    const char *const names[] = {"validations", "worst", "left_out"};
    json_t *json = json_object();
    for (size_t i = 0; i < 3; i++) {
        if (summary && i > 0)
            ;
        else if (output->format == OUTPUT_JSON)
            json_object_set_new(json, names[i], table_json(tables[i]));
        else
            output_table(output, tables[i]);
        table_free(tables[i]);
    }
    if (output->format == OUTPUT_JSON)
        output_json(output, json);
    json_decref(json);
}

/* ---- The gate --------------------------------------------------------------------------------------------------- */

static int64_t allowed(int64_t accepted_ppm)
{
    return accepted_ppm + accepted_ppm / TOLERANCE_SHARE + TOLERANCE_PPM;
}

static uint32_t worse(FILE *err, const char *key, const char *what, int64_t now_ppm, int64_t accepted_ppm)
{
    if (now_ppm <= allowed(accepted_ppm))
        return 0;
    fprintf(err, "%s: the %s error is %lld ppm, accepted are %lld\n", key, what, (long long)now_ppm,
            (long long)accepted_ppm);
    return 1;
}

/* Compares with the accepted errors; fewer rows than were accepted are worse, too. */
static bool gate(const struct validation_set *set, const char *path, FILE *err, bool *held, struct user_error *error)
{
    struct csv_table accepted;
    if (!csv_table_read(path, &accepted, error))
        return false;
    uint32_t failures = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        const struct validation *v = &set->items[i];
        uint32_t row = 0;
        while (row < accepted.row_count && strcmp(csv_text(&accepted, row, csv_column(&accepted, "key")), v->key) != 0)
            row++;
        if (row == accepted.row_count)
            continue;
        int64_t rows = csv_integer(&accepted, row, csv_column(&accepted, "rows"), 0);
        if ((int64_t)v->rows < rows) {
            fprintf(err, "%s: %u rows, accepted are %lld\n", v->key, v->rows, (long long)rows);
            failures++;
        }
        failures += worse(err, v->key, "median", v->median_ppm,
                          csv_integer(&accepted, row, csv_column(&accepted, "median_ppm"), 0));
        failures +=
            worse(err, v->key, "p90", v->p90_ppm, csv_integer(&accepted, row, csv_column(&accepted, "p90_ppm"), 0));
    }
    csv_table_free(&accepted);
    *held = failures == 0;
    return true;
}

static void print_errors(FILE *file, const struct validation *v)
{
    fprintf(file, "%s,%u,%lld,%lld\n", v->key, v->rows, (long long)v->median_ppm, (long long)v->p90_ppm);
}

static void print_cases(FILE *file, const struct validation *v)
{
    for (uint32_t i = 0; i < v->rows; i++)
        fprintf(file, "%s,\"%s\",%lld,%lld,%lld\n", v->key, v->cases[i].label, (long long)v->cases[i].measured,
                (long long)v->cases[i].predicted, (long long)v->cases[i].error_ppm);
}

/* A CSV file with a line, or more, for each validation. `path` NULL: none is wanted. */
static bool write_lines(const char *path, const char *head,
                        void (*print)(FILE *file, const struct validation *validation),
                        const struct validation_set *set, struct user_error *error)
{
    if (path == NULL)
        return true;
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        user_error_set(error, path, 0, NULL, "cannot be written: %s", strerror(errno));
        return false;
    }
    fprintf(file, "%s\n", head);
    for (uint32_t i = 0; i < set->count; i++)
        print(file, &set->items[i]);
    bool written = ferror(file) == 0;
    if (fclose(file) == 0 && written)
        return true;
    user_error_set(error, path, 0, NULL, "could not be written");
    return false;
}

static bool write_files(const struct arguments *arguments, const struct validation_set *set, struct user_error *error)
{
    return write_lines(argument_text(arguments, "errors"), "key,rows,median_ppm,p90_ppm", print_errors, set, error) &&
           write_lines(argument_text(arguments, "subjects"), SUBJECTS_HEAD, subjects_print, set, error) &&
           write_lines(argument_text(arguments, "cases"), "key,case,measured,predicted,error_ppm", print_cases, set,
                       error);
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

static const struct option validate_options[] = {
    {"quick", NULL, "the part that takes seconds: nothing is fitted", OPTION_FLAG},
    {"chosen-on", NULL, "quote the rows that constants may be chosen on: for work on the model", OPTION_FLAG},
    {"summary", NULL, "the first table alone", OPTION_FLAG},
    {"against", "FILE", "exit 1 where errors are larger than the accepted ones in FILE", OPTION_TEXT},
    {"cases", "FILE", "also write every case to FILE, as CSV", OPTION_TEXT},
    {"errors", "FILE", "also write the errors to FILE, as --against takes them", OPTION_TEXT},
    {"subjects", "FILE", "also write the errors by engine, GPU and class of model to FILE, as CSV", OPTION_TEXT},
    {"threads", "N", "simulations at once (all processors)", OPTION_INTEGER},
    {"format", OUTPUT_FORMATS, "of the answer", OPTION_CHOICE},
    {NULL, NULL, NULL, OPTION_FLAG},
};

static bool known(const char *name, struct user_error *error)
{
    const char *names[32];
    size_t count = 0;
    for (const struct validation_source *s = validation_sources; s->name != NULL; s++) {
        if (strcmp(s->name, name) == 0)
            return true;
        names[count++] = s->name;
    }
    const char *nearest = nearest_name(name, names, count);
    user_error_set(error, NULL, 0, NULL, "'%s' is no source of measurements%s%s%s", name,
                   nearest == NULL ? "" : "; did you mean '", nearest == NULL ? "" : nearest,
                   nearest == NULL ? "" : "'?");
    return false;
}

static bool asked_for(const struct arguments *arguments, const char *name)
{
    for (size_t i = 0; i < operand_count(arguments); i++)
        if (strcmp(operand(arguments, i), name) == 0)
            return true;
    return operand_count(arguments) == 0;
}

static int validate_run(const struct command_context *context, const struct arguments *arguments,
                        struct user_error *error)
{
    struct output output = output_to(context->out, argument_text(arguments, "format"));
    uint32_t threads = argument_workers(arguments, "threads", workers_default(), error);
    const struct validation_options options = {
        .threads = threads,
        .quick = argument_flag(arguments, "quick"),
        .chosen_on = argument_flag(arguments, "chosen-on"),
    };
    struct validation_set set = {0};
    if (threads == 0)
        return EXIT_USER;
    interrupt_install();
    for (size_t i = 0; i < operand_count(arguments); i++)
        if (!known(operand(arguments, i), error))
            return EXIT_USER;
    for (const struct validation_source *s = validation_sources; s->name != NULL && !error->set; s++) {
        if (!asked_for(arguments, s->name) || (options.quick && !s->quick) || interrupt_requested())
            continue;
        s->run(&set, &options, error);
    }
    int exit = interrupt_requested() ? EXIT_INTERRUPTED : error->set ? EXIT_USER : EXIT_OK;
    bool held = true;
    const char *against = argument_text(arguments, "against");
    if (exit == EXIT_OK)
        print_all(&output, &set, argument_flag(arguments, "summary"));
    if (exit == EXIT_OK && !write_files(arguments, &set, error))
        exit = EXIT_USER;
    if (exit == EXIT_OK && against != NULL && !gate(&set, against, context->err, &held, error))
        exit = EXIT_USER;
    validation_set_free(&set);
    return exit == EXIT_OK && !held ? EXIT_WORSE : exit;
}

const struct command command_validate = {
    .name = "validate",
    .operands = "[SOURCE...]",
    .operands_min = 0,
    .operands_max = 16,
    .summary = "predictions beside measured results",
    .description =
        "Runs every comparison with measured results that come with tandem, or those of the sources named: one line\n"
        "a table with the median and 90th percentile of the absolute error and the bias, then the five worst cases\n"
        "of each, then the rows left out and why. Constants are chosen on rows that are not quoted; which rows they\n"
        "are is decided by a hash of the row's configuration.",
    .options = validate_options,
    .run = validate_run,
};
