/* Sections of a scenario: routing, admission, messenger, targets, plan, and what varies. */
#include "world/scenario/scenario_internal.h"

#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

/* A section that may be left out; every key of it then takes its default. */
static struct cursor read_section(const struct cursor *root, const char *key, const struct schema *schema,
                                  const char *const *others, size_t other_count, void *base)
{
    lua_State *L = root->reader->L;
    if (cursor_push(root, key) != LUA_TNIL) {
        lua_pop(L, 1);
        cursor_push_table(root, key, NULL);
    }
    struct cursor cursor = cursor_below(root, key);
    read_no_others(&cursor, schema, others, other_count);
    read_fields(&cursor, schema, base);
    return cursor;
}

static void read_target(const struct cursor *targets, const char *key, struct target *target)
{
    lua_State *L = targets->reader->L;
    cursor_push(targets, key);
    const struct word_mark *mark = scenario_word(L, -1);
    for (uint32_t k = 0; mark != NULL && k < target_name_count; k++) {
        if (strcmp(mark->word, target_names[k].name) == 0)
            target->metric = (enum target_metric)target_names[k].value;
    }
    if (target->metric == 0)
        cursor_fail(targets, key, "ttft, tpot, e2e or itl { p = 95, below = ms(...) } is wanted");
    cursor_origin(targets, key, true);
    struct cursor cursor = cursor_below(targets, key);
    read_no_others(&cursor, &schema_target, NULL, 0);
    read_fields(&cursor, &schema_target, target);
    lua_pop(L, 1);
}

/* Targets are a list; `attainment` stands beside it. */
static void check_target_keys(const struct cursor *targets, uint32_t length)
{
    lua_State *L = targets->reader->L;
    char key[48];
    lua_pushnil(L);
    while (lua_next(L, targets->index) != 0) {
        lua_pop(L, 1);
        if (lua_isinteger(L, -1) && lua_tointeger(L, -1) >= 1 && lua_tointeger(L, -1) <= (lua_Integer)length)
            continue;
        if (lua_type(L, -1) != LUA_TSTRING)
            cursor_fail(targets, NULL, "a list of targets is wanted: ttft { ... }, tpot { ... }");
        if (strcmp(lua_tostring(L, -1), "attainment") == 0)
            continue;
        snprintf(key, sizeof key, "%.40s", lua_tostring(L, -1));
        cursor_fail(targets, key,
                    "unknown key; targets are listed, as in ttft { p = 95, below = s(2) }, beside "
                    "attainment = percent(90)");
    }
}

/* targets = { ttft { ... }, tpot { ... }, attainment = percent(90) } */
static void read_targets(const struct cursor *root, struct targets *targets)
{
    lua_State *L = root->reader->L;
    char key[16];
    if (cursor_push(root, "targets") != LUA_TNIL) {
        lua_pop(L, 1);
        cursor_push_table(root, "targets", NULL);
    }
    struct cursor cursor = cursor_below(root, "targets");
    if (cursor.index != 0) {
        lua_Unsigned length = lua_rawlen(L, cursor.index);
        if (length > SCENARIO_TARGETS_MAX)
            cursor_fail(&cursor, NULL, "at most %d targets (SCENARIO_TARGETS_MAX)", SCENARIO_TARGETS_MAX);
        targets->count = (uint32_t)length;
        check_target_keys(&cursor, targets->count);
    }
    read_fields(&cursor, &schema_targets, targets);
    for (uint32_t k = 0; k < targets->count; k++) {
        snprintf(key, sizeof key, "%u", k + 1);
        read_target(&cursor, key, &targets->item[k]);
    }
    lua_pop(L, 1);
}

void scenario_read_policies(const struct cursor *root, struct scenario *scenario)
{
    static const char *const admission_others[] = {"admit"};
    lua_State *L = root->reader->L;
    struct cursor routing = read_section(root, "routing", &schema_routing, NULL, 0, scenario);
    scenario->functions[POLICY_PREFILL] = read_policy(&routing, "prefill");
    scenario->functions[POLICY_DECODE] = read_policy(&routing, "decode");
    struct cursor admission =
        read_section(root, "admission", &schema_admission, admission_others, 1, &scenario->admission);
    if (cursor_push(&admission, "admit") != LUA_TNIL && !lua_isfunction(L, -1))
        cursor_fail(&admission, "admit", "a function is wanted: function(request, workers) return true end");
    scenario->functions[POLICY_ADMISSION] = read_policy(&admission, "admit");
    read_section(root, "messenger", &schema_messenger, NULL, 0, &scenario->messenger);
    read_targets(root, &scenario->targets);
    read_section(root, "plan", &schema_plan, NULL, 0, &scenario->plan);
    lua_settop(L, root->index);
}

bool scenario_value_expression(lua_State *L, char *text, size_t size)
{
    char quantity[QUANTITY_TEXT_SIZE];
    const struct quantity *value = lua_units_get(L, -1);
    const struct word_mark *mark = scenario_word(L, -1);
    int length = -1;
    if (value != NULL) {
        quantity_text(value->kind, value->value, quantity);
        length = snprintf(text, size, "%s", quantity);
    } else if (mark != NULL && mark->module[0] != '\0') {
        length = snprintf(text, size, "require \"%s\"", mark->module);
    } else if (mark != NULL && strcmp(mark->word, "uniform") == 0) {
        lua_rawgeti(L, -1, 1);
        lua_rawgeti(L, -2, 2);
        length = snprintf(text, size, "uniform(%lld, %lld)", (long long)lua_tointeger(L, -2),
                          (long long)lua_tointeger(L, -1));
        lua_pop(L, 2);
    } else if (lua_isinteger(L, -1)) {
        length = snprintf(text, size, "%lld", (long long)lua_tointeger(L, -1));
    } else if (lua_type(L, -1) == LUA_TNUMBER) {
        length = snprintf(text, size, "%.17g", lua_tonumber(L, -1));
    } else if (lua_isboolean(L, -1)) {
        length = snprintf(text, size, "%s", lua_toboolean(L, -1) ? "true" : "false");
    } else if (lua_type(L, -1) == LUA_TSTRING && strpbrk(lua_tostring(L, -1), "'\\\n\r") == NULL) {
        length = snprintf(text, size, "'%s'", lua_tostring(L, -1));
    }
    return length > 0 && (size_t)length < size;
}

static bool fixed(const struct reader *reader, const char *path)
{
    for (size_t k = 0; k < reader->set_count; k++) {
        if (strcmp(reader->sets[k].path, path) == 0)
            return true;
    }
    return false;
}

static void read_vary_values(const struct cursor *cursor, struct vary *vary)
{
    lua_State *L = cursor->reader->L;
    cursor_push_table(cursor, vary->path, NULL);
    lua_Unsigned length = lua_rawlen(L, -1);
    if (length == 0 || length > SCENARIO_VARY_VALUES_MAX)
        cursor_fail(cursor, vary->path, "a list of 1 to %d values is wanted (SCENARIO_VARY_VALUES_MAX)",
                    SCENARIO_VARY_VALUES_MAX);
    vary->count = (uint32_t)length;
    for (uint32_t k = 0; k < vary->count; k++) {
        lua_rawgeti(L, -1, (lua_Integer)k + 1);
        if (!scenario_value_expression(L, vary->values[k], sizeof vary->values[k]))
            cursor_fail(cursor, vary->path,
                        "value %u: a number, a quantity, a short text, true or false, uniform(...) or a required "
                        "module is wanted",
                        k + 1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

void scenario_read_vary(const struct cursor *root, struct scenario *scenario)
{
    lua_State *L = root->reader->L;
    const char *paths[SCENARIO_VARY_MAX];
    int type = cursor_push(root, "vary");
    lua_pop(L, 1);
    if (type == LUA_TNIL)
        return;
    cursor_push_table(root, "vary", NULL);
    struct cursor cursor = cursor_below(root, "vary");
    size_t count = read_sorted_keys(&cursor, paths, SCENARIO_VARY_MAX, "SCENARIO_VARY_MAX");
    for (size_t k = 0; k < count; k++) {
        struct vary *vary = &scenario->vary[scenario->vary_count];
        if (fixed(root->reader, paths[k]))
            continue;
        if (strncmp(paths[k], OVERRIDE_HARDWARE, strlen(OVERRIDE_HARDWARE)) == 0)
            cursor_fail(&cursor, paths[k], "a machine is varied where a pool has it: pools.NAME.machine");
        if (strlen(paths[k]) >= sizeof vary->path)
            cursor_fail(&cursor, NULL, "no key has so long a path");
        snprintf(vary->path, sizeof vary->path, "%s", paths[k]);
        read_vary_values(&cursor, vary);
        scenario->vary_count++;
    }
    lua_pop(L, 1);
}
