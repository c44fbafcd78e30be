/* Measured efficiencies of the GPUs that the cost model knows, distilled to small grids.
 *
 * Those of a GPU are a file of scenarios/hardware/efficiency, which says what each was fitted to and how well. It is
 * read when the GPU is first asked for and kept as long as the process; a file that is missing or damaged is a bug. A
 * grid is applied to the rates of the scenario's hardware, so a part with other clocks scales with its own rates.
 */
#ifndef TANDEM_SIM_COST_EFFICIENCY_TABLES_H
#define TANDEM_SIM_COST_EFFICIENCY_TABLES_H

#include "model/architecture.h"
#include "sim/cost/efficiency_grid.h"

#include <stddef.h>

#define FORMATS (FORMAT_INT4 + 1) /* arrays indexed by enum number_format */
#define KV_FORMATS 2              /* bf16, fp8 */
#define CURVE_SIZES_MAX 32        /* breakpoints of a latency curve */
#define DEEPEP_SCALES 4           /* 1, 2, 4 and 8 nodes of 8 GPUs */

/* Prefill attention: launch + (pairs * pair + tokens * token) * operations per pair / bf16 rate. The second term is
 * what short sequences waste; both grow with the work, so a longer step never gets shorter. */
struct prefill_fit {
    const char *source;
    uint32_t launch_ns;
    double pair;
    double token;
};

struct gpu_tables {
    const char *name;
    double bf16_flops; /* the rates that efficiencies refer to, per second */
    double fp8_flops;
    double fp4_flops;
    double bytes_per_s;

    /* NULL: no measured kernel of that format; the caller falls back to bf16 arithmetic on narrow weights. */
    const struct efficiency_grid *gemm[FORMATS]; /* over m, n, k */
    const struct efficiency_grid *moe[FORMATS];  /* over tokens per expert, width per rank, experts per rank */
    const struct efficiency_grid *decode_attention[KV_FORMATS]; /* over sequences * KV heads, length */
    const struct efficiency_grid *mla_decode[KV_FORMATS];       /* over sequences, length, heads per rank */
    const struct prefill_fit *prefill_attention[KV_FORMATS];
    const struct prefill_fit *mla_prefill[KV_FORMATS];
    const struct latency_curve *all_reduce[3];         /* 2, 4, 8 ranks; over elements of bf16 */
    const struct latency_curve *deepep[DEEPEP_SCALES]; /* dispatch + combine; over tokens per rank, 7168 wide, top 8 */
};

/* NULL when nothing was measured on a GPU of that name. */
const struct gpu_tables *gpu_tables_find(const char *gpu);

/* Those of the GPU, or of the one whose design is nearest: B200 for GB200, H100 for a GPU that nothing is known of. */
const struct gpu_tables *gpu_tables_nearest(const char *gpu);

/* "A100, B200, GB200, H100, H200": for messages. */
const char *gpu_tables_names(void);

/* Largest part of the mean number of tokens that the busiest of `ranks` expert-parallel ranks receives, from measured
 * routing with a power law of exponent 1.01: 1.65 of the mean on 8 ranks. */
double expert_imbalance(double ranks);

#endif
