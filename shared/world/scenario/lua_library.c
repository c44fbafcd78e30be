/* See lua_library.h and the list in lua_sandbox.h. */
#include "world/scenario/lua_library.h"

#include "world/scenario/lua_sandbox.h"
#include "world/scenario/lua_units.h"
#include "world/scenario/scenario_words.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <string.h>

#define ENVIRONMENT_KEY "scenario environment"

/* Values one call of table.unpack may give. */
#define UNPACK_MAX 256

/* Without pairs and next: the order they give differs from run to run. */
static const char *const base_names[] = {
    "assert", "error", "ipairs", "pcall", "select", "tonumber", "type",
};

/* Of math what is exact: the rest ends in the C library, whose last digits depend on the machine. */
static const char *const math_names[] = {
    "abs", "ceil", "floor", "huge", "max", "maxinteger", "min", "mininteger", "tointeger", "type",
};

/* tostring without addresses, which differ from run to run. */
static int library_tostring(lua_State *L)
{
    luaL_checkany(L, 1);
    int type = lua_type(L, 1);
    if (type == LUA_TTABLE || type == LUA_TFUNCTION)
        lua_pushstring(L, lua_typename(L, type));
    else
        luaL_tolstring(L, 1, NULL);
    return 1;
}

/* string.format (upvalue 1) on texts, numbers, booleans and quantities, without %p. */
static int library_format(lua_State *L)
{
    const char *format = luaL_checkstring(L, 1);
    int count = lua_gettop(L);
    for (const char *at = strchr(format, '%'); at != NULL; at = strchr(at, '%')) {
        at += 1 + strspn(at + 1, "-+ #0123456789.");
        if (*at == 'p')
            return luaL_error(L, "format: %%p would print an address");
        if (*at != '\0')
            at++;
    }
    for (int k = 2; k <= count; k++) {
        if (lua_type(L, k) == LUA_TTABLE || lua_type(L, k) == LUA_TFUNCTION)
            return luaL_error(L, "format: a %s has no text", luaL_typename(L, k));
    }
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, count, 1);
    return 1;
}

static int library_insert(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    if (lua_gettop(L) != 2)
        return luaL_error(L, "table.insert(list, value) appends; it takes nothing else here");
    lua_rawseti(L, 1, (lua_Integer)lua_rawlen(L, 1) + 1);
    return 0;
}

static int library_unpack(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_Unsigned count = lua_rawlen(L, 1);
    if (lua_gettop(L) != 1 || count > UNPACK_MAX)
        return luaL_error(L, "table.unpack(list) gives at most %d values here", UNPACK_MAX);
    luaL_checkstack(L, (int)count, NULL);
    for (lua_Unsigned k = 1; k <= count; k++)
        lua_rawgeti(L, 1, (lua_Integer)k);
    return (int)count;
}

static int no_such_global(lua_State *L)
{
    if (lua_type(L, 2) != LUA_TSTRING)
        return luaL_error(L, "globals have names");
    const char *name = lua_tostring(L, 2);
    const char *nearest = sandbox_nearest_key(L, lua_upvalueindex(1), name);
    if (nearest != NULL)
        return luaL_error(L, "'%s' is not part of the scenario language; did you mean '%s'?", name, nearest);
    return luaL_error(L, "'%s' is not part of the scenario language", name);
}

static int global_index(lua_State *L)
{
    lua_pushvalue(L, 2);
    if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL)
        return 1;
    return no_such_global(L);
}

static int global_assignment(lua_State *L)
{
    if (lua_type(L, 2) != LUA_TSTRING)
        return luaL_error(L, "globals have names");
    return luaL_error(L, "'%s' would be a global; write 'local %s = ...'", lua_tostring(L, 2), lua_tostring(L, 2));
}

/* "models.llama-3.1-8b" is models/llama-3.1-8b.lua: the first dot ends the folder's name, and slashes work as well.
 * Anything that could lead elsewhere is refused here, before the file system is asked. */
static void module_file(lua_State *L, const char *name, char *file, size_t size)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
    bool good = name[0] != '\0' && name[0] != '.' && name[0] != '/' && strlen(name) + 8 < size &&
                strspn(name, allowed) == strlen(name) && strstr(name, "..") == NULL && strstr(name, "/.") == NULL &&
                strstr(name, "//") == NULL;
    if (!good)
        luaL_error(L, "require '%s': a module is named as in require \"models.deepseek-r1\"", name);
    snprintf(file, size, "%s.lua", name);
    char *dot = strchr(file, '.');
    if (strchr(name, '/') == NULL && dot != NULL && (size_t)(dot - file) < strlen(name))
        *dot = '/';
}

/* The path of the file that stands in for a module's own; NULL: none does. */
static const char *replacement(struct sandbox *sandbox, const char *file)
{
    for (uint32_t k = 0; k < sandbox->replaced_count; k++) {
        if (strcmp(sandbox->replaced[k].file, file) != 0)
            continue;
        sandbox->replaced[k].required = true;
        return sandbox->replaced[k].path;
    }
    return NULL;
}

/* Upvalue 1: the modules loaded so far, by name; false while one is being loaded. */
static int library_require(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    char file[256];
    char path[SANDBOX_PATH_SIZE];
    module_file(L, name, file, sizeof file);
    lua_settop(L, 1);
    if (lua_getfield(L, lua_upvalueindex(1), file) == LUA_TBOOLEAN)
        return luaL_error(L, "require '%s': the file requires itself", name);
    if (!lua_isnil(L, -1))
        return 1;
    const char *other = replacement(sandbox_of(L), file);
    if (other != NULL) {
        snprintf(path, sizeof path, "%s", other);
    } else if (!sandbox_find_file(sandbox_of(L), file, path, sizeof path)) {
        const struct sandbox *sandbox = sandbox_of(L);
        const char *folder = sandbox->folder[0] == '\0' ? "." : sandbox->folder;
        if (sandbox->root[0] == '\0')
            return luaL_error(L, "require '%s': there is no %s in %s", name, file, folder);
        return luaL_error(L, "require '%s': there is no %s in %s or %s", name, file, folder, sandbox->root);
    }
    lua_pushboolean(L, 0);
    lua_setfield(L, lua_upvalueindex(1), file);
    sandbox_run_file(L, path);
    if (lua_isnil(L, -1))
        return luaL_error(L, "require '%s': %s returns nothing", name, path);
    scenario_word_module(L, name);
    lua_pushvalue(L, -1);
    lua_setfield(L, lua_upvalueindex(1), file);
    return 1;
}

static void copy_functions(lua_State *L, int from, const char *const *names, size_t count)
{
    from = lua_absindex(L, from);
    for (size_t k = 0; k < count; k++) {
        lua_getfield(L, from, names[k]);
        lua_setfield(L, -2, names[k]);
    }
}

/* The string library stays reachable through the metatable of strings, ("x"):rep(n), unless that is changed too. */
static void open_string(lua_State *L)
{
    luaL_requiref(L, LUA_STRLIBNAME, luaopen_string, 0);
    lua_newtable(L);
    lua_getfield(L, -2, "format");
    lua_pushcclosure(L, library_format, 1);
    lua_setfield(L, -2, "format");
    lua_pushliteral(L, "");
    if (lua_getmetatable(L, -1) != 0) {
        lua_pushvalue(L, -3);
        lua_setfield(L, -2, "__index");
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    lua_remove(L, -2);
}

void lua_library_open(lua_State *L)
{
    lua_newtable(L);
    luaL_requiref(L, LUA_GNAME, luaopen_base, 0);
    lua_insert(L, -2);
    copy_functions(L, -2, base_names, sizeof base_names / sizeof base_names[0]);
    lua_remove(L, -2);
    lua_pushcfunction(L, library_tostring);
    lua_setfield(L, -2, "tostring");

    luaL_requiref(L, LUA_MATHLIBNAME, luaopen_math, 0);
    lua_newtable(L);
    copy_functions(L, -2, math_names, sizeof math_names / sizeof math_names[0]);
    lua_remove(L, -2);
    lua_setfield(L, -2, "math");

    open_string(L);
    lua_setfield(L, -2, "string");

    lua_newtable(L);
    lua_pushcfunction(L, library_insert);
    lua_setfield(L, -2, "insert");
    lua_pushcfunction(L, library_unpack);
    lua_setfield(L, -2, "unpack");
    lua_setfield(L, -2, "table");

    lua_newtable(L);
    lua_pushcclosure(L, library_require, 1);
    lua_setfield(L, -2, "require");
    lua_units_open(L);
}

static int unwritable(lua_State *L)
{
    return luaL_error(L, "a policy keeps nothing: '%s' cannot be set", luaL_tolstring(L, 2, NULL));
}

/* A view of the table on top of the stack that cannot be written, in its place. */
static void push_view(lua_State *L)
{
    lua_newtable(L);
    lua_createtable(L, 0, 3);
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, unwritable);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_remove(L, -2);
}

void lua_library_pure(lua_State *L)
{
    static const char *const names[] = {"assert", "error", "ipairs", "select", "tonumber", "type"};
    lua_newtable(L);
    luaL_requiref(L, LUA_GNAME, luaopen_base, 0);
    lua_insert(L, -2);
    copy_functions(L, -2, names, sizeof names / sizeof names[0]);
    lua_remove(L, -2);
    luaL_requiref(L, LUA_MATHLIBNAME, luaopen_math, 0);
    lua_newtable(L);
    copy_functions(L, -2, math_names, sizeof math_names / sizeof math_names[0]);
    lua_remove(L, -2);
    push_view(L);
    lua_setfield(L, -2, "math");
    push_view(L);
}

void lua_library_seal(lua_State *L)
{
    lua_newtable(L);
    lua_newtable(L);
    lua_pushvalue(L, -3);
    lua_pushcclosure(L, global_index, 1);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, global_assignment);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_setfield(L, LUA_REGISTRYINDEX, ENVIRONMENT_KEY);
    lua_pop(L, 1);
}

void lua_library_environment(lua_State *L)
{
    lua_getfield(L, LUA_REGISTRYINDEX, ENVIRONMENT_KEY);
}
