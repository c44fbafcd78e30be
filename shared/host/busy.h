/* Whether the machine has other things to do than what is measured on it. */
#ifndef TANDEM_HOST_BUSY_H
#define TANDEM_HOST_BUSY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct machine_load {
    uint32_t processors;    /* online */
    uint32_t load_permille; /* load average of the last minute */
};

struct machine_load machine_load(void);

/* More than a quarter of the processors was wanted by others in the last minute. */
bool machine_busy(const struct machine_load *load);

/* Warns that what is measured now, `what`, is of a busy machine. Nothing is said on a quiet one. */
void machine_busy_warn(FILE *file, const struct machine_load *load, const char *what);

#endif
