/* See immediates.h. */
#include "real/fabric/immediates.h"

#include "base/check.h"
#include "base/limits.h"

#include <stddef.h>
#include <stdlib.h>

#define SLOT_MASK ((UINT32_C(1) << IMMEDIATE_SLOT_BITS) - 1)

bool immediates_make(struct immediates *immediates, uint32_t slot_count)
{
    CHECK(slot_count <= SLOT_MASK + 1);
    *immediates = (struct immediates){.slot_count = slot_count};
    immediates->slots = calloc(slot_count > 0 ? slot_count : 1, sizeof *immediates->slots);
    return immediates->slots != NULL;
}

void immediates_free(struct immediates *immediates)
{
    free(immediates->slots);
    *immediates = (struct immediates){.slots = NULL};
}

void immediates_expect(struct immediates *immediates, uint32_t immediate, uint64_t count)
{
    CHECK((immediate & SLOT_MASK) < immediates->slot_count);
    struct immediate_slot *slot = &immediates->slots[immediate & SLOT_MASK];
    if (count == 0 && slot->immediate != immediate)
        return; /* an older generation: the slot expects the next one already */
    /* A slot that is listed stays so: whoever takes it from the list sees what it is by then. */
    immediates->awaited -= slot->counted < slot->expected;
    immediates->awaited += count > 0;
    slot->immediate = immediate;
    slot->expected = count;
    slot->counted = 0;
}

void immediates_count(struct immediates *immediates, uint32_t immediate)
{
    uint32_t index = immediate & SLOT_MASK;
    struct immediate_slot *slot = index < immediates->slot_count ? &immediates->slots[index] : NULL;
    if (slot == NULL || slot->immediate != immediate || slot->counted == slot->expected) {
        immediates->late++;
        return;
    }
    if (++slot->counted < slot->expected)
        return;
    immediates->awaited--;
    if (slot->listed)
        return;
    slot->listed = true;
    slot->next = 0;
    if (immediates->reached_last == 0)
        immediates->reached_first = index + 1;
    else
        immediates->slots[immediates->reached_last - 1].next = index + 1;
    immediates->reached_last = index + 1;
}

bool immediates_next(struct immediates *immediates, uint32_t *immediate, uint64_t *count)
{
    while (immediates->reached_first != 0) {
        struct immediate_slot *slot = &immediates->slots[immediates->reached_first - 1];
        immediates->reached_first = slot->next;
        if (slot->next == 0)
            immediates->reached_last = 0;
        slot->listed = false;
        if (slot->expected == 0 || slot->counted < slot->expected)
            continue; /* forgotten, or armed anew, since it was reached */
        *immediate = slot->immediate;
        *count = slot->counted;
        return true;
    }
    return false;
}
