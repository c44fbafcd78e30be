/* Ctrl-C and SIGTERM: asked once, long work stops at the next point where what is complete can be kept; asked twice,
 * the process dies at once. Either way the results database holds only complete runs.
 */
#ifndef TANDEM_HOST_INTERRUPT_H
#define TANDEM_HOST_INTERRUPT_H

#include <stdbool.h>

/* Takes over SIGINT and SIGTERM. */
void interrupt_install(void);

/* True from the first signal on. Cheap enough for a loop; any thread may ask. */
bool interrupt_requested(void);

#endif
