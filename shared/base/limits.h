/* Every maximum of the pure logic, with its reason. What the user can exceed is checked when a scenario is resolved,
 * and reported with the name of the limit; past that point exceeding one is a bug (CHECK).
 */
#ifndef TANDEM_BASE_LIMITS_H
#define TANDEM_BASE_LIMITS_H

/* Nodes of one run, the front included. A 32-group deployment of 8-node pools is 256; four times that. */
#define NODES_MAX 1024

/* Attention groups of one instance: DeepSeek's EP144 decode runs 144 data-parallel ranks. */
#define GROUPS_MAX 256

/* Ranks of one instance. */
#define RANKS_MAX 512

/* Layers of a model (Llama-3.1-405B has 126), and pipeline stages of an instance. */
#define LAYERS_MAX 256
#define STAGES_MAX 16

/* KV heads of a model; Llama-2-7B style MHA has 64 at most among the models in sight. */
#define KV_HEADS_MAX 256

/* Tokens of one request, prompt and output together: 2 Mi, beyond any served context window. */
#define REQUEST_TOKENS_MAX (1 << 21)

/* Pages of one request at 16 tokens a page and the longest served window (256 Ki tokens). */
#define REQUEST_PAGES_MAX (1 << 14)

/* Prefix blocks of one request. */
#define REQUEST_BLOCKS_MAX 4096

/* Bytes of one control message: the page list of the longest request, its prefix blocks, and headers. */
#define MESSAGE_BYTES_MAX (REQUEST_PAGES_MAX * 4 + REQUEST_BLOCKS_MAX * 8 + 512)

/* Tokens that a step verifies of a sequence beside its own: what engines do without a tree. */
#define DRAFT_TOKENS_MAX 8

/* Timer slots a node may use. */
#define TIMERS_MAX 8

/* Pairs of ranks in one transfer plan: every source rank of a group to every destination rank of a group. */
#define TRANSFER_PAIRS_MAX 1024

/* An immediate is 32 bits, the least that every fabric carries (verbs, EFA): 20 bits of slot, 12 of generation. */
#define IMMEDIATE_SLOT_BITS 20
#define IMMEDIATE_GENERATION_BITS 12

#endif
