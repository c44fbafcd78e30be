/* How kernels are written and launched: in the common subset of C and CUDA C++, with one struct of arguments each, so
 * that tests compile the same sources as C and run them block by block on the CPU (tests/cuda/cuda_emulation.h, which
 * defines these macros first).
 */
#ifndef TANDEM_REAL_DEVICE_CUDA_CUDA_LAUNCH_H
#define TANDEM_REAL_DEVICE_CUDA_CUDA_LAUNCH_H

#ifndef CUDA_EMULATED
#define CUDA_KERNEL(name, type) static __global__ void __launch_bounds__(256) name(const struct type a)
#define CUDA_LAUNCH(name, x, y, z, threads, shared_bytes, stream, arguments)                                           \
    name<<<dim3((x), (y), (z)), (threads), (shared_bytes), (stream)>>>(arguments)
#define CUDA_DEVICE static __device__ inline
#define CUDA_SHARED __shared__
#define CUDA_DYNAMIC_SHARED(name) extern __shared__ float name[]
#define CUDA_UNROLL _Pragma("unroll")
#define CUDA_SHARED_LIMIT(name, bytes)                                                                                 \
    cudaFuncSetAttribute((const void *)name, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes))
/* Sums that need not match the host to the bit are fused where the GPU can. */
#define cuda_fma(x, y, z) __fmaf_rn((x), (y), (z))
#define cuda_sync() __syncthreads()
#define cuda_fence_system() __threadfence_system()
/* A word that other devices see: what was stored before is there for whoever loads it. */
#define cuda_store_release(word, value)                                                                                \
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory")
static __device__ inline unsigned cuda_load_acquire(const unsigned *word)
{
    unsigned value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}
#define cuda_pause() __nanosleep(40)
#define cuda_shuffle_xor(value, mask) __shfl_xor_sync(0xffffffffu, (value), (mask))
#define cuda_shuffle_xor_u32(value, mask) __shfl_xor_sync(0xffffffffu, (value), (mask))
#define CUDA_BLOCK_X blockIdx.x
#define CUDA_BLOCK_Y blockIdx.y
#define CUDA_BLOCK_Z blockIdx.z
#define CUDA_GRID_X gridDim.x
#define CUDA_THREAD threadIdx.x
#define CUDA_THREADS blockDim.x
#endif

#endif
