/* See arena.h. */
#include "base/arena.h"

#include "base/check.h"

#include <stdint.h>

struct arena arena_measure(void)
{
    return (struct arena){.capacity = SIZE_MAX};
}

struct arena arena_over(void *memory, size_t capacity)
{
    CHECK(memory != NULL && ((uintptr_t)memory & 63) == 0);
    return (struct arena){.memory = memory, .capacity = capacity};
}

void *arena_take(struct arena *arena, size_t count, size_t size)
{
    CHECK(!arena->sealed);
    CHECK(size == 0 || count <= SIZE_MAX / 2 / size);
    size_t bytes = count * size;
    size_t align = bytes >= 64 ? 64 : 16;
    size_t start = (arena->used + align - 1) & ~(align - 1);
    CHECK(start <= arena->capacity && bytes <= arena->capacity - start);
    arena->used = start + bytes;
    return arena->memory == NULL ? NULL : arena->memory + start;
}

void arena_seal(struct arena *arena)
{
    CHECK(!arena->sealed);
    arena->sealed = true;
}
