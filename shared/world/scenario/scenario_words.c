/* See scenario_words.h. */
#include "world/scenario/scenario_words.h"

#include "world/scenario/lua_hf.h"
#include "world/scenario/lua_units.h"
#include "world/scenario/scenario_internal.h"

#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

/* In the registry: a table from tables to their marks. */
#define MARKS_KEY "scenario marks"

static const char *const words[] = {
    "scenario", "pool",      "model", "machine", "nic",   "engine", "poisson", "evenly", "burst", "closed", "trace",
    "sessions", "quantiles", "ttft",  "tpot",    "e2e",   "itl",    "steps",   "suite",  "case",  "listed", "kill",
    "cut",      "late",      "twice", "slow",    "stall", "fail",   "ticks",   "leave",  "drop",
};

static struct word_mark *find_mark(lua_State *L, int index)
{
    if (!lua_istable(L, index) && !lua_isfunction(L, index))
        return NULL;
    index = lua_absindex(L, index);
    lua_getfield(L, LUA_REGISTRYINDEX, MARKS_KEY);
    lua_pushvalue(L, index);
    lua_rawget(L, -2);
    struct word_mark *mark = lua_touserdata(L, -1);
    lua_pop(L, 2);
    return mark;
}

const struct word_mark *scenario_word(lua_State *L, int index)
{
    return find_mark(L, index);
}

static struct word_mark *add_mark(lua_State *L, int index, const char *word)
{
    index = lua_absindex(L, index);
    lua_getfield(L, LUA_REGISTRYINDEX, MARKS_KEY);
    lua_pushvalue(L, index);
    struct word_mark *mark = lua_newuserdatauv(L, sizeof *mark, 0);
    memset(mark, 0, sizeof *mark);
    snprintf(mark->word, sizeof mark->word, "%s", word);
    snprintf(mark->opened, sizeof mark->opened, "%s", word);
    if (!sandbox_where(L, 1, &mark->source, &mark->line)) {
        mark->source = 0;
        mark->line = 0;
    }
    lua_rawset(L, -3);
    lua_pop(L, 1);
    return mark;
}

static int make(lua_State *L)
{
    const char *word = lua_tostring(L, lua_upvalueindex(1));
    if (lua_gettop(L) != 1 || !lua_istable(L, 1))
        return luaL_error(L, "%s takes a table: %s { ... }", word, word);
    const struct word_mark *mark = find_mark(L, 1);
    if (mark != NULL)
        return luaL_error(L, "%s takes a plain table; this one is a %s already", word, mark->word);
    add_mark(L, 1, word);
    return 1;
}

void scenario_word_make(lua_State *L, const char *word, const char *opened)
{
    struct word_mark *mark = add_mark(L, -1, word);
    snprintf(mark->opened, sizeof mark->opened, "%s", opened);
}

/* uniform(low, high) */
static int make_uniform(lua_State *L)
{
    if (lua_gettop(L) != 2 || !lua_isinteger(L, 1) || !lua_isinteger(L, 2))
        return luaL_error(L, "uniform takes two whole numbers of tokens, as in uniform(512, 2048)");
    lua_createtable(L, 2, 0);
    lua_pushvalue(L, 1);
    lua_rawseti(L, -2, 1);
    lua_pushvalue(L, 2);
    lua_rawseti(L, -2, 2);
    add_mark(L, -1, "uniform");
    return 1;
}

/* sine(period, swing): a day, with so much more at noon than on average. */
static int make_sine(lua_State *L)
{
    const struct quantity *period = lua_gettop(L) == 2 ? lua_units_get(L, 1) : NULL;
    const struct quantity *swing = lua_gettop(L) == 2 ? lua_units_get(L, 2) : NULL;
    if (period == NULL || swing == NULL || period->kind != QUANTITY_TIME || swing->kind != QUANTITY_SHARE)
        return luaL_error(L, "sine takes a time and a share, as in sine(minutes(60), percent(50))");
    lua_createtable(L, 2, 0);
    lua_pushvalue(L, 1);
    lua_rawseti(L, -2, 1);
    lua_pushvalue(L, 2);
    lua_rawseti(L, -2, 2);
    add_mark(L, -1, "sine");
    return 1;
}

static void copy_fields(lua_State *L, int from, int to)
{
    lua_pushnil(L);
    while (lua_next(L, from) != 0) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, to);
    }
}

void scenario_word_copy(lua_State *L)
{
    int original = lua_gettop(L);
    lua_newtable(L);
    copy_fields(L, original, original + 1);
    const struct word_mark *mark = find_mark(L, original);
    if (mark != NULL) {
        struct word_mark *copy = add_mark(L, original + 1, mark->word);
        *copy = *mark;
    }
    lua_remove(L, original);
}

/* with(base, { key = value, ... }) */
static int make_with(lua_State *L)
{
    if (lua_gettop(L) != 2 || !lua_istable(L, 1) || !lua_istable(L, 2))
        return luaL_error(L, "with takes a table and its changes, as in with(h200, { price = usd_per_hour(2) })");
    const struct word_mark *mark = find_mark(L, 1);
    lua_newtable(L);
    copy_fields(L, 1, 3);
    copy_fields(L, 2, 3);
    if (mark != NULL) {
        struct word_mark *copy = add_mark(L, 3, mark->word);
        snprintf(copy->opened, sizeof copy->opened, "with");
    }
    return 1;
}

int scenario_words_open(lua_State *L)
{
    lua_newtable(L);
    lua_setfield(L, LUA_REGISTRYINDEX, MARKS_KEY);
    for (size_t k = 0; k < sizeof words / sizeof words[0]; k++) {
        lua_pushstring(L, words[k]);
        lua_pushcclosure(L, make, 1);
        lua_setfield(L, -2, words[k]);
    }
    lua_pushcfunction(L, make_uniform);
    lua_setfield(L, -2, "uniform");
    lua_pushcfunction(L, make_sine);
    lua_setfield(L, -2, "sine");
    lua_pushcfunction(L, make_with);
    lua_setfield(L, -2, "with");
    lua_pushcfunction(L, lua_hf);
    lua_setfield(L, -2, "hf");
    lua_pushcfunction(L, scenario_expect_check);
    lua_setfield(L, -2, "check");
    return 0;
}

void scenario_word_module(lua_State *L, const char *name)
{
    struct word_mark *mark = find_mark(L, -1);
    if (mark == NULL && lua_isfunction(L, -1))
        mark = add_mark(L, -1, "function"); /* a policy */
    if (mark != NULL)
        snprintf(mark->module, sizeof mark->module, "%s", name);
}
