/* See cuda_driver.h. */
#include "real/device/cuda/cuda_driver.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

/* The version whose signatures cuda_driver.h declares: all of them are of 10.2 or before and have not changed. */
#define DRIVER_API_VERSION 12000

/* `slot` is the address of a pointer to a function; the runtime fills it as a pointer to an object, as POSIX allows. */
static bool resolve(const char *name, void *slot, char *error, size_t error_size)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaError_t status =
        cudaGetDriverEntryPointByVersion(name, (void **)slot, DRIVER_API_VERSION, cudaEnableDefault, &found);
    if (status == cudaSuccess && found == cudaDriverEntryPointSuccess)
        return true;
    snprintf(error, error_size, "the CUDA driver has no %s (%s)", name,
             status == cudaSuccess ? "not found at API 12.0" : cudaGetErrorString(status));
    return false;
}

bool cuda_driver_load(struct cuda_driver *driver, char *error, size_t error_size)
{
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess) {
        snprintf(error, error_size, "no CUDA driver: cudaGetDeviceCount says %s", cudaGetErrorString(status));
        return false;
    }
    if (count == 0) {
        snprintf(error, error_size, "no GPU: cudaGetDeviceCount finds none");
        return false;
    }
    return resolve("cuMemAddressReserve", &driver->address_reserve, error, error_size) &&
           resolve("cuMemAddressFree", &driver->address_free, error, error_size) &&
           resolve("cuMemCreate", &driver->create, error, error_size) &&
           resolve("cuMemRelease", &driver->release, error, error_size) &&
           resolve("cuMemMap", &driver->map, error, error_size) &&
           resolve("cuMemUnmap", &driver->unmap, error, error_size) &&
           resolve("cuMemSetAccess", &driver->set_access, error, error_size) &&
           resolve("cuMemGetAllocationGranularity", &driver->granularity, error, error_size) &&
           resolve("cuMemExportToShareableHandle", &driver->export_handle, error, error_size) &&
           resolve("cuMemImportFromShareableHandle", &driver->import_handle, error, error_size);
}
