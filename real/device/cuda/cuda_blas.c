#define _POSIX_C_SOURCE 200809L
/* See cuda_blas.h. */
#include "real/device/cuda/cuda_blas.h"

#include <dlfcn.h>
#include <stdio.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define LIBRARY "libcublas.so." TEXT(CUBLAS_VER_MAJOR)

/* `slot` is the address of a pointer to a function, filled as a pointer to an object, as POSIX allows. */
static bool find(void *library, const char *name, void *slot, char *error, size_t error_size)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        snprintf(error, error_size, "%s has no %s", LIBRARY, name);
        return false;
    }
    *(void **)slot = symbol;
    return true;
}

bool cuda_blas_load(struct cuda_blas *blas, char *error, size_t error_size)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(error, error_size, "no cuBLAS: %s", dlerror());
        return false;
    }
    return find(library, "cublasCreate_v2", &blas->create, error, error_size) &&
           find(library, "cublasDestroy_v2", &blas->destroy, error, error_size) &&
           find(library, "cublasSetStream_v2", &blas->set_stream, error, error_size) &&
           find(library, "cublasSetWorkspace_v2", &blas->set_workspace, error, error_size) &&
           find(library, "cublasGetStatusString", &blas->status_string, error, error_size) &&
           find(library, "cublasGemmEx", &blas->gemm, error, error_size) &&
           find(library, "cublasGemmStridedBatchedEx", &blas->gemm_batched, error, error_size);
}
