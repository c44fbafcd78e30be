/* One block of memory per node, measured first, then carved up, then sealed.
 *
 * An arena is used twice with the same code: once with no memory behind it, to learn the size (arena_measure), and
 * once over a block of that size. After arena_seal() nothing more can be taken: the pure logic allocates nothing
 * while it runs. The block belongs to whoever provided it.
 */
#ifndef TANDEM_BASE_ARENA_H
#define TANDEM_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct arena {
    unsigned char *memory; /* NULL while measuring */
    size_t capacity;
    size_t used;
    bool sealed;
};

/* An arena without memory: arena_take() returns NULL and only adds up sizes. */
struct arena arena_measure(void);

/* An arena over `capacity` bytes at `memory`, which must be aligned to 64 bytes and zero (fresh from calloc or mmap, so
 * that pages that are never used are never touched). */
struct arena arena_over(void *memory, size_t capacity);

/* Room for `count` objects of `size` bytes, aligned to 64 bytes when larger than a cache line, else to 16. Zero.
 * NULL only while measuring; running out is a bug (CHECK). */
void *arena_take(struct arena *arena, size_t count, size_t size);

void arena_seal(struct arena *arena);

#endif
