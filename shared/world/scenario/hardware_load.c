/* See hardware_load.h. */
#include "world/scenario/hardware_load.h"

#include "world/scenario/lua_library.h"
#include "world/scenario/scenario_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct request {
    const char *name;
    struct hardware *hardware;
    struct origins origins; /* which nobody asks for here */
};

static bool is_path(const char *name)
{
    size_t length = strlen(name);
    return length > 4 && strcmp(name + length - 4, ".lua") == 0;
}

/* Leaves what the file returned on the stack. */
static void run(lua_State *L, const char *name)
{
    if (is_path(name)) {
        sandbox_run_file(L, name);
        return;
    }
    lua_library_environment(L);
    lua_getfield(L, -1, "require");
    lua_pushstring(L, name);
    lua_call(L, 1, 1);
}

static int load_protected(lua_State *L)
{
    struct request *request = lua_touserdata(L, 1);
    struct reader reader = {.L = L, .origins = &request->origins};
    run(L, request->name);
    const struct word_mark *mark = scenario_word(L, -1);
    if (mark == NULL || strcmp(mark->word, "machine") != 0)
        sandbox_fail(L, request->name, 0, NULL, "must end with: return machine { ... }");
    struct cursor cursor = cursor_at_word(&reader, "", mark);
    scenario_read_machine(&cursor, request->hardware);
    return 0;
}

bool hardware_load(const char *name, struct hardware *hardware, struct user_error *error)
{
    struct sandbox sandbox;
    struct request request = {.name = name, .hardware = hardware};
    *hardware = (struct hardware){.gpus_per_node = 0};
    bool good = sandbox_open(&sandbox, ".", scenario_library_root(), scenario_words_open, error) &&
                sandbox_call(&sandbox, load_protected, &request, error);
    sandbox_close(&sandbox);
    free(request.origins.items);
    return good;
}
