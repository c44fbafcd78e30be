/* libfabric, loaded when it is first asked for something.
 *
 * Linked, it is loaded before main() of every command: a provider of it calibrates a clock there, a fifth of a second,
 * and installs a handler for crashes. Few of its functions are symbols, the rest are calls through the tables that
 * these return: here each is found in the library at its first call. Where the library cannot be loaded they answer
 * -FI_ENOSYS, and fi_strerror() says why.
 */
#define _POSIX_C_SOURCE 200809L
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libfabric.so.1"

static struct {
    pthread_once_t once;
    char why[512]; /* it was not loaded */
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
                   struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
    const char *(*strerror)(int number);
} library = {.once = PTHREAD_ONCE_INIT};

/* A pointer to a function cannot be converted from the pointer to an object that dlsym() returns, only copied. */
static int find(void *handle, const char *name, void *function, size_t size)
{
    void *symbol = dlsym(handle, name);
    if (symbol != NULL)
        memcpy(function, &symbol, size);
    return symbol != NULL;
}

/* What the library brings along (libinfinipath) takes signals for itself, Ctrl-C among them, and ends the process with
 * status 1 at each. They stay with who had them. */
static void *open_library(void)
{
    static const int taken[] = {SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT, SIGTERM};
    enum { COUNT = sizeof taken / sizeof taken[0] };
    struct sigaction before[COUNT];
    bool known[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        known[i] = sigaction(taken[i], NULL, &before[i]) == 0;
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < COUNT; i++)
        if (known[i])
            sigaction(taken[i], &before[i], NULL);
    return handle;
}

static void load(void)
{
    void *handle = open_library();
    if (handle != NULL && find(handle, "fi_getinfo", &library.getinfo, sizeof library.getinfo) &&
        find(handle, "fi_freeinfo", &library.freeinfo, sizeof library.freeinfo) &&
        find(handle, "fi_dupinfo", &library.dupinfo, sizeof library.dupinfo) &&
        find(handle, "fi_fabric", &library.fabric, sizeof library.fabric) &&
        find(handle, "fi_strerror", &library.strerror, sizeof library.strerror))
        return;
    const char *why = dlerror();
    snprintf(library.why, sizeof library.why, "%s cannot be loaded: %s", LIBRARY, why == NULL ? "unknown" : why);
}

static int loaded(void)
{
    pthread_once(&library.once, load);
    return library.why[0] == '\0';
}

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
               struct fi_info **info)
{
    return loaded() ? library.getinfo(version, node, service, flags, hints, info) : -FI_ENOSYS;
}

void fi_freeinfo(struct fi_info *info)
{
    if (loaded())
        library.freeinfo(info);
}

struct fi_info *fi_dupinfo(const struct fi_info *info)
{
    return loaded() ? library.dupinfo(info) : NULL;
}

int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
    return loaded() ? library.fabric(attr, fabric, context) : -FI_ENOSYS;
}

const char *fi_strerror(int number)
{
    return loaded() ? library.strerror(number) : library.why;
}
