#define _XOPEN_SOURCE 700
/* See cuda_emulation.h. */
#include "support/cuda_emulation.h"

#include "base/check.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define THREADS_MAX 256
#define STACK_BYTES ((size_t)64 * 1024)

enum wait {
    WAIT_NOT,
    WAIT_BARRIER, /* for the block */
    WAIT_WARP,
    WAIT_ENDED,
};

struct fiber {
    ucontext_t context;
    enum wait wait;
    uint32_t offered;
};

struct emulated_thread emulated;
float *emulated_shared;

static struct fiber fibers[THREADS_MAX];
static ucontext_t scheduler;
static char *stacks;
static void (*current_body)(const void *arguments);
static const void *current_arguments;

static void fiber_main(void)
{
    current_body(current_arguments);
    fibers[emulated.thread].wait = WAIT_ENDED;
    swapcontext(&fibers[emulated.thread].context, &scheduler);
}

static void pause_for(enum wait wait)
{
    struct fiber *fiber = &fibers[emulated.thread];
    fiber->wait = wait;
    CHECK(swapcontext(&fiber->context, &scheduler) == 0);
}

void emulated_barrier(void)
{
    pause_for(WAIT_BARRIER);
}

uint32_t emulated_shuffle_xor(uint32_t bits, uint32_t mask)
{
    uint32_t me = emulated.thread;
    fibers[me].offered = bits;
    pause_for(WAIT_WARP);
    uint32_t got = fibers[me ^ mask].offered;
    pause_for(WAIT_WARP); /* nobody offers anew before all have read */
    return got;
}

float emulated_shuffle_xor_float(float value, uint32_t mask)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = emulated_shuffle_xor(bits, mask);
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Runs threads [from, to), all of which wait alike, up to their next wait. False when none is left. */
static bool run_threads(uint32_t from, uint32_t to)
{
    bool any = false;
    for (uint32_t t = from; t < to; t++) {
        if (fibers[t].wait == WAIT_ENDED)
            continue;
        any = true;
        fibers[t].wait = WAIT_NOT;
        emulated.thread = t;
        CHECK(swapcontext(&scheduler, &fibers[t].context) == 0);
    }
    return any;
}

static bool all_wait(uint32_t from, uint32_t to, enum wait wait)
{
    for (uint32_t t = from; t < to; t++)
        if (fibers[t].wait != wait && fibers[t].wait != WAIT_ENDED)
            return false;
    return true;
}

/* A warp goes on by itself while it only shuffles; the block goes on when every warp is at a barrier. A thread that skips a
 * barrier or a shuffle which others wait at is a bug of the kernel, and would hang a GPU. */
static void run_block(void)
{
    uint32_t n = emulated.threads;
    bool any = true;
    while (any) {
        any = false;
        for (uint32_t warp = 0; warp < n; warp += 32) {
            uint32_t end = warp + 32 < n ? warp + 32 : n;
            any |= run_threads(warp, end);
            while (any && !all_wait(warp, end, WAIT_BARRIER)) {
                CHECK(all_wait(warp, end, WAIT_WARP));
                run_threads(warp, end);
            }
        }
    }
}

void emulated_launch(void (*body)(const void *arguments), const void *arguments, uint32_t x, uint32_t y, uint32_t z,
                     uint32_t threads, size_t shared_bytes)
{
    CHECK(threads > 0 && threads <= THREADS_MAX && x > 0 && y > 0 && z > 0 && y < 65536 && z < 65536);
    stacks = malloc(THREADS_MAX * STACK_BYTES);
    emulated_shared = malloc(shared_bytes + 1);
    CHECK(stacks != NULL && emulated_shared != NULL);
    current_body = body;
    current_arguments = arguments;
    for (uint32_t block = 0; block < x * y * z; block++) {
        memset(emulated_shared, 0x7f, shared_bytes); /* no block finds what another one left */
        emulated = (struct emulated_thread){.block_x = block % x, .block_y = block / x % y, .block_z = block / x / y,
                                            .grid_x = x, .threads = threads};
        for (uint32_t t = 0; t < threads; t++) {
            CHECK(getcontext(&fibers[t].context) == 0);
            fibers[t].context.uc_stack.ss_sp = stacks + t * STACK_BYTES;
            fibers[t].context.uc_stack.ss_size = STACK_BYTES;
            fibers[t].context.uc_link = NULL;
            fibers[t].wait = WAIT_NOT;
            makecontext(&fibers[t].context, fiber_main, 0);
        }
        run_block();
    }
    free(stacks);
    free(emulated_shared);
}
