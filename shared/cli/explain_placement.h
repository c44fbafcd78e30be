/* Where the instances of a scenario stand, and over what they hand KV to each other: of `tandem explain`. */
#ifndef TANDEM_CLI_EXPLAIN_PLACEMENT_H
#define TANDEM_CLI_EXPLAIN_PLACEMENT_H

#include "world/deployment.h"

#include <jansson.h>
#include <stdio.h>

/* As text after the values; nothing of a scenario that cannot be deployed but the sentence that says why. */
void explain_placement_print(const struct scenario *scenario, FILE *out);

/* Adds "instances" and "handovers", or "refused". */
void explain_placement_json(const struct scenario *scenario, json_t *json);

#endif
