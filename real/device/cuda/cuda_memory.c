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

static bool failed(CUresult status, const char *what, struct user_error *error)
{
    if (status == CUDA_SUCCESS)
        return false;
    user_error_set(error, NULL, 0, NULL, "%s fails with CUDA driver error %d", what, (int)status);
    return true;
}

static bool round_up(const struct cuda_driver *driver, int ordinal, size_t *bytes, struct user_error *error)
{
    CUmemAllocationProp properties = properties_of(ordinal);
    size_t unit = 0;
    if (failed(driver->granularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
               "cuMemGetAllocationGranularity", error))
        return false;
    *bytes = (*bytes + unit - 1) / unit * unit;
    return true;
}

/* Gives the allocation an address. Frees everything where that fails. */
static bool map(struct cuda_memory *memory, int ordinal, struct user_error *error)
{
    const struct cuda_driver *driver = memory->driver;
    if (failed(driver->address_reserve(&memory->address, memory->bytes, 0, 0, 0), "cuMemAddressReserve", error)) {
        memory->address = 0;
        driver->release(memory->handle);
        return false;
    }
    if (failed(driver->map(memory->address, memory->bytes, 0, memory->handle, 0), "cuMemMap", error)) {
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
    if (failed(driver->set_access(memory->address, memory->bytes, &access, 1), "cuMemSetAccess", error)) {
        cuda_memory_free(memory);
        return false;
    }
    return true;
}

bool cuda_memory_make(struct cuda_memory *memory, const struct cuda_driver *driver, int ordinal, size_t bytes,
                      struct user_error *error)
{
    *memory = (struct cuda_memory){.driver = driver, .bytes = bytes};
    CUmemAllocationProp properties = properties_of(ordinal);
    if (!round_up(driver, ordinal, &memory->bytes, error))
        return false;
    if (failed(driver->create(&memory->handle, memory->bytes, &properties, 0), "cuMemCreate", error))
        return false;
    if (!map(memory, ordinal, error))
        return false;
    cudaError_t status = cudaMemset(cuda_memory_pointer(memory), 0, memory->bytes);
    if (status != cudaSuccess) {
        user_error_set(error, NULL, 0, NULL, "cudaMemset fails: %s", cudaGetErrorString(status));
        cuda_memory_free(memory);
        return false;
    }
    return true;
}

int cuda_memory_export(const struct cuda_memory *memory, struct user_error *error)
{
    int descriptor = -1;
    if (failed(memory->driver->export_handle(&descriptor, memory->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
               "cuMemExportToShareableHandle", error))
        return -1;
    return descriptor;
}

bool cuda_memory_import(struct cuda_memory *memory, const struct cuda_driver *driver, int ordinal, int descriptor,
                        size_t bytes, struct user_error *error)
{
    *memory = (struct cuda_memory){.driver = driver, .bytes = bytes};
    if (!round_up(driver, ordinal, &memory->bytes, error))
        return false;
    void *handle = (void *)(intptr_t)descriptor; /* the interface's way to pass a descriptor */
    if (failed(driver->import_handle(&memory->handle, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
               "cuMemImportFromShareableHandle", error))
        return false;
    return map(memory, ordinal, error);
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
