/* Collectives among the ranks of one instance. */
#include "sim/cost/operators.h"

#include "base/log2.h"

/* The NIC and the NVLink that the DeepEP tables were measured on: ConnectX-7 at 400 Gbps, of which 46.8 GB/s arrive
 * (fitted in arXiv 2510.27656, table 2), and NVLink 4. */
#define DEEPEP_NIC_BYTES_PER_NS 46.8
#define DEEPEP_HOPPER_NVLINK_BYTES_PER_NS 450.0
#define DEEPEP_BLACKWELL_NVLINK_BYTES_PER_NS 900.0
#define DEEPEP_HIDDEN 7168.0
#define DEEPEP_ACTIVE 8.0

/* A copy between two GPUs of a node: 9 us for 0.46 MB, 70 us for 22.9 MB, 181 us for 62.3 MB on a DGX H100, which is
 * 8 us and 0.78 of NVLink's rate: microsoft/vidur@7d47513 (MIT), h100_dgx send_recv. */
#define NVLINK_HOP_NS 8000.0
#define NVLINK_HOP_RATE 0.78

struct operator_time all_reduce_time(const struct device *device, const struct kernel_slice *measured,
                                     const struct kernel_slice *nccl, double ranks, double elements)
{
    if (ranks <= 1.0)
        return (struct operator_time){
            .bound = BOUND_COMMUNICATION, .estimate = ESTIMATE_MODELLED, .source = "one rank"};
    double local = ranks < (double)device->nvlink_gpus ? ranks : (double)device->nvlink_gpus;
    uint32_t size = local <= 2.0 ? 0 : local <= 4.0 ? 1 : 2;
    const struct latency_curve *curve = device->tables->all_reduce[size];
    double ns = latency_curve_ns(curve, elements);
    double nodes = ranks / local;
    const char *source = curve->source;
    enum estimate estimate = ESTIMATE_MODELLED;
    if (measured != NULL) {
        /* An engine's own kernels end somewhere; beyond it NCCL's take over. */
        double log_last = measured->logs[measured->curves[0].first + measured->curves[0].count - 1];
        const struct kernel_slice *slice = nccl != NULL && log2_of(elements) > log_last ? nccl : measured;
        ns = kernel_slice_ns(slice, local, elements, &estimate);
        source = slice->source;
    }
    if (nodes > 1.0) {
        /* Reduced where NVLink reaches, then a ring over what it joins in which every GPU carries its share. */
        double bytes = 2.0 * elements / local;
        ns += 2.0 * (nodes - 1.0) * (device->nic_base_ns + bytes / nodes / device->nic_bytes_per_ns);
    }
    if (nodes > 1.0)
        estimate = ESTIMATE_MODELLED;
    return (struct operator_time){.ns = ns, .bound = BOUND_COMMUNICATION, .estimate = estimate, .source = source};
}

struct operator_time gather_scatter_time(const struct device *device, const struct kernel_slice *gather,
                                         const struct kernel_slice *scatter, double ranks, double elements)
{
    if (gather == NULL || scatter == NULL)
        return all_reduce_time(device, NULL, NULL, ranks, elements);
    enum estimate there;
    enum estimate back;
    double ns = kernel_slice_ns(gather, ranks, elements, &there) + kernel_slice_ns(scatter, ranks, elements, &back);
    return (struct operator_time){
        .ns = ns, .bound = BOUND_COMMUNICATION, .estimate = there > back ? there : back, .source = gather->source};
}

/* What was measured, on a machine whose links carry `rate` times less: the part above the floor takes longer. */
static double exchange_measured(const struct exchange_shape *shape, double tokens, double rate, enum estimate *estimate)
{
    double ns = 0.0;
    *estimate = ESTIMATE_MEASURED;
    for (uint32_t i = 0; i < EXCHANGE_PHASES && shape->phases[i] != NULL; i++) {
        enum estimate one;
        const struct kernel_slice *phase = shape->phases[i];
        double floor = phase->roofline.floor_ns;
        double measured = kernel_slice_ns(phase, shape->inner, tokens < 1.0 ? 1.0 : tokens, &one);
        ns += measured < floor ? measured : floor + (measured - floor) * rate;
        *estimate = one > *estimate ? one : *estimate;
    }
    if (rate != 1.0 && *estimate == ESTIMATE_MEASURED)
        *estimate = ESTIMATE_INTERPOLATED;
    return ns;
}

struct operator_time exchange_time(const struct device *device, const struct exchange_shape *shape, double tokens)
{
    double nodes = shape->ranks / (double)device->gpus_per_node;
    uint32_t size = nodes <= 1.0 ? 0 : nodes <= 2.0 ? 1 : nodes <= 4.0 ? 2 : 3;
    const struct latency_curve *curve = device->tables->deepep[size];
    double nvlink =
        device->tables->fp4_flops > 0 ? DEEPEP_BLACKWELL_NVLINK_BYTES_PER_NS : DEEPEP_HOPPER_NVLINK_BYTES_PER_NS;
    bool inside = shape->ranks <= (double)device->nvlink_gpus || shape->nvlink;
    double rate = inside ? nvlink / device->nvlink_bytes_per_ns : DEEPEP_NIC_BYTES_PER_NS / device->nic_bytes_per_ns;
    struct operator_time time = {.bound = BOUND_COMMUNICATION};
    if (shape->phases[0] != NULL) {
        time.ns = exchange_measured(shape, tokens, rate, &time.estimate);
        time.source = shape->phases[0]->source;
        return time;
    }
    double floor = (double)curve->values[0];
    double bytes = shape->hidden * shape->active / (DEEPEP_HIDDEN * DEEPEP_ACTIVE);
    double measured = latency_curve_ns(curve, tokens < 1.0 ? 1.0 : tokens);
    time.ns = floor + (measured - floor) * bytes * rate;
    time.estimate = ESTIMATE_MODELLED;
    time.source = curve->source;
    return time;
}

struct operator_time stage_hop_time(const struct device *device, double tokens, double bytes_per_token,
                                    bool inside_node)
{
    double bytes = tokens * bytes_per_token;
    double ns = inside_node ? NVLINK_HOP_NS + bytes / (device->nvlink_bytes_per_ns * NVLINK_HOP_RATE)
                            : device->nic_base_ns + bytes / device->nic_bytes_per_ns;
    return (struct operator_time){
        .ns = ns,
        .bound = BOUND_COMMUNICATION,
        .estimate = ESTIMATE_MODELLED,
        .source = inside_node ? "NVLink of the scenario's hardware" : "NIC of the scenario's hardware",
    };
}
