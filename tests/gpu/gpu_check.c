/* tandem-gpu-check [PART...]: checks the CUDA device on a GPU and prints a table. Parts: pair, peers, agreement,
 * watcher, staging, calibration; none: all of them. Exit status 0 when all checks pass or there is no GPU, 1 when one
 * fails, 2 for a wrong argument.
 */
#include "gpu/gpu_check.h"

#include <cuda_runtime_api.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINES_MAX 64
#define LINE_BYTES 240

static char lines[LINES_MAX][LINE_BYTES];
static uint32_t line_count;
static uint32_t failures;

void report(bool passed, const char *check, const char *format, ...)
{
    char text[LINE_BYTES - 40];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    failures += !passed;
    if (line_count < LINES_MAX)
        snprintf(lines[line_count++], LINE_BYTES, "%-6s %-14s %s", passed ? "ok" : "FAILED", check, text);
    fflush(stdout);
}

static const struct {
    const char *name;
    void (*run)(void);
} parts[] = {
    {"pair", check_pair}, /* first: it forks, and a process that has touched the GPU must not */
    {"peers", check_peers},     {"agreement", check_agreement},     {"watcher", check_watcher},
    {"staging", check_staging}, {"calibration", check_calibration},
};
#define PARTS (sizeof parts / sizeof *parts)

/* Asks in a child, so that this process stays one that may fork. Prints why there is no GPU. */
static bool gpu_present(void)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int count = 0;
        cudaError_t status = cudaGetDeviceCount(&count);
        if (status != cudaSuccess || count == 0)
            printf("skipped: no GPU (cudaGetDeviceCount says %s)\n", cudaGetErrorString(status));
        fflush(stdout);
        _exit(status == cudaSuccess && count > 0 ? 0 : 1);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && status == 0;
}

static void print_gpu(void)
{
    struct cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, 0) == cudaSuccess)
        printf("\n%s, %d multiprocessors, %.0f GiB, compute capability %d.%d\n", properties.name,
               properties.multiProcessorCount, (double)properties.totalGlobalMem / (1 << 30), properties.major,
               properties.minor);
}

static bool wanted(const char *name, int count, char **names)
{
    for (int i = 1; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return count == 1;
}

static bool known(const char *name)
{
    for (size_t i = 0; i < PARTS; i++)
        if (strcmp(parts[i].name, name) == 0)
            return true;
    return false;
}

int main(int argument_count, char **arguments)
{
    for (int i = 1; i < argument_count; i++)
        if (!known(arguments[i])) {
            fprintf(stderr, "tandem-gpu-check: no part is named %s\n", arguments[i]);
            return 2;
        }
    if (!gpu_present())
        return 0;
    for (size_t i = 0; i < PARTS; i++)
        if (wanted(parts[i].name, argument_count, arguments)) {
            double start = now_ms();
            parts[i].run();
            printf("%s took %.1f s\n", parts[i].name, (now_ms() - start) * 1e-3);
        }
    print_gpu();
    for (uint32_t i = 0; i < line_count; i++)
        printf("%s\n", lines[i]);
    return failures > 0;
}
