/* See kernel_store.h. The lock guards the list of shelves and the reading of tables: making a model takes it a few
 * times, a step never. */
#define _POSIX_C_SOURCE 200809L
#include "sim/cost/kernel_store.h"

#include "base/check.h"
#include "world/kernels/kernel_csv.h"
#include "world/scenario/scenario_lua.h"
#include "host/memory.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_SIZE 1280
#define PACKS_MAX 512 /* of one GPU */

struct pack {
    const struct kernel_kind *kind;
    char engine[16];
    char version[32];
    uint32_t folder; /* 0: the scenario's own */
    char *path;
    struct kernel_table *table; /* NULL until asked for */
};

struct kernel_shelf {
    struct kernel_shelf *next;
    char folder[PATH_SIZE];
    char gpu[16];
    uint32_t count;
    struct pack *packs[PACKS_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kernel_shelf *shelves;

/* Negative where version a is newer than b: numbers inside them count as numbers, "1.3.0rc20" > "1.3.0rc9". */
static int compare_versions(const char *a, const char *b)
{
    while (*a != '\0' && *b != '\0') {
        if (*a >= '0' && *a <= '9' && *b >= '0' && *b <= '9') {
            char *end_a;
            char *end_b;
            unsigned long value_a = strtoul(a, &end_a, 10);
            unsigned long value_b = strtoul(b, &end_b, 10);
            if (value_a != value_b)
                return value_a > value_b ? -1 : 1;
            a = end_a;
            b = end_b;
        } else if (*a != *b) {
            return *a > *b ? -1 : 1;
        } else {
            a++;
            b++;
        }
    }
    return (*a == '\0') - (*b == '\0');
}

static int compare_packs(const struct pack *a, const struct pack *b)
{
    if (a->kind != b->kind)
        return a->kind->id < b->kind->id ? -1 : 1;
    int engine = strcmp(a->engine, b->engine);
    if (engine != 0)
        return engine;
    if (a->folder != b->folder)
        return a->folder < b->folder ? -1 : 1;
    return compare_versions(a->version, b->version);
}

/* "gemm.vllm-0.24.0.csv.zst" */
static bool name_read(const char *name, struct pack *pack)
{
    char text[256];
    size_t length = strlen(name);
    size_t stem = length;
    for (uint32_t i = 0; kernel_csv_suffixes[i] != NULL && stem == length; i++) {
        size_t suffix = strlen(kernel_csv_suffixes[i]);
        if (length > suffix && strcmp(name + length - suffix, kernel_csv_suffixes[i]) == 0)
            stem = length - suffix;
    }
    if (stem == length || length >= sizeof text)
        return false;
    memcpy(text, name, stem);
    text[stem] = '\0';
    char *engine = strchr(text, '.');
    char *version = engine == NULL ? NULL : strchr(engine, '-');
    if (version == NULL)
        return false;
    *engine++ = '\0';
    *version++ = '\0';
    pack->kind = kernel_kind_named(text);
    if (pack->kind == NULL || strlen(engine) >= sizeof pack->engine || strlen(version) >= sizeof pack->version)
        return false;
    strcpy(pack->engine, engine);
    strcpy(pack->version, version);
    return true;
}

/* Puts a pack in its place: folders give names in an order of their own. */
static void shelf_add(struct kernel_shelf *shelf, struct pack *pack)
{
    if (shelf->count == PACKS_MAX) {
        free(pack->path);
        free(pack);
        return;
    }
    uint32_t at = shelf->count++;
    for (; at > 0 && compare_packs(pack, shelf->packs[at - 1]) < 0; at--)
        shelf->packs[at] = shelf->packs[at - 1];
    shelf->packs[at] = pack;
}

static void shelf_scan(struct kernel_shelf *shelf, const char *path, uint32_t folder)
{
    DIR *directory = path[0] == '\0' ? NULL : opendir(path);
    if (directory == NULL)
        return;
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        struct pack found = {.folder = folder};
        if (!name_read(entry->d_name, &found))
            continue;
        struct pack *pack = memory_get(sizeof *pack);
        size_t size = strlen(path) + strlen(entry->d_name) + 2;
        *pack = found;
        pack->path = memory_get(size);
        snprintf(pack->path, size, "%s/%s", path, entry->d_name);
        shelf_add(shelf, pack);
    }
    closedir(directory);
}

const struct kernel_shelf *kernel_shelf_open(const char *folder, const char *gpu)
{
    char library[PATH_SIZE];
    pthread_mutex_lock(&lock);
    struct kernel_shelf *shelf = shelves;
    while (shelf != NULL && (strcmp(shelf->folder, folder) != 0 || strcmp(shelf->gpu, gpu) != 0))
        shelf = shelf->next;
    if (shelf == NULL) {
        shelf = memory_zeroed(1, sizeof *shelf);
        snprintf(shelf->folder, sizeof shelf->folder, "%s", folder);
        snprintf(shelf->gpu, sizeof shelf->gpu, "%s", gpu);
        snprintf(library, sizeof library, "%s/hardware/kernels/%s", scenario_library_root(), gpu);
        shelf_scan(shelf, folder, 0);
        if (strcmp(folder, library) != 0)
            shelf_scan(shelf, library, 1);
        shelf->next = shelves;
        shelves = shelf;
    }
    pthread_mutex_unlock(&lock);
    return shelf;
}

uint32_t kernel_shelf_size(const struct kernel_shelf *shelf)
{
    return shelf->count;
}

static bool matches(const struct pack *pack, const struct kernel_kind *kind, const char *engine)
{
    return pack->kind == kind && (engine == NULL || strcmp(pack->engine, engine) == 0);
}

uint32_t kernel_shelf_count(const struct kernel_shelf *shelf, const struct kernel_kind *kind, const char *engine)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < shelf->count; i++)
        count += matches(shelf->packs[i], kind, engine);
    return count;
}

const struct kernel_table *kernel_shelf_table(const struct kernel_shelf *shelf, const struct kernel_kind *kind,
                                              const char *engine, uint32_t number, struct user_error *error)
{
    for (uint32_t i = 0;; i++) {
        CHECK(i < shelf->count);
        if (matches(shelf->packs[i], kind, engine) && number-- == 0)
            return kernel_shelf_at(shelf, i, error);
    }
}

const struct kernel_table *kernel_shelf_at(const struct kernel_shelf *shelf, uint32_t index, struct user_error *error)
{
    CHECK(index < shelf->count);
    struct pack *pack = shelf->packs[index];
    pthread_mutex_lock(&lock);
    if (pack->table == NULL) {
        pack->table = kernel_table_read(pack->path, error);
        if (pack->table != NULL &&
            (pack->table->kind != pack->kind || strcmp(pack->table->origin.engine, pack->engine) != 0)) {
            user_error_set(error, pack->path, 0, NULL, "holds table %s of engine %s, which is not what its name says",
                           pack->table->kind->name, pack->table->origin.engine);
            kernel_table_free(pack->table);
            pack->table = NULL;
        }
    }
    const struct kernel_table *table = pack->table;
    pthread_mutex_unlock(&lock);
    return table;
}
