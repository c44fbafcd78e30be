/* See scenario_lua.h. This file: from the path of a file to a checked struct scenario. */
#define _XOPEN_SOURCE 700

#include "world/scenario/scenario_internal.h"

#include "base/check.h"
#include "host/memory.h"

#include <lauxlib.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the shipped scenarios are, unless TANDEM_SCENARIOS says otherwise. Set by the build. */
#ifndef TANDEM_SCENARIO_ROOT
#define TANDEM_SCENARIO_ROOT "scenarios"
#endif

static const char *const top_keys[] = {
    "model",   "pools", "load", "routing", "admission",   "messenger",
    "targets", "plan",  "vary", "expect",  "expect_plan", "faults",
};

void scenario_fail_at(const struct cursor *root, const char *path, const char *format, ...)
{
    char text[1024];
    char key[64];
    struct cursor cursor = *root;
    lua_State *L = root->reader->L;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (;;) {
        size_t length = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)length, path);
        if (path[length] == '\0' || cursor_push(&cursor, key) != LUA_TTABLE)
            break;
        cursor = cursor_below(&cursor, key);
        path += length + 1;
    }
    luaL_checkstack(L, 8, NULL);
    cursor_fail(&cursor, key, "%s", text);
}

/* The name of a scenario is that of its file, without folder and ending. */
static void name_from_path(const char *path, char *name, size_t size)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash == NULL ? path : slash + 1;
    const char *dot = strrchr(base, '.');
    size_t length = dot == NULL || dot == base ? strlen(base) : (size_t)(dot - base);
    if (length >= size)
        length = size - 1;
    memcpy(name, base, length);
    name[length] = '\0';
}

static void read_function(const struct cursor *root, const char *key, const char *registry_key)
{
    lua_State *L = root->reader->L;
    int type = cursor_push(root, key);
    if (type != LUA_TNIL && type != LUA_TFUNCTION)
        cursor_fail(root, key, "a function is wanted, as in %s = function(r) check(r.failed == 0) end", key);
    lua_setfield(L, LUA_REGISTRYINDEX, registry_key);
}

/* Prefixes are shared in whole pages: where the blocks of a trace are smaller, those of a page are taken together. */
static void take_blocks_together(struct scenario *scenario)
{
    struct trace_options *trace = &scenario->load.trace;
    if (scenario->load.arrivals != ARRIVAL_TRACE || trace->format != TRACE_FORMAT_MOONCAKE_JSONL)
        return;
    uint32_t block = trace_block_tokens(trace);
    uint32_t page = 0;
    for (uint32_t k = 0; k < scenario->pool_count; k++)
        if (scenario->pools[k].scheduler.prefix_cache && scenario->pools[k].page_tokens > page)
            page = scenario->pools[k].page_tokens;
    if (page > block && page % block == 0)
        trace->blocks_together = page / block;
}

static void read_scenario(const struct cursor *root, struct scenario *scenario)
{
    lua_State *L = root->reader->L;
    read_no_others(root, &schema_top, top_keys, sizeof top_keys / sizeof top_keys[0]);
    read_fields(root, &schema_top, scenario);
    if (scenario->name[0] == '\0')
        name_from_path(scenario->path, scenario->name, sizeof scenario->name);
    scenario_read_model(root, &scenario->model);
    scenario_read_pools(root, scenario);
    scenario_read_load(root, &scenario->load);
    scenario_read_policies(root, scenario);
    scenario_read_faults(root, scenario);
    scenario_read_vary(root, scenario);
    cursor_push(root, "expect");
    scenario->has_expect = !lua_isnil(L, -1);
    lua_pop(L, 1);
    read_function(root, "expect", EXPECT_KEY);
    read_function(root, "expect_plan", EXPECT_PLAN_KEY);
    take_blocks_together(scenario);
    scenario_check(root, scenario);
    scenario_identify(scenario);
}

static bool replaces_module(const struct scenario_override *override)
{
    return strncmp(override->path, OVERRIDE_HARDWARE, strlen(OVERRIDE_HARDWARE)) == 0;
}

/* Of a module replaced twice the last file counts. */
static void replace_modules(lua_State *L, const struct scenario_loaded *loaded)
{
    struct sandbox *sandbox = sandbox_of(L);
    for (size_t k = 0; k < loaded->set_count; k++) {
        const struct scenario_override *override = &loaded->sets[k];
        char file[sizeof sandbox->replaced[0].file];
        if (!replaces_module(override))
            continue;
        snprintf(file, sizeof file, "hardware/%.200s.lua", override->path + strlen(OVERRIDE_HARDWARE));
        uint32_t place = 0;
        while (place < sandbox->replaced_count && strcmp(sandbox->replaced[place].file, file) != 0)
            place++;
        if (place == SANDBOX_REPLACED_MAX || strlen(override->value) >= SANDBOX_PATH_SIZE)
            sandbox_fail(L, override->path, 0, NULL, "at most %d machines are replaced, by paths of at most %d bytes",
                         SANDBOX_REPLACED_MAX, SANDBOX_PATH_SIZE - 1);
        struct sandbox_replaced *replaced = &sandbox->replaced[place];
        memcpy(replaced->file, file, sizeof file);
        snprintf(replaced->path, sizeof replaced->path, "%s", override->value);
        sandbox->replaced_count = place == sandbox->replaced_count ? place + 1 : sandbox->replaced_count;
    }
}

static void check_replaced(lua_State *L)
{
    const struct sandbox *sandbox = sandbox_of(L);
    for (uint32_t k = 0; k < sandbox->replaced_count; k++) {
        const struct sandbox_replaced *replaced = &sandbox->replaced[k];
        const char *name = strchr(replaced->file, '/') + 1;
        int length = (int)strlen(name) - (int)strlen(".lua");
        if (!replaced->required)
            sandbox_fail(L, sandbox->sources[0].name, 0, NULL,
                         "nothing requires \"hardware.%.*s\", so that --hardware %.*s=%s has no effect", length, name,
                         length, name, replaced->path);
    }
}

static int load_protected(lua_State *L)
{
    struct scenario_loaded *loaded = lua_touserdata(L, 1);
    struct reader reader = {.L = L,
                            .origins = &loaded->origins,
                            .sets = loaded->sets,
                            .set_count = loaded->set_count,
                            .steps = loaded->steps,
                            .faults = &loaded->faults,
                            .requests = &loaded->requests,
                            .codes = loaded->codes};
    const char *path = loaded->scenario.path;
    luaL_checkstack(L, 64, NULL);
    replace_modules(L, loaded);
    sandbox_run_file(L, path);
    const struct word_mark *mark = scenario_word(L, -1);
    if (mark == NULL || strcmp(mark->word, "scenario") != 0)
        sandbox_fail(L, path, 0, NULL, "must end with: return scenario { ... }");
    for (size_t k = 0; k < loaded->set_count; k++) {
        if (k == 0)
            scenario_word_copy(L);
        if (!replaces_module(&loaded->sets[k]))
            scenario_override_apply(L, &loaded->sets[k]);
    }
    check_replaced(L);
    struct cursor root = cursor_at_word(&reader, "", scenario_word(L, -1));
    read_scenario(&root, &loaded->scenario);
    return 0;
}

/* Copies the overrides and their texts into one block, which begins with the array. */
static void copy_sets(struct scenario_loaded *loaded, const struct scenario_override *sets, size_t set_count)
{
    size_t bytes = set_count * sizeof *sets;
    for (size_t k = 0; k < set_count; k++)
        bytes += strlen(sets[k].path) + strlen(sets[k].value) + 2;
    if (set_count == 0)
        return;
    loaded->sets = memory_get(bytes);
    char *at = (char *)(loaded->sets + set_count);
    for (size_t k = 0; k < set_count; k++) {
        loaded->sets[k].path = strcpy(at, sets[k].path);
        at += strlen(at) + 1;
        loaded->sets[k].value = strcpy(at, sets[k].value);
        at += strlen(at) + 1;
    }
    loaded->set_count = set_count;
}

const char *scenario_library_root(void)
{
    const char *root = getenv("TANDEM_SCENARIOS");
    return root != NULL ? root : TANDEM_SCENARIO_ROOT;
}

struct scenario *scenario_load(const char *path, const struct scenario_override *sets, size_t set_count,
                               struct user_error *error)
{
    if (strlen(path) >= sizeof((struct scenario *)0)->path) {
        user_error_set(error, NULL, 0, NULL, "%.60s...: the path is too long", path);
        return NULL;
    }
    struct scenario_loaded *loaded = memory_zeroed(1, sizeof *loaded);
    snprintf(loaded->scenario.path, sizeof loaded->scenario.path, "%s", path);
    copy_sets(loaded, sets, set_count);
    char folder[SANDBOX_PATH_SIZE];
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    memcpy(folder, path, length);
    folder[length] = '\0';
    if (!sandbox_open(&loaded->sandbox, folder, scenario_library_root(), scenario_words_open, error) ||
        !sandbox_call(&loaded->sandbox, load_protected, loaded, error)) {
        scenario_free(&loaded->scenario);
        return NULL;
    }
    return &loaded->scenario;
}

void scenario_free(struct scenario *scenario)
{
    struct scenario_loaded *loaded = (struct scenario_loaded *)(void *)scenario;
    if (loaded == NULL)
        return;
    sandbox_close(&loaded->sandbox);
    for (size_t k = 0; k < SCENARIO_POOLS_MAX; k++)
        free(loaded->steps[k]);
    for (size_t k = 0; k < POLICY_CODES_MAX; k++)
        free(loaded->codes[k]);
    free(loaded->faults);
    free(loaded->requests);
    free(loaded->sets);
    free(loaded->origins.items);
    free(loaded);
}

/* A value of `vary` is set as --set sets one; what is wrong with it is told as what it is. */
static void tell_vary(const struct scenario *scenario, struct user_error *error)
{
    static const char set[] = "--set ";
    const char *path = error->text + sizeof set - 1;
    for (uint32_t k = 0; k < scenario->vary_count && strncmp(error->text, set, sizeof set - 1) == 0; k++) {
        size_t length = strlen(scenario->vary[k].path);
        if (strncmp(path, scenario->vary[k].path, length) != 0 || path[length] != '=')
            continue;
        struct user_error varied = {.set = false};
        user_error_set(&varied, scenario->path, 0, "vary", "%s", path);
        *error = varied;
    }
}

struct scenario *scenario_load_variant(const struct scenario *scenario, size_t index, struct user_error *error)
{
    const struct scenario_loaded *loaded = (const struct scenario_loaded *)(const void *)scenario;
    size_t count = loaded->set_count;
    struct scenario_override *sets = memory_zeroed(count + SCENARIO_VARY_MAX, sizeof *sets);
    for (size_t k = 0; k < count; k++)
        sets[k] = loaded->sets[k];
    count += scenario_variant_overrides(scenario, index, sets + count);
    struct scenario *variant = scenario_load(scenario->path, sets, count, error);
    if (variant == NULL)
        tell_vary(scenario, error);
    free(sets);
    return variant;
}
