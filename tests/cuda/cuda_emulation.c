#define _GNU_SOURCE
/* See cuda_emulation.h. */
#include "cuda/cuda_emulation.h"

#include "base/check.h"

#include <sched.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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
    ucontext_t context; /* for the first switch alone: those that follow go without a system call */
    jmp_buf jump;
    bool started;
    enum wait wait;
    uint32_t turn; /* which of the offers the next shuffle uses: none can be two shuffles ahead of its warp */
    uint32_t offered[2];
};

_Thread_local struct emulated_thread emulated;
_Thread_local float *emulated_shared;

static _Thread_local struct fiber fibers[THREADS_MAX];
static _Thread_local jmp_buf scheduler;
static _Thread_local char *stacks;
static _Thread_local void (*current_body)(const void *arguments);
static _Thread_local const void *current_arguments;

/* Back to the scheduler until resumed. */
static void pause_for(enum wait wait)
{
    struct fiber *fiber = &fibers[emulated.thread];
    fiber->wait = wait;
    if (_setjmp(fiber->jump) == 0)
        _longjmp(scheduler, 1);
}

/* Lives as long as the program: thread t of every block. */
static void fiber_main(void)
{
    for (;;) {
        current_body(current_arguments);
        pause_for(WAIT_ENDED);
    }
}

static void resume(uint32_t thread)
{
    struct fiber *fiber = &fibers[thread];
    emulated.thread = thread;
    if (_setjmp(scheduler) != 0)
        return;
    if (fiber->started)
        _longjmp(fiber->jump, 1);
    fiber->started = true;
    setcontext(&fiber->context);
}

static void make_fibers(void)
{
    stacks = mmap(NULL, THREADS_MAX * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stacks != MAP_FAILED);
    for (uint32_t t = 0; t < THREADS_MAX; t++) {
        CHECK(getcontext(&fibers[t].context) == 0);
        fibers[t].context.uc_stack.ss_sp = stacks + t * STACK_BYTES;
        fibers[t].context.uc_stack.ss_size = STACK_BYTES;
        fibers[t].context.uc_link = NULL;
        makecontext(&fibers[t].context, fiber_main, 0);
    }
}

void emulated_barrier(void)
{
    pause_for(WAIT_BARRIER);
}

void emulated_pause(void)
{
    sched_yield();
}

uint32_t emulated_shuffle_xor(uint32_t bits, uint32_t mask)
{
    struct fiber *me = &fibers[emulated.thread];
    uint32_t turn = me->turn;
    me->turn = 1 - turn;
    me->offered[turn] = bits;
    pause_for(WAIT_WARP);
    return fibers[emulated.thread ^ mask].offered[turn];
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
        resume(t);
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

/* A warp goes on by itself while it only shuffles; the block goes on when every warp is at a barrier. A thread that
 * skips a barrier or a shuffle which others wait at is a bug of the kernel, and would hang a GPU. */
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

void emulated_run(void (*body)(const void *arguments), const void *arguments, struct emulated_grid grid)
{
    CHECK(grid.threads > 0 && grid.threads <= THREADS_MAX && grid.x > 0 && grid.y > 0 && grid.z > 0);
    CHECK(grid.y < 65536 && grid.z < 65536);
    if (stacks == NULL)
        make_fibers();
    emulated_shared = malloc(grid.shared_bytes + 1);
    CHECK(emulated_shared != NULL);
    current_body = body;
    current_arguments = arguments;
    for (uint32_t block = 0; block < grid.x * grid.y * grid.z; block++) {
        memset(emulated_shared, 0xff, grid.shared_bytes); /* NaN: what another block left is not found */
        emulated = (struct emulated_thread){.block_x = block % grid.x,
                                            .block_y = block / grid.x % grid.y,
                                            .block_z = block / grid.x / grid.y,
                                            .grid_x = grid.x,
                                            .threads = grid.threads};
        for (uint32_t t = 0; t < grid.threads; t++) {
            fibers[t].wait = WAIT_NOT;
            fibers[t].turn = 0;
        }
        run_block();
    }
    free(emulated_shared);
}
