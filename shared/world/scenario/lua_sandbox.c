/* See lua_sandbox.h. This file: limits, set-up, calls and errors. The functions a scenario may call are in
 * lua_library.c. */
#define _XOPEN_SOURCE 700 /* realpath */

#include "world/scenario/lua_sandbox.h"

#include "base/arith.h"
#include "host/input.h"
#include "host/memory.h"
#include "world/scenario/lua_library.h"

#include <errno.h>
#include <lauxlib.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How often the limits are looked at. Scenarios are short, so a fine step costs nothing that matters. */
#define HOOK_STEP 100

#define NAMES_MAX 256

#define TOO_LONG "the scenario ran for too long; is there an endless loop?"

/* Raised in place of a message when the sandbox's error has been set already. Its address is the value. */
static const char described = 0;

static void *allocate(void *context, void *block, size_t old_size, size_t new_size)
{
    struct sandbox *sandbox = context;
    size_t held = block == NULL ? 0 : old_size;
    if (new_size == 0) {
        free(block);
        sandbox->memory_used -= held;
        return NULL;
    }
    if (new_size > held && new_size - held > SANDBOX_MEMORY_MAX - sandbox->memory_used)
        return NULL;
    void *moved = memory_resized(block, new_size);
    if (moved != NULL)
        sandbox->memory_used = sandbox->memory_used - held + new_size;
    return moved;
}

static int64_t thread_ns(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0)
        return 0;
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void on_count(lua_State *L, lua_Debug *record)
{
    (void)record;
    struct sandbox *sandbox = sandbox_of(L);
    sandbox->instructions_left -= HOOK_STEP;
    if (!sandbox->overrun && sandbox->instructions_left > 0 && thread_ns() < sandbox->stop_ns)
        return;
    /* From now on every instruction raises again: a pcall in a loop would otherwise swallow the error and go on. */
    sandbox->overrun = true;
    lua_sethook(L, on_count, LUA_MASKCOUNT, 1);
    uint32_t source = 0;
    int line = 0;
    if (sandbox_where(L, 0, &source, &line))
        lua_pushfstring(L, "@%d:%d: " TOO_LONG, (int)source, line);
    else
        lua_pushliteral(L, TOO_LONG);
    lua_error(L);
}

struct sandbox *sandbox_of(lua_State *L)
{
    struct sandbox *sandbox;
    memcpy(&sandbox, lua_getextraspace(L), sizeof sandbox);
    return sandbox;
}

static int open_library(lua_State *L)
{
    lua_CFunction setup = lua_tocfunction(L, 1);
    lua_settop(L, 0);
    lua_library_open(L);
    if (setup != NULL) {
        lua_pushcfunction(L, setup);
        lua_pushvalue(L, 1);
        lua_call(L, 1, 0);
    }
    lua_library_seal(L);
    return 0;
}

bool sandbox_open(struct sandbox *sandbox, const char *folder, const char *root, lua_CFunction setup,
                  struct user_error *error)
{
    memset(sandbox, 0, sizeof *sandbox);
    snprintf(sandbox->folder, sizeof sandbox->folder, "%s", folder);
    snprintf(sandbox->root, sizeof sandbox->root, "%s", root);
    sandbox->L = lua_newstate(allocate, sandbox);
    if (sandbox->L == NULL) {
        user_error_set(error, NULL, 0, NULL, "no memory for a Lua state");
        return false;
    }
    memcpy(lua_getextraspace(sandbox->L), &sandbox, sizeof sandbox);
    lua_pushcfunction(sandbox->L, open_library);
    if (setup != NULL)
        lua_pushcfunction(sandbox->L, setup);
    else
        lua_pushnil(sandbox->L);
    if (lua_pcall(sandbox->L, 1, 0, 0) == LUA_OK)
        return true;
    user_error_set(error, NULL, 0, NULL, "no memory for a Lua state");
    sandbox_close(sandbox);
    return false;
}

void sandbox_close(struct sandbox *sandbox)
{
    if (sandbox->L != NULL)
        lua_close(sandbox->L);
    sandbox->L = NULL;
    for (uint32_t k = 0; k < sandbox->source_count; k++)
        free(sandbox->sources[k].text);
    sandbox->source_count = 0;
}

/* Chunks are named "@0", "@1", ...: Lua shortens long names in its messages, and a path must not be shortened. Splits
 * "@3:14: text" into its parts; returns the text. */
static const char *split_position(const struct sandbox *sandbox, const char *message, const char **file, int *line)
{
    char *end;
    *file = NULL;
    *line = 0;
    if (message[0] != '@')
        return message;
    unsigned long source = strtoul(message + 1, &end, 10);
    if (end == message + 1 || source >= sandbox->source_count)
        return message;
    *file = sandbox->sources[source].name;
    if (*end != ':')
        return message;
    long number = strtol(end + 1, &end, 10);
    *line = number > 0 && number < INT32_MAX ? (int)number : 0;
    return *end == ':' && end[1] == ' ' ? end + 2 : end;
}

/* Describes the error value on top of the stack of a call that failed. */
static void describe(struct sandbox *sandbox, int status)
{
    lua_State *L = sandbox->L;
    const char *main_file = sandbox->source_count > 0 ? sandbox->sources[0].name : NULL;
    if (status == LUA_ERRMEM) {
        user_error_set(sandbox->error, main_file, 0, NULL, "the scenario needs more than %zu MiB of memory",
                       SANDBOX_MEMORY_MAX >> 20);
    } else if (lua_isstring(L, -1)) {
        const char *file;
        int line;
        const char *text = split_position(sandbox, lua_tostring(L, -1), &file, &line);
        user_error_set(sandbox->error, file != NULL ? file : main_file, line, NULL, "%s", text);
    } else {
        user_error_set(sandbox->error, main_file, 0, NULL, "raised an error that is not a text");
    }
}

bool sandbox_call(struct sandbox *sandbox, lua_CFunction function, void *context, struct user_error *error)
{
    lua_State *L = sandbox->L;
    sandbox->error = error;
    sandbox->instructions_left = SANDBOX_INSTRUCTIONS_MAX;
    sandbox->stop_ns = thread_ns() + SANDBOX_SECONDS_MAX * NS_PER_S;
    sandbox->overrun = false;
    lua_settop(L, 0);
    lua_sethook(L, on_count, LUA_MASKCOUNT, HOOK_STEP);
    lua_pushcfunction(L, function);
    lua_pushlightuserdata(L, context);
    int status = lua_pcall(L, 1, 0, 0);
    lua_sethook(L, NULL, 0, 0);
    bool good = status == LUA_OK && !error->set;
    if (status != LUA_OK && !(error->set && lua_touserdata(L, -1) == (const void *)&described))
        describe(sandbox, status);
    sandbox->error = NULL;
    lua_settop(L, 0);
    return good;
}

/* Leaves the running call: the caller of sandbox_call() finds the error set. */
static _Noreturn void leave(lua_State *L)
{
    union {
        const char *pointer;
        void *value;
    } mark = {.pointer = &described};
    lua_pushlightuserdata(L, mark.value);
    lua_error(L);
    check_failed("lua_error does not return", __FILE__, __LINE__);
}

void sandbox_fail(lua_State *L, const char *file, int line, const char *path, const char *format, ...)
{
    char text[1536];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    user_error_set(sandbox_of(L)->error, file, line, path, "%s", text);
    leave(L);
}

static struct sandbox_source *add_source(lua_State *L, const char *name, char *text, size_t length)
{
    struct sandbox *sandbox = sandbox_of(L);
    if (sandbox->source_count == SANDBOX_SOURCES_MAX) {
        free(text);
        sandbox_fail(L, name, 0, NULL, "one file too many: a scenario may have %d", SANDBOX_SOURCES_MAX);
    }
    struct sandbox_source *source = &sandbox->sources[sandbox->source_count++];
    snprintf(source->name, sizeof source->name, "%s", name);
    source->text = text;
    source->length = length;
    return source;
}

static void run(lua_State *L, const struct sandbox_source *source)
{
    struct sandbox *sandbox = sandbox_of(L);
    char chunk[16];
    snprintf(chunk, sizeof chunk, "=@%d", (int)(source - sandbox->sources));
    if (luaL_loadbufferx(L, source->text, source->length, chunk, "t") != LUA_OK) {
        if (source->length > 0 && source->text[0] == LUA_SIGNATURE[0])
            sandbox_fail(L, source->name, 0, NULL, "compiled Lua; a scenario is text");
        lua_error(L);
    }
    lua_library_environment(L);
    lua_setupvalue(L, -2, 1);
    lua_call(L, 0, 1);
}

char *sandbox_read_file(lua_State *L, const char *path, size_t *length)
{
    struct user_error error = {.set = false};
    FILE *file = input_file(path, &error);
    if (file == NULL)
        sandbox_fail(L, NULL, 0, NULL, "%s", error.text);
    char *text = memory_get(SANDBOX_FILE_BYTES_MAX + 1);
    *length = fread(text, 1, SANDBOX_FILE_BYTES_MAX + 1, file);
    bool failed = ferror(file) != 0;
    int reason = errno;
    fclose(file);
    if (failed || *length > SANDBOX_FILE_BYTES_MAX) {
        free(text);
        if (failed)
            sandbox_fail(L, path, 0, NULL, "cannot be read: %s", strerror(reason));
        sandbox_fail(L, path, 0, NULL, "larger than a scenario may be (%zu KiB)", SANDBOX_FILE_BYTES_MAX >> 10);
    }
    text[*length] = '\0'; /* there is room: a file that fills it is too large */
    char *fitted = memory_resized(text, *length + 1);
    return fitted == NULL ? text : fitted;
}

void sandbox_run_file(lua_State *L, const char *path)
{
    size_t length;
    char *text = sandbox_read_file(L, path, &length);
    run(L, add_source(L, path, text, length));
}

void sandbox_run_text(lua_State *L, const char *name, const char *text, size_t length)
{
    char *copy = memory_get(length + 1);
    memcpy(copy, text, length);
    run(L, add_source(L, name, copy, length));
}

static bool inside(const char *path, const char *folder)
{
    char *real_path = realpath(path, NULL);
    char *real_folder = realpath(folder[0] == '\0' ? "." : folder, NULL);
    bool result = false;
    if (real_path != NULL && real_folder != NULL) {
        size_t length = strlen(real_folder);
        while (length > 0 && real_folder[length - 1] == '/')
            length--;
        result = strncmp(real_path, real_folder, length) == 0 && real_path[length] == '/';
    }
    free(real_path);
    free(real_folder);
    return result;
}

bool sandbox_find_file(const struct sandbox *sandbox, const char *relative, char *path, size_t path_size)
{
    const char *const folders[] = {sandbox->folder, sandbox->root};
    for (size_t k = 0; k < 2; k++) {
        if (k == 1 && folders[k][0] == '\0')
            break;
        int length = snprintf(path, path_size, "%s%s%s", folders[k], folders[k][0] == '\0' ? "" : "/", relative);
        if (length > 0 && (size_t)length < path_size && inside(path, folders[k]))
            return true;
    }
    return false;
}

bool sandbox_find_anywhere(const struct sandbox *sandbox, const char *file, char *path, size_t path_size)
{
    const char *const folders[] = {file[0] == '/' ? "" : sandbox->folder, sandbox->root};
    size_t count = file[0] == '/' || sandbox->root[0] == '\0' ? 1 : 2;
    for (size_t k = 0; k < count; k++) {
        int length = snprintf(path, path_size, "%s%s%s", folders[k], folders[k][0] == '\0' ? "" : "/", file);
        if (length > 0 && (size_t)length < path_size && access(path, F_OK) == 0)
            return true;
    }
    return false;
}

bool sandbox_where(lua_State *L, int level, uint32_t *source, int *line)
{
    lua_Debug record;
    for (; lua_getstack(L, level, &record) != 0; level++) {
        lua_getinfo(L, "Sl", &record);
        if (record.source[0] != '=' || record.source[1] != '@')
            continue;
        unsigned long number = strtoul(record.source + 2, NULL, 10);
        if (number < sandbox_of(L)->source_count && record.currentline > 0) {
            *source = (uint32_t)number;
            *line = record.currentline;
            return true;
        }
    }
    return false;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char *sandbox_nearest_key(lua_State *L, int index, const char *name)
{
    const char *names[NAMES_MAX];
    size_t count = 0;
    index = lua_absindex(L, index);
    lua_pushnil(L);
    while (lua_next(L, index) != 0) {
        lua_pop(L, 1);
        if (count < NAMES_MAX && lua_type(L, -1) == LUA_TSTRING)
            names[count++] = lua_tostring(L, -1);
    }
    /* The order of a Lua table differs from run to run; equal names do not occur. */
    qsort(names, count, sizeof names[0], compare_names);
    return nearest_name(name, names, count);
}
