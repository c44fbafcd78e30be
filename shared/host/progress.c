/* See progress.h. */
#define _POSIX_C_SOURCE 200809L

#include "host/progress.h"
#include "host/memory.h"

#include "base/arith.h"
#include "host/clock.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define REDRAW_NS (100 * NS_PER_MS)

/* Everything that is not atomic is guarded by `drawing`. */
struct progress {
    bool shown;
    int64_t start_ns;
    atomic_uint_fast64_t done;
    atomic_uint_fast64_t total;
    atomic_int_fast64_t redraw_ns; /* not before this instant */
    pthread_mutex_t drawing;
    char label[64];
    char note[128];
};

void progress_text(char *text, size_t size, const char *label, const char *note, uint64_t done, uint64_t total,
                   int64_t elapsed_ns)
{
    int used = 0;
    if (total == 0) {
        used = snprintf(text, size, "%s  %" PRIu64, label, done);
    } else {
        done = min_u64(done, total);
        used = snprintf(text, size, "%s  %" PRIu64 "/%" PRIu64 "  %" PRIu64 " %%", label, done, total,
                        mul_div_floor_u64(done, 100, total));
    }
    if (total > done && done > 0 && elapsed_ns > 0 && used > 0 && (size_t)used < size) {
        uint64_t left_s = mul_div_ceil_u64((uint64_t)elapsed_ns, total - done, done) / (uint64_t)NS_PER_S;
        used +=
            snprintf(text + used, size - (size_t)used, "  %" PRIu64 ":%02" PRIu64 " left", left_s / 60, left_s % 60);
    }
    if (note[0] != '\0' && used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, "  %s", note);
}

struct progress *progress_start(const char *label, uint64_t total)
{
    struct progress *progress = memory_zeroed(1, sizeof *progress);
    progress->shown = isatty(STDERR_FILENO);
    progress->start_ns = clock_now_ns();
    atomic_init(&progress->done, 0);
    atomic_init(&progress->total, total);
    atomic_init(&progress->redraw_ns, progress->start_ns);
    pthread_mutex_init(&progress->drawing, NULL);
    snprintf(progress->label, sizeof progress->label, "%s", label);
    return progress;
}

/* With `drawing` held. */
static void draw(struct progress *progress, int64_t now_ns)
{
    char text[256];
    atomic_store(&progress->redraw_ns, now_ns + REDRAW_NS);
    progress_text(text, sizeof text, progress->label, progress->note, atomic_load(&progress->done),
                  atomic_load(&progress->total), now_ns - progress->start_ns);
    fprintf(stderr, "\r\033[K%s", text);
    fflush(stderr);
}

void progress_total(struct progress *progress, uint64_t total)
{
    if (progress != NULL)
        atomic_store(&progress->total, total);
}

void progress_add(struct progress *progress, uint64_t done)
{
    if (progress == NULL)
        return;
    atomic_fetch_add(&progress->done, done);
    if (!progress->shown)
        return;
    int64_t now_ns = clock_now_ns();
    /* Whoever finds another thread drawing leaves it to it. */
    if (now_ns < atomic_load(&progress->redraw_ns) || pthread_mutex_trylock(&progress->drawing) != 0)
        return;
    draw(progress, now_ns);
    pthread_mutex_unlock(&progress->drawing);
}

void progress_note(struct progress *progress, const char *note)
{
    if (progress == NULL)
        return;
    pthread_mutex_lock(&progress->drawing);
    snprintf(progress->note, sizeof progress->note, "%s", note);
    int64_t now_ns = clock_now_ns();
    if (progress->shown && now_ns >= atomic_load(&progress->redraw_ns))
        draw(progress, now_ns);
    pthread_mutex_unlock(&progress->drawing);
}

void progress_end(struct progress *progress)
{
    if (progress == NULL)
        return;
    if (progress->shown) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    pthread_mutex_destroy(&progress->drawing);
    free(progress);
}
