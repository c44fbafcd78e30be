/* One layer of the watcher's check, as a graph holds it: some work, then the tick, with the GPU's clock beside it. */
#include "real/device/cuda/cuda_kernels.h"
#include "real/device/cuda/cuda_launch.h"

#ifdef CUDA_EMULATED
static uint64_t emulated_clock_ns; /* goes on when it is read */
#define gpu_clock_ns() (emulated_clock_ns += 10000)
#else
CUDA_DEVICE uint64_t gpu_clock_ns(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}
#endif

struct spin {
    uint64_t *stamp;
    uint32_t spin_ns;
};

CUDA_KERNEL(spin_kernel, spin)
{
    uint64_t start = gpu_clock_ns();
    while (a.spin_ns > 0 && gpu_clock_ns() - start < a.spin_ns)
        ;
    *(volatile uint64_t *)a.stamp = gpu_clock_ns();
}

#ifdef __cplusplus
extern "C"
#endif
    void
    ticks_layer(struct CUstream_st *stream, uint64_t *counter, uint64_t *stamps, uint64_t *base, uint32_t layer,
                uint32_t spin_ns);

void ticks_layer(struct CUstream_st *stream, uint64_t *counter, uint64_t *stamps, uint64_t *base, uint32_t layer,
                 uint32_t spin_ns)
{
    struct spin spin;
    struct cuda_tick tick;
    spin.stamp = stamps + layer;
    spin.spin_ns = spin_ns;
    CUDA_LAUNCH(spin_kernel, 1, 1, 1, 1, 0, stream, spin);
    tick.counter = counter;
    tick.base = base;
    tick.ticks = layer + 1;
    cuda_tick(&tick, stream);
}
