/* The functions a scenario file may call. Used by lua_sandbox.c alone. */
#ifndef TANDEM_WORLD_SCENARIO_LUA_LIBRARY_H
#define TANDEM_WORLD_SCENARIO_LUA_LIBRARY_H

#include <lua.h>

/* Pushes the table of globals and fills it. */
void lua_library_open(lua_State *L);

/* Pops the table of globals and makes it the environment of all chunks: unknown names and assignments are errors. */
void lua_library_seal(lua_State *L);

/* Pushes what a policy may reach (policy_host.h), which cannot be written. */
void lua_library_pure(lua_State *L);

/* Pushes the environment. */
void lua_library_environment(lua_State *L);

#endif
