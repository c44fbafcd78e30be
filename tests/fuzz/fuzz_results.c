/* A results database from anyone: it opens and its first run is read, or it is refused with a sentence; whatever the
 * bytes, nothing is read out of bounds. */
#define _POSIX_C_SOURCE 200809L

#include "run/results/results.h"

#include "base/check.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/tmp/tandem-fuzz-XXXXXX";
static char path[sizeof folder + sizeof "/t.db"];

/* What SQLite and the store leave beside the file belongs to the input before. */
static void remove_files(void)
{
    static const char *const endings[] = {"", "-wal", "-shm", "-journal", "-lock"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        char name[sizeof path + 16];
        snprintf(name, sizeof name, "%s%s", path, endings[i]);
        unlink(name);
    }
}

static void remove_folder(void)
{
    remove_files();
    rmdir(folder);
}

static void make_folder(void)
{
    if (path[0] != '\0')
        return;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/t.db", folder);
    atexit(remove_folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    make_folder();
    remove_files();
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    CHECK(fwrite(data, 1, size, file) == size);
    CHECK(fclose(file) == 0);

    struct user_error error = {.set = false};
    struct results *store = results_open(path, RESULTS_READ, &error);
    CHECK((store == NULL) == error.set);
    if (store == NULL)
        return 0;
    json_t *run = results_run_json(store, 1, &error);
    CHECK((run == NULL) == error.set);
    json_decref(run);
    struct user_error closing = {.set = false};
    results_close(store, &closing);
    return 0;
}
