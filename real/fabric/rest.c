/* See rest.h. */
#define _GNU_SOURCE
#include "real/fabric/rest.h"

#include <sys/prctl.h>
#include <time.h>

#define SPINS 256u
#define NAP_NS 20000L
#define NAPS 500u /* 10 ms without anything */
#define LONG_NAP_NS 100000L

void fabric_rest_make(void)
{
    prctl(PR_SET_TIMERSLACK, 1);
}

void fabric_rest(uint32_t idle)
{
    if (idle <= SPINS)
        return;
    struct timespec nap = {.tv_nsec = idle < SPINS + NAPS ? NAP_NS : LONG_NAP_NS};
    nanosleep(&nap, NULL);
}
