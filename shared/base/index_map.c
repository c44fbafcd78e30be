/* See index_map.h. */
#include "base/index_map.h"

#include "base/check.h"

#define CELLS_FIRST 64u

/* Most keys are counters: neighbours stay neighbours, so that the live ones share cache lines. The upper half, where
 * keys differ by node, is spread by an odd multiplier. */
static uint32_t home(const struct index_map *map, uint64_t key)
{
    return ((uint32_t)key + (uint32_t)(key >> 32) * UINT32_C(0x9e3779b1)) & map->mask;
}

void index_map_make(struct index_map *map, struct arena *arena, uint32_t capacity)
{
    CHECK(capacity <= UINT32_C(1) << 29);
    uint32_t cells = CELLS_FIRST;
    while (cells < 2 * capacity)
        cells *= 2;
    map->cells = arena_take(arena, cells, sizeof *map->cells);
    map->mask = CELLS_FIRST - 1;
    map->count = 0;
    map->capacity = capacity;
    /* Values are stored plus one, so that zero memory is an empty map and untouched cells cost no resident page. */
}

static uint32_t find(const struct index_map *map, uint64_t key)
{
    uint32_t cell = home(map, key);
    while (map->cells[cell].value != 0 && map->cells[cell].key != key)
        cell = (cell + 1) & map->mask;
    return cell;
}

/* Twice the cells, in place. Entries are taken out and put in again in the order of their cells, from behind an empty
 * one on: each finds its new place among those that have moved, never beyond where it was, or as far into the new half.
 */
static void grow(struct index_map *map)
{
    uint32_t before = map->mask + 1;
    uint32_t first = 0;
    while (map->cells[first].value != 0)
        first++;
    map->mask = 2 * before - 1;
    for (uint32_t i = 1; i < before; i++) {
        struct index_cell *cell = &map->cells[(first + i) & (before - 1)];
        struct index_cell entry = *cell;
        if (entry.value == 0)
            continue;
        cell->value = 0;
        map->cells[find(map, entry.key)] = entry;
    }
}

uint32_t index_map_get(const struct index_map *map, uint64_t key)
{
    return map->cells[find(map, key)].value - 1; /* an empty cell's 0 becomes INDEX_NONE */
}

void index_map_put(struct index_map *map, uint64_t key, uint32_t value)
{
    CHECK(map->count < map->capacity && value != INDEX_NONE);
    if (2 * (map->count + 1) > map->mask + 1)
        grow(map);
    uint32_t cell = find(map, key);
    CHECK(map->cells[cell].value == 0);
    map->cells[cell] = (struct index_cell){.key = key, .value = value + 1};
    map->count++;
}

void index_map_remove(struct index_map *map, uint64_t key)
{
    uint32_t hole = find(map, key);
    CHECK(map->cells[hole].value != 0);
    uint32_t cell = hole;
    for (;;) {
        cell = (cell + 1) & map->mask;
        if (map->cells[cell].value == 0)
            break;
        /* An entry may move into the hole only if the hole lies on its way from home. */
        uint32_t distance = (cell - home(map, map->cells[cell].key)) & map->mask;
        if (distance >= ((cell - hole) & map->mask)) {
            map->cells[hole] = map->cells[cell];
            hole = cell;
        }
    }
    map->cells[hole].value = 0;
    map->count--;
}
