/* See check_output.h. */
#include "sim/check/gate_output.h"

#include "base/arith.h"
#include "host/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* Thousandths of the unit, from what is measured: ns to ms, 1e-6/s to 1/s, requests as they are. */
static const char *unit_of(const struct watch *watch)
{
    return watch->kind == WATCH_GOODPUT ? "/s" : watch->kind == WATCH_COMPLETED ? "requests" : "ms";
}

static void add_value(struct table *table, const struct watch *watch, int64_t value)
{
    if (watch->kind == WATCH_COMPLETED)
        table_integer(table, value);
    else
        table_fixed(table, fixed_round(value, watch->kind == WATCH_GOODPUT ? 6 : 9 - 3, 3), 3);
}

static void add_ms(struct table *table, int64_t ns)
{
    table_fixed(table, fixed_round(ns, 6, 3), 3);
}

/* part / of in percent, two decimals, rounded half away from zero. */
static void add_percent(struct table *table, int64_t part, int64_t of)
{
    if (of <= 0) {
        table_none(table);
        return;
    }
    int128 scaled = (int128)part * 20000 + (part < 0 ? -(int128)of : of);
    table_fixed(table, (int64_t)(scaled / (2 * (int128)of)), 2);
}

static const struct moved *moved_named(const struct case_result *one, const char *name)
{
    for (uint32_t k = 0; k < MOVED_COUNT; k++)
        if (strcmp(one->moved[k].name, name) == 0)
            return &one->moved[k];
    return NULL;
}

static const char *verdict_of_case(const struct case_result *one)
{
    if (one->status == RUN_COMPLETE)
        return verdict_name(one->verdict);
    return one->status == RUN_NO_PROGRESS ? "no progress" : one->status == RUN_INVARIANT ? "invariant" : "refused";
}

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

static void columns(struct table *table, const char *const (*names)[2], size_t count)
{
    for (size_t c = 0; c < count; c++)
        table_column(table, names[c][0], names[c][1]);
}

static struct table *summary_table(const struct check_result *result)
{
    static const char *const names[][2] = {
        {"name", "scenario"},     {"verdict", "verdict"},   {"seeds", "seeds"},
        {"same_seeds", "same"},   {"requests", "requests"}, {"ttft_faster", "sooner"},
        {"ttft_slower", "later"}, {"e2e_faster", "faster"}, {"e2e_slower", "slower"}};
    struct table *table = table_new(NULL);
    columns(table, names, sizeof names / sizeof *names);
    for (uint32_t k = 0; k < result->count; k++) {
        const struct case_result *one = &result->cases[k];
        const struct moved *ttft = moved_named(one, "ttft");
        const struct moved *e2e = moved_named(one, "e2e");
        table_row(table);
        table_text(table, one->item->name);
        table_text(table, verdict_of_case(one));
        table_integer(table, one->seeds);
        table_integer(table, one->same);
        for (uint32_t c = 0; c < 5 && (ttft == NULL || e2e == NULL); c++)
            table_none(table);
        if (ttft == NULL || e2e == NULL)
            continue;
        table_integer(table, (int64_t)e2e->requests);
        table_integer(table, (int64_t)ttft->faster);
        table_integer(table, (int64_t)ttft->slower);
        table_integer(table, (int64_t)e2e->faster);
        table_integer(table, (int64_t)e2e->slower);
    }
    return table;
}

static struct table *watched_table(const struct case_result *one)
{
    static const char *const names[][2] = {{"metric", "metric"},         {"unit", ""},
                                           {"before", "before"},         {"after", "after"},
                                           {"difference", "difference"}, {"relative_percent", "%"},
                                           {"low_percent", "99 % from"}, {"high_percent", "to"},
                                           {"verdict", "verdict"}};
    char title[160];
    snprintf(title, sizeof title, "%s: what is watched, mean of %" PRIu32 " %s, paired", one->item->name, one->distinct,
             one->distinct == 1 ? "run" : "seeds");
    struct table *table = table_new(title);
    columns(table, names, sizeof names / sizeof *names);
    for (uint32_t w = 0; w < one->watched_count; w++) {
        const struct watch *watch = &one->watched[w].watch;
        const struct paired *paired = &one->watched[w].paired;
        table_row(table);
        table_text(table, watch->name);
        table_text(table, unit_of(watch));
        add_value(table, watch, paired->mean_before);
        add_value(table, watch, paired->mean_after);
        add_value(table, watch, paired->difference);
        add_percent(table, paired->difference, paired->mean_before);
        if (paired->interval) {
            add_percent(table, paired->low, paired->mean_before);
            add_percent(table, paired->high, paired->mean_before);
        } else {
            table_none(table);
            table_none(table);
        }
        table_text(table, verdict_name(paired->verdict));
    }
    return table;
}

static struct table *requests_table(const struct case_result *one)
{
    static const char *const names[][2] = {{"latency", "latency"},
                                           {"requests", "requests"},
                                           {"faster", "faster"},
                                           {"faster_p50_ms", "p50 by ms"},
                                           {"slower", "slower"},
                                           {"slower_p50_ms", "p50 by ms"},
                                           {"mean_before_ms", "mean before"},
                                           {"mean_after_ms", "mean after"},
                                           {"difference_ms", "difference ms"}};
    char title[160];
    snprintf(title, sizeof title, "%s: request by request, what moved", one->item->name);
    struct table *table = table_new(title);
    columns(table, names, sizeof names / sizeof *names);
    for (uint32_t k = 0; k < MOVED_COUNT; k++) {
        const struct moved *moved = &one->moved[k];
        if (moved->faster + moved->slower == 0)
            continue;
        table_row(table);
        table_text(table, moved->name);
        table_integer(table, (int64_t)moved->requests);
        table_integer(table, (int64_t)moved->faster);
        add_ms(table, moved->faster_p50_ns);
        table_integer(table, (int64_t)moved->slower);
        add_ms(table, moved->slower_p50_ns);
        add_ms(table, moved->mean_before_ns);
        add_ms(table, moved->mean_after_ns);
        add_ms(table, moved->mean_after_ns - moved->mean_before_ns);
    }
    return table;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *table_as_json(struct table *table)
{
    json_t *json = table_json(table);
    table_free(table);
    return json;
}

static json_t *case_json(const struct case_result *one)
{
    bool whole = one->status == RUN_COMPLETE;
    json_t *broken =
        whole ? json_null() : json_pack("{s:I, s:s}", "seed", (json_int_t)one->status_seed, "text", one->text);
    json_t *json = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:I, s:o}", "name", one->item->name, "scenario",
                             one->item->scenario, "verdict", verdict_of_case(one), "seeds", (json_int_t)one->seeds,
                             "same_seeds", (json_int_t)one->same, "distinct_seeds", (json_int_t)one->distinct,
                             "scenario_changed", one->scenario_changed, "requests_changed", one->requests_changed,
                             "unfinished", (json_int_t)one->unfinished, "broken", broken);
    json_object_set_new(json, "diverging_seed",
                        one->first.found ? json_integer((json_int_t)one->diverging_seed) : json_null());
    json_object_set_new(json, "first_difference", divergence_json(&one->first));
    json_object_set_new(json, "first_decision", divergence_json(one->first.times_alone ? &one->decision : &one->first));
    json_object_set_new(json, "watched", table_as_json(watched_table(one)));
    json_object_set_new(json, "requests", table_as_json(requests_table(one)));
    return json;
}

static void print_json(const struct output *output, const struct suite *suite, const struct check_before *before,
                       const struct check_result *result)
{
    const struct baseline_blessing *b = before->blessing;
    json_t *cases = json_array();
    for (uint32_t k = 0; k < result->count; k++)
        json_array_append_new(cases, case_json(&result->cases[k]));
    json_t *told =
        before->program
            ? json_pack("{s:s, s:s, s:s}", "name", before->name, "version", b->version, "build", b->build)
            : json_pack("{s:s, s:s, s:s, s:s, s:s, s:I}", "name", before->name, "version", b->version, "build",
                        b->build, "blessed_at", b->at, "reason", b->reason, "blessings", (json_int_t)before->blessings);
    json_t *json = json_pack(
        "{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "suite", suite->path, "before", told, "scenarios",
        (json_int_t)result->count, "same", (json_int_t)result->tally[VERDICT_SAME], "better",
        (json_int_t)result->tally[VERDICT_BETTER], "changed", (json_int_t)result->tally[VERDICT_CHANGED], "worse",
        (json_int_t)result->tally[VERDICT_WORSE], "broken", (json_int_t)result->broken, "cases", cases);
    output_json(output, json);
    json_decref(json);
}

/* ---- For people -------------------------------------------------------------------------------------------------- */

static void write_tally(FILE *file, const struct check_result *result)
{
    fprintf(file, "%" PRIu32 " scenario%s", result->count, result->count == 1 ? "" : "s");
    static const enum verdict order[] = {VERDICT_SAME, VERDICT_BETTER, VERDICT_CHANGED, VERDICT_WORSE};
    const char *between = ": ";
    for (uint32_t k = 0; k < 4; k++) {
        if (result->tally[order[k]] == 0)
            continue;
        fprintf(file, "%s%" PRIu32 " %s", between, result->tally[order[k]], verdict_name(order[k]));
        between = ", ";
    }
    if (result->broken > 0)
        fprintf(file, "%s%" PRIu32 " did not complete", between, result->broken);
}

static void write_before(FILE *file, const struct suite *suite, const struct check_before *before)
{
    const struct baseline_blessing *b = before->blessing;
    if (before->program)
        fprintf(file, "%s against %s: tandem %s, build %.12s\n", suite->path, before->name, b->version, b->build);
    else
        fprintf(file, "%s against %s: blessing %" PRIu32 " of %s by tandem %s, %s\n", suite->path, before->name,
                before->blessings, b->at, b->version, b->reason);
}

static void write_notes(FILE *file, const struct case_result *one)
{
    if (one->scenario_changed)
        fputs("the scenario resolves to another one than before\n", file);
    if (one->requests_changed)
        fputs("other requests arrive than before: nothing can be said request by request\n", file);
    if (one->unfinished > 0)
        fprintf(file, "%" PRId64 " fewer requests complete than before\n", one->unfinished);
    if (one->unfinished < 0)
        fprintf(file, "%" PRId64 " more requests complete than before\n", -one->unfinished);
}

static void write_decisions(FILE *file, const struct case_result *one)
{
    if (!one->first.found)
        return;
    fprintf(file, "with seed %" PRIu64 ", ", one->diverging_seed);
    divergence_write(file, &one->first, "before", "after", "");
    if (!one->first.times_alone)
        return;
    if (one->decision.found) {
        fputs("times aside, ", file);
        divergence_write(file, &one->decision, "before", "after", "");
    } else {
        fputs("times aside, every node decides as before\n", file);
    }
}

/* Everything about a case that is not the same. */
static void write_case(const struct output *output, const struct case_result *one)
{
    FILE *file = output->file;
    bool markdown = output->format == OUTPUT_MARKDOWN;
    fprintf(file, markdown ? "\n### %s: %s\n\n" : "\n%s: %s\n", one->item->name, verdict_of_case(one));
    if (markdown)
        fputs("```\n", file);
    if (one->status != RUN_COMPLETE)
        fprintf(file, "with seed %" PRIu64 ": %s\n", one->status_seed, one->text);
    write_notes(file, one);
    write_decisions(file, one);
    if (markdown)
        fputs("```\n", file);
    if (one->status != RUN_COMPLETE)
        return;
    struct table *const tables[] = {watched_table(one), one->requests_changed ? NULL : requests_table(one)};
    for (uint32_t k = 0; k < 2 && tables[k] != NULL; k++) {
        fputc('\n', file);
        output_table(output, tables[k]);
        table_free(tables[k]);
    }
}

static void print_csv(const struct output *output, const struct check_result *result)
{
    struct table *summary = summary_table(result);
    output_table(output, summary);
    table_free(summary);
    for (uint32_t k = 0; k < result->count; k++) {
        struct table *const tables[] = {watched_table(&result->cases[k]), requests_table(&result->cases[k])};
        for (uint32_t t = 0; t < 2; t++) {
            if (result->cases[k].watched_count > 0) {
                fputc('\n', output->file);
                output_table(output, tables[t]);
            }
            table_free(tables[t]);
        }
    }
}

void check_print(const struct output *output, const struct suite *suite, const struct check_before *before,
                 const struct check_result *result)
{
    if (output->format == OUTPUT_JSON) {
        print_json(output, suite, before, result);
        return;
    }
    if (output->format == OUTPUT_CSV) {
        print_csv(output, result);
        return;
    }
    bool markdown = output->format == OUTPUT_MARKDOWN;
    fputs(markdown ? "## tandem check: " : "", output->file);
    write_tally(output->file, result);
    fputs(markdown ? "\n\n" : "\n", output->file);
    write_before(output->file, suite, before);
    fputc('\n', output->file);
    struct table *summary = summary_table(result);
    output_table(output, summary);
    table_free(summary);
    for (uint32_t k = 0; k < result->count; k++)
        if (result->cases[k].verdict != VERDICT_SAME || result->cases[k].status != RUN_COMPLETE)
            write_case(output, &result->cases[k]);
}

/* ---- JUnit ------------------------------------------------------------------------------------------------------- */

/* Characters that XML does not have in text as they are. */
static void write_escaped(FILE *file, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", file);
            break;
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        default:
            if ((unsigned char)*text >= ' ' || *text == '\n')
                fputc(*text, file);
        }
    }
}

/* What the terminal would show of the case, as the body of an element. */
static void write_body(FILE *file, const struct case_result *one)
{
    char *text = NULL;
    size_t size = 0;
    FILE *memory = tmpfile();
    if (memory == NULL)
        return;
    struct output output = {.file = memory, .format = OUTPUT_TEXT, .terminal = false};
    write_case(&output, one);
    long length = ftell(memory);
    size = length > 0 ? (size_t)length : 0;
    text = memory_zeroed(size + 1, 1);
    rewind(memory);
    text[fread(text, 1, size, memory)] = '\0';
    write_escaped(file, text);
    free(text);
    fclose(memory);
}

/* "ttft.p95 +29.8 %, goodput -3.1 %": what the verdict rests on. */
static void write_message(FILE *file, const struct case_result *one)
{
    const char *between = "";
    fputs(verdict_of_case(one), file);
    for (uint32_t w = 0; w < one->watched_count; w++) {
        const struct paired *paired = &one->watched[w].paired;
        if (paired->verdict != VERDICT_WORSE)
            continue;
        fprintf(file, "%s%s", between[0] == '\0' ? ": " : between, one->watched[w].watch.name);
        between = ", ";
        if (paired->mean_before > 0)
            fprintf(file, " %+.1f %%", 100.0 * (double)paired->difference / (double)paired->mean_before);
    }
}

static void write_test_case(FILE *file, const struct suite *suite, const struct case_result *one)
{
    fputs("  <testcase classname=\"", file);
    write_escaped(file, suite->path);
    fputs("\" name=\"", file);
    write_escaped(file, one->item->name);
    if (one->status == RUN_COMPLETE && one->verdict == VERDICT_SAME) {
        fputs("\"/>\n", file);
        return;
    }
    bool worse = one->status == RUN_COMPLETE && one->verdict == VERDICT_WORSE;
    const char *element = one->status != RUN_COMPLETE ? "error" : worse ? "failure" : "system-out";
    fprintf(file, "\">\n    <%s", element);
    if (strcmp(element, "system-out") != 0) {
        fputs(" message=\"", file);
        write_message(file, one);
        fputs("\"", file);
    }
    fputs(">", file);
    write_body(file, one);
    fprintf(file, "</%s>\n  </testcase>\n", element);
}

bool check_junit(const char *path, const struct suite *suite, const struct check_result *result,
                 struct user_error *error)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        user_error_set(error, path, 0, "--junit", "cannot be written: %s", strerror(errno));
        return false;
    }
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"tandem check\"", file);
    fprintf(file, " tests=\"%" PRIu32 "\" failures=\"%" PRIu32 "\" errors=\"%" PRIu32 "\">\n", result->count,
            result->tally[VERDICT_WORSE], result->broken);
    for (uint32_t k = 0; k < result->count; k++)
        write_test_case(file, suite, &result->cases[k]);
    fputs("</testsuite>\n", file);
    bool written = ferror(file) == 0;
    if (fclose(file) == 0 && written)
        return true;
    user_error_set(error, path, 0, "--junit", "could not be written");
    return false;
}
