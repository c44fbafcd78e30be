/* How a thread that polls a fabric waits.
 *
 * An idle thread first polls on, since on a busy fabric the next completion is near, then naps: remote writes land only
 * while their target polls, so a nap is a price on the latency of the first write after a pause. It never yields:
 * whoever yields a core that others want waits for a turn of milliseconds, and whoever wakes from a nap is let in at
 * once.
 */
#ifndef TANDEM_REAL_FABRIC_REST_H
#define TANDEM_REAL_FABRIC_REST_H

#include <stdint.h>

/* Once, by the thread itself: its naps are as short as they say, not 50 us longer. */
void fabric_rest_make(void);

/* After `idle` polls in a row that found nothing. */
void fabric_rest(uint32_t idle);

#endif
