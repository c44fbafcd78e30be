/* See clock.h. */
#define _POSIX_C_SOURCE 200809L
#include "host/clock.h"

#include "base/arith.h"

#include <time.h>

int64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}
