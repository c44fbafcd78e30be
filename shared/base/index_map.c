/* See index_map.h. */
#include "base/index_map.h"

#include "base/check.h"

static uint32_t home(const struct index_map *map, uint64_t key)
{
    key = (key ^ (key >> 31)) * UINT64_C(0x9fb21c651e98df25);
    return (uint32_t)(key >> 32) & map->mask;
}

void index_map_make(struct index_map *map, struct arena *arena, uint32_t capacity)
{
    CHECK(capacity <= UINT32_C(1) << 29);
    uint32_t cells = 4;
    while (cells < 2 * capacity)
        cells *= 2;
    map->keys = arena_take(arena, cells, sizeof *map->keys);
    map->values = arena_take(arena, cells, sizeof *map->values);
    map->mask = cells - 1;
    map->count = 0;
    map->capacity = capacity;
    /* Values are stored plus one, so that zero memory is an empty map and untouched cells cost no resident page. */
}

static uint32_t find(const struct index_map *map, uint64_t key)
{
    uint32_t cell = home(map, key);
    while (map->values[cell] != 0 && map->keys[cell] != key)
        cell = (cell + 1) & map->mask;
    return cell;
}

uint32_t index_map_get(const struct index_map *map, uint64_t key)
{
    return map->values[find(map, key)] - 1; /* an empty cell's 0 becomes INDEX_NONE */
}

void index_map_put(struct index_map *map, uint64_t key, uint32_t value)
{
    CHECK(map->count < map->capacity && value != INDEX_NONE);
    uint32_t cell = find(map, key);
    CHECK(map->values[cell] == 0);
    map->keys[cell] = key;
    map->values[cell] = value + 1;
    map->count++;
}

void index_map_remove(struct index_map *map, uint64_t key)
{
    uint32_t hole = find(map, key);
    CHECK(map->values[hole] != 0);
    uint32_t cell = hole;
    for (;;) {
        cell = (cell + 1) & map->mask;
        if (map->values[cell] == 0)
            break;
        /* An entry may move into the hole only if the hole lies on its way from home. */
        uint32_t distance = (cell - home(map, map->keys[cell])) & map->mask;
        if (distance >= ((cell - hole) & map->mask)) {
            map->keys[hole] = map->keys[cell];
            map->values[hole] = map->values[cell];
            hole = cell;
        }
    }
    map->values[hole] = 0;
    map->count--;
}
