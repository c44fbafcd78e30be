/* The kernels of the CUDA device, compiled as C for the emulation. */
#include "cuda/cuda_emulation.h"

#include "real/device/cuda/cuda_attention.cu"
#include "real/device/cuda/cuda_experts.cu"
#include "real/device/cuda/cuda_kernels.cu"
#include "real/device/cuda/cuda_reduce.cu"
