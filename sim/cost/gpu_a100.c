/* Measured efficiencies of A100, from ai-dynamo/aiconfigurator@095f58a (Apache-2.0), directory
 * aic-core/src/aiconfigurator_core/systems/data. Each table names its file and the engine whose kernels were measured.
 * "Held out" is the error of a fit to a random half of the rows on the other half.
 *
 * vLLM 0.14 throughout, but its latent attention has a launch floor of 0.1 ms, so TensorRT-LLM 1.0 there.
 */
#include "sim/cost/efficiency_tables.h"

/* Held out: median 5.2%, p90 17.7%, rows 3035. */
static const uint16_t gemm_bf16_values[] = {
    370,  1193, 1569, 2623, 4023, 4711, 1265, 2320, 4037, 4965, 5345, 6186, 3683, 4105, 4642, 5554, 6463, 6848,
    5347, 5667, 6857, 6938, 7203, 6987, 5044, 6153, 6651, 6906, 7087, 7386, 5627, 6150, 6383, 7044, 7321, 7634,
    219,  610,  1321, 2605, 3931, 4938, 1429, 2024, 3246, 4885, 5932, 6637, 2575, 3854, 4380, 5902, 6515, 6683,
    4659, 5475, 6557, 6794, 6941, 7215, 4693, 5817, 6928, 6987, 6809, 7311, 5678, 6121, 6561, 6722, 7080, 8017,
    503,  631,  1624, 2767, 4014, 5237, 1377, 2161, 3433, 4561, 5687, 6050, 2474, 4193, 4728, 5386, 5999, 6506,
    3973, 5858, 6308, 6667, 6109, 6926, 6776, 6791, 6734, 6946, 6845, 6941, 6084, 6626, 6549, 6839, 6778, 6930,
    665,  725,  1743, 2650, 3907, 5318, 1555, 2288, 2475, 3732, 4595, 4166, 2721, 3896, 4435, 3942, 4613, 5108,
    4184, 4794, 5190, 4841, 4913, 5693, 4266, 5195, 5288, 5237, 5021, 5989, 4624, 4148, 4328, 5206, 6055, 6689,
    757,  1067, 1778, 2768, 3787, 4427, 1914, 2793, 3258, 3882, 5012, 6307, 2945, 3923, 4614, 4955, 5283, 6328,
    3648, 4538, 5094, 5689, 6056, 6567, 4547, 4872, 6100, 6955, 6695, 7360, 3866, 4346, 5043, 5426, 5610, 8282,
    1186, 1674, 2223, 3076, 4349, 5374, 2543, 4102, 4674, 5504, 6886, 7813, 3255, 5297, 6173, 6360, 6818, 7394,
    3910, 6200, 6421, 6973, 7288, 8128, 3939, 5778, 6344, 6380, 7491, 8564, 4424, 6470, 7173, 7402, 8575, 8754,
    2090, 2902, 3490, 4155, 5258, 6154, 3285, 5262, 6173, 6253, 7248, 7687, 4088, 5640, 5250, 6760, 7740, 8295,
    3734, 5611, 6159, 6342, 7373, 8640, 5092, 7176, 7529, 7671, 8472, 8798, 5493, 7579, 8333, 8715, 8649, 8691,
    3091, 4563, 4965, 5281, 6482, 7525, 4065, 5649, 5692, 7112, 7841, 8160, 4485, 6636, 7393, 7495, 8347, 8766,
    5702, 7323, 7813, 8221, 8042, 8910, 5995, 7588, 7659, 8376, 9056, 9100, 6355, 7621, 8351, 8759, 9427, 9425,
    4834, 5070, 5068, 6721, 7489, 8356, 4707, 7092, 7830, 6707, 8563, 8560, 6457, 7491, 8951, 8889, 9361, 9305,
    5592, 8225, 7611, 7721, 7884, 8889, 5527, 7747, 8036, 7684, 9733, 9530, 6014, 7973, 8046, 9286, 9653, 9349,
};
static const struct efficiency_grid gemm_bf16 = {
    .source = "a100_sxm/gemm_perf, vllm-0.14.0, bfloat16",
    .launch_ns = 2500,
    .axes = {&axis_gemm_m, &axis_gemm_n, &axis_gemm_k},
    .values = gemm_bf16_values,
};

/* Held out: median 8.9%, p90 45.1%, rows 1035. */
static const uint16_t moe_bf16_values[] = {
    1315,  2359,  2359,  2359,  4919,  7277,  1315,  173,   8934,  8934,  6684,  6815,  1315,  173,   984,   8406,
    7810,  8256,  76,    222,   1243,  9575,  7827,  8902,  214,   160,   577,   2331,  8060,  7167,  199,   305,
    4749,  19958, 63518, 7167,  2377,  10365, 10365, 10365, 7524,  11828, 2377,  665,   10365, 10365, 8396,  8241,
    2377,  665,   1767,  8396,  8353,  8935,  939,   736,   3965,  9263,  7333,  9503,  876,   872,   1086,  4957,
    8270,  8407,  1062,  440,   5826,  19203, 18987, 8407,  25769, 25769, 9213,  9213,  7135,  8449,  25769, 25769,
    25769, 8422,  7746,  7169,  1092,  5701,  3088,  6766,  7843,  7316,  576,   5460,  4477,  8633,  6897,  8303,
    767,   1616,  2246,  6432,  7785,  7229,  2042,  8306,  14696, 18021, 18021, 7229,  17224, 17224, 9509,  9509,
    8118,  9420,  17224, 17224, 17224, 9160,  8628,  9448,  1814,  6382,  5664,  9168,  9213,  9595,  1100,  4041,
    5664,  10096, 8255,  10574, 1271,  3268,  4048,  7849,  8912,  10039, 3645,  8716,  18032, 17173, 14928, 10039,
    19288, 19288, 11482, 11482, 10012, 10054, 19288, 19288, 19288, 10284, 10462, 10303, 2747,  8729,  8223,  10191,
    10740, 10501, 1520,  10235, 8859,  12056, 9962,  11705, 2412,  4413,  5146,  9046,  10495, 10958, 3943,  10246,
    28913, 16819, 20220, 10958, 21877, 21877, 9271,  9271,  9631,  11321, 21877, 21877, 21877, 9614,  9935,  11395,
    3121,  5155,  6431,  9890,  10194, 11523, 2096,  5755,  6706,  10633, 10335, 11370, 3947,  5559,  5705,  10198,
    10895, 11680, 4081,  7872,  5110,  12439, 12405, 11680, 7489,  7489,  8083,  8083,  8494,  9146,  7489,  7489,
    7489,  8201,  8684,  9634,  1814,  5014,  5819,  7651,  8904,  10091, 2133,  5593,  5764,  6950,  8723,  9468,
    3125,  5705,  5972,  6345,  8179,  8557,  4490,  5682,  4665,  5030,  10046, 8557,  4768,  4768,  7353,  7353,
    6133,  6545,  4768,  4768,  4768,  6000,  6137,  6372,  569,   4864,  4194,  5092,  5671,  6052,  1246,  5335,
    4907,  5037,  5472,  5777,  940,   3988,  4419,  5383,  5406,  5701,  4110,  5107,  4084,  4141,  2497,  5701,
    4242,  4242,  6606,  6606,  5028,  4801,  4242,  4242,  4242,  4816,  4383,  4255,  822,   4013,  2948,  4225,
    3736,  3601,  1263,  3457,  3298,  3973,  3301,  3143,  1016,  2780,  2982,  3032,  3059,  2865,  2442,  3567,
    3323,  4142,  3029,  2865,  7486,  7486,  8846,  8846,  4793,  4451,  7486,  7486,  7486,  5162,  4019,  3703,
    549,   3720,  3224,  3799,  3279,  3011,  1251,  3324,  3159,  3564,  2827,  2629,  27,    3553,  2468,  2806,
    2663,  2417,  1806,  3547,  2684,  3168,  2627,  2417,
};
static const struct efficiency_grid moe_bf16 = {
    .source = "a100_sxm/moe_perf, vllm-0.14.0, bfloat16, power_law_1.01",
    .launch_ns = 35000,
    .axes = {&axis_moe_rows, &axis_moe_width, &axis_moe_experts},
    .values = moe_bf16_values,
};

/* Held out: median 4.9%, p90 17.1%, rows 1092. */
static const uint16_t decode_bf16_values[] = {
    37,  64,   188,  608,  1077, 2892, 135,  226,  726,  1953, 4188, 6375, 239,  698,  2148, 4667, 6556, 7835,
    879, 2345, 4789, 6642, 7944, 7773, 2228, 4849, 5735, 6516, 7008, 7858, 3676, 6658, 7987, 8543, 7230, 7858,
};
static const struct efficiency_grid decode_bf16 = {
    .source = "a100_sxm/generation_attention_perf, vllm-0.14.0, head_dim 128, kv bfloat16",
    .launch_ns = 8000,
    .axes = {&axis_decode_heads, &axis_decode_length, &axis_any},
    .values = decode_bf16_values,
};

/* Held out: median 6.0%, p90 19.8%, rows 567. */
static const uint16_t mla_decode_bf16_values[] = {
    49,   48,   49,   49,   49,   50,   49,   50,   47,   48,   157,  210,  148,  221,  154,  219,  143,
    207,  144,  206,  785,  789,  768,  789,  733,  730,  736,  733,  736,  731,  2178, 1771, 2137, 2066,
    2165, 2154, 2179, 2175, 2177, 2213, 2728, 2092, 3430, 3036, 3457, 2997, 3467, 3049, 3207, 2939,
};
static const struct efficiency_grid mla_decode_bf16 = {
    .source = "a100_sxm/generation_mla_perf, trtllm-1.0.0, kv bfloat16",
    .launch_ns = 8000,
    .axes = {&axis_mla_sequences, &axis_mla_length, &axis_mla_heads},
    .values = mla_decode_bf16_values,
};

/* Held out: median 9.4%, p90 27.9%, rows 567. */
static const uint16_t mla_decode_fp8_values[] = {
    28,   51,   24,   47,   24,   47,   23,   47,   21,   46,   99,   206,  66,   199,  75,   197,  71,
    184,  73,   182,  450,  910,  381,  709,  360,  687,  368,  686,  368,  684,  1196, 1800, 1012, 1984,
    1084, 2033, 1086, 2032, 1088, 2037, 1346, 1787, 1651, 2882, 1611, 2957, 1669, 2958, 1448, 2812,
};
static const struct efficiency_grid mla_decode_fp8 = {
    .source = "a100_sxm/generation_mla_perf, trtllm-1.0.0, kv fp8",
    .launch_ns = 10000,
    .axes = {&axis_mla_sequences, &axis_mla_length, &axis_mla_heads},
    .values = mla_decode_fp8_values,
};

/* In sample: median 5.7%, p90 24.1%, rows 2300. */
static const struct prefill_fit prefill_bf16 = {
    .source = "a100_sxm/context_attention_perf, vllm-0.14.0, attention bfloat16, head_dim 128",
    .launch_ns = 11263,
    .pair = 1.730,
    .token = 433.0,
};

/* In sample: median 3.6%, p90 13.8%, rows 540. */
static const struct prefill_fit mla_prefill_bf16 = {
    .source = "a100_sxm/context_mla_perf, trtllm-1.0.0, kv bfloat16",
    .launch_ns = 15462,
    .pair = 1.926,
    .token = 410.0,
};

/* In sample: median 3.5%, p90 13.5%, rows 540. */
static const struct prefill_fit mla_prefill_fp8 = {
    .source = "a100_sxm/context_mla_perf, trtllm-1.0.0, kv fp8",
    .launch_ns = 15382,
    .pair = 1.927,
    .token = 411.8,
};

static const uint32_t all_reduce_2_values[ALL_REDUCE_SIZES] = {
    3799,  3820,  3840,  3963,  4198,   4680,   4895,   4895,   5100,    5192,    6154,    7844,
    10695, 15175, 25241, 80865, 126281, 222190, 388469, 746147, 1427570, 2781205, 5297162,
};
static const uint32_t all_reduce_4_values[ALL_REDUCE_SIZES] = {
    3994,  3994,  4035,  4239,   4710,   5526,   5998,   5998,   6031,    7342,    9370,    13865,
    18340, 26046, 41477, 112548, 182500, 288133, 540034, 996341, 1920714, 3721133, 7250319,
};
static const uint32_t all_reduce_8_values[ALL_REDUCE_SIZES] = {
    4372,  4588,  4588,  4782,   6062,   6323,   6537,   6905,    8433,    11352,   16282,   18860,
    21706, 27929, 45371, 128799, 214192, 364346, 594187, 1160871, 2170238, 4222974, 8250855,
};

static const struct latency_curve all_reduce_2 = {
    .source = "a100_sxm/custom_allreduce_perf, vllm-0.14.0 and trtllm-1.0.0",
    .first_log2 = 7,
    .stride_log2 = 1,
    .count = ALL_REDUCE_SIZES,
    .values = all_reduce_2_values,
};
static const struct latency_curve all_reduce_4 = {
    .source = "a100_sxm/custom_allreduce_perf, vllm-0.14.0 and trtllm-1.0.0",
    .first_log2 = 7,
    .stride_log2 = 1,
    .count = ALL_REDUCE_SIZES,
    .values = all_reduce_4_values,
};
static const struct latency_curve all_reduce_8 = {
    .source = "a100_sxm/custom_allreduce_perf, vllm-0.14.0 and trtllm-1.0.0",
    .first_log2 = 7,
    .stride_log2 = 1,
    .count = ALL_REDUCE_SIZES,
    .values = all_reduce_8_values,
};

const struct gpu_tables gpu_a100 = {
    .name = "A100",
    .bf16_flops = 312e12,
    .fp8_flops = 0,
    .fp4_flops = 0,
    .bytes_per_s = 2.039e12,
    .gemm = {[FORMAT_BF16] = &gemm_bf16},
    .moe = {[FORMAT_BF16] = &moe_bf16},
    .decode_attention = {&decode_bf16, &decode_bf16},
    .mla_decode = {&mla_decode_bf16, &mla_decode_fp8},
    .prefill_attention = {&prefill_bf16, &prefill_bf16},
    .mla_prefill = {&mla_prefill_bf16, &mla_prefill_fp8},
    .all_reduce = {&all_reduce_2, &all_reduce_4, &all_reduce_8},
    .deepep = {&deepep_hopper_1, &deepep_hopper_2, &deepep_hopper_4, &deepep_hopper_8},
};
