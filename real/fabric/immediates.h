/* Counting of immediates: per slot, under the slot's present generation. A slot is the lower 20 bits of an immediate,
 * the generation its upper 12 (base/limits.h); every 32-bit pattern is legal, UINT32_MAX included.
 *
 * Only what is expected is counted. An immediate of another generation, of a slot that expects nothing, or beyond the
 * count that was expected is late: counted as such and dropped, never matched.
 */
#ifndef TANDEM_REAL_FABRIC_IMMEDIATES_H
#define TANDEM_REAL_FABRIC_IMMEDIATES_H

#include <stdbool.h>
#include <stdint.h>

struct immediate_slot {
    uint64_t expected; /* 0: nothing */
    uint64_t counted;
    uint32_t immediate; /* that is expected */
    uint32_t next;      /* in the list of those reached, plus one */
    bool listed;
};

struct immediates {
    struct immediate_slot *slots;
    uint32_t slot_count;
    uint32_t reached_first; /* slots whose count is reached, in order, plus one; 0: none */
    uint32_t reached_last;
    uint32_t awaited; /* slots that expect more than they have counted */
    uint64_t late;
};

bool immediates_make(struct immediates *immediates, uint32_t slot_count);
void immediates_free(struct immediates *immediates);

/* As rt_immediate_expect(): counts from zero; count 0 forgets. The slot must exist (CHECK). */
void immediates_expect(struct immediates *immediates, uint32_t immediate, uint64_t count);

void immediates_count(struct immediates *immediates, uint32_t immediate);

/* Takes the next immediate whose count was reached. */
bool immediates_next(struct immediates *immediates, uint32_t *immediate, uint64_t *count);

#endif
