/* Pairs of state and event that cannot be, with the reason. Kept apart from the counting, for it is the part that is
 * read. A reason that is wrong is found out: what happens although it cannot fails the swarm.
 */
#include "sim/fuzz/coverage.h"

#include <stddef.h>
#include <string.h>

struct impossible {
    const char *table;
    const char *state; /* "*": any */
    const char *event;
    const char *why;
};

static const struct impossible impossible[] = {
    {"none", "none", "none", "none"},
};

static bool matches(const char *pattern, const char *name)
{
    return strcmp(pattern, "*") == 0 || strcmp(pattern, name) == 0;
}

const char *coverage_explanation(uint32_t table, uint32_t state, uint32_t event)
{
    for (size_t i = 0; i < sizeof impossible / sizeof impossible[0]; i++)
        if (matches(impossible[i].table, coverage_table_name(table)) &&
            matches(impossible[i].state, coverage_state_name(table, state)) &&
            matches(impossible[i].event, coverage_event_name(table, event)))
            return impossible[i].why;
    return NULL;
}
