/* Scenario text from anyone: it loads, and then identity and resolved form can be had, or it is refused with a sentence
 * that names the file. Time and memory stay within the sandbox's limits. */
#define _POSIX_C_SOURCE 200809L

#include "world/scenario/scenario_lua.h"

#include "base/check.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/tmp/tandem-fuzz-XXXXXX";
static char path[sizeof folder + sizeof "/plan.lua"];

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

static void make_folder(void)
{
    if (path[0] != '\0')
        return;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/plan.lua", folder);
    atexit(remove_folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    make_folder();
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    CHECK(fwrite(data, 1, size, file) == size);
    CHECK(fclose(file) == 0);

    struct user_error error = {.set = false};
    struct scenario *scenario = scenario_load(path, NULL, 0, &error);
    CHECK((scenario == NULL) == error.set);
    if (scenario == NULL) {
        CHECK(error.text[0] != '\0');
        return 0;
    }
    CHECK(scenario->pool_count >= 1 && scenario->pool_count <= SCENARIO_POOLS_MAX);
    size_t variants = scenario_variant_count(scenario);
    CHECK(variants >= 1);
    struct scenario *variant = scenario_load_variant(scenario, variants - 1, &error);
    CHECK((variant == NULL) == error.set);
    if (variant != NULL)
        scenario_free(variant);
    scenario_free(scenario);
    return 0;
}
