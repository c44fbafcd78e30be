#define _GNU_SOURCE
/* The CUDA runtime, driver and cuBLAS of the emulation. See cuda_emulation.h. */
#include "cuda/cuda_emulation.h"

#include "base/check.h"
#include "real/device/cuda/cuda_blas.h"
#include "real/device/kernels/kernel.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Queued work ------------------------------------------------------------------------------------------------- */

struct product {
    const uint16_t *weights;
    const uint16_t *in;
    float *out;
    int outputs, rows, inputs;
    int weights_stride, in_stride, out_stride; /* from row to row */
    long long weights_next, in_next, out_next; /* from product to product */
    int count;
};

struct work {
    enum { WORK_KERNEL, WORK_COPY, WORK_SET, WORK_CALL, WORK_PRODUCT } kind;
    void (*body)(const void *arguments);
    struct emulated_grid grid;
    unsigned char arguments[512];
    void *to;
    const void *from;
    size_t bytes;
    int value;
    cudaHostFn_t call;
    struct product product;
    struct work *next;
};

struct CUgraph_st {
    struct work *first;
    struct work **last;
};

_Atomic uint64_t emulated_graph_launches;
_Atomic uint64_t emulated_host_calls;
static _Thread_local struct CUgraph_st *capturing;

static void multiply(const struct product *p)
{
    for (long long n = 0; n < p->count; n++)
        for (int row = 0; row < p->rows; row++)
            for (int output = 0; output < p->outputs; output++) {
                const uint16_t *in = p->in + n * p->in_next + (long long)row * p->in_stride;
                const uint16_t *weights = p->weights + n * p->weights_next + (long long)output * p->weights_stride;
                float sum = 0.0f;
                for (int i = 0; i < p->inputs; i++)
                    sum += kernel_bf16_float(in[i]) * kernel_bf16_float(weights[i]);
                p->out[n * p->out_next + (long long)row * p->out_stride + output] = sum;
            }
}

static void perform(const struct work *work)
{
    switch (work->kind) {
    case WORK_KERNEL:
        emulated_run(work->body, work->arguments, work->grid);
        break;
    case WORK_COPY:
        memmove(work->to, work->from, work->bytes);
        break;
    case WORK_SET:
        memset(work->to, work->value, work->bytes);
        break;
    case WORK_CALL:
        atomic_fetch_add(&emulated_host_calls, 1);
        work->call(work->to);
        break;
    case WORK_PRODUCT:
        multiply(&work->product);
        break;
    }
}

static void queue(const struct work *work)
{
    if (capturing == NULL) {
        perform(work);
        return;
    }
    struct work *copy = malloc(sizeof *copy);
    CHECK(copy != NULL);
    *copy = *work;
    copy->next = NULL;
    *capturing->last = copy;
    capturing->last = &copy->next;
}

void emulated_launch(void (*body)(const void *arguments), const void *arguments, size_t size, struct emulated_grid grid)
{
    struct work work = {.kind = WORK_KERNEL, .body = body, .grid = grid};
    CHECK(size <= sizeof work.arguments);
    memcpy(work.arguments, arguments, size);
    queue(&work);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)stream;
    (void)mode;
    CHECK(capturing == NULL);
    capturing = calloc(1, sizeof *capturing);
    CHECK(capturing != NULL);
    capturing->last = &capturing->first;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    (void)stream;
    *graph = capturing;
    capturing = NULL;
    return cudaSuccess;
}

/* The executable graph takes the work over. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    *exec = (cudaGraphExec_t)(void *)graph->first;
    graph->first = NULL;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    CHECK(graph->first == NULL);
    free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    struct work *work = (struct work *)(void *)exec;
    while (work != NULL) {
        struct work *next = work->next;
        free(work);
        work = next;
    }
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    (void)stream;
    CHECK(capturing == NULL);
    atomic_fetch_add(&emulated_graph_launches, 1);
    for (const struct work *work = (const struct work *)(const void *)exec; work != NULL; work = work->next)
        perform(work);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind;
    (void)stream;
    queue(&(struct work){.kind = WORK_COPY, .to = to, .from = from, .bytes = bytes});
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    queue(&(struct work){.kind = WORK_SET, .to = to, .value = value, .bytes = bytes});
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call, void *data)
{
    (void)stream;
    queue(&(struct work){.kind = WORK_CALL, .call = call, .to = data});
    return cudaSuccess;
}

/* A device that waits for a captured stream is a bug, and CUDA says so too. */
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return capturing == NULL ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}

/* ---- The rest of the runtime ------------------------------------------------------------------------------------- */

static int gpu_count(void)
{
    const char *text = getenv(EMULATED_GPUS_VARIABLE);
    return text == NULL ? 1 : (int)strtol(text, NULL, 10);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = gpu_count();
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device)
{
    return device >= 0 && device < gpu_count() ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer;
    return cudaSetDevice(device) == cudaSuccess ? cudaSetDevice(peer) : cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device)
{
    snprintf(id, (size_t)size, "0000:%02x:00.0", 0xf0 + device);
    return cudaSetDevice(device);
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    memset(properties, 0, sizeof *properties);
    strcpy(properties->name, "an emulated GPU");
    return cudaSetDevice(device);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    (void)flags;
    *stream = malloc(1);
    return *stream == NULL ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    *pointer = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (*pointer == NULL)
        return cudaErrorMemoryAllocation;
    memset(*pointer, 0xff, bytes); /* what is read before it is written shows as NaN */
    return cudaSuccess;
}

cudaError_t cudaFree(void *pointer)
{
    free(pointer);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    (void)flags;
    return cudaMalloc(pointer, bytes);
}

cudaError_t cudaFreeHost(void *pointer)
{
    return cudaFree(pointer);
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
    (void)pointer;
    (void)bytes;
    (void)flags;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *pointer)
{
    (void)pointer;
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **mapped, void *pointer, unsigned int flags)
{
    (void)flags;
    *mapped = pointer;
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)kind;
    memmove(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    memset(to, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
    *unused = *total = (size_t)1 << 40;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "an emulated error";
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = malloc(1);
    return *event == NULL ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)event;
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    (void)start;
    (void)end;
    *ms = 0.001f;
    return cudaSuccess;
}

/* ---- The driver: allocations are memory files -------------------------------------------------------------------- */

#define GRANULARITY ((size_t)2 << 20)

static CUresult address_reserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wanted,
                                unsigned long long flags)
{
    (void)alignment;
    (void)wanted;
    (void)flags;
    void *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *address = (CUdeviceptr)(uintptr_t)at;
    return at == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult address_free(CUdeviceptr address, size_t size)
{
    return munmap((void *)(uintptr_t)address, size) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
                       unsigned long long flags)
{
    (void)flags;
    if (size % GRANULARITY != 0 || properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    int file = memfd_create("emulated-gpu", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)size) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = (CUmemGenericAllocationHandle)file;
    return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    return close((int)handle) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult map(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags)
{
    (void)flags;
    void *at = mmap((void *)(uintptr_t)address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, (off_t)offset);
    return at == MAP_FAILED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr address, size_t size)
{
    void *at = mmap((void *)(uintptr_t)address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return at == MAP_FAILED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count)
{
    if (count != 1 || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    return mprotect((void *)(uintptr_t)address, size, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS
                                                                                   : CUDA_ERROR_INVALID_VALUE;
}

static CUresult granularity(size_t *bytes, const CUmemAllocationProp *properties,
                            CUmemAllocationGranularity_flags option)
{
    (void)properties;
    (void)option;
    *bytes = GRANULARITY;
    return CUDA_SUCCESS;
}

static CUresult export_handle(void *descriptor, CUmemGenericAllocationHandle memory, CUmemAllocationHandleType type,
                              unsigned long long flags)
{
    (void)type;
    (void)flags;
    int copy = dup((int)memory);
    memcpy(descriptor, &copy, sizeof copy);
    return copy < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult import_handle(CUmemGenericAllocationHandle *memory, void *descriptor, CUmemAllocationHandleType type)
{
    (void)type;
    int copy = dup((int)(intptr_t)descriptor);
    *memory = (CUmemGenericAllocationHandle)copy;
    return copy < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **pointer, unsigned int version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *found)
{
    typedef void (*entry)(void);
    static const struct {
        const char *name;
        entry entry;
    } entries[] = {
        {"cuMemAddressReserve", (entry)address_reserve},
        {"cuMemAddressFree", (entry)address_free},
        {"cuMemCreate", (entry)create},
        {"cuMemRelease", (entry)release},
        {"cuMemMap", (entry)map},
        {"cuMemUnmap", (entry)unmap},
        {"cuMemSetAccess", (entry)set_access},
        {"cuMemGetAllocationGranularity", (entry)granularity},
        {"cuMemExportToShareableHandle", (entry)export_handle},
        {"cuMemImportFromShareableHandle", (entry)import_handle},
    };
    (void)version;
    (void)flags;
    *found = cudaDriverEntryPointSymbolNotFound;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (strcmp(entries[i].name, name) == 0) {
            memcpy(pointer, &entries[i].entry, sizeof *pointer);
            *found = cudaDriverEntryPointSuccess;
        }
    return cudaSuccess;
}

/* ---- cuBLAS ------------------------------------------------------------------------------------------------------ */

static cublasStatus_t blas_create(cublasHandle_t *handle)
{
    *handle = malloc(1);
    return *handle == NULL ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t blas_destroy(cublasHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t blas_set_stream(cublasHandle_t handle, cudaStream_t stream)
{
    (void)handle;
    (void)stream;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t blas_set_workspace(cublasHandle_t handle, void *workspace, size_t bytes)
{
    (void)handle;
    return workspace != NULL && bytes > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

static const char *blas_status_string(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "an emulated failure";
}

static cublasStatus_t blas_gemm_batched(cublasHandle_t handle, cublasOperation_t operation_a,
                                        cublasOperation_t operation_b, int m, int n, int k, const void *alpha,
                                        const void *a, cudaDataType type_a, int stride_a, long long next_a,
                                        const void *b, cudaDataType type_b, int stride_b, long long next_b,
                                        const void *beta, void *c, cudaDataType type_c, int stride_c, long long next_c,
                                        int count, cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
    (void)handle;
    (void)algorithm;
    /* The one form that the device uses: a transposed, bf16 to f32, alpha 1, beta 0. */
    if (operation_a != CUBLAS_OP_T || operation_b != CUBLAS_OP_N || type_a != CUDA_R_16BF || type_b != CUDA_R_16BF ||
        type_c != CUDA_R_32F || compute != CUBLAS_COMPUTE_32F || *(const float *)alpha < 1.0f ||
        *(const float *)beta > 0.0f || m <= 0 || n <= 0 || k <= 0 || stride_a < k || stride_b < k || stride_c < m)
        return CUBLAS_STATUS_INVALID_VALUE;
    queue(&(struct work){.kind = WORK_PRODUCT,
                         .product = {.weights = a,
                                     .in = b,
                                     .out = c,
                                     .outputs = m,
                                     .rows = n,
                                     .inputs = k,
                                     .weights_stride = stride_a,
                                     .in_stride = stride_b,
                                     .out_stride = stride_c,
                                     .weights_next = next_a,
                                     .in_next = next_b,
                                     .out_next = next_c,
                                     .count = count}});
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t blas_gemm(cublasHandle_t handle, cublasOperation_t operation_a, cublasOperation_t operation_b,
                                int m, int n, int k, const void *alpha, const void *a, cudaDataType type_a,
                                int stride_a, const void *b, cudaDataType type_b, int stride_b, const void *beta,
                                void *c, cudaDataType type_c, int stride_c, cublasComputeType_t compute,
                                cublasGemmAlgo_t algorithm)
{
    return blas_gemm_batched(handle, operation_a, operation_b, m, n, k, alpha, a, type_a, stride_a, 0, b, type_b,
                             stride_b, 0, beta, c, type_c, stride_c, 0, 1, compute, algorithm);
}

bool cuda_blas_load(struct cuda_blas *blas, struct user_error *error)
{
    (void)error;
    *blas = (struct cuda_blas){.create = blas_create,
                               .destroy = blas_destroy,
                               .set_stream = blas_set_stream,
                               .set_workspace = blas_set_workspace,
                               .status_string = blas_status_string,
                               .gemm = blas_gemm,
                               .gemm_batched = blas_gemm_batched};
    return true;
}
