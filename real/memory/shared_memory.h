/* Memory that the processes of an instance share, by descriptors that they inherit; and waiting on a word in it. */
#ifndef TANDEM_REAL_MEMORY_SHARED_MEMORY_H
#define TANDEM_REAL_MEMORY_SHARED_MEMORY_H

#include "host/user_error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shared_memory {
    int fd; /* -1: none */
    size_t bytes;
    void *at;
};

/* Anonymous memory, zeroed, gone with its last user. False with a sentence. */
bool shared_memory_make(struct shared_memory *memory, const char *name, size_t bytes, struct user_error *error);

/* Maps what another process made; the size comes from the descriptor. */
bool shared_memory_map(struct shared_memory *memory, int fd);

void shared_memory_free(struct shared_memory *memory);

/* Sleeps while *word == value, until it is woken or `timeout_ns` has passed; may return early. */
void word_wait(_Atomic uint32_t *word, uint32_t value, int64_t timeout_ns);
void word_wake(_Atomic uint32_t *word);

/* A word for one sleeper: whoever rings makes a system call only while somebody sleeps. */
struct doorbell {
    _Atomic uint32_t rung;
    atomic_bool asleep;
};

static inline uint32_t doorbell_seen(const struct doorbell *bell)
{
    return atomic_load_explicit(&bell->rung, memory_order_acquire);
}

void doorbell_ring(struct doorbell *bell);

/* Sleeps unless it has rung since `seen`. */
void doorbell_wait(struct doorbell *bell, uint32_t seen, int64_t timeout_ns);

#endif
