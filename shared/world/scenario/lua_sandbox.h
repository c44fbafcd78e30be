/* The room in which scenario files run: Lua text with a few functions, bounded in memory, instructions and time, that
 * can read other scenario files and touch nothing else.
 *
 * What a file can reach: assert, error, ipairs, pcall, select, tonumber, tostring, type; a part of math,
 * string.format, table.insert (append), table.unpack (few values); require; the constructors of scenario_read.h and
 * lua_units.h. Everything whose result depends on the machine, the clock or chance is left out, as is every library
 * function that can work for long inside one call, where no instruction count would stop it.
 *
 * A sandbox belongs to one thread at a time.
 */
#ifndef TANDEM_WORLD_SCENARIO_LUA_SANDBOX_H
#define TANDEM_WORLD_SCENARIO_LUA_SANDBOX_H

#include "host/user_error.h"

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A scenario needs less than 1 MiB; what needs this much is not a scenario. */
#define SANDBOX_MEMORY_MAX ((size_t)64 << 20)

/* Of one load or one call of expect. A shipped scenario runs some hundreds. */
#define SANDBOX_INSTRUCTIONS_MAX 20000000

/* Processor time of one load or call: the last resort against few but long instructions (joining large strings). It
 * decides nothing but whether a file is refused. */
#define SANDBOX_SECONDS_MAX 2

/* Files of one scenario, overrides included, and bytes of one file. */
#define SANDBOX_SOURCES_MAX 128
#define SANDBOX_FILE_BYTES_MAX ((size_t)1 << 20)

#define SANDBOX_PATH_SIZE 1024

struct sandbox_source {
    char name[SANDBOX_PATH_SIZE]; /* as errors show it */
    char *text;
    size_t length;
};

/* A module that is read from another file than its name says, wherever that lies. */
#define SANDBOX_REPLACED_MAX 8
struct sandbox_replaced {
    char file[256]; /* of the module, as require looks for it: "hardware/host.lua" */
    char path[SANDBOX_PATH_SIZE];
    bool required; /* by the file or one that it requires */
};

struct sandbox {
    lua_State *L;
    size_t memory_used;
    int64_t instructions_left;
    int64_t stop_ns; /* on the thread's processor clock */
    bool overrun;
    struct user_error *error; /* of the call under way */
    uint32_t replaced_count;  /* filled in by the owner before anything runs */
    struct sandbox_replaced replaced[SANDBOX_REPLACED_MAX];
    uint32_t source_count;
    struct sandbox_source sources[SANDBOX_SOURCES_MAX];
    char folder[SANDBOX_PATH_SIZE]; /* of the scenario */
    char root[SANDBOX_PATH_SIZE];   /* of the shipped scenarios; empty: none */
};

/* Fills *sandbox. `setup` runs with the table of globals on top of the stack and adds to it; it may be NULL. */
bool sandbox_open(struct sandbox *sandbox, const char *folder, const char *root, lua_CFunction setup,
                  struct user_error *error);
void sandbox_close(struct sandbox *sandbox);

/* The sandbox of a state. */
struct sandbox *sandbox_of(lua_State *L);

/* Calls `function` with `context` as a light userdata at index 1, under the limits. Every use of the Lua API after
 * sandbox_open() happens inside such a call. False with *error set when it raised an error. */
bool sandbox_call(struct sandbox *sandbox, lua_CFunction function, void *context, struct user_error *error);

/* The following run inside a sandbox_call(). */

/* Describes what is wrong and leaves the call. */
_Noreturn void sandbox_fail(lua_State *L, const char *file, int line, const char *path, const char *format, ...)
    USER_ERROR_FORMAT(5, 6);

/* Runs a file or a piece of text and leaves its one result on the stack. `name` is what errors show. */
void sandbox_run_file(lua_State *L, const char *path);
void sandbox_run_text(lua_State *L, const char *name, const char *text, size_t length);

/* The text of a file, ended by 0, at most SANDBOX_FILE_BYTES_MAX; the caller frees it. */
char *sandbox_read_file(lua_State *L, const char *path, size_t *length);

/* Finds a file that may lie anywhere, as data may and code may not: an absolute path as it is, any other from the
 * scenario's folder, then from the shipped scenarios. */
bool sandbox_find_anywhere(const struct sandbox *sandbox, const char *file, char *path, size_t path_size);

/* Finds a file below the scenario's folder or, failing that, below the shipped scenarios; links that lead out of them
 * are not followed. Writes its path as errors show it. */
bool sandbox_find_file(const struct sandbox *sandbox, const char *relative, char *path, size_t path_size);

/* Where the running Lua code is: the index of its source and the line; false when no Lua code is running. `level` 1 is
 * the caller of the running C function. */
bool sandbox_where(lua_State *L, int level, uint32_t *source, int *line);

/* The key of the table at `index`, or the global, that `name` was most likely meant to be; NULL if none. The text lives
 * as long as the table's key. */
const char *sandbox_nearest_key(lua_State *L, int index, const char *name);

#endif
