/* Sections of a scenario: the steps that were measured on a machine (step_table.h). */
#include "world/scenario/scenario_internal.h"

#include "base/arith.h"
#include "base/check.h"
#include "host/memory.h"

#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(list) (sizeof(list) / sizeof((list)[0]))

/* What one axis may reach: the tokens of a step, or the tokens that a full memory caches. */
#define ROW_MAX UINT32_MAX
#define COLUMN_MAX (INT64_C(1) << 40)

/* Reads a list of ascending numbers into `values`; returns how many. */
static uint32_t read_axis(const struct cursor *grid, const char *key, int64_t least, int64_t most, int64_t *values)
{
    lua_State *L = grid->reader->L;
    cursor_push_table(grid, key, NULL);
    struct cursor list = cursor_below(grid, key);
    uint32_t count = read_list_length(&list, STEP_BREAKPOINTS_MAX, "STEP_BREAKPOINTS_MAX");
    for (uint32_t k = 0; k < count; k++) {
        char place[16];
        snprintf(place, sizeof place, "%u", k + 1);
        cursor_push(&list, place);
        values[k] = read_count(&list, place, k == 0 ? least : values[k - 1] + 1, most, NULL);
        lua_pop(L, 1);
    }
    cursor_origin(grid, key, true);
    lua_pop(L, 1);
    return count;
}

/* A row of times, one for each column. */
static void read_times(const struct cursor *rows, const char *key, uint32_t count, int64_t *ns)
{
    lua_State *L = rows->reader->L;
    cursor_push_table(rows, key, NULL);
    struct cursor row = cursor_below(rows, key);
    if (read_list_length(&row, STEP_BREAKPOINTS_MAX, "STEP_BREAKPOINTS_MAX") != count)
        cursor_fail(rows, key, "a time for each of the %u columns is wanted", count);
    for (uint32_t k = 0; k < count; k++) {
        char place[16];
        snprintf(place, sizeof place, "%u", k + 1);
        cursor_push(&row, place);
        const struct quantity *time = lua_units_get(L, -1);
        if (time == NULL || time->kind != QUANTITY_TIME || time->value == QUANTITY_NEVER || time->value < PS_PER_NS)
            cursor_fail(rows, key, "a time of at least ns(1) is wanted at place %s", place);
        ns[k] = (time->value + PS_PER_NS / 2) / PS_PER_NS;
        lua_pop(L, 1);
    }
    cursor_origin(rows, key, true);
    lua_pop(L, 1);
}

/* Nothing is read where the grid was not measured. */
static void read_grid(const struct cursor *steps, const char *key, const char *row_key, const char *column_key,
                      struct step_grid *grid)
{
    lua_State *L = steps->reader->L;
    bool present = cursor_push(steps, key) != LUA_TNIL;
    lua_pop(L, 1);
    if (!present)
        return;
    const char *const keys[] = {row_key, column_key, "time"};
    int64_t values[STEP_BREAKPOINTS_MAX];
    cursor_push_table(steps, key, NULL);
    struct cursor cursor = cursor_below(steps, key);
    read_no_others(&cursor, NULL, keys, LENGTH(keys));
    uint32_t row_count = read_axis(&cursor, row_key, 1, ROW_MAX, values);
    for (uint32_t k = 0; k < row_count; k++)
        grid->rows[k] = (uint32_t)values[k];
    grid->column_count = read_axis(&cursor, column_key, 0, COLUMN_MAX, values);
    for (uint32_t k = 0; k < grid->column_count; k++)
        grid->columns[k] = (uint64_t)values[k];
    cursor_push_table(&cursor, "time", NULL);
    struct cursor rows = cursor_below(&cursor, "time");
    if (read_list_length(&rows, STEP_BREAKPOINTS_MAX, "STEP_BREAKPOINTS_MAX") != row_count)
        cursor_fail(&cursor, "time", "a row of times for each of the %u %s is wanted", row_count, row_key);
    for (uint32_t k = 0; k < row_count; k++) {
        char place[16];
        snprintf(place, sizeof place, "%u", k + 1);
        read_times(&rows, place, grid->column_count, grid->ns[k]);
    }
    grid->row_count = row_count;
    lua_pop(L, 2);
}

static void read_table(const struct cursor *list, const char *place, struct step_table *table)
{
    static const char *const others[] = {"sharding", "prefill", "decode"};
    lua_State *L = list->reader->L;
    cursor_push_table(list, place, "steps");
    struct cursor cursor = cursor_below(list, place);
    read_no_others(&cursor, &schema_steps, others, LENGTH(others));
    read_fields(&cursor, &schema_steps, table);
    cursor_push_table(&cursor, "sharding", NULL);
    struct cursor sharding = cursor_below(&cursor, "sharding");
    read_no_others(&sharding, &schema_sharding, NULL, 0);
    read_fields(&sharding, &schema_sharding, &table->parallelism);
    lua_pop(L, 1);
    read_grid(&cursor, "prefill", "tokens", "keys", &table->prefill);
    read_grid(&cursor, "decode", "sequences", "context", &table->decode);
    if (table->prefill.row_count == 0 && table->decode.row_count == 0)
        cursor_fail(&cursor, "prefill", "missing, and so is decode; one of them is wanted");
    lua_pop(L, 1);
}

/* Freed with the scenario, also when reading fails from here on. */
static struct step_tables *allocate(const struct reader *reader)
{
    uint32_t place = 0;
    while (place < SCENARIO_POOLS_MAX && reader->steps[place] != NULL)
        place++;
    CHECK(place < SCENARIO_POOLS_MAX);
    reader->steps[place] = memory_zeroed(1, sizeof *reader->steps[place]);
    return reader->steps[place];
}

void scenario_read_steps(const struct cursor *machine, struct hardware *hardware)
{
    lua_State *L = machine->reader->L;
    bool present = cursor_push(machine, "steps") != LUA_TNIL;
    lua_pop(L, 1);
    if (!present && hardware->gpu[0] == '\0')
        cursor_fail(machine, "gpu",
                    "missing; one of 'A100', 'B200', 'GB200', 'H100', 'H200' is wanted, or steps that "
                    "`tandem calibrate` measured");
    if (!present)
        return;
    struct step_tables *tables = allocate(machine->reader);
    cursor_push_table(machine, "steps", NULL);
    struct cursor list = cursor_below(machine, "steps");
    tables->count = read_list_length(&list, STEP_TABLES_MAX, "STEP_TABLES_MAX");
    for (uint32_t k = 0; k < tables->count; k++) {
        char place[16];
        snprintf(place, sizeof place, "%u", k + 1);
        read_table(&list, place, &tables->item[k]);
    }
    hardware->steps = tables;
    lua_pop(L, 1);
}
