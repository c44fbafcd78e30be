#define _POSIX_C_SOURCE 200809L
/* See cuda_blas.h. */
#include "real/device/cuda/cuda_blas.h"

#include <dlfcn.h>
#include <stdio.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define LIBRARY "libcublas.so." TEXT(CUBLAS_VER_MAJOR)

/* `slot` is the address of a pointer to a function, filled as a pointer to an object, as POSIX allows. */
static bool find(void *library, const char *name, void *slot, struct user_error *error)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        user_error_set(error, NULL, 0, NULL, "%s has no %s", LIBRARY, name);
        return false;
    }
    *(void **)slot = symbol;
    return true;
}

bool cuda_blas_load(struct cuda_blas *blas, struct user_error *error)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        user_error_set(error, NULL, 0, NULL, "no cuBLAS: %s", dlerror());
        return false;
    }
    return find(library, "cublasCreate_v2", &blas->create, error) &&
           find(library, "cublasDestroy_v2", &blas->destroy, error) &&
           find(library, "cublasSetStream_v2", &blas->set_stream, error) &&
           find(library, "cublasSetWorkspace_v2", &blas->set_workspace, error) &&
           find(library, "cublasGetStatusString", &blas->status_string, error) &&
           find(library, "cublasGemmEx", &blas->gemm, error) &&
           find(library, "cublasGemmStridedBatchedEx", &blas->gemm_batched, error);
}
