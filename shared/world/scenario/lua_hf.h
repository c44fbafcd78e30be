/* The word `hf` of the scenario language: hf("DeepSeek-R1/config.json") is the model that the file describes, as
 * model { ... } would make it; with(hf(...), { kv = "fp8" }) changes it. */
#ifndef TANDEM_WORLD_SCENARIO_LUA_HF_H
#define TANDEM_WORLD_SCENARIO_LUA_HF_H

#include <lua.h>

/* A lua_CFunction. */
int lua_hf(lua_State *L);

#endif
