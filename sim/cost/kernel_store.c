/* See kernel_store.h. The lock guards the list of stores and the reading of tables: making a model takes it a few
 * times, a step never. */
#define _POSIX_C_SOURCE 200809L
#include "sim/cost/kernel_store.h"

#include "base/check.h"
#include "world/kernels/kernel_csv.h"
#include "world/scenario/scenario_lua.h"

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

struct kernel_store {
    struct kernel_store *next;
    char folder[PATH_SIZE];
    char gpu[16];
    uint32_t count;
    struct pack *packs[PACKS_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kernel_store *stores;

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
static void store_add(struct kernel_store *store, struct pack *pack)
{
    if (store->count == PACKS_MAX) {
        free(pack->path);
        free(pack);
        return;
    }
    uint32_t at = store->count++;
    for (; at > 0 && compare_packs(pack, store->packs[at - 1]) < 0; at--)
        store->packs[at] = store->packs[at - 1];
    store->packs[at] = pack;
}

static void store_scan(struct kernel_store *store, const char *path, uint32_t folder)
{
    DIR *directory = path[0] == '\0' ? NULL : opendir(path);
    if (directory == NULL)
        return;
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        struct pack found = {.folder = folder};
        if (!name_read(entry->d_name, &found))
            continue;
        struct pack *pack = malloc(sizeof *pack);
        size_t size = strlen(path) + strlen(entry->d_name) + 2;
        CHECK(pack != NULL);
        *pack = found;
        pack->path = malloc(size);
        CHECK(pack->path != NULL);
        snprintf(pack->path, size, "%s/%s", path, entry->d_name);
        store_add(store, pack);
    }
    closedir(directory);
}

const struct kernel_store *kernel_store_open(const char *folder, const char *gpu)
{
    char library[PATH_SIZE];
    pthread_mutex_lock(&lock);
    struct kernel_store *store = stores;
    while (store != NULL && (strcmp(store->folder, folder) != 0 || strcmp(store->gpu, gpu) != 0))
        store = store->next;
    if (store == NULL) {
        store = calloc(1, sizeof *store);
        CHECK(store != NULL);
        snprintf(store->folder, sizeof store->folder, "%s", folder);
        snprintf(store->gpu, sizeof store->gpu, "%s", gpu);
        snprintf(library, sizeof library, "%s/hardware/kernels/%s", scenario_library_root(), gpu);
        store_scan(store, folder, 0);
        if (strcmp(folder, library) != 0)
            store_scan(store, library, 1);
        store->next = stores;
        stores = store;
    }
    pthread_mutex_unlock(&lock);
    return store;
}

uint32_t kernel_store_size(const struct kernel_store *store)
{
    return store->count;
}

static bool matches(const struct pack *pack, const struct kernel_kind *kind, const char *engine)
{
    return pack->kind == kind && (engine == NULL || strcmp(pack->engine, engine) == 0);
}

uint32_t kernel_store_count(const struct kernel_store *store, const struct kernel_kind *kind, const char *engine)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < store->count; i++)
        count += matches(store->packs[i], kind, engine);
    return count;
}

const struct kernel_table *kernel_store_table(const struct kernel_store *store, const struct kernel_kind *kind,
                                              const char *engine, uint32_t number, struct user_error *error)
{
    for (uint32_t i = 0;; i++) {
        CHECK(i < store->count);
        if (matches(store->packs[i], kind, engine) && number-- == 0)
            return kernel_store_at(store, i, error);
    }
}

const struct kernel_table *kernel_store_at(const struct kernel_store *store, uint32_t index, struct user_error *error)
{
    CHECK(index < store->count);
    struct pack *pack = store->packs[index];
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
