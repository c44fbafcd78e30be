/* Quantities of the scenario language: a number that knows what it counts, so that no unit is ever guessed.
 *
 * Each constructor (ms, GiB, per_second, ...) makes an immutable userdata that holds one integer in the base unit of
 * its kind, rounded to the nearest once.
 */
#ifndef TANDEM_WORLD_SCENARIO_LUA_UNITS_H
#define TANDEM_WORLD_SCENARIO_LUA_UNITS_H

#include <lua.h>
#include <stdint.h>

enum quantity_kind {
    QUANTITY_TIME = 1, /* picoseconds: NICs have gaps of less than a nanosecond */
    QUANTITY_BYTES = 2,
    QUANTITY_BYTE_RATE = 3,  /* bytes per second */
    QUANTITY_FLOPS = 4,      /* operations per second */
    QUANTITY_RATE = 5,       /* requests per 1e6 seconds */
    QUANTITY_TOKEN_RATE = 6, /* tokens per second */
    QUANTITY_SHARE = 7,      /* permille */
    QUANTITY_PRICE = 8,      /* 1e-6 $ per hour */
    QUANTITY_KIND_COUNT = 9,
};

#define PS_PER_NS INT64_C(1000)

/* The value of `never`: no limit in time. */
#define QUANTITY_NEVER INT64_MAX

struct quantity {
    enum quantity_kind kind;
    int64_t value; /* at least 0 */
};

/* Adds the constructors and `never` to the table on top of the stack. */
void lua_units_open(lua_State *L);

/* Pushes a quantity. */
void lua_units_push(lua_State *L, enum quantity_kind kind, int64_t value);

/* The quantity at `index`, or NULL when something else is there. Valid as long as the Lua value is. */
const struct quantity *lua_units_get(lua_State *L, int index);

/* What a reader calls it, "a time", and a constructor that makes one, "ms". */
const char *quantity_kind_name(enum quantity_kind kind);
const char *quantity_kind_constructor(enum quantity_kind kind);

/* Writes the expression that makes exactly this value, "us(11.2)", the same for equal values. `text` holds at least
 * QUANTITY_TEXT_SIZE bytes. */
#define QUANTITY_TEXT_SIZE 64
void quantity_text(enum quantity_kind kind, int64_t value, char *text);

/* Writes value / unit, exactly and without trailing zeros; value is at least 0, unit a power of ten up to 1e17. Returns
 * the length. `text` as above. */
int decimal_text(int64_t value, int64_t unit, char *text);

#endif
