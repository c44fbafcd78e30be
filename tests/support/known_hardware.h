/* Machines with data-sheet rates, for tests with known answers. */
#ifndef TANDEM_TESTS_SUPPORT_KNOWN_HARDWARE_H
#define TANDEM_TESTS_SUPPORT_KNOWN_HARDWARE_H

#include "world/scenario/hardware.h"

/* Eight "A100", "H100", "H200" or "B200" a node, a ConnectX-7 each; ends the test process for a name that is not
 * there. */
const struct hardware *known_hardware(const char *gpu);

#endif
