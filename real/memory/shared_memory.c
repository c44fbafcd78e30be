/* See shared_memory.h. */
#define _GNU_SOURCE
#include "real/memory/shared_memory.h"

#include "base/arith.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

bool shared_memory_make(struct shared_memory *memory, const char *name, size_t bytes, struct user_error *error)
{
    *memory = (struct shared_memory){.fd = memfd_create(name, 0), .bytes = bytes};
    if (memory->fd >= 0 && ftruncate(memory->fd, (off_t)bytes) == 0)
        memory->at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
    else
        memory->at = MAP_FAILED;
    if (memory->at != MAP_FAILED)
        return true;
    user_error_set(error, NULL, 0, NULL, "%zu bytes of shared memory (%s) cannot be had: %s", bytes, name,
                   strerror(errno));
    memory->at = NULL;
    shared_memory_free(memory);
    return false;
}

bool shared_memory_map(struct shared_memory *memory, int fd)
{
    struct stat status;
    *memory = (struct shared_memory){.fd = fd};
    if (fstat(fd, &status) != 0 || status.st_size <= 0)
        return false;
    memory->bytes = (size_t)status.st_size;
    void *at = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return false;
    memory->at = at;
    return true;
}

void shared_memory_free(struct shared_memory *memory)
{
    if (memory->at != NULL)
        munmap(memory->at, memory->bytes);
    if (memory->fd >= 0)
        close(memory->fd);
    *memory = (struct shared_memory){.fd = -1};
}

void word_wait(_Atomic uint32_t *word, uint32_t value, int64_t timeout_ns)
{
    struct timespec timeout = {.tv_sec = timeout_ns / NS_PER_S, .tv_nsec = timeout_ns % NS_PER_S};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0);
}

void word_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Both sides write before they read, in one order for all: either the ring sees the sleeper, or the kernel sees the
 * ring. */
void doorbell_ring(struct doorbell *bell)
{
    atomic_fetch_add(&bell->rung, 1);
    if (atomic_load(&bell->asleep))
        word_wake(&bell->rung);
}

void doorbell_wait(struct doorbell *bell, uint32_t seen, int64_t timeout_ns)
{
    atomic_store(&bell->asleep, true);
    word_wait(&bell->rung, seen, timeout_ns);
    atomic_store_explicit(&bell->asleep, false, memory_order_relaxed);
}
