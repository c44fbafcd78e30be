/* See cuda_driver.h. */
#include "real/device/cuda/cuda_driver.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

/* The version whose signatures cuda_driver.h declares: all of them are of 10.2 or before and have not changed. */
#define DRIVER_API_VERSION 12000

/* `slot` is the address of a pointer to a function; the runtime fills it as a pointer to an object, as POSIX allows. */
static bool resolve(const char *name, void *slot, struct user_error *error)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaError_t status =
        cudaGetDriverEntryPointByVersion(name, (void **)slot, DRIVER_API_VERSION, cudaEnableDefault, &found);
    if (status == cudaSuccess && found == cudaDriverEntryPointSuccess)
        return true;
    user_error_set(error, NULL, 0, NULL, "the CUDA driver has no %s (%s)", name,
                   status == cudaSuccess ? "not found at API 12.0" : cudaGetErrorString(status));
    return false;
}

bool cuda_driver_load(struct cuda_driver *driver, struct user_error *error)
{
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess) {
        user_error_set(error, NULL, 0, NULL, "no CUDA driver: cudaGetDeviceCount says %s", cudaGetErrorString(status));
        return false;
    }
    if (count == 0) {
        user_error_set(error, NULL, 0, NULL, "no GPU: cudaGetDeviceCount finds none");
        return false;
    }
    return resolve("cuMemAddressReserve", &driver->address_reserve, error) &&
           resolve("cuMemAddressFree", &driver->address_free, error) &&
           resolve("cuMemCreate", &driver->create, error) && resolve("cuMemRelease", &driver->release, error) &&
           resolve("cuMemMap", &driver->map, error) && resolve("cuMemUnmap", &driver->unmap, error) &&
           resolve("cuMemSetAccess", &driver->set_access, error) &&
           resolve("cuMemGetAllocationGranularity", &driver->granularity, error) &&
           resolve("cuMemExportToShareableHandle", &driver->export_handle, error) &&
           resolve("cuMemImportFromShareableHandle", &driver->import_handle, error);
}
