/* Overrides: `--set path=value` and the values that a sweep varies. */
#include "world/scenario/scenario_internal.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPONENT_SIZE 64

/* Sections that a file may leave out and an override may still reach into. */
static const char *const optional_sections[] = {"routing", "admission", "messenger", "targets", "plan"};

bool scenario_override_split(char *argument, struct scenario_override *override, struct user_error *error)
{
    char *equals = strchr(argument, '=');
    if (equals == NULL || equals == argument || equals[1] == '\0') {
        user_error_set(error, NULL, 0, NULL, "--set %s: must have the form path=value, as in load.rate='per_second(8)'",
                       argument);
        return false;
    }
    *equals = '\0';
    override->path = argument;
    override->value = equals + 1;
    return true;
}

static void override_name(const struct scenario_override *override, char *name, size_t size)
{
    snprintf(name, size, "--set %.200s=%.200s", override->path, override->value);
}

/* Pushes a component of the path as a key: a number names a position in a list. */
static void push_key(lua_State *L, const char *component)
{
    char *end;
    long position = strtol(component, &end, 10);
    if (component[0] != '\0' && *end == '\0')
        lua_pushinteger(L, position);
    else
        lua_pushstring(L, component);
}

static bool optional_section(const char *component)
{
    for (size_t k = 0; k < sizeof optional_sections / sizeof optional_sections[0]; k++) {
        if (strcmp(component, optional_sections[k]) == 0)
            return true;
    }
    return false;
}

/* Steps from the table on top of the stack into a copy of the one under `component`, which becomes the new top. An
 * engine that is only named, or not at all, becomes a table first. */
static void enter(lua_State *L, const struct scenario_override *override, const char *component, const char *so_far,
                  bool at_root)
{
    char name[SANDBOX_PATH_SIZE];
    int parent = lua_gettop(L);
    push_key(L, component);
    int type = lua_rawget(L, parent);
    override_name(override, name, sizeof name);
    if (strcmp(component, "engine") == 0 && (type == LUA_TNIL || type == LUA_TSTRING)) {
        char text[128];
        int length = type == LUA_TNIL ? snprintf(text, sizeof text, "return engine {}")
                                      : snprintf(text, sizeof text, "return with(require \"engines.%.60s\", {})",
                                                 lua_tostring(L, -1));
        lua_pop(L, 1);
        sandbox_run_text(L, name, text, (size_t)length);
    } else if (type == LUA_TNIL && at_root && optional_section(component)) {
        lua_pop(L, 1);
        lua_newtable(L);
    } else if (type == LUA_TTABLE) {
        scenario_word_copy(L);
    } else if (type == LUA_TNIL) {
        const char *nearest = sandbox_nearest_key(L, parent, component);
        if (nearest != NULL)
            sandbox_fail(L, name, 0, so_far, "unknown path; did you mean '%s'?", nearest);
        sandbox_fail(L, name, 0, so_far, "unknown path");
    } else {
        sandbox_fail(L, name, 0, so_far, "has no parts to set");
    }
    push_key(L, component);
    lua_pushvalue(L, -2);
    lua_rawset(L, parent);
    lua_remove(L, parent);
}

static void evaluate(lua_State *L, const struct scenario_override *override)
{
    char name[SANDBOX_PATH_SIZE];
    char text[512];
    override_name(override, name, sizeof name);
    int length = snprintf(text, sizeof text, "return %s", override->value);
    if (length < 0 || (size_t)length >= sizeof text)
        sandbox_fail(L, name, 0, NULL, "longer than a value may be (%zu bytes)", sizeof text);
    sandbox_run_text(L, name, text, (size_t)length);
}

void scenario_override_apply(lua_State *L, const struct scenario_override *override)
{
    char so_far[READ_PATH_SIZE] = "";
    char component[COMPONENT_SIZE];
    char name[SANDBOX_PATH_SIZE];
    const char *at = override->path;
    int root = lua_gettop(L);
    override_name(override, name, sizeof name);
    if (strlen(at) >= sizeof so_far)
        sandbox_fail(L, name, 0, NULL, "no key has so long a path");
    lua_pushvalue(L, root);
    for (;;) {
        size_t length = strcspn(at, ".");
        if (length == 0 || length >= sizeof component)
            sandbox_fail(L, name, 0, NULL, "a path is names with dots between, as in load.rate");
        memcpy(component, at, length);
        component[length] = '\0';
        memcpy(so_far, override->path, (size_t)(at - override->path) + length);
        so_far[(size_t)(at - override->path) + length] = '\0';
        if (at[length] == '\0')
            break;
        enter(L, override, component, so_far, at == override->path);
        at += length + 1;
    }
    push_key(L, component);
    evaluate(L, override);
    lua_rawset(L, -3);
    lua_settop(L, root);
}

size_t scenario_variant_count(const struct scenario *scenario)
{
    size_t count = 1;
    for (uint32_t k = 0; k < scenario->vary_count; k++)
        count *= scenario->vary[k].count;
    return count;
}

size_t scenario_variant_overrides(const struct scenario *scenario, size_t index, struct scenario_override *overrides)
{
    for (uint32_t k = scenario->vary_count; k-- > 0;) {
        const struct vary *vary = &scenario->vary[k];
        overrides[k].path = vary->path;
        overrides[k].value = vary->values[index % vary->count];
        index /= vary->count;
    }
    return scenario->vary_count;
}
