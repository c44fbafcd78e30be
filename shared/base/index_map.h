/* A map from 64-bit keys to 32-bit indices with a fixed capacity: open addressing, linear probing, deletion by shifting
 * back, so that there are no tombstones. Its memory is taken at once and used from the front: the cells in use double
 * as entries come, so that a map that stays small touches little of it. It is never iterated: its order must decide
 * nothing.
 */
#ifndef TANDEM_BASE_INDEX_MAP_H
#define TANDEM_BASE_INDEX_MAP_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

#define INDEX_NONE UINT32_MAX

struct index_cell {
    uint64_t key;
    uint32_t value; /* plus one; 0: the cell is empty */
};

struct index_map {
    struct index_cell *cells;
    uint32_t mask; /* of the cells in use, at least twice as many as entries */
    uint32_t count;
    uint32_t capacity; /* most entries */
};

void index_map_make(struct index_map *map, struct arena *arena, uint32_t capacity);

/* INDEX_NONE when the key is absent. */
uint32_t index_map_get(const struct index_map *map, uint64_t key);

/* The key must be absent, the map not full, the value not INDEX_NONE. */
void index_map_put(struct index_map *map, uint64_t key, uint32_t value);

/* The key must be present. */
void index_map_remove(struct index_map *map, uint64_t key);

#endif
