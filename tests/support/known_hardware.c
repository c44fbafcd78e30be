/* See known_hardware.h. Rates are the dense ones of the data sheets (SemiAnalysisAI/InferenceX-app@77ca49a,
 * gpu-specs.ts; A100: ai-dynamo/aiconfigurator@095f58a). */
#include "known_hardware.h"

#include "base/check.h"

#include <stddef.h>
#include <string.h>

#define TERA UINT64_C(1000000000000)
#define GIGA UINT64_C(1000000000)
#define CONNECTX7                                                                                                      \
    {                                                                                                                  \
        .name = "ConnectX-7 400G", .base_ns = 11200, .bytes_per_s = 46800000000, .gap_ps = 86000                       \
    }

static const struct hardware machines[] = {
    {.name = "8 x A100 80G",
     .gpu = "A100",
     .gpus_per_node = 8,
     .memory_bytes = 80 * GIGA,
     .memory_bytes_per_s = 2039 * GIGA,
     .bf16_flops = 312 * TERA,
     .nvlink_bytes_per_s = 300 * GIGA,
     .nic = CONNECTX7},
    {.name = "8 x H100",
     .gpu = "H100",
     .gpus_per_node = 8,
     .memory_bytes = 80 * GIGA,
     .memory_bytes_per_s = 3350 * GIGA,
     .bf16_flops = 989 * TERA,
     .fp8_flops = 1979 * TERA,
     .nvlink_bytes_per_s = 450 * GIGA,
     .nic = CONNECTX7},
    {.name = "8 x H200",
     .gpu = "H200",
     .gpus_per_node = 8,
     .memory_bytes = 141 * GIGA,
     .memory_bytes_per_s = 4800 * GIGA,
     .bf16_flops = 989 * TERA,
     .fp8_flops = 1979 * TERA,
     .nvlink_bytes_per_s = 450 * GIGA,
     .nic = CONNECTX7},
    {.name = "8 x B200",
     .gpu = "B200",
     .gpus_per_node = 8,
     .memory_bytes = 180 * GIGA,
     .memory_bytes_per_s = 8000 * GIGA,
     .bf16_flops = 2250 * TERA,
     .fp8_flops = 4500 * TERA,
     .fp4_flops = 9000 * TERA,
     .nvlink_bytes_per_s = 900 * GIGA,
     .nic = CONNECTX7},
};

const struct hardware *known_hardware(const char *gpu)
{
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++)
        if (strcmp(machines[i].gpu, gpu) == 0)
            return &machines[i];
    check_failed("known hardware", __FILE__, __LINE__);
}
