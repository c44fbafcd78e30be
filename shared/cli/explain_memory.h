/* `tandem explain`: how much KV the instances of each pool hold, how that comes about, and how much of it hangs on the
 * memory share. */
#ifndef TANDEM_CLI_EXPLAIN_MEMORY_H
#define TANDEM_CLI_EXPLAIN_MEMORY_H

#include "world/scenario/scenario.h"

#include <jansson.h>
#include <stdio.h>

/* Three points of a memory share: what two careful people set differently. */
#define MEMORY_SHARE_POINTS_PERMILLE 30

/* Two lines for each sharding of each pool. */
void explain_memory_print(const struct scenario *scenario, FILE *out);

/* Adds "memory": a list of objects with "pool", "sharding", "memory_share", "share", "weight_bytes",
 * "activation_bytes", "kv_bytes" and "page_bytes" (of the tightest rank), "pages" (of an attention group), "kv_tokens"
 * (of an instance), "kv_tokens_3_points_less", "kv_tokens_3_points_more"; or "refused" where it does not fit. */
void explain_memory_json(const struct scenario *scenario, json_t *json);

#endif
