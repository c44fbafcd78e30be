/* cuBLAS, loaded when the first CUDA device is made: the library is some 600 MB, and linking it would cost every start
 * of the program a second, with a GPU or without.
 */
#ifndef TANDEM_REAL_DEVICE_CUDA_CUDA_BLAS_H
#define TANDEM_REAL_DEVICE_CUDA_CUDA_BLAS_H

#include "host/user_error.h"

#include <cublas_v2.h>
#include <stdbool.h>
#include <stddef.h>

struct cuda_blas {
    cublasStatus_t (*create)(cublasHandle_t *handle);
    cublasStatus_t (*destroy)(cublasHandle_t handle);
    cublasStatus_t (*set_stream)(cublasHandle_t handle, cudaStream_t stream);
    cublasStatus_t (*set_workspace)(cublasHandle_t handle, void *workspace, size_t bytes);
    const char *(*status_string)(cublasStatus_t status);
    cublasStatus_t (*gemm)(cublasHandle_t handle, cublasOperation_t operation_a, cublasOperation_t operation_b, int m,
                           int n, int k, const void *alpha, const void *a, cudaDataType type_a, int stride_a,
                           const void *b, cudaDataType type_b, int stride_b, const void *beta, void *c,
                           cudaDataType type_c, int stride_c, cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
    cublasStatus_t (*gemm_batched)(cublasHandle_t handle, cublasOperation_t operation_a, cublasOperation_t operation_b,
                                   int m, int n, int k, const void *alpha, const void *a, cudaDataType type_a,
                                   int stride_a, long long next_a, const void *b, cudaDataType type_b, int stride_b,
                                   long long next_b, const void *beta, void *c, cudaDataType type_c, int stride_c,
                                   long long next_c, int count, cublasComputeType_t compute,
                                   cublasGemmAlgo_t algorithm);
};

/* False with one sentence when the library cannot be found or is another major version. It stays loaded. */
bool cuda_blas_load(struct cuda_blas *blas, struct user_error *error);

#endif
