/* The yardstick of the transfer engine: remote writes with libfabric and nothing else, a window of equal writes round
 * and round a region, with the same flags as the engine's (data, delivery-complete).
 */
#ifndef TANDEM_REAL_FABRIC_BARE_LOOP_H
#define TANDEM_REAL_FABRIC_BARE_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bare_loop;

struct bare_address {
    unsigned char address[256];
    uint64_t base;
    uint64_t key;
};

/* An endpoint with `memory` registered. NULL with a sentence. */
struct bare_loop *bare_loop_make(const char *provider, const char *address, void *memory, size_t bytes,
                                 struct bare_address *own, char *error, size_t error_size);
void bare_loop_free(struct bare_loop *loop);

/* Polls until *stop; as the target. */
void bare_loop_serve(struct bare_loop *loop, const _Atomic uint32_t *stop);

/* Keeps `window` writes of `bytes` bytes in flight for `duration_ns` and waits for all. Returns how many completed,
 * over *took_ns; 0 after an error. */
uint64_t bare_loop_write(struct bare_loop *loop, const struct bare_address *target, uint32_t window, size_t bytes,
                         int64_t duration_ns, int64_t *took_ns);

#endif
