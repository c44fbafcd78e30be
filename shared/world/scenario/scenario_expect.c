/* The checks a scenario makes of its own result: expect(r) after a run, expect_plan(r) after a plan.
 *
 * r is the result's JSON as read-only tables. A name it does not have is an error, since nil would make most conditions
 * false or, worse, true.
 */
#include "world/scenario/scenario_internal.h"

#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 16

/* In the registry: the struct expectation of the call under way. No Lua code runs between calls, so what is left there
 * is never looked at. */
#define EXPECTATION_KEY "scenario expectation"

/* Stands for JSON's null inside the data tables: present, without a value. */
static const char null_mark = 0;

struct expectation {
    const char *function; /* registry key */
    const char *name;     /* for messages */
    const json_t *result;
    char failures[1536];
    size_t used;
    unsigned failed;
};

static void push_json(lua_State *L, const json_t *value, int depth);

static bool is_null(lua_State *L, int index)
{
    return lua_islightuserdata(L, index) && lua_touserdata(L, index) == (const void *)&null_mark;
}

/* __index of the tables of a result; upvalue 1: the data. */
static int result_index(lua_State *L)
{
    lua_pushvalue(L, 2);
    int type = lua_rawget(L, lua_upvalueindex(1));
    if (type == LUA_TNIL && lua_type(L, 2) == LUA_TSTRING) {
        const char *name = lua_tostring(L, 2);
        const char *nearest = sandbox_nearest_key(L, lua_upvalueindex(1), name);
        if (nearest != NULL)
            return luaL_error(L, "the result has no '%s'; did you mean '%s'?", name, nearest);
        return luaL_error(L, "the result has no '%s'", name);
    }
    if (is_null(L, -1))
        lua_pushnil(L);
    return 1;
}

static int result_length(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)lua_rawlen(L, lua_upvalueindex(1)));
    return 1;
}

static int result_newindex(lua_State *L)
{
    return luaL_error(L, "the result cannot be changed");
}

/* Replaces the data table on top of the stack by a read-only view of it. */
static void protect(lua_State *L)
{
    lua_newtable(L);
    lua_createtable(L, 0, 4);
    lua_pushvalue(L, -3);
    lua_pushcclosure(L, result_index, 1);
    lua_setfield(L, -2, "__index");
    lua_pushvalue(L, -3);
    lua_pushcclosure(L, result_length, 1);
    lua_setfield(L, -2, "__len");
    lua_pushcfunction(L, result_newindex);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_remove(L, -2);
}

static void push_object(lua_State *L, const json_t *object, int depth)
{
    const char *key;
    json_t *value;
    union {
        const json_t *read;
        json_t *iterated; /* the iterator of jansson takes no const */
    } both = {.read = object};
    lua_newtable(L);
    json_object_foreach(both.iterated, key, value)
    {
        push_json(L, value, depth + 1);
        lua_setfield(L, -2, key);
    }
    protect(L);
}

static void push_list(lua_State *L, const json_t *list, int depth)
{
    size_t count = json_array_size(list);
    lua_newtable(L);
    for (size_t k = 0; k < count; k++) {
        push_json(L, json_array_get(list, k), depth + 1);
        lua_rawseti(L, -2, (lua_Integer)k + 1);
    }
    protect(L);
}

static void push_json(lua_State *L, const json_t *value, int depth)
{
    if (depth > DEPTH_MAX)
        luaL_error(L, "the result is nested too deeply");
    luaL_checkstack(L, 8, NULL);
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        push_object(L, value, depth);
        return;
    case JSON_ARRAY:
        push_list(L, value, depth);
        return;
    case JSON_STRING:
        lua_pushlstring(L, json_string_value(value), json_string_length(value));
        return;
    case JSON_INTEGER:
        lua_pushinteger(L, (lua_Integer)json_integer_value(value));
        return;
    case JSON_REAL:
        lua_pushnumber(L, json_real_value(value));
        return;
    case JSON_TRUE:
    case JSON_FALSE:
        lua_pushboolean(L, json_is_true(value));
        return;
    case JSON_NULL:
        break;
    }
    union {
        const char *read;
        void *value;
    } mark = {.read = &null_mark};
    lua_pushlightuserdata(L, mark.value);
}

/* check(condition, text): notes what did not hold and goes on, so that one run shows everything. */
int scenario_expect_check(lua_State *L)
{
    lua_getfield(L, LUA_REGISTRYINDEX, EXPECTATION_KEY);
    struct expectation *expectation = lua_touserdata(L, -1);
    lua_pop(L, 1);
    if (expectation == NULL)
        return luaL_error(L, "check belongs inside expect = function(r) ... end");
    const struct sandbox *sandbox = sandbox_of(L);
    uint32_t source = 0;
    int line = 0;
    if (lua_gettop(L) < 1)
        return luaL_error(L, "check takes a condition and a text, as in check(r.failed == 0, 'none fails')");
    if (lua_toboolean(L, 1))
        return 0;
    const char *text = luaL_optstring(L, 2, "a check does not hold");
    expectation->failed++;
    sandbox_where(L, 1, &source, &line);
    size_t room = sizeof expectation->failures - expectation->used;
    int length =
        snprintf(expectation->failures + expectation->used, room, "%s%s:%d: %s: %s", expectation->used == 0 ? "" : "\n",
                 sandbox->sources[source].name, line, expectation->name, text);
    /* What no longer fits is left out whole; the first failures tell the most. */
    if (length > 0 && (size_t)length < room)
        expectation->used += (size_t)length;
    else
        expectation->failures[expectation->used] = '\0';
    return 0;
}

static int run_protected(lua_State *L)
{
    struct expectation *expectation = lua_touserdata(L, 1);
    lua_pushvalue(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, EXPECTATION_KEY);
    if (lua_getfield(L, LUA_REGISTRYINDEX, expectation->function) != LUA_TFUNCTION)
        return 0;
    push_json(L, expectation->result, 0);
    lua_call(L, 1, 0);
    return 0;
}

static enum expect_outcome expect(struct scenario *scenario, const char *function, const char *name,
                                  const json_t *result, struct user_error *error)
{
    struct scenario_loaded *loaded = (struct scenario_loaded *)(void *)scenario;
    struct expectation expectation = {.function = function, .name = name, .result = result};
    if (!sandbox_call(&loaded->sandbox, run_protected, &expectation, error))
        return EXPECT_BROKEN;
    if (expectation.failed == 0)
        return EXPECT_HELD;
    user_error_set(error, NULL, 0, NULL, "%s", expectation.failures);
    return EXPECT_FAILED;
}

enum expect_outcome scenario_expect(struct scenario *scenario, const json_t *result, struct user_error *error)
{
    return expect(scenario, EXPECT_KEY, "expect", result, error);
}

enum expect_outcome scenario_expect_plan(struct scenario *scenario, const json_t *result, struct user_error *error)
{
    return expect(scenario, EXPECT_PLAN_KEY, "expect_plan", result, error);
}
