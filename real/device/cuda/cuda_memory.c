/* See cuda_memory.h. */
#include "real/device/cuda/cuda_memory.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

static CUmemAllocationProp properties_of(int ordinal)
{
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = ordinal;
    return properties;
}

static bool failed(CUresult status, const char *what, char *error, size_t error_size)
{
    if (status == CUDA_SUCCESS)
        return false;
    snprintf(error, error_size, "%s fails with CUDA driver error %d", what, (int)status);
    return true;
}

static bool round_up(const struct cuda_driver *driver, int ordinal, size_t *bytes, char *error, size_t error_size)
{
    CUmemAllocationProp properties = properties_of(ordinal);
    size_t unit = 0;
    if (failed(driver->granularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
               "cuMemGetAllocationGranularity", error, error_size))
        return false;
    *bytes = (*bytes + unit - 1) / unit * unit;
    return true;
}

/* Gives the allocation an address. Frees everything where that fails. */
static bool map(struct cuda_memory *memory, int ordinal, char *error, size_t error_size)
{
    const struct cuda_driver *driver = memory->driver;
    if (failed(driver->address_reserve(&memory->address, memory->bytes, 0, 0, 0), "cuMemAddressReserve", error,
               error_size)) {
        memory->address = 0;
        driver->release(memory->handle);
        return false;
    }
    if (failed(driver->map(memory->address, memory->bytes, 0, memory->handle, 0), "cuMemMap", error, error_size)) {
        driver->address_free(memory->address, memory->bytes);
        memory->address = 0;
        driver->release(memory->handle);
        return false;
    }
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = ordinal;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (failed(driver->set_access(memory->address, memory->bytes, &access, 1), "cuMemSetAccess", error, error_size)) {
        cuda_memory_free(memory);
        return false;
    }
    return true;
}

bool cuda_memory_make(struct cuda_memory *memory, const struct cuda_driver *driver, int ordinal, size_t bytes,
                      char *error, size_t error_size)
{
    *memory = (struct cuda_memory){.driver = driver, .bytes = bytes};
    CUmemAllocationProp properties = properties_of(ordinal);
    if (!round_up(driver, ordinal, &memory->bytes, error, error_size))
        return false;
    if (failed(driver->create(&memory->handle, memory->bytes, &properties, 0), "cuMemCreate", error, error_size))
        return false;
    if (!map(memory, ordinal, error, error_size))
        return false;
    cudaError_t status = cudaMemset(cuda_memory_pointer(memory), 0, memory->bytes);
    if (status != cudaSuccess) {
        snprintf(error, error_size, "cudaMemset fails: %s", cudaGetErrorString(status));
        cuda_memory_free(memory);
        return false;
    }
    return true;
}

int cuda_memory_export(const struct cuda_memory *memory, char *error, size_t error_size)
{
    int descriptor = -1;
    if (failed(memory->driver->export_handle(&descriptor, memory->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
               "cuMemExportToShareableHandle", error, error_size))
        return -1;
    return descriptor;
}

bool cuda_memory_import(struct cuda_memory *memory, const struct cuda_driver *driver, int ordinal, int descriptor,
                        size_t bytes, char *error, size_t error_size)
{
    *memory = (struct cuda_memory){.driver = driver, .bytes = bytes};
    if (!round_up(driver, ordinal, &memory->bytes, error, error_size))
        return false;
    void *handle = (void *)(intptr_t)descriptor; /* the interface's way to pass a descriptor */
    if (failed(driver->import_handle(&memory->handle, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
               "cuMemImportFromShareableHandle", error, error_size))
        return false;
    return map(memory, ordinal, error, error_size);
}

void cuda_memory_free(struct cuda_memory *memory)
{
    if (memory->address == 0)
        return;
    memory->driver->unmap(memory->address, memory->bytes);
    memory->driver->address_free(memory->address, memory->bytes);
    memory->driver->release(memory->handle);
    memory->address = 0;
}
