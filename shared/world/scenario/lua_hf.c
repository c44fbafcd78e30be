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

/* The name of the folder that a config.json lies in, as models are kept; that of the file where it has one of its own,
 * or lies in none. */
static void name_from_path(const char *path, char *name, size_t size)
{
    const char *file = strrchr(path, '/');
    file = file == NULL ? path : file + 1;
    const char *start = file;
    const char *end = start + strlen(start);
    if (strcmp(file, "config.json") == 0 && file > path + 1) {
        end = file - 1;
        for (start = end; start > path && start[-1] != '/';)
            start--;
    } else if (end - start > 5 && strcmp(end - 5, ".json") == 0) {
        end -= 5;
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

/* The file that ModelOpt writes beside a config.json; false: there is none. */
static bool find_quantization(lua_State *L, const char *path, char *beside)
{
    const char *slash = strrchr(path, '/');
    int folder = slash == NULL ? 0 : (int)(slash - path) + 1;
    char file[SANDBOX_PATH_SIZE];
    if (snprintf(file, sizeof file, "%.*shf_quant_config.json", folder, path) >= (int)sizeof file)
        return false;
    return sandbox_find_anywhere(sandbox_of(L), file, beside, SANDBOX_PATH_SIZE);
}

int lua_hf(lua_State *L)
{
    char path[SANDBOX_PATH_SIZE];
    char beside[SANDBOX_PATH_SIZE];
    struct architecture model;
    char called[sizeof model.name];
    if (lua_gettop(L) != 1 || lua_type(L, 1) != LUA_TSTRING)
        return luaL_error(L, "hf takes the path of a config.json, as in hf(\"DeepSeek-R1/config.json\")");
    const char *name = lua_tostring(L, 1);
    if (!sandbox_find_anywhere(sandbox_of(L), name, path, sizeof path))
        return luaL_error(L, "hf(\"%s\"): there is no such file beside the scenario", name);
    struct model_file file = {.path = path};
    struct model_file quantization = {.path = beside};
    char *text = sandbox_read_file(L, path, &file.length);
    char *other = NULL;
    file.text = text;
    bool found = find_quantization(L, path, beside);
    if (found)
        other = sandbox_read_file(L, beside, &quantization.length);
    quantization.text = other;
    struct user_error error = {.set = false};
    name_from_path(path, called, sizeof called);
    bool good = model_config_read(called, &file, found ? &quantization : NULL, &model, &error);
    free(text);
    free(other);
    if (!good)
        sandbox_fail(L, NULL, 0, NULL, "%s", error.text);
    memcpy(model.name, called, sizeof called);

    lua_newtable(L);
    for (uint32_t k = 0; k < schema_model.count; k++) {
        const struct field *field = &schema_model.fields[k];
        bool plain = field->kind == FIELD_COUNT || field->kind == FIELD_QUANTITY || field->kind == FIELD_NAME;
        if (plain && !field->required && field_load(field, &model) == field->fallback)
            continue;
        push_field(L, field, &model);
        lua_setfield(L, -2, field->key);
    }
    scenario_word_make(L, "model", "hf");
    return 1;
}
