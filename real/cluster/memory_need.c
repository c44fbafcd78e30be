/* See memory_need.h. */
#define _GNU_SOURCE
#include "real/cluster/memory_need.h"

#include "base/arith.h"
#include "real/executor/executor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define GIB (1024.0 * 1024.0 * 1024.0)
#define PROCESS_BYTES (UINT64_C(10) << 20)

/* A region of libfabric's shm provider is 16 MiB of addresses; so much of it is used from the beginning, and little
 * more later (measured: 3.8 to 4.1 MiB). */
#define REGION_BYTES (UINT64_C(5) << 20)

/* Loopback and no provider named: shm is the best that works. */
static bool over_shm(const struct real_options *options)
{
    if (options->provider != NULL && strcmp(options->provider, "auto") != 0)
        return strcmp(options->provider, "shm") == 0;
    return strncmp(options->address, "127.", 4) == 0;
}

/* One a rail and peer that KV is moved to or from. */
static uint64_t regions_of(const struct real_world *world, const struct real_options *options, uint32_t node)
{
    uint64_t rails = options->nics > 0 ? options->nics : world->deployment->instances[node].ranks;
    uint64_t peers = 0;
    if (!over_shm(options) || !real_world_has_fabric(world, node))
        return 0;
    for (uint32_t i = 1; i < world->deployment->node_count; i++)
        peers += i != node && real_world_has_fabric(world, i) && real_world_acquainted(world, node, i);
    return peers * rails * REGION_BYTES;
}

bool memory_need_of(const struct real_world *world, const struct real_options *options, struct memory_need *need,
                    struct user_error *error)
{
    *need = (struct memory_need){.processes = PROCESS_BYTES};
    for (uint32_t i = 1; i < world->deployment->node_count; i++) {
        struct executor_setup setup = real_world_executor_setup(world, i, options->device);
        struct executor_bytes bytes;
        struct user_error why = {.set = false};
        if (!executor_setup_bytes(&setup, &bytes, &why)) {
            user_error_set(error, NULL, 0, NULL, "%s: %s", world->deployment->instances[i].name, why.text);
            return false;
        }
        need->weights += bytes.weights;
        need->kv += bytes.kv;
        need->buffers += bytes.buffers;
        need->processes += (1 + (uint64_t)setup.ranks) * PROCESS_BYTES;
        need->regions += regions_of(world, options, i);
    }
    return true;
}

uint64_t memory_need_total(const struct memory_need *need)
{
    return need->weights + need->kv + need->buffers + need->processes + need->regions;
}

void memory_need_text(const struct memory_need *need, char *text, size_t size)
{
    snprintf(text, size, "%.1f GiB of this machine's memory: weights %.1f, KV %.1f, buffers %.1f, processes %.1f",
             (double)memory_need_total(need) / GIB, (double)need->weights / GIB, (double)need->kv / GIB,
             (double)need->buffers / GIB, (double)(need->processes + need->regions) / GIB);
}

/* The number that stands alone in a file, or behind `key`; UINT64_MAX: none. */
static uint64_t number_in(const char *path, const char *key)
{
    char line[256];
    uint64_t value = UINT64_MAX;
    FILE *file = fopen(path, "re");
    while (file != NULL && value == UINT64_MAX && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            if (sscanf(line + strlen(key), "%" SCNu64, &value) != 1)
                value = UINT64_MAX;
    if (file != NULL)
        fclose(file);
    return value;
}

/* What the control groups of this process leave to it, of either version. What they use for files can be had back. */
static uint64_t left_to_group(void)
{
    static const char *const files[2][4] = {
        {"", "memory.max", "memory.current", "inactive_file "},
        {"memory/", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
    };
    uint64_t left = UINT64_MAX;
    char line[1024];
    FILE *groups = fopen("/proc/self/cgroup", "re");
    while (groups != NULL && fgets(line, sizeof line, groups) != NULL) {
        char *path = strrchr(line, ':');
        size_t version = strncmp(line, "0::", 3) == 0 ? 0 : 1;
        if (path == NULL || (version == 1 && strstr(line, "memory") == NULL))
            continue;
        path++;
        path[strcspn(path, "\n")] = '\0';
        for (;;) { /* each group is within the limits of those above it */
            char name[4][1200];
            for (size_t i = 1; i < 4; i++)
                snprintf(name[i], sizeof name[i], "/sys/fs/cgroup/%s%s/%s", files[version][0], path,
                         i == 3 ? "memory.stat" : files[version][i]);
            uint64_t limit = number_in(name[1], "");
            uint64_t used = number_in(name[2], "");
            uint64_t files_used = number_in(name[3], files[version][3]);
            used = used == UINT64_MAX ? 0 : used - min_u64(used, files_used == UINT64_MAX ? 0 : files_used);
            if (limit != UINT64_MAX)
                left = min_u64(left, limit - min_u64(limit, used));
            char *slash = strrchr(path, '/');
            if (slash == NULL || path[0] == '\0')
                break;
            *slash = '\0';
        }
    }
    if (groups != NULL)
        fclose(groups);
    return left;
}

struct memory_there memory_there_now(const struct real_options *options)
{
    struct statvfs shm;
    uint64_t kib = number_in("/proc/meminfo", "MemAvailable:");
    uint64_t left = left_to_group();
    struct memory_there there = {.bytes = kib == UINT64_MAX ? UINT64_MAX : kib * 1024,
                                 .limit = "are available",
                                 .shared = UINT64_MAX,
                                 .shared_matters = over_shm(options)};
    if (left < there.bytes) {
        there.bytes = left;
        there.limit = "are left to its control group";
    }
    if (statvfs("/dev/shm", &shm) == 0)
        there.shared = (uint64_t)shm.f_bavail * shm.f_frsize;
    return there;
}

bool memory_suffices(const struct memory_need *need, const struct memory_there *there, struct user_error *error)
{
    char text[256];
    memory_need_text(need, text, sizeof text);
    if (memory_need_total(need) > there->bytes) {
        user_error_set(error, NULL, 0, NULL,
                       "the run takes %s; %.1f GiB %s. Fewer instances, a smaller model or smaller KV pools take less",
                       text, (double)there->bytes / GIB, there->limit);
        return false;
    }
    if (there->shared_matters && need->regions > there->shared) {
        user_error_set(
            error, NULL, 0, NULL,
            "the fabric takes %.0f MiB of /dev/shm, which has %.0f left: make it larger, or take --provider tcp",
            (double)need->regions * 1024 / GIB, (double)there->shared * 1024 / GIB);
        return false;
    }
    return true;
}
