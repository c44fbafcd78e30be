/* See lua_hf.h. The file is looked for where traces are: an absolute path as it is, any other beside the scenario, then
 * below the shipped ones. */
#include "world/scenario/lua_hf.h"

#include "world/scenario/lua_sandbox.h"
#include "world/scenario/lua_units.h"
#include "world/scenario/model_config.h"
#include "world/scenario/scenario_schema.h"
#include "world/scenario/scenario_words.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name of the folder that the file lies in, as models are kept; of the file where there is none. */
static void name_from_path(const char *path, char *name, size_t size)
{
    const char *start = path;
    const char *end = strrchr(path, '/');
    if (end == NULL || end == path) {
        start += end == path;
        end = start + strlen(start);
    } else {
        for (start = end; start > path && start[-1] != '/';)
            start--;
    }
    size_t length = (size_t)(end - start) < size ? (size_t)(end - start) : size - 1;
    memcpy(name, start, length);
    name[length] = '\0';
}

static void push_field(lua_State *L, const struct field *field, const struct architecture *model)
{
    int64_t value = field->kind == FIELD_TEXT ? 0 : field_load(field, model);
    switch (field->kind) {
    case FIELD_TEXT:
        lua_pushstring(L, (const char *)model + field->offset);
        return;
    case FIELD_FLAG:
        lua_pushboolean(L, value != 0);
        return;
    case FIELD_NAME:
        for (uint32_t k = 0; k < field->name_count; k++)
            if (field->names[k].value == value)
                lua_pushstring(L, field->names[k].name);
        return;
    case FIELD_QUANTITY:
        lua_units_push(L, field->quantity, value);
        return;
    default:
        lua_pushinteger(L, value);
        return;
    }
}

int lua_hf(lua_State *L)
{
    char path[SANDBOX_PATH_SIZE];
    struct architecture model;
    size_t length;
    if (lua_gettop(L) != 1 || lua_type(L, 1) != LUA_TSTRING)
        return luaL_error(L, "hf takes the path of a config.json, as in hf(\"DeepSeek-R1/config.json\")");
    const char *file = lua_tostring(L, 1);
    if (!sandbox_find_anywhere(sandbox_of(L), file, path, sizeof path))
        return luaL_error(L, "hf(\"%s\"): there is no such file beside the scenario", file);
    char *text = sandbox_read_file(L, path, &length);
    struct user_error error = {.set = false};
    bool good = model_config_read(path, text, length, &model, &error);
    free(text);
    if (!good)
        sandbox_fail(L, NULL, 0, NULL, "%s", error.text);
    name_from_path(path, model.name, sizeof model.name);

    lua_newtable(L);
    for (uint32_t k = 0; k < schema_model.count; k++) {
        const struct field *field = &schema_model.fields[k];
        bool plain = field->kind == FIELD_COUNT || field->kind == FIELD_QUANTITY;
        if (plain && !field->required && field_load(field, &model) == field->fallback)
            continue;
        push_field(L, field, &model);
        lua_setfield(L, -2, field->key);
    }
    scenario_word_make(L, "model", "hf");
    return 1;
}
