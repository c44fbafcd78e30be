/* See policy_host.h. */
#include "world/scenario/policy_host.h"

#include "base/arith.h"
#include "host/memory.h"
#include "serve/router.h"
#include "world/scenario/lua_library.h"
#include "world/scenario/policy_code.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOO_LONG "one decision took too many instructions"

struct host {
    struct policy policy; /* first: the logic has a pointer to it */
    lua_State *L;
    size_t memory_used;
    const struct policy_code *code[POLICY_KINDS];
    int function[POLICY_KINDS]; /* in the registry */
    int request;
    int workers;
    int worker; /* a table: one for each member of a router, made when it is first asked for */
    const struct request_spec *asked;
    const struct policy_question *question;
    char failure[512];
};

/* A worker as a function sees it. */
struct worker {
    struct host *host;
    uint32_t member;
};

static void *allocate(void *context, void *block, size_t old_size, size_t new_size)
{
    struct host *host = context;
    size_t held = block == NULL ? 0 : old_size;
    if (new_size == 0) {
        free(block);
        host->memory_used -= held;
        return NULL;
    }
    if (new_size > held && new_size - held > POLICY_MEMORY_MAX - host->memory_used)
        return NULL;
    void *moved = memory_resized(block, new_size);
    host->memory_used = host->memory_used - held + new_size;
    return moved;
}

static struct host *host_of(lua_State *L)
{
    struct host *host;
    memcpy(&host, lua_getextraspace(L), sizeof host);
    return host;
}

static void on_count(lua_State *L, lua_Debug *record)
{
    (void)record;
    luaL_where(L, 0);
    lua_pushliteral(L, TOO_LONG);
    lua_concat(L, 2);
    lua_error(L);
}

/* ---- What a function sees ---------------------------------------------------------------------------------------- */

enum request_field { REQUEST_ID = 1, REQUEST_PROMPT_TOKENS, REQUEST_DEADLINE_NS, REQUEST_BLOCK_TOKENS };

static const char *const request_fields[] = {"id", "prompt_tokens", "deadline_ns", "block_tokens"};

enum worker_field {
    WORKER_ID = 1,
    WORKER_QUEUED_TOKENS,
    WORKER_QUEUED_REQUESTS,
    WORKER_CACHED_TOKENS,
    WORKER_FREE_TOKENS,
    WORKER_KV_TOKENS,
    WORKER_PREFILL_RATE,
};

static const char *const worker_fields[] = {"id",          "queued_tokens", "queued_requests", "cached_tokens",
                                            "free_tokens", "kv_tokens",     "prefill_rate"};

/* The number of the field that is asked for; upvalue 1 has the numbers by name. */
static lua_Integer field_of(lua_State *L, const char *what)
{
    lua_pushvalue(L, 2);
    if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNUMBER)
        return luaL_error(L, "a %s has no '%s'", what, luaL_tolstring(L, 2, NULL));
    return lua_tointeger(L, -1);
}

/* A field, or the hash of a prefix block: requests with equal ones are alike up to the end of that block. */
static int request_index(lua_State *L)
{
    const struct request_spec *request = host_of(L)->asked;
    if (lua_isinteger(L, 2)) {
        lua_Integer block = lua_tointeger(L, 2);
        if (block >= 1 && block <= (lua_Integer)request->block_count)
            lua_pushinteger(L, (lua_Integer)(request->blocks[block - 1] >> 1));
        else
            lua_pushnil(L);
        return 1;
    }
    switch ((enum request_field)field_of(L, "request")) {
    case REQUEST_ID:
        lua_pushinteger(L, request->id);
        break;
    case REQUEST_PROMPT_TOKENS:
        lua_pushinteger(L, request->prompt_tokens);
        break;
    case REQUEST_DEADLINE_NS:
        lua_pushinteger(L, request->deadline_ns);
        break;
    case REQUEST_BLOCK_TOKENS:
        lua_pushinteger(L, request->block_tokens);
        break;
    }
    return 1;
}

/* KV that requests sent there leave free, below 0 where they wait. */
static int64_t free_tokens(const struct router_member *m)
{
    int64_t pages = (int64_t)m->pages_available - (int64_t)m->pages_wanted - (int64_t)m->pages_promised;
    return pages * m->config->geometry.page_tokens;
}

static int worker_index(lua_State *L)
{
    const struct worker *worker = lua_touserdata(L, 1);
    const struct router *router = worker->host->question->router;
    const struct router_member *m = &router->members[worker->member];
    lua_Integer value = 0;
    switch ((enum worker_field)field_of(L, "worker")) {
    case WORKER_ID:
        value = m->node;
        break;
    case WORKER_QUEUED_TOKENS:
        value = (lua_Integer)m->queued_tokens;
        break;
    case WORKER_QUEUED_REQUESTS:
        value = m->queued_requests;
        break;
    case WORKER_CACHED_TOKENS:
        value = (lua_Integer)min_u64(router->matched[worker->member], worker->host->asked->prompt_tokens);
        break;
    case WORKER_FREE_TOKENS:
        value = free_tokens(m);
        break;
    case WORKER_KV_TOKENS:
        value = (lua_Integer)((uint64_t)m->config->pages_per_group * m->config->group_count *
                              m->config->geometry.page_tokens);
        break;
    case WORKER_PREFILL_RATE:
        value = (lua_Integer)router_member_rate(m, worker->host->question->now_ns);
        break;
    }
    lua_pushinteger(L, value);
    return 1;
}

static void push_metatable(lua_State *L, const char *name)
{
    lua_getfield(L, LUA_REGISTRYINDEX, name);
}

/* workers[i] */
static int workers_index(lua_State *L)
{
    struct host *host = host_of(L);
    lua_Integer place = lua_isinteger(L, 2) ? lua_tointeger(L, 2) : 0;
    if (place < 1 || place > (lua_Integer)host->question->count) {
        lua_pushnil(L);
        return 1;
    }
    uint32_t member = host->question->eligible[place - 1];
    lua_rawgeti(L, LUA_REGISTRYINDEX, host->worker);
    if (lua_rawgeti(L, -1, (lua_Integer)member + 1) != LUA_TNIL)
        return 1;
    lua_pop(L, 1);
    struct worker *worker = lua_newuserdatauv(L, sizeof *worker, 0);
    *worker = (struct worker){.host = host, .member = member};
    push_metatable(L, "worker");
    lua_setmetatable(L, -2);
    lua_pushvalue(L, -1);
    lua_rawseti(L, -3, (lua_Integer)member + 1);
    return 1;
}

static int request_length(lua_State *L)
{
    lua_pushinteger(L, host_of(L)->asked->block_count);
    return 1;
}

static int workers_length(lua_State *L)
{
    lua_pushinteger(L, host_of(L)->question->count);
    return 1;
}

static int unwritable(lua_State *L)
{
    return luaL_error(L, "what a policy sees cannot be changed");
}

static void make_metatable(lua_State *L, const char *name, lua_CFunction index, lua_CFunction length,
                           const char *const *fields, size_t count)
{
    lua_createtable(L, 0, 4);
    lua_createtable(L, 0, (int)count);
    for (size_t k = 0; k < count; k++) {
        lua_pushinteger(L, (lua_Integer)k + 1);
        lua_setfield(L, -2, fields[k]);
    }
    lua_pushcclosure(L, index, 1);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, unwritable);
    lua_setfield(L, -2, "__newindex");
    if (length != NULL) {
        lua_pushcfunction(L, length);
        lua_setfield(L, -2, "__len");
    }
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setfield(L, LUA_REGISTRYINDEX, name);
}

#define LENGTH(list) (sizeof(list) / sizeof((list)[0]))

static int reference(lua_State *L, const char *metatable)
{
    lua_newuserdatauv(L, 1, 0);
    push_metatable(L, metatable);
    lua_setmetatable(L, -2);
    return luaL_ref(L, LUA_REGISTRYINDEX);
}

/* ---- Set-up ------------------------------------------------------------------------------------------------------ */

static int open_host(lua_State *L)
{
    struct host *host = lua_touserdata(L, 1);
    make_metatable(L, "request", request_index, request_length, request_fields, LENGTH(request_fields));
    make_metatable(L, "worker", worker_index, NULL, worker_fields, LENGTH(worker_fields));
    make_metatable(L, "workers", workers_index, workers_length, NULL, 0);
    host->request = reference(L, "request");
    host->workers = reference(L, "workers");
    lua_newtable(L);
    host->worker = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_library_pure(L);
    for (int kind = 0; kind < POLICY_KINDS; kind++) {
        const struct policy_code *code = host->code[kind];
        if (code == NULL)
            continue;
        if (luaL_loadbufferx(L, (const char *)code->bytes, code->length, code->key, "b") != LUA_OK)
            lua_error(L);
        lua_pushvalue(L, -2);
        if (lua_setupvalue(L, -2, 1) == NULL)
            lua_pop(L, 1); /* it uses nothing at all */
        host->function[kind] = luaL_ref(L, LUA_REGISTRYINDEX);
    }
    return 0;
}

static const struct policy_ops operations;

struct policy *policy_host_make(const struct scenario *scenario, uint32_t pool)
{
    struct host *host = memory_zeroed(1, sizeof *host);
    host->policy.ops = &operations;
    if (pool == UINT32_MAX) {
        for (int kind = 0; kind < POLICY_QUEUE; kind++)
            host->code[kind] = scenario->functions[kind];
    } else {
        host->code[POLICY_QUEUE] = scenario->pools[pool].queue_function;
    }
    bool any = false;
    for (int kind = 0; kind < POLICY_KINDS; kind++) {
        host->policy.decides[kind] = host->code[kind] != NULL;
        any = any || host->code[kind] != NULL;
    }
    if (!any) {
        free(host);
        return NULL;
    }
    host->L = memory_given(lua_newstate(allocate, host));
    memcpy(lua_getextraspace(host->L), &host, sizeof host);
    lua_pushcfunction(host->L, open_host);
    lua_pushlightuserdata(host->L, host);
    CHECK(lua_pcall(host->L, 1, 0, 0) == LUA_OK); /* the scenario has compiled it, and there is room */
    return &host->policy;
}

void policy_host_free(struct policy *policy)
{
    struct host *host = (struct host *)policy;
    if (host == NULL)
        return;
    lua_close(host->L);
    free(host);
}

const char *policy_host_failure(const struct policy *policy)
{
    const struct host *host = (const struct host *)policy;
    return host == NULL || host->failure[0] == '\0' ? NULL : host->failure;
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

/* The text of an error, its place first: Lua says "@3:14: text" of the scenario's source number 3. */
static void note_failure(struct host *host, enum policy_kind kind, const char *text)
{
    const struct policy_code *code = host->code[kind];
    char *end = NULL;
    long line = 0;
    if (host->failure[0] != '\0')
        return;
    if (text[0] == '@' && strchr(text, ':') != NULL) {
        line = strtol(strchr(text, ':') + 1, &end, 10);
        text = *end == ':' ? end + 2 : end;
    }
    snprintf(host->failure, sizeof host->failure, "%s:%ld: %s: %s", code->file, line, code->key, text);
}

/* Leaves one value on the stack, or false. */
static bool ask(struct host *host, enum policy_kind kind, const struct request_spec *request,
                const struct policy_question *question)
{
    lua_State *L = host->L;
    host->asked = request;
    host->question = question;
    lua_rawgeti(L, LUA_REGISTRYINDEX, host->function[kind]);
    lua_rawgeti(L, LUA_REGISTRYINDEX, host->request);
    if (question != NULL)
        lua_rawgeti(L, LUA_REGISTRYINDEX, host->workers);
    lua_sethook(L, on_count, LUA_MASKCOUNT, POLICY_INSTRUCTIONS_MAX);
    if (lua_pcall(L, question != NULL ? 2 : 1, 1, 0) == LUA_OK)
        return true;
    note_failure(host, kind, lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "raised what is no text");
    lua_settop(L, 0);
    return false;
}

static uint32_t choose(struct policy *policy, enum policy_kind kind, const struct policy_question *question)
{
    struct host *host = (struct host *)policy;
    lua_State *L = host->L;
    uint32_t answer = POLICY_NONE;
    if (!ask(host, kind, question->request, question))
        return POLICY_NONE;
    if (lua_isinteger(L, -1) && lua_tointeger(L, -1) >= 1 && lua_tointeger(L, -1) <= (lua_Integer)question->count)
        answer = (uint32_t)lua_tointeger(L, -1) - 1;
    else if (!lua_isnil(L, -1))
        note_failure(host, kind, "must return the place of a worker in the list, from 1 to #workers, or nil for none");
    lua_settop(L, 0);
    return answer;
}

static bool admit(struct policy *policy, const struct policy_question *question)
{
    struct host *host = (struct host *)policy;
    lua_State *L = host->L;
    if (!ask(host, POLICY_ADMISSION, question->request, question))
        return false;
    bool answer = lua_toboolean(L, -1);
    if (!lua_isboolean(L, -1))
        note_failure(host, POLICY_ADMISSION, "must return true or false");
    lua_settop(L, 0);
    return answer;
}

static uint64_t order(struct policy *policy, const struct request_spec *request)
{
    struct host *host = (struct host *)policy;
    lua_State *L = host->L;
    if (!ask(host, POLICY_QUEUE, request, NULL))
        return 0;
    double number = lua_tonumber(L, -1);
    uint64_t bits;
    if (lua_type(L, -1) != LUA_TNUMBER || number != number)
        note_failure(host, POLICY_QUEUE, "must return a number");
    lua_settop(L, 0);
    number += 0.0; /* one zero */
    memcpy(&bits, &number, sizeof bits);
    return bits >> 63 != 0 ? ~bits : bits | UINT64_C(1) << 63; /* in the order of the numbers */
}

static const struct policy_ops operations = {.choose = choose, .admit = admit, .order = order};
