/* See policy_code.h. */
#include "world/scenario/policy_code.h"

#include "base/check.h"
#include "host/memory.h"
#include "host/sha256.h"
#include "world/scenario/lua_sandbox.h"
#include "world/scenario/scenario_lua.h"
#include "world/scenario/scenario_words.h"

#include <lauxlib.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct buffer {
    unsigned char *bytes;
    size_t length;
};

static int append(lua_State *L, const void *piece, size_t size, void *context)
{
    struct buffer *buffer = context;
    (void)L;
    buffer->bytes = memory_resized(buffer->bytes, buffer->length + size);
    memcpy(buffer->bytes + buffer->length, piece, size);
    buffer->length += size;
    return 0;
}

/* ---- What a function says, without where it stands --------------------------------------------------------------- */

/* Of compiled code (Lua 5.4, ldump.c) what is left of places when it is stripped are the lines at which functions begin
 * and end. The walk hashes everything else. */
struct walk {
    const unsigned char *at;
    const unsigned char *end;
    struct sha256 hash;
    bool powers; /* it uses `^`, which ends in the C library: the last digits would depend on the machine */
};

_Static_assert(LUA_VERSION_NUM == 504, "compiled functions are walked over as Lua 5.4 writes them");

/* Past so many bytes, which are part of the identity or not. */
static void pass(struct walk *walk, size_t bytes, bool counts)
{
    CHECK(bytes <= (size_t)(walk->end - walk->at));
    if (counts)
        sha256_add(&walk->hash, walk->at, bytes);
    walk->at += bytes;
}

/* A number in groups of seven bits, the last one marked. */
static size_t pass_number(struct walk *walk, bool counts)
{
    size_t number = 0;
    bool last = false;
    while (!last) {
        CHECK(walk->at < walk->end);
        number = number << 7 | (*walk->at & 0x7f);
        last = (*walk->at & 0x80) != 0;
        pass(walk, 1, counts);
    }
    return number;
}

/* One more than its length, and its bytes; 0: none. */
static void pass_string(struct walk *walk)
{
    size_t size = pass_number(walk, true);
    pass(walk, size == 0 ? 0 : size - 1, true);
}

static void pass_constant(struct walk *walk)
{
    /* Of lobject.h; nil and booleans have no more. */
    enum { INTEGER = 3, SHORT_STRING = 4, FLOAT = 19, LONG_STRING = 20 };
    CHECK(walk->at < walk->end);
    unsigned char type = *walk->at;
    pass(walk, 1, true);
    if (type == INTEGER || type == FLOAT)
        pass(walk, 8, true);
    else if (type == SHORT_STRING || type == LONG_STRING)
        pass_string(walk);
}

static void pass_function(struct walk *walk)
{
    pass_string(walk); /* its source: stripped */
    pass_number(walk, false);
    pass_number(walk, false);
    pass(walk, 3, true); /* parameters, varargs, stack */
    for (size_t instructions = pass_number(walk, true); instructions > 0; instructions--) {
        enum { OPCODE = 0x7f, POWER_OF_CONSTANT = 26, POWER = 38 }; /* lopcodes.h */
        CHECK(walk->at < walk->end);
        unsigned char opcode = *walk->at & OPCODE;
        walk->powers = walk->powers || opcode == POWER_OF_CONSTANT || opcode == POWER;
        pass(walk, 4, true);
    }
    for (size_t constants = pass_number(walk, true); constants > 0; constants--)
        pass_constant(walk);
    size_t upvalues = pass_number(walk, true);
    pass(walk, upvalues * 3, true);
    for (size_t functions = pass_number(walk, true); functions > 0; functions--)
        pass_function(walk);
    for (int table = 0; table < 4; table++)
        CHECK(pass_number(walk, true) == 0); /* lines, places, variables, upvalues: stripped */
}

/* False where the function may not be used. */
static bool identify(const struct buffer *bare, char sha256[65])
{
    const size_t header = 4 + 1 + 1 + 6 + 3 + 8 + 8; /* signature, version, format, data, sizes, two numbers */
    struct walk walk = {.at = bare->bytes, .end = bare->bytes + bare->length};
    sha256_start(&walk.hash);
    pass(&walk, header + 1, true); /* and how many upvalues the function has */
    pass_function(&walk);
    CHECK(walk.at == walk.end);
    sha256_hex(&walk.hash, sha256);
    return !walk.powers;
}

/* ---- From a function to its code --------------------------------------------------------------------------------- */

struct policy_code *policy_code_make(lua_State *L, const char *key, const char *file, const char *module,
                                     const char **why)
{
    const char *name = lua_getupvalue(L, -1, 1);
    bool own = name == NULL || strcmp(name, "_ENV") == 0;
    lua_pop(L, name != NULL ? 1 : 0);
    const char *second = lua_getupvalue(L, -1, 2);
    lua_pop(L, second != NULL ? 1 : 0);
    if (!own || second != NULL || lua_iscfunction(L, -1)) {
        *why = "a policy uses nothing from around it but constants: local NAME <const> = 8";
        return NULL;
    }
    struct buffer whole = {NULL, 0};
    struct buffer bare = {NULL, 0};
    lua_dump(L, append, &whole, 0);
    lua_dump(L, append, &bare, 1);
    struct policy_code *code = memory_zeroed(1, sizeof *code + whole.length);
    code->length = whole.length;
    memcpy(code->bytes, whole.bytes, whole.length);
    bool good = identify(&bare, code->sha256);
    snprintf(code->key, sizeof code->key, "%s", key);
    snprintf(code->file, sizeof code->file, "%s", file);
    snprintf(code->module, sizeof code->module, "%s", module);
    free(whole.bytes);
    free(bare.bytes);
    if (good)
        return code;
    *why = "a policy has no powers, whose last digits depend on the machine: x * x instead of x ^ 2";
    free(code);
    return NULL;
}

struct module {
    const char *name;
    const char *key;
    struct policy_code *code;
};

static int load_module(lua_State *L)
{
    struct module *module = lua_touserdata(L, 1);
    const char *why = NULL;
    char text[128];
    int length = snprintf(text, sizeof text, "return require \"%.96s\"", module->name);
    sandbox_run_text(L, module->name, text, (size_t)length);
    if (!lua_isfunction(L, -1))
        sandbox_fail(L, module->name, 0, NULL, "returns no function");
    module->code = policy_code_make(L, module->key, module->name, module->name, &why);
    if (module->code == NULL)
        sandbox_fail(L, module->name, 0, NULL, "%s", why);
    return 0;
}

struct policy_code *policy_code_of_module(const char *name, const char *key, struct user_error *error)
{
    struct module module = {.name = name, .key = key};
    struct sandbox *sandbox = memory_zeroed(1, sizeof *sandbox);
    if (sandbox_open(sandbox, scenario_library_root(), "", scenario_words_open, error))
        sandbox_call(sandbox, load_module, &module, error);
    sandbox_close(sandbox);
    free(sandbox);
    return module.code;
}
