/* The entry points of the CUDA driver that the runtime library does not wrap, resolved at run time: nothing links
 * libcuda, so that the program starts on machines without a driver.
 */
#ifndef TANDEM_REAL_DEVICE_CUDA_CUDA_DRIVER_H
#define TANDEM_REAL_DEVICE_CUDA_CUDA_DRIVER_H

#include "host/user_error.h"

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

struct cuda_driver {
    CUresult (*address_reserve)(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wanted,
                                unsigned long long flags);
    CUresult (*address_free)(CUdeviceptr address, size_t size);
    CUresult (*create)(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
                       unsigned long long flags);
    CUresult (*release)(CUmemGenericAllocationHandle handle);
    CUresult (*map)(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags);
    CUresult (*unmap)(CUdeviceptr address, size_t size);
    CUresult (*set_access)(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count);
    CUresult (*granularity)(size_t *granularity, const CUmemAllocationProp *properties,
                            CUmemAllocationGranularity_flags option);
    CUresult (*export_handle)(void *handle, CUmemGenericAllocationHandle memory, CUmemAllocationHandleType type,
                              unsigned long long flags);
    CUresult (*import_handle)(CUmemGenericAllocationHandle *memory, void *handle, CUmemAllocationHandleType type);
};

/* False with one sentence in `error` when there is no driver or GPU, or the driver is too old. */
bool cuda_driver_load(struct cuda_driver *driver, struct user_error *error);

#endif
