/* Memory, or the end: an allocation that fails is told to the user and ends the process with EXIT_MACHINE.
 *
 * Nothing the program could do then would be better: what is complete is in the database, which rolls back the rest.
 * What grows with a user's numbers has a limit (base/limits.h) or is measured before it is asked for, and is refused as
 * a user's error. The pure logic allocates nothing at all. What is got here is returned with free().
 */
#ifndef TANDEM_HOST_MEMORY_H
#define TANDEM_HOST_MEMORY_H

#include <stddef.h>
#include <stdlib.h>

/* Never NULL, also for 0 bytes. */
void *memory_get(size_t bytes);

/* Zeroed; count * size may overflow: such memory does not exist. */
void *memory_zeroed(size_t count, size_t size);

/* Zeroed, at an address that 64 divides: a line of a cache. */
void *memory_aligned(size_t bytes);

/* `memory`, or NULL, with another size. */
void *memory_resized(void *memory, size_t bytes);

/* What a library made, which is NULL only where memory is short. */
void *memory_given(void *made);

/* A copy of a string. */
char *memory_copy(const char *text);

#endif
