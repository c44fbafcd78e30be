/* tandem-gpu-check: what can only be checked on a GPU. It needs the CUDA toolkit, a driver and libc, no more. Each part
 * prints its lines and reports its checks; main prints the table.
 */
#ifndef TANDEM_TESTS_GPU_GPU_CHECK_H
#define TANDEM_TESTS_GPU_GPU_CHECK_H

#include "real/device/cuda/cuda_device.h"

#include <stdio.h>

/* One line of the table at the end. */
void report(bool passed, const char *check, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- One rank of a device, with pages dealt to its sequences in advance (gpu_run.c)
 * ------------------------------------ */

#define RUN_PAGE_TOKENS 16u

struct run {
    const struct device_ops *ops;
    struct device *device;
    struct device_config config;
    struct architecture architecture;
    uint32_t sequence_tokens;
    uint32_t *pages;      /* [sequences][pages of each], scattered */
    uint8_t *kv;          /* of the host device */
    void *counter_memory; /* a page */
    _Atomic uint64_t *counter;
    uint64_t steps;
    struct device_token *tokens;
    uint32_t token_count; /* of the last step */
};

/* False, after a line that says why, when the device refuses. */
bool run_make(struct run *run, const struct device_ops *ops, const struct architecture *architecture,
              uint32_t sequences, uint32_t sequence_tokens, uint32_t tokens_max);
void run_free(struct run *run);

uint32_t run_pages_each(const struct run *run);
/* Changes for the next step; the first one of a sequence gives it its pages. */
void run_chunk(struct run *run, uint32_t sequence, uint32_t start, uint32_t tokens);
void run_join(struct run *run, uint32_t sequence, uint32_t context);
void run_leave(struct run *run, uint32_t sequence);
bool run_step(struct run *run, bool prefill_tokens);
/* Hidden state and logits after the sequence's last chunk. */
void run_tail(struct run *run, uint32_t sequence, float *tail);
void run_page_read(struct run *run, uint64_t offset, void *to, size_t bytes);

/* Small models of each shape, and two of real size. */
enum { SMALL_MODELS = 6 };
struct architecture small_model(uint32_t index);
struct architecture llama_8b(void);
struct architecture deepseek_v3_cut(void); /* one dense and two MoE layers */

double now_ms(void);

/* ---- The parts -----------------------------------------------------------------------------------------------------
 */

void check_agreement(void);
void check_watcher(void);
void check_pair(void);  /* forks: before anything has touched the GPU */
void check_peers(void); /* forks too */
void check_staging(void);
void check_calibration(void);

/* gpu_ticks.cu */
struct CUstream_st;
void ticks_layer(struct CUstream_st *stream, uint64_t *counter, uint64_t *stamps, uint64_t *base, uint32_t layer,
                 uint32_t spin_ns);

#endif
