/* An instance of the host device, or of another, in this process, its ranks as threads, for tests; and the reference:
 * the same model on one rank, prompts unchunked, nothing transferred.
 */
#ifndef TANDEM_TESTS_SUPPORT_DEVICE_INSTANCE_H
#define TANDEM_TESTS_SUPPORT_DEVICE_INSTANCE_H

#include "model/transfer_plan.h"
#include "real/device/device.h"

struct device_instance;

struct device_instance_config {
    const struct device_ops *ops; /* NULL: the host device */
    const struct architecture *architecture;
    struct parallelism parallelism;
    uint32_t page_tokens;
    enum kv_layout layout;
    uint32_t pages; /* of a group */
    uint32_t sequences_max;
    uint32_t tokens_max;
    uint64_t weight_seed;
};

/* Fails the test when the device refuses. Every rank's KV memory starts filled with rubbish (NaN). */
struct device_instance *device_instance_make(const struct device_instance_config *config);
void device_instance_free(struct device_instance *instance);

const struct kv_memory *device_instance_memory(const struct device_instance *instance);
uint8_t *device_instance_kv(struct device_instance *instance, uint32_t rank);
uint64_t device_instance_counter(struct device_instance *instance, uint32_t rank);

/* Changes and one step on every rank. Returns the number of tokens that leads wrote; each at most once. */
uint32_t device_instance_step(struct device_instance *instance, const struct step_change *changes, uint32_t count,
                              bool prefill_tokens, struct device_token *tokens);

/* Between steps, on every rank. */
void device_instance_change(struct device_instance *instance, const struct step_change *changes, uint32_t count);
void device_instance_given(struct device_instance *instance, uint32_t sequence, uint32_t first, const uint32_t *tokens,
                           uint32_t count);
void device_instance_tail_store(struct device_instance *instance, uint32_t sequence, uint32_t slot);
uint64_t device_instance_digest(struct device_instance *instance, uint32_t rank, uint32_t layer, uint32_t plane,
                                uint32_t page);

/* Moves the KV of a prompt's first `tokens` tokens by a transfer plan, with memcpy for a fabric. */
void device_instance_transfer(struct device_instance *source, uint32_t source_group, const uint32_t *source_pages,
                              struct device_instance *destination, uint32_t destination_group,
                              const uint32_t *destination_pages, uint32_t tokens, uint32_t replica_choice);

/* The same from token `first` on, which begins a page on both sides: what lies before it is there. */
void device_instance_transfer_from(struct device_instance *source, uint32_t source_group, const uint32_t *source_pages,
                                   struct device_instance *destination, uint32_t destination_group,
                                   const uint32_t *destination_pages, uint32_t first, uint32_t tokens,
                                   uint32_t replica_choice);

/* The `output` tokens that follow a prompt, and the tail after its last token but one (what a prefiller computes), of
 * architecture->tail_bytes; `tail` may be NULL. */
void device_reference(const struct architecture *architecture, uint64_t weight_seed, uint64_t token_seed,
                      uint32_t prompt, uint32_t output, uint32_t *tokens, uint8_t *tail);

/* The same of a prompt of prompt->tokens tokens, some of which may lie in prefix blocks. */
void device_reference_of(const struct architecture *architecture, uint64_t weight_seed,
                         const struct device_prompt *prompt, uint32_t output, uint32_t *tokens, uint8_t *tail);

#endif
