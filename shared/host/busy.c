/* See busy.h. */
#define _DEFAULT_SOURCE /* getloadavg */
#include "host/busy.h"

#include <stdlib.h>
#include <unistd.h>

struct machine_load machine_load(void)
{
    double load = 0;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return (struct machine_load){
        .processors = processors < 1 ? 1 : (uint32_t)processors,
        .load_permille = getloadavg(&load, 1) == 1 ? (uint32_t)(load * 1000) : 0,
    };
}

bool machine_busy(const struct machine_load *load)
{
    return load->load_permille > 250 * load->processors;
}

void machine_busy_warn(FILE *file, const struct machine_load *load, const char *what)
{
    if (machine_busy(load))
        fprintf(file,
                "warning: the machine is busy (load average %u.%02u on %u processors): %s are of what it had left\n",
                load->load_permille / 1000, load->load_permille % 1000 / 10, load->processors, what);
}
