/* See kernel_store.h. The lock guards the list of stores and the reading of tables: making a model takes it a few
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
#define ENTRIES_MAX 512 /* of one GPU */

struct entry {
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
    struct entry *entries[ENTRIES_MAX];
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

static int compare_entries(const struct entry *a, const struct entry *b)
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
static bool name_read(const char *name, struct entry *entry)
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
    entry->kind = kernel_kind_named(text);
    if (entry->kind == NULL || strlen(engine) >= sizeof entry->engine || strlen(version) >= sizeof entry->version)
        return false;
    strcpy(entry->engine, engine);
    strcpy(entry->version, version);
    return true;
}

/* Puts a table in its place: folders give names in an order of their own. */
static void store_add(struct kernel_store *store, struct entry *entry)
{
    if (store->count == ENTRIES_MAX) {
        free(entry->path);
        free(entry);
        return;
    }
    uint32_t at = store->count++;
    for (; at > 0 && compare_entries(entry, store->entries[at - 1]) < 0; at--)
        store->entries[at] = store->entries[at - 1];
    store->entries[at] = entry;
}

static void store_scan(struct kernel_store *store, const char *path, uint32_t folder)
{
    DIR *directory = path[0] == '\0' ? NULL : opendir(path);
    if (directory == NULL)
        return;
    for (struct dirent *file = readdir(directory); file != NULL; file = readdir(directory)) {
        struct entry found = {.folder = folder};
        if (!name_read(file->d_name, &found))
            continue;
        struct entry *entry = malloc(sizeof *entry);
        size_t size = strlen(path) + strlen(file->d_name) + 2;
        CHECK(entry != NULL);
        *entry = found;
        entry->path = malloc(size);
        CHECK(entry->path != NULL);
        snprintf(entry->path, size, "%s/%s", path, file->d_name);
        store_add(store, entry);
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

static bool matches(const struct entry *entry, const struct kernel_kind *kind, const char *engine)
{
    return entry->kind == kind && (engine == NULL || strcmp(entry->engine, engine) == 0);
}

uint32_t kernel_store_count(const struct kernel_store *store, const struct kernel_kind *kind, const char *engine)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < store->count; i++)
        count += matches(store->entries[i], kind, engine);
    return count;
}

const struct kernel_table *kernel_store_table(const struct kernel_store *store, const struct kernel_kind *kind,
                                              const char *engine, uint32_t number, struct user_error *error)
{
    for (uint32_t i = 0;; i++) {
        CHECK(i < store->count);
        if (matches(store->entries[i], kind, engine) && number-- == 0)
            return kernel_store_at(store, i, error);
    }
}

const struct kernel_table *kernel_store_at(const struct kernel_store *store, uint32_t index, struct user_error *error)
{
    CHECK(index < store->count);
    struct entry *entry = store->entries[index];
    pthread_mutex_lock(&lock);
    if (entry->table == NULL) {
        entry->table = kernel_table_read(entry->path, error);
        if (entry->table != NULL &&
            (entry->table->kind != entry->kind || strcmp(entry->table->origin.engine, entry->engine) != 0)) {
            user_error_set(error, entry->path, 0, NULL, "holds table %s of engine %s, which is not what its name says",
                           entry->table->kind->name, entry->table->origin.engine);
            kernel_table_free(entry->table);
            entry->table = NULL;
        }
    }
    const struct kernel_table *table = entry->table;
    pthread_mutex_unlock(&lock);
    return table;
}
