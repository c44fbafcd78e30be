/* See scenario_read.h. */
#define _POSIX_C_SOURCE 200809L

#include "world/scenario/scenario_read.h"

#include "world/scenario/policy_code.h"

#include "base/arith.h"
#include "host/memory.h"
#include "host/source_lines.h"

#include <lauxlib.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_TEXT_SIZE 128
#define KEYS_MAX 128

static void join(char *path, const char *parent, const char *key)
{
    size_t length = strlen(parent);
    snprintf(path, READ_PATH_SIZE, "%.*s%s%s", (int)(length < 100 ? length : 100), parent, length == 0 ? "" : ".", key);
}

struct cursor cursor_at_word(struct reader *reader, const char *path, const struct word_mark *mark)
{
    struct cursor cursor = {.reader = reader, .index = lua_gettop(reader->L), .mark = *mark};
    snprintf(cursor.path, sizeof cursor.path, "%s", path);
    return cursor;
}

struct cursor cursor_below(const struct cursor *parent, const char *key)
{
    struct cursor cursor = *parent;
    lua_State *L = parent->reader->L;
    join(cursor.path, parent->path, key);
    cursor.index = lua_istable(L, -1) ? lua_gettop(L) : 0;
    const struct word_mark *mark = scenario_word(L, -1);
    if (mark != NULL) {
        cursor.mark = *mark;
        cursor.key_count = 0;
    } else if (cursor.key_count < READ_KEYS_MAX) {
        snprintf(cursor.keys[cursor.key_count++], sizeof cursor.keys[0], "%s", key);
    }
    return cursor;
}

int cursor_push(const struct cursor *cursor, const char *key)
{
    lua_State *L = cursor->reader->L;
    if (cursor->index == 0) {
        lua_pushnil(L);
        return LUA_TNIL;
    }
    char *end;
    long position = strtol(key, &end, 10);
    if (*key != '\0' && *end == '\0')
        return lua_rawgeti(L, cursor->index, position);
    lua_pushstring(L, key);
    return lua_rawget(L, cursor->index);
}

/* The override that set the key or a table around it, the last one given; NULL when the file did. */
static const struct scenario_override *override_of(const struct reader *reader, const char *path)
{
    for (size_t k = reader->set_count; k-- > 0;) {
        size_t length = strlen(reader->sets[k].path);
        if (strncmp(path, reader->sets[k].path, length) == 0 && (path[length] == '\0' || path[length] == '.'))
            return &reader->sets[k];
    }
    return NULL;
}

/* An override of something inside the key's table: parts that do not go together may be its doing. */
static const struct scenario_override *override_inside(const struct reader *reader, const char *path)
{
    size_t length = strlen(path);
    for (size_t k = reader->set_count; k-- > 0;) {
        if (strncmp(path, reader->sets[k].path, length) == 0 && reader->sets[k].path[length] == '.')
            return &reader->sets[k];
    }
    return NULL;
}

static int line_of(const struct cursor *cursor, const char *key)
{
    const struct sandbox *sandbox = sandbox_of(cursor->reader->L);
    const char *keys[READ_KEYS_MAX + 1];
    unsigned count = 0;
    for (; count < cursor->key_count; count++)
        keys[count] = cursor->keys[count];
    if (key != NULL)
        keys[count++] = key;
    if (cursor->mark.line == 0)
        return 0;
    const struct sandbox_source *source = &sandbox->sources[cursor->mark.source];
    return source_line_find(source->text, source->length, cursor->mark.opened, cursor->mark.line, keys, count);
}

void cursor_fail(const struct cursor *cursor, const char *key, const char *format, ...)
{
    lua_State *L = cursor->reader->L;
    char path[READ_PATH_SIZE];
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (key != NULL)
        join(path, cursor->path, key);
    else
        snprintf(path, sizeof path, "%s", cursor->path);
    const struct scenario_override *override = override_of(cursor->reader, path);
    if (override == NULL)
        override = override_inside(cursor->reader, path);
    if (override != NULL) {
        char name[SANDBOX_PATH_SIZE];
        snprintf(name, sizeof name, "--set %.200s=%.200s", override->path, override->value);
        sandbox_fail(L, name, 0, path, "%s", text);
    }
    sandbox_fail(L, sandbox_of(L)->sources[cursor->mark.source].name, line_of(cursor, key), path, "%s", text);
}

void cursor_origin(const struct cursor *cursor, const char *key, bool present)
{
    struct origins *origins = cursor->reader->origins;
    if (origins->count == origins->capacity) {
        size_t capacity = origins->capacity == 0 ? 256 : origins->capacity * 2;
        struct origin *items = memory_resized(origins->items, capacity * sizeof *items);
        origins->items = items;
        origins->capacity = capacity;
    }
    struct origin *origin = &origins->items[origins->count++];
    memset(origin, 0, sizeof *origin);
    join(origin->path, cursor->path, key);
    origin->kind = !present                                            ? ORIGIN_DEFAULT
                   : override_of(cursor->reader, origin->path) != NULL ? ORIGIN_SET
                                                                       : ORIGIN_FILE;
    origin->source = cursor->mark.source;
    origin->line = origin->kind == ORIGIN_FILE ? line_of(cursor, key) : 0;
}

/* What stands on top of the stack, for messages. */
static const char *value_text(lua_State *L, char *text)
{
    const struct quantity *quantity = lua_units_get(L, -1);
    const struct word_mark *mark = scenario_word(L, -1);
    char number[QUANTITY_TEXT_SIZE];
    if (quantity != NULL) {
        quantity_text(quantity->kind, quantity->value, number);
        snprintf(text, VALUE_TEXT_SIZE, "%s", number);
    } else if (mark != NULL) {
        snprintf(text, VALUE_TEXT_SIZE, "a table made by %s", mark->word);
    } else if (lua_type(L, -1) == LUA_TSTRING) {
        snprintf(text, VALUE_TEXT_SIZE, "the text '%.80s'", lua_tostring(L, -1));
    } else if (lua_isinteger(L, -1)) {
        snprintf(text, VALUE_TEXT_SIZE, "%lld", (long long)lua_tointeger(L, -1));
    } else if (lua_type(L, -1) == LUA_TNUMBER) {
        snprintf(text, VALUE_TEXT_SIZE, "%.14g", lua_tonumber(L, -1));
    } else if (lua_isboolean(L, -1)) {
        snprintf(text, VALUE_TEXT_SIZE, "%s", lua_toboolean(L, -1) ? "true" : "false");
    } else {
        snprintf(text, VALUE_TEXT_SIZE, "%s%s", lua_isnil(L, -1) ? "" : "a ", luaL_typename(L, -1));
    }
    return text;
}

void cursor_push_table(const struct cursor *cursor, const char *key, const char *word)
{
    lua_State *L = cursor->reader->L;
    char text[VALUE_TEXT_SIZE];
    int type = cursor_push(cursor, key);
    const struct word_mark *mark = scenario_word(L, -1);
    if (type == LUA_TNIL)
        cursor_fail(cursor, key, "missing; %s { ... } is wanted", word == NULL ? "a table" : word);
    if (word == NULL ? type != LUA_TTABLE || mark != NULL : mark == NULL || strcmp(mark->word, word) != 0)
        cursor_fail(cursor, key, "%s { ... } is wanted, not %s", word == NULL ? "a plain table" : word,
                    value_text(L, text));
}

static void check_range(const struct cursor *cursor, const struct field *field, int64_t value)
{
    char text[QUANTITY_TEXT_SIZE];
    char bound[QUANTITY_TEXT_SIZE];
    if (value >= field->min && value <= field->max)
        return;
    bool low = value < field->min;
    int64_t limit = low ? field->min : field->max;
    switch (field->kind) {
    case FIELD_MILLI:
    case FIELD_TENTHS:
        decimal_text(value < 0 ? 0 : value, field->kind == FIELD_MILLI ? 1000 : 10, text);
        decimal_text(limit, field->kind == FIELD_MILLI ? 1000 : 10, bound);
        break;
    case FIELD_TIME_NS:
        quantity_text(QUANTITY_TIME, value == TIME_NEVER ? QUANTITY_NEVER : value * PS_PER_NS, text);
        quantity_text(QUANTITY_TIME, limit > INT64_MAX / PS_PER_NS ? QUANTITY_NEVER - 1 : limit * PS_PER_NS, bound);
        break;
    case FIELD_TIME_PS:
    case FIELD_QUANTITY:
        quantity_text(field->quantity, value, text);
        quantity_text(field->quantity, limit, bound);
        break;
    default:
        snprintf(text, sizeof text, "%lld", (long long)value);
        snprintf(bound, sizeof bound, "%lld", (long long)limit);
        break;
    }
    if (!low && field->limit != NULL)
        cursor_fail(cursor, field->key, "must be at most %s (%s), not %s", bound, field->limit, text);
    cursor_fail(cursor, field->key, "must be at %s %s, not %s", low ? "least" : "most", bound, text);
}

static int64_t read_quantity(const struct cursor *cursor, const struct field *field)
{
    lua_State *L = cursor->reader->L;
    char text[VALUE_TEXT_SIZE];
    const struct quantity *quantity = lua_units_get(L, -1);
    const char *wanted = quantity_kind_name(field->quantity);
    if (quantity == NULL && lua_type(L, -1) == LUA_TNUMBER) {
        value_text(L, text);
        cursor_fail(cursor, field->key, "%s is wanted, not the bare number %s: write it as in %s(%s)", wanted, text,
                    quantity_kind_constructor(field->quantity), text);
    }
    if (quantity == NULL || quantity->kind != field->quantity)
        cursor_fail(cursor, field->key, "%s is wanted, as in %s(1), not %s", wanted,
                    quantity_kind_constructor(field->quantity), value_text(L, text));
    if (field->kind != FIELD_TIME_NS)
        return quantity->value;
    if (quantity->value == QUANTITY_NEVER)
        return TIME_NEVER;
    return quantity->value / PS_PER_NS + (quantity->value % PS_PER_NS >= PS_PER_NS / 2 ? 1 : 0);
}

static int64_t read_scaled(const struct cursor *cursor, const struct field *field, int64_t scale)
{
    lua_State *L = cursor->reader->L;
    char text[VALUE_TEXT_SIZE];
    if (lua_type(L, -1) != LUA_TNUMBER)
        cursor_fail(cursor, field->key, "a plain number is wanted, not %s", value_text(L, text));
    double number = lua_tonumber(L, -1);
    if (!(number >= 0.0 && number < 1e9))
        cursor_fail(cursor, field->key, "a number of at least 0 is wanted, not %s", value_text(L, text));
    return (int64_t)(number * (double)scale + 0.5);
}

static int64_t read_integer(const struct cursor *cursor, const char *key)
{
    lua_State *L = cursor->reader->L;
    char text[VALUE_TEXT_SIZE];
    int exact = 0;
    int64_t value = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &exact) : 0;
    if (!exact)
        cursor_fail(cursor, key, "a whole number is wanted, not %s", value_text(L, text));
    return value;
}

int64_t read_count(const struct cursor *cursor, const char *key, int64_t min, int64_t max, const char *limit)
{
    int64_t value = read_integer(cursor, key);
    const struct field field = {.key = key, .kind = FIELD_COUNT, .min = min, .max = max, .limit = limit};
    check_range(cursor, &field, value);
    return value;
}

/* "one of a, b, c" for messages. */
/* What a name is where a function stands in its place. */
#define FUNCTION_NAME "function"

static void list_names(const struct field *field, char *text, size_t size)
{
    size_t used = 0;
    for (uint32_t k = 0; k < field->name_count && used < size - 1; k++) {
        bool function = strcmp(field->names[k].name, FUNCTION_NAME) == 0;
        int length = snprintf(text + used, size - used, function ? "%sa %s" : "%s'%s'", k == 0 ? "" : ", ",
                              field->names[k].name);
        used += (size_t)length < size - used ? (size_t)length : size - used - 1;
    }
}

const struct policy_code *read_policy(const struct cursor *cursor, const char *key)
{
    lua_State *L = cursor->reader->L;
    const char *why = NULL;
    char path[READ_PATH_SIZE];
    uint32_t place = 0;
    if (cursor->index == 0 || cursor_push(cursor, key) != LUA_TFUNCTION) {
        lua_settop(L, cursor->index == 0 ? lua_gettop(L) : lua_gettop(L) - 1);
        return NULL;
    }
    join(path, cursor->path, key);
    const struct word_mark *mark = scenario_word(L, -1);
    lua_Debug record;
    lua_pushvalue(L, -1);
    lua_getinfo(L, ">S", &record);
    unsigned long source =
        record.source[0] == '=' && record.source[1] == '@' ? strtoul(record.source + 2, NULL, 10) : 0;
    const char *file = sandbox_of(L)->sources[source].name;
    struct policy_code *code = policy_code_make(L, path, file, mark == NULL ? "" : mark->module, &why);
    if (code == NULL)
        cursor_fail(cursor, key, "%s", why);
    while (cursor->reader->codes[place] != NULL)
        place++;
    CHECK(place < POLICY_CODES_MAX);
    cursor->reader->codes[place] = code;
    lua_pop(L, 1);
    return code;
}

static int64_t read_name(const struct cursor *cursor, const struct field *field)
{
    lua_State *L = cursor->reader->L;
    char text[VALUE_TEXT_SIZE];
    char list[640];
    const char *names[64];
    list_names(field, list, sizeof list);
    CHECK(field->name_count <= sizeof names / sizeof names[0]);
    if (lua_type(L, -1) != LUA_TSTRING && !lua_isfunction(L, -1))
        cursor_fail(cursor, field->key, "one of %s is wanted, not %s", list, value_text(L, text));
    const char *name = lua_isfunction(L, -1) ? FUNCTION_NAME : lua_tostring(L, -1);
    if (!lua_isfunction(L, -1) && strcmp(name, FUNCTION_NAME) == 0)
        cursor_fail(cursor, field->key, "a function itself is wanted, not the word");
    for (uint32_t k = 0; k < field->name_count; k++) {
        names[k] = field->names[k].name;
        if (strcmp(name, names[k]) == 0)
            return field->names[k].value;
    }
    const char *nearest = nearest_name(name, names, field->name_count);
    if (nearest != NULL)
        cursor_fail(cursor, field->key, "'%.60s' is not one of %s; did you mean '%s'?", name, list, nearest);
    cursor_fail(cursor, field->key, "'%.60s' is not one of %s", name, list);
}

static void read_text(const struct cursor *cursor, const struct field *field, void *base)
{
    lua_State *L = cursor->reader->L;
    char text[VALUE_TEXT_SIZE];
    if (lua_type(L, -1) != LUA_TSTRING)
        cursor_fail(cursor, field->key, "a text is wanted, not %s", value_text(L, text));
    size_t length;
    const char *value = lua_tolstring(L, -1, &length);
    if (length == 0 && field->required)
        cursor_fail(cursor, field->key, "must not be empty");
    if (length >= field->width)
        cursor_fail(cursor, field->key, "at most %u bytes long, not %zu", field->width - 1, length);
    for (size_t k = 0; k < length; k++) {
        if ((unsigned char)value[k] < ' ' || value[k] == 127)
            cursor_fail(cursor, field->key, "must be one line, free of control characters");
    }
    memcpy((char *)base + field->offset, value, length + 1);
}

static _Noreturn void fail_missing(const struct cursor *cursor, const struct field *field)
{
    char list[256];
    switch (field->kind) {
    case FIELD_TEXT:
    case FIELD_NAME:
        if (field->name_count > 0) {
            list_names(field, list, sizeof list);
            cursor_fail(cursor, field->key, "missing; one of %s is wanted", list);
        }
        cursor_fail(cursor, field->key, "missing; a text is wanted");
    case FIELD_TIME_NS:
    case FIELD_TIME_PS:
    case FIELD_QUANTITY:
        cursor_fail(cursor, field->key, "missing; %s is wanted, as in %s(1)", quantity_kind_name(field->quantity),
                    quantity_kind_constructor(field->quantity));
    case FIELD_COUNT:
        cursor_fail(cursor, field->key, "missing; a whole number is wanted");
    case FIELD_FLAG:
    case FIELD_MILLI:
    case FIELD_TENTHS:
        break;
    }
    cursor_fail(cursor, field->key, "missing; a number is wanted");
}

/* The value on top of the stack, as stored. */
static int64_t read_value(const struct cursor *cursor, const struct field *field)
{
    lua_State *L = cursor->reader->L;
    char text[VALUE_TEXT_SIZE];
    switch (field->kind) {
    case FIELD_COUNT:
        return read_integer(cursor, field->key);
    case FIELD_FLAG:
        if (!lua_isboolean(L, -1))
            cursor_fail(cursor, field->key, "true or false is wanted, not %s", value_text(L, text));
        return lua_toboolean(L, -1);
    case FIELD_NAME:
        return read_name(cursor, field);
    case FIELD_MILLI:
        return read_scaled(cursor, field, 1000);
    case FIELD_TENTHS:
        return read_scaled(cursor, field, 10);
    case FIELD_TIME_NS:
    case FIELD_TIME_PS:
    case FIELD_QUANTITY:
        return read_quantity(cursor, field);
    case FIELD_TEXT:
        break;
    }
    check_failed("a known kind of field", __FILE__, __LINE__);
}

void read_fields(const struct cursor *cursor, const struct schema *schema, void *base)
{
    lua_State *L = cursor->reader->L;
    for (uint32_t k = 0; k < schema->count; k++) {
        const struct field *field = &schema->fields[k];
        bool present = cursor_push(cursor, field->key) != LUA_TNIL;
        if (!present && field->required)
            fail_missing(cursor, field);
        if (present && field->kind == FIELD_TEXT) {
            read_text(cursor, field, base);
        } else if (present) {
            int64_t value = read_value(cursor, field);
            check_range(cursor, field, value);
            field_store(field, base, value);
        } else if (field->kind != FIELD_TEXT) {
            field_store(field, base, field->fallback);
        }
        cursor_origin(cursor, field->key, present);
        lua_pop(L, 1);
    }
}

uint32_t read_list_length(const struct cursor *cursor, uint32_t max, const char *limit)
{
    lua_State *L = cursor->reader->L;
    lua_Unsigned length = lua_rawlen(L, cursor->index);
    if (length == 0)
        cursor_fail(cursor, NULL, "at least one entry is wanted");
    if (length > max)
        cursor_fail(cursor, NULL, "at most %u entries (%s), not %llu", max, limit, (unsigned long long)length);
    lua_pushnil(L);
    while (lua_next(L, cursor->index) != 0) {
        lua_pop(L, 1);
        if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) < 1 || lua_tointeger(L, -1) > (lua_Integer)length)
            cursor_fail(cursor, NULL, "a list is wanted: values without names, one after the other");
    }
    return (uint32_t)length;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

size_t read_sorted_keys(const struct cursor *cursor, const char **names, size_t max, const char *limit)
{
    lua_State *L = cursor->reader->L;
    size_t count = 0;
    if (cursor->index == 0)
        return 0;
    lua_pushnil(L);
    while (lua_next(L, cursor->index) != 0) {
        lua_pop(L, 1);
        if (lua_type(L, -1) != LUA_TSTRING)
            cursor_fail(cursor, NULL, "every value here has a name, as in name = value");
        if (count == max)
            cursor_fail(cursor, NULL, "at most %zu entries (%s)", max, limit);
        names[count++] = lua_tostring(L, -1);
    }
    qsort(names, count, sizeof names[0], compare_names);
    return count;
}

void read_no_others(const struct cursor *cursor, const struct schema *schema, const char *const *others,
                    size_t other_count)
{
    const char *known[KEYS_MAX];
    const char *names[KEYS_MAX];
    size_t known_count = 0;
    for (uint32_t k = 0; schema != NULL && k < schema->count; k++)
        known[known_count++] = schema->fields[k].key;
    for (size_t k = 0; k < other_count; k++)
        known[known_count++] = others[k];
    CHECK(known_count <= KEYS_MAX);
    size_t count = read_sorted_keys(cursor, names, KEYS_MAX, "more keys than there are");
    for (size_t n = 0; n < count; n++) {
        size_t k = 0;
        while (k < known_count && strcmp(names[n], known[k]) != 0)
            k++;
        if (k < known_count)
            continue;
        const char *nearest = nearest_name(names[n], known, known_count);
        char shown[48];
        snprintf(shown, sizeof shown, "%.40s", names[n]);
        if (nearest != NULL)
            cursor_fail(cursor, shown, "unknown key; did you mean '%s'?", nearest);
        cursor_fail(cursor, shown, "unknown key");
    }
}
