/* The clock that durations and deadlines are measured by. */
#ifndef TANDEM_HOST_CLOCK_H
#define TANDEM_HOST_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC. */
int64_t clock_now_ns(void);

#endif
