/* See lua_units.h. */
#include "world/scenario/lua_units.h"

#include "base/arith.h"

#include <lauxlib.h>
#include <stdio.h>

#define QUANTITY_METATABLE "quantity"

/* The greatest value short of `never`. */
#define VALUE_MAX (INT64_MAX - 1)

struct constructor {
    const char *name;
    enum quantity_kind kind;
    int64_t numerator; /* base units per unit: numerator / denominator */
    int64_t denominator;
};

#define KIBI INT64_C(1024)
static const struct constructor constructors[] = {
    {"ns", QUANTITY_TIME, INT64_C(1000), 1},
    {"us", QUANTITY_TIME, INT64_C(1000000), 1},
    {"ms", QUANTITY_TIME, INT64_C(1000000000), 1},
    {"s", QUANTITY_TIME, INT64_C(1000000000000), 1},
    {"minutes", QUANTITY_TIME, INT64_C(60000000000000), 1},
    {"hours", QUANTITY_TIME, INT64_C(3600000000000000), 1},
    {"bytes", QUANTITY_BYTES, 1, 1},
    {"KiB", QUANTITY_BYTES, KIBI, 1},
    {"MiB", QUANTITY_BYTES, KIBI *KIBI, 1},
    {"GiB", QUANTITY_BYTES, KIBI *KIBI *KIBI, 1},
    {"GB", QUANTITY_BYTES, INT64_C(1000000000), 1},
    {"Gbit_s", QUANTITY_BYTE_RATE, INT64_C(125000000), 1},
    {"GB_s", QUANTITY_BYTE_RATE, INT64_C(1000000000), 1},
    {"TB_s", QUANTITY_BYTE_RATE, INT64_C(1000000000000), 1},
    {"TFLOPS", QUANTITY_FLOPS, INT64_C(1000000000000), 1},
    {"per_second", QUANTITY_RATE, INT64_C(1000000), 1},
    {"per_minute", QUANTITY_RATE, INT64_C(1000000), 60},
    {"tokens_per_second", QUANTITY_TOKEN_RATE, 1, 1},
    {"percent", QUANTITY_SHARE, 10, 1},
    {"usd_per_hour", QUANTITY_PRICE, INT64_C(1000000), 1},
};

#define CONSTRUCTOR_COUNT ((lua_Integer)(sizeof constructors / sizeof constructors[0]))

void lua_units_push(lua_State *L, enum quantity_kind kind, int64_t value)
{
    struct quantity *quantity = lua_newuserdatauv(L, sizeof *quantity, 0);
    quantity->kind = kind;
    quantity->value = value;
    luaL_setmetatable(L, QUANTITY_METATABLE);
}

static int construct(lua_State *L)
{
    lua_Integer which = lua_tointeger(L, lua_upvalueindex(1));
    CHECK(which >= 0 && which < CONSTRUCTOR_COUNT);
    const struct constructor *c = &constructors[which];
    if (lua_gettop(L) != 1 || lua_type(L, 1) != LUA_TNUMBER)
        return luaL_error(L, "%s takes one number, as in %s(1)", c->name, c->name);
    if (lua_isinteger(L, 1)) {
        lua_Integer n = lua_tointeger(L, 1);
        if (n < 0)
            return luaL_error(L, "%s(%I): must not be negative", c->name, n);
        int128 value = ((int128)n * c->numerator * 2 + c->denominator) / (2 * c->denominator);
        if (value > VALUE_MAX)
            return luaL_error(L, "%s(%I): too large", c->name, n);
        lua_units_push(L, c->kind, (int64_t)value);
        return 1;
    }
    double n = lua_tonumber(L, 1);
    if (n != n)
        return luaL_error(L, "%s takes one number, as in %s(1)", c->name, c->name);
    if (n < 0.0)
        return luaL_error(L, "%s(%f): must not be negative", c->name, n);
    double value = n * (double)c->numerator / (double)c->denominator;
    if (!(value < 9.0e18))
        return luaL_error(L, "%s(%f): too large", c->name, n);
    lua_units_push(L, c->kind, (int64_t)(value + 0.5));
    return 1;
}

static int to_string(lua_State *L)
{
    const struct quantity *quantity = lua_units_get(L, 1);
    char text[QUANTITY_TEXT_SIZE];
    if (quantity == NULL)
        return luaL_error(L, "a quantity is wanted");
    quantity_text(quantity->kind, quantity->value, text);
    lua_pushstring(L, text);
    return 1;
}

void lua_units_open(lua_State *L)
{
    luaL_newmetatable(L, QUANTITY_METATABLE);
    lua_pushcfunction(L, to_string);
    lua_setfield(L, -2, "__tostring");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
    for (lua_Integer k = 0; k < CONSTRUCTOR_COUNT; k++) {
        lua_pushinteger(L, k);
        lua_pushcclosure(L, construct, 1);
        lua_setfield(L, -2, constructors[k].name);
    }
    lua_units_push(L, QUANTITY_TIME, QUANTITY_NEVER);
    lua_setfield(L, -2, "never");
}

const struct quantity *lua_units_get(lua_State *L, int index)
{
    return luaL_testudata(L, index, QUANTITY_METATABLE);
}

static const char *const kind_names[QUANTITY_KIND_COUNT] = {
    NULL,     "a time",       "a size in bytes", "a bandwidth", "an operation rate",
    "a rate", "a token rate", "a share",         "a price",
};

static const char *const kind_constructors[QUANTITY_KIND_COUNT] = {
    NULL, "ms", "GiB", "GB_s", "TFLOPS", "per_second", "tokens_per_second", "percent", "usd_per_hour",
};

const char *quantity_kind_name(enum quantity_kind kind)
{
    CHECK(kind >= 1 && kind < QUANTITY_KIND_COUNT);
    return kind_names[kind];
}

const char *quantity_kind_constructor(enum quantity_kind kind)
{
    CHECK(kind >= 1 && kind < QUANTITY_KIND_COUNT);
    return kind_constructors[kind];
}

int decimal_text(int64_t value, int64_t unit, char *text)
{
    int used = snprintf(text, QUANTITY_TEXT_SIZE, "%lld", (long long)(value / unit));
    int64_t rest = value % unit;
    if (rest == 0)
        return used;
    text[used++] = '.';
    while (rest != 0) {
        rest *= 10;
        text[used++] = (char)('0' + rest / unit);
        rest %= unit;
    }
    text[used] = '\0';
    return used;
}

static void call_text(const char *constructor, int64_t value, int64_t unit, char *text)
{
    char number[QUANTITY_TEXT_SIZE];
    int used = decimal_text(value, unit, number);
    snprintf(text, QUANTITY_TEXT_SIZE, "%s(%.*s)", constructor, used < 40 ? used : 40, number);
}

static void time_text(int64_t value, char *text)
{
    if (value == QUANTITY_NEVER)
        snprintf(text, QUANTITY_TEXT_SIZE, "never");
    else if (value == 0 || value >= INT64_C(1000000000000))
        call_text("s", value, INT64_C(1000000000000), text);
    else if (value >= INT64_C(1000000000))
        call_text("ms", value, INT64_C(1000000000), text);
    else if (value >= INT64_C(1000000))
        call_text("us", value, INT64_C(1000000), text);
    else
        call_text("ns", value, INT64_C(1000), text);
}

static void bytes_text(int64_t value, char *text)
{
    static const struct {
        const char *name;
        int64_t unit;
    } units[] = {
        {"GiB", KIBI * KIBI * KIBI}, {"GB", INT64_C(1000000000)}, {"MiB", KIBI * KIBI}, {"KiB", KIBI}, {"bytes", 1},
    };
    size_t k = 0;
    while (value == 0 ? units[k].unit != 1 : value % units[k].unit != 0)
        k++;
    call_text(units[k].name, value / units[k].unit, 1, text);
}

void quantity_text(enum quantity_kind kind, int64_t value, char *text)
{
    switch (kind) {
    case QUANTITY_TIME:
        time_text(value, text);
        return;
    case QUANTITY_BYTES:
        bytes_text(value, text);
        return;
    case QUANTITY_BYTE_RATE:
        if (value >= INT64_C(1000000000000))
            call_text("TB_s", value, INT64_C(1000000000000), text);
        else
            call_text("GB_s", value, INT64_C(1000000000), text);
        return;
    case QUANTITY_FLOPS:
        call_text("TFLOPS", value, INT64_C(1000000000000), text);
        return;
    case QUANTITY_RATE:
        call_text("per_second", value, INT64_C(1000000), text);
        return;
    case QUANTITY_TOKEN_RATE:
        call_text("tokens_per_second", value, 1, text);
        return;
    case QUANTITY_SHARE:
        call_text("percent", value, 10, text);
        return;
    case QUANTITY_PRICE:
        call_text("usd_per_hour", value, INT64_C(1000000), text);
        return;
    case QUANTITY_KIND_COUNT:
        break;
    }
    check_failed("a known kind of quantity", __FILE__, __LINE__);
}
