/* See memory.h. */
#include "host/memory.h"

#include "host/exit_status.h"

#include <stdio.h>
#include <string.h>

static _Noreturn void exhausted(size_t count, size_t size)
{
    fflush(stdout);
    fprintf(stderr, "tandem: out of memory: the machine gives no %zu x %zu bytes more\n", count, size);
    fflush(stderr);
    _Exit(EXIT_MACHINE);
}

static void *got(void *memory, size_t count, size_t size)
{
    if (memory == NULL)
        exhausted(count, size);
    return memory;
}

void *memory_get(size_t bytes)
{
    return got(malloc(bytes + (bytes == 0)), 1, bytes);
}

void *memory_zeroed(size_t count, size_t size)
{
    size_t none = count == 0 || size == 0;
    return got(none ? calloc(1, 1) : calloc(count, size), count, size);
}

void *memory_aligned(size_t bytes)
{
    size_t whole = (bytes + 63) / 64 * 64 + (bytes == 0 ? 64 : 0);
    return memset(got(aligned_alloc(64, whole), 1, whole), 0, whole);
}

void *memory_resized(void *memory, size_t bytes)
{
    return got(realloc(memory, bytes + (bytes == 0)), 1, bytes);
}

void *memory_given(void *made)
{
    return got(made, 1, 1);
}

char *memory_copy(const char *text)
{
    size_t size = strlen(text) + 1;
    return memcpy(memory_get(size), text, size);
}
