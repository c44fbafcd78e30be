/* See suite.h. */
#include "run/suite.h"

#include "base/check.h"
#include "run/run_record.h"
#include "world/scenario/scenario_internal.h"
#include "host/memory.h"

#include <lauxlib.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What is watched --------------------------------------------------------------------------------------------- */

static const char *const latency_names[] = {
    [WATCH_TTFT] = "ttft", [WATCH_TPOT] = "tpot", [WATCH_E2E] = "e2e", [WATCH_ITL] = "itl"};
#define LATENCIES 4
#define SPAN_PREFIX "spans."

/* Without a list: the middle and the tail of both latencies, and what the targets count. */
static const char *const watched_by_default[] = {"ttft.p50", "ttft.p95", "tpot.p50", "tpot.p95", "goodput"};

/* "mean", "p95", "p99.9" */
static bool read_statistic(const char *text, uint32_t *permille)
{
    unsigned whole;
    unsigned tenth = 0;
    int length = 0;
    if (strcmp(text, "mean") == 0) {
        *permille = WATCH_MEAN;
        return true;
    }
    if (sscanf(text, "p%3u%n", &whole, &length) != 1)
        return false;
    if (text[length] == '.' && text[length + 1] >= '0' && text[length + 1] <= '9') {
        tenth = (unsigned)(text[length + 1] - '0');
        length += 2;
    }
    *permille = whole * 10 + tenth;
    return text[length] == '\0' && *permille >= 1 && *permille <= 1000;
}

/* The dot between a name and its statistic; NULL: there is none. */
static const char *statistic_dot(const char *text)
{
    size_t prefix = strlen(SPAN_PREFIX);
    return strchr(strncmp(text, SPAN_PREFIX, prefix) == 0 ? text + prefix : text, '.');
}

static bool unknown_watch(const char *text, struct user_error *error)
{
    const char *known[LATENCIES + SPAN_COUNT + 2];
    char spans[SPAN_COUNT][40];
    size_t count = 0;
    for (size_t k = 0; k < LATENCIES; k++)
        known[count++] = latency_names[k];
    known[count++] = "goodput";
    known[count++] = "completed";
    for (size_t k = 0; k < SPAN_COUNT; k++) {
        snprintf(spans[k], sizeof spans[k], SPAN_PREFIX "%s", span_names[k]);
        known[count++] = spans[k];
    }
    char name[48];
    const char *dot = statistic_dot(text);
    size_t length = dot == NULL ? strlen(text) : (size_t)(dot - text);
    snprintf(name, sizeof name, "%.*s", (int)(length < 47 ? length : 47), text);
    const char *nearest = nearest_name(name, known, count);
    if (nearest != NULL && strcmp(nearest, name) == 0)
        user_error_set(error, NULL, 0, NULL, "'%.40s': a statistic is wanted after the name, as in %s.p95 or %s.mean",
                       text, nearest, nearest);
    else
        user_error_set(
            error, NULL, 0, NULL, "nothing is called '%.40s'%s%s%s", text, nearest == NULL ? "" : "; did you mean '",
            nearest == NULL ? "; ttft.p95, spans.prefill.mean or goodput is" : nearest, nearest == NULL ? "" : "'?");
    return false;
}

bool watch_read(const char *text, struct watch *watch, struct user_error *error)
{
    *watch = (struct watch){.percentile_permille = WATCH_MEAN};
    if (strlen(text) >= sizeof watch->name)
        return unknown_watch(text, error);
    snprintf(watch->name, sizeof watch->name, "%s", text);
    if (strcmp(text, "goodput") == 0 || strcmp(text, "completed") == 0) {
        watch->kind = text[0] == 'g' ? WATCH_GOODPUT : WATCH_COMPLETED;
        watch->more_is_better = true;
        return true;
    }
    const char *dot = statistic_dot(text);
    if (dot == NULL || !read_statistic(dot + 1, &watch->percentile_permille))
        return unknown_watch(text, error);
    size_t length = (size_t)(dot - text);
    for (uint32_t k = 0; k < LATENCIES; k++) {
        watch->kind = (enum watch_kind)k;
        if (strlen(latency_names[k]) == length && strncmp(text, latency_names[k], length) == 0)
            return true;
    }
    size_t prefix = strlen(SPAN_PREFIX);
    watch->kind = WATCH_SPAN;
    for (uint32_t k = 0; k < SPAN_COUNT && length > prefix; k++) {
        watch->span = k;
        if (strncmp(text, SPAN_PREFIX, prefix) == 0 && strlen(span_names[k]) == length - prefix &&
            strncmp(text + prefix, span_names[k], length - prefix) == 0)
            return true;
    }
    return unknown_watch(text, error);
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

#define AT(type, member) (uint32_t) offsetof(type, member), (uint32_t)sizeof(((type *)0)->member)
#define LENGTH(list) (uint32_t)(sizeof(list) / sizeof((list)[0]))

/* Of the suite, for cases that do not say. */
struct defaults {
    uint64_t seeds;
    int64_t tolerance_permille;
};

static const struct field question_fields[] = {
    {"question", FIELD_TEXT, 0, true, AT(struct suite, question), 0, 0, INT64_MAX, NULL, NULL, 0},
};
static const struct schema schema_question = {question_fields, LENGTH(question_fields), 0};

static const struct field default_fields[] = {
    {"seeds", FIELD_COUNT, 0, false, AT(struct defaults, seeds), 5, 1, SUITE_SEEDS_MAX, "SUITE_SEEDS_MAX", NULL, 0},
    {"tolerance", FIELD_QUANTITY, QUANTITY_SHARE, false, AT(struct defaults, tolerance_permille), 10, 0, 1000, NULL,
     NULL, 0},
};
static const struct schema schema_defaults = {default_fields, LENGTH(default_fields), 0};
static const char *const suite_keys[] = {"question", "cases"};

/* Absent, the first two are the suite's. */
static const struct field case_fields[] = {
    {"seeds", FIELD_COUNT, 0, false, AT(struct suite_case, seeds), 0, 1, SUITE_SEEDS_MAX, "SUITE_SEEDS_MAX", NULL, 0},
    {"tolerance", FIELD_QUANTITY, QUANTITY_SHARE, false, AT(struct suite_case, tolerance_permille), -1, 0, 1000, NULL,
     NULL, 0},
    {"first_seed", FIELD_COUNT, 0, false, AT(struct suite_case, first_seed), 1, 0, INT64_C(1) << 62, NULL, NULL, 0},
    {"scenario", FIELD_TEXT, 0, true, AT(struct suite_case, scenario), 0, 0, INT64_MAX, NULL, NULL, 0},
    {"name", FIELD_TEXT, 0, false, AT(struct suite_case, name), 0, 0, INT64_MAX, NULL, NULL, 0},
};
static const struct schema schema_case = {case_fields, LENGTH(case_fields), 0};
static const char *const case_keys[] = {"set", "watch"};

static void name_of_file(const char *path, char *name, size_t size)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash == NULL ? path : slash + 1;
    const char *dot = strrchr(base, '.');
    size_t length = dot == NULL || dot == base ? strlen(base) : (size_t)(dot - base);
    snprintf(name, size, "%.*s", (int)(length < size ? length : size - 1), base);
}

static void read_sets(const struct cursor *cursor, struct suite_case *item)
{
    const char *paths[SUITE_SETS_MAX];
    lua_State *L = cursor->reader->L;
    if (cursor_push(cursor, "set") != LUA_TNIL) {
        lua_pop(L, 1);
        cursor_push_table(cursor, "set", NULL);
        struct cursor sets = cursor_below(cursor, "set");
        size_t count = read_sorted_keys(&sets, paths, SUITE_SETS_MAX, "SUITE_SETS_MAX");
        for (size_t k = 0; k < count; k++) {
            char *path = item->texts[k][0];
            char *value = item->texts[k][1];
            cursor_push(&sets, paths[k]);
            if (strlen(paths[k]) >= sizeof item->texts[k][0])
                cursor_fail(&sets, NULL, "no key has so long a path");
            memcpy(path, paths[k], strlen(paths[k]) + 1);
            if (!scenario_value_expression(L, value, sizeof item->texts[k][1]))
                cursor_fail(&sets, path,
                            "a number, a quantity, a short text, true or false, uniform(...) or a required module is "
                            "wanted");
            item->sets[k] = (struct scenario_override){path, value};
            lua_pop(L, 1);
        }
        item->set_count = (uint32_t)count;
    }
    lua_pop(L, 1);
}

static void read_watch(const struct cursor *cursor, struct suite_case *item)
{
    lua_State *L = cursor->reader->L;
    struct user_error wrong = {.set = false};
    if (cursor_push(cursor, "watch") == LUA_TNIL) {
        item->watch_count = LENGTH(watched_by_default);
        for (uint32_t k = 0; k < item->watch_count; k++)
            CHECK(watch_read(watched_by_default[k], &item->watch[k], &wrong));
        lua_pop(L, 1);
        return;
    }
    lua_pop(L, 1);
    cursor_push_table(cursor, "watch", NULL);
    struct cursor list = cursor_below(cursor, "watch");
    item->watch_count = read_list_length(&list, SUITE_WATCH_MAX, "SUITE_WATCH_MAX");
    for (uint32_t k = 0; k < item->watch_count; k++) {
        lua_rawgeti(L, -1, (lua_Integer)k + 1);
        if (lua_type(L, -1) != LUA_TSTRING)
            cursor_fail(cursor, "watch", "texts are wanted, as in { \"ttft.p95\", \"goodput\" }");
        if (!watch_read(lua_tostring(L, -1), &item->watch[k], &wrong))
            cursor_fail(cursor, "watch", "%s", wrong.text);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

static void read_case(const struct cursor *cursor, const struct defaults *defaults, struct suite *suite)
{
    struct suite_case *item = &suite->cases[suite->case_count];
    read_no_others(cursor, &schema_case, case_keys, LENGTH(case_keys));
    read_fields(cursor, &schema_case, item);
    char file[sizeof item->scenario];
    memcpy(file, item->scenario, sizeof file);
    if (item->name[0] == '\0')
        name_of_file(file, item->name, sizeof item->name);
    if (item->seeds == 0)
        item->seeds = defaults->seeds;
    if (item->tolerance_permille < 0)
        item->tolerance_permille = defaults->tolerance_permille;
    if (!sandbox_find_anywhere(sandbox_of(cursor->reader->L), file, item->scenario, sizeof item->scenario))
        cursor_fail(cursor, "scenario", "%s is neither beside the suite nor among the shipped scenarios", file);
    for (uint32_t k = 0; k < suite->case_count; k++)
        if (strcmp(suite->cases[k].name, item->name) == 0)
            cursor_fail(cursor, "name", "case %u is called '%s' too; give one of them another name", k + 1, item->name);
    read_sets(cursor, item);
    read_watch(cursor, item);
    suite->case_count++;
}

struct loading {
    struct suite *suite;
    struct origins origins;
};

static int load_protected(lua_State *L)
{
    struct loading *loading = lua_touserdata(L, 1);
    struct suite *suite = loading->suite;
    struct reader reader = {.L = L, .origins = &loading->origins};
    struct defaults defaults;
    luaL_checkstack(L, 64, NULL);
    sandbox_run_file(L, suite->path);
    const struct word_mark *mark = scenario_word(L, -1);
    if (mark == NULL || strcmp(mark->word, "suite") != 0)
        sandbox_fail(L, suite->path, 0, NULL, "must end with: return suite { ... }");
    struct cursor root = cursor_at_word(&reader, "", mark);
    read_no_others(&root, &schema_defaults, suite_keys, LENGTH(suite_keys));
    read_fields(&root, &schema_question, suite);
    read_fields(&root, &schema_defaults, &defaults);
    cursor_push_table(&root, "cases", NULL);
    struct cursor list = cursor_below(&root, "cases");
    uint32_t count = read_list_length(&list, SUITE_CASES_MAX, "SUITE_CASES_MAX");
    for (uint32_t k = 0; k < count; k++) {
        char place[16];
        snprintf(place, sizeof place, "%u", k + 1);
        cursor_push_table(&list, place, "case");
        struct cursor item = cursor_below(&list, place);
        read_case(&item, &defaults, suite);
        lua_pop(L, 1);
    }
    return 0;
}

struct suite *suite_load(const char *path, struct user_error *error)
{
    struct suite *suite = memory_zeroed(1, sizeof *suite);
    struct sandbox *sandbox = memory_zeroed(1, sizeof *sandbox);
    struct loading loading = {.suite = suite};
    char folder[SANDBOX_PATH_SIZE];
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    bool good = strlen(path) < sizeof suite->path;
    if (good) {
        snprintf(suite->path, sizeof suite->path, "%s", path);
        snprintf(folder, sizeof folder, "%.*s", (int)length, path);
        good = sandbox_open(sandbox, folder, scenario_library_root(), scenario_words_open, error) &&
               sandbox_call(sandbox, load_protected, &loading, error);
        sandbox_close(sandbox);
    } else {
        user_error_set(error, NULL, 0, NULL, "%.60s...: the path is too long", path);
    }
    free(loading.origins.items);
    free(sandbox);
    if (good)
        return suite;
    suite_free(suite);
    return NULL;
}

void suite_free(struct suite *suite)
{
    free(suite);
}
