/* The time that a measured kernel would take if it ran at the GPU's rates: a floor, the least time of its table, and a
 * roofline over that. Tables are interpolated in the ratio of measured to roofline time, which varies slowly where the
 * time itself does not, and which, held at its last value, is the roofline that continues a table beyond its edge
 * without a jump.
 */
#ifndef TANDEM_SIM_COST_KERNEL_ROOFLINE_H
#define TANDEM_SIM_COST_KERNEL_ROOFLINE_H

#include "world/kernels/kernel_table.h"

/* Of one GPU, per nanosecond. */
struct kernel_rates {
    double bf16_flops;
    double fp8_flops; /* 0: none */
    double fp4_flops; /* 0: none */
    double memory_bytes;
    double link_bytes; /* NVLink, one direction */
};

struct kernel_roofline {
    enum kernel_kind_id kind;
    double floor_ns;
    double flops; /* per ns, of the products */
    double attention_flops;
    double memory_bytes;
    double link_bytes;
    double weight_bytes; /* an element */
    double activation_bytes;
    double kv_bytes;
    double head_dim;
    double kv_heads;
    double window;
    double hidden;
    double width; /* of one expert, whole */
    double active;
    double experts;
    double nodes_bytes; /* of an exchange: a token's bytes to one expert */
};

/* From the keys of a series. The floor is set by the caller. */
void kernel_roofline_make(struct kernel_roofline *roofline, const struct kernel_table *table, uint32_t series,
                          const struct kernel_rates *rates);

/* `outer` and `inner` are the values of the kind's dimensions, in their order; a kind with one has it in `inner`. */
double kernel_roofline_ns(const struct kernel_roofline *roofline, double outer, double inner, double x);

/* Of a KERNEL_MOE table, with experts beside the routed ones that every one of `shared_tokens` tokens goes to. */
double kernel_experts_ns(const struct kernel_roofline *roofline, double tensor, double ranks, double tokens,
                         double shared_width, double shared_tokens);

/* Query-key pairs of a prompt of `tokens` after `cached` tokens, under a sliding window where there is one. */
double attention_pairs(double tokens, double cached, double window);

#endif
