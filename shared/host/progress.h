/* How far long work has come, with the time it will still take. Shown on standard error while that is a terminal, and
 * nowhere otherwise. Any thread may count.
 */
#ifndef TANDEM_HOST_PROGRESS_H
#define TANDEM_HOST_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

struct progress;

/* `total` may be 0: unknown. NULL is accepted by every function. */
struct progress *progress_start(const char *label, uint64_t total);

/* A search learns as it goes how much is left. */
void progress_total(struct progress *progress, uint64_t total);

/* Counts `done` more; redraws at most ten times a second. */
void progress_add(struct progress *progress, uint64_t done);

/* Changes what is said about the work at hand: "2P3D tp8, 14.5/s". */
void progress_note(struct progress *progress, const char *note);

/* Clears the line and frees. */
void progress_end(struct progress *progress);

/* The line itself: "planning  12/40  30 %  0:41 left  2P3D tp8". What is left is estimated from the average so far. */
void progress_text(char *text, size_t size, const char *label, const char *note, uint64_t done, uint64_t total,
                   int64_t elapsed_ns);

#endif
