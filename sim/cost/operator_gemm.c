/* Dense operators: matrix products and elementwise passes, and what a device computes each number format in. */
#include "sim/cost/operators.h"

#include "base/arith.h"

/* Small kernels inside a CUDA graph, and the share of the memory bandwidth that they reach: a layer norm over one token
 * takes 2.3 us, measured by casys-kaist/LLMServingSim@5daddb2 (MIT), RTXPRO6000 Qwen3-32B dense profile; 0.8 of the
 * bandwidth is the correction of ai-dynamo/aiconfigurator@095f58a for memory-bound operators. */
#define ELEMENTWISE_LAUNCH_NS 2000.0
#define ELEMENTWISE_BANDWIDTH 0.8

/* Weights with their scales: one fp32 scale for 128 x 128 elements is lost in rounding; nvfp4 has one byte for 16,
 * int4 two bytes for 32. */
#define FP4_BYTES 0.5625
#define INT4_BYTES 0.5625

void device_init(struct device *device, const struct hardware *hardware)
{
    const struct gpu_tables *tables = gpu_tables_nearest(hardware->gpu);
    *device = (struct device){
        .tables = tables,
        .bytes_per_ns = (double)hardware->memory_bytes_per_s * 1e-9,
        .nvlink_bytes_per_ns = (double)hardware->nvlink_bytes_per_s * 1e-9,
        .nic_bytes_per_ns = (double)hardware->nic.bytes_per_s * 1e-9 /
                            hardware_nic_gpus(hardware), /* all GPUs that share one exchange at once */
        .nic_base_ns = (double)hardware->nic.base_ns,
        .gpus_per_node = hardware->gpus_per_node,
        .nvlink_gpus = max_u32(hardware->gpus_per_node, hardware->nvlink_gpus),
    };
    double bf16 = (double)hardware->bf16_flops * 1e-9;
    double native[FORMATS] = {0};
    native[FORMAT_BF16] = bf16;
    native[FORMAT_FP8] = (double)hardware->fp8_flops * 1e-9;
    native[FORMAT_FP8_BLOCK] = native[FORMAT_FP8];
    native[FORMAT_FP4] = (double)hardware->fp4_flops * 1e-9;
    static const double bytes[FORMATS] = {[FORMAT_BF16] = 2.0,
                                          [FORMAT_FP8] = 1.0,
                                          [FORMAT_FP8_BLOCK] = 1.0,
                                          [FORMAT_FP4] = FP4_BYTES,
                                          [FORMAT_INT4] = INT4_BYTES};
    for (uint32_t f = FORMAT_BF16; f < FORMATS; f++) {
        /* Without units or kernels of its own a format is unpacked and computed in bf16. */
        bool own = native[f] > 0 && tables->gemm[f] != NULL;
        device->weight_bytes[f] = bytes[f];
        device->flops_per_ns[f] = own ? native[f] : bf16;
        device->activation_bytes[f] = own ? bytes[f] : 2.0;
        device->gemm[f] = own ? tables->gemm[f] : tables->gemm[FORMAT_BF16];
        device->moe[f] = tables->moe[f] != NULL ? tables->moe[f] : tables->moe[FORMAT_BF16];
    }
}

struct operator_time gemm_time(const struct device *device, const struct kernel_slice *measured, double m, double n,
                               double k, enum number_format format)
{
    const struct efficiency_grid *grid = device->gemm[format];
    double compute = 2.0 * m * n * k / device->flops_per_ns[format];
    double bytes = n * k * device->weight_bytes[format] + m * k * device->activation_bytes[format] + m * n * 2.0;
    double memory = bytes / device->bytes_per_ns;
    double roofline = compute > memory ? compute : memory;
    if (measured != NULL) {
        struct operator_time time = {.bound = compute > memory ? BOUND_COMPUTE : BOUND_BANDWIDTH,
                                     .source = measured->source};
        time.ns = kernel_slice_ns(measured, k, m, &time.estimate);
        time.launch_ns = time.ns < measured->roofline.floor_ns ? time.ns : measured->roofline.floor_ns;
        return time;
    }
    return (struct operator_time){
        .ns = (double)grid->launch_ns + roofline / grid_efficiency(grid, m, n, k),
        .launch_ns = (double)grid->launch_ns,
        .bound = compute > memory ? BOUND_COMPUTE : BOUND_BANDWIDTH,
        .estimate = ESTIMATE_MODELLED,
        .source = grid->source,
    };
}

struct operator_time elementwise_time(const struct device *device, double tokens, double bytes_per_token,
                                      double kernels)
{
    double launch = kernels * ELEMENTWISE_LAUNCH_NS;
    return (struct operator_time){
        .ns = launch + tokens * bytes_per_token / (device->bytes_per_ns * ELEMENTWISE_BANDWIDTH),
        .launch_ns = launch,
        .bound = BOUND_BANDWIDTH,
        .estimate = ESTIMATE_MODELLED,
        .source = "0.8 of the memory bandwidth and 2 us a kernel",
    };
}
