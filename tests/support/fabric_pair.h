/* Transfer engines under test: instances with tagged memory, their engines, and what must be in the memory afterwards.
 *
 * A byte of KV is a function of (layer, plane, head, token, byte), whatever the sharding; everything else holds
 * FABRIC_BLANK. So a transfer is right exactly when every byte of the destination's region is what the prompt puts
 * there or blank.
 */
#ifndef TANDEM_TESTS_SUPPORT_FABRIC_PAIR_H
#define TANDEM_TESTS_SUPPORT_FABRIC_PAIR_H

#include "real/fabric/fabric.h"

#define FABRIC_BLANK 0xEE
#define FABRIC_RANKS 16
#define FABRIC_GROUPS 8

struct fabric_side {
    uint32_t node;
    struct kv_memory memory;
    uint32_t rank_count;
    struct fabric_rank ranks[FABRIC_RANKS];
    _Atomic uint64_t counters[FABRIC_GROUPS];
    struct fabric_config config;
    struct fabric *fabric;
};

/* A geometry by hand; fails the test when it cannot be laid out. */
struct kv_geometry fabric_geometry(uint16_t layers, uint16_t heads, uint16_t planes, uint32_t head_bytes,
                                   uint16_t page_tokens, enum kv_layout layout, struct parallelism parallelism);

/* Blank memory for all ranks, and a configuration that may be changed before fabric_side_open(). */
void fabric_side_make(struct fabric_side *side, uint32_t node, const char *provider, const struct kv_geometry *geometry,
                      uint32_t pages);
/* False with the reason where the provider is missing; ends the process on any other failure. */
bool fabric_side_open(struct fabric_side *side, struct user_error *error);
void fabric_side_free(struct fabric_side *side);

/* Exchanges the cards of two open sides of one process. */
void fabric_side_join(struct fabric_side *a, struct fabric_side *b);

/* Puts a prompt of `tokens` tokens into `pages` of a group, on all its ranks. */
void fabric_side_fill(struct fabric_side *side, uint32_t group, const uint32_t *pages, uint32_t tokens);

/* Bytes that are wrong: `pages` of the group should hold the prompt, everything else is blank. Tail slots are left out.
 * The prompt's bytes become blank. */
uint64_t fabric_side_wrong(struct fabric_side *side, uint32_t group, const uint32_t *pages, uint32_t tokens);

/* Every byte of every region becomes `byte`. */
void fabric_side_paint(struct fabric_side *side, unsigned char byte);

/* Bytes of all regions that are not `byte`. */
uint64_t fabric_side_other(const struct fabric_side *side, unsigned char byte);

#endif
