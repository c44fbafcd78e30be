/* See scenario_text.h. */
#define _XOPEN_SOURCE 700

#include "support/scenario_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <dirent.h>

static char folder[64];

const char scenario_text_good[] = "local h200 = require 'hardware.h200'\n"                               /* 1 */
                                  "return scenario {\n"                                                  /* 2 */
                                  "  question = 'How many decoders?',\n"                                 /* 3 */
                                  "  model = require 'models.llama-3.1-8b',\n"                           /* 4 */
                                  "  pools = {\n"                                                        /* 5 */
                                  "    prefill = pool {\n"                                               /* 6 */
                                  "      role = 'prefill', machine = h200,\n"                            /* 7 */
                                  "      count = 1, plan = {1, 4},\n"                                    /* 8 */
                                  "      shardings = { { tensor = 2 },\n"                                /* 9 */
                                  "                    { tensor = 1 } },\n"                              /* 10 */
                                  "      token_budget = 16384,\n"                                        /* 11 */
                                  "    },\n"                                                             /* 12 */
                                  "    decode = pool { role = 'decode', machine = h200, count = 2,\n"    /* 13 */
                                  "      shardings = { { tensor = 2 } },\n"                              /* 14 */
                                  "      batch_max = 128, page = 32,\n"                                  /* 15 */
                                  "      queue = 'shortest_first' },\n"                                  /* 16 */
                                  "  },\n"                                                               /* 17 */
                                  "  load = poisson {\n"                                                 /* 18 */
                                  "    rate = per_second(2.5),\n"                                        /* 19 */
                                  "    prompt = uniform(512, 2048),\n"                                   /* 20 */
                                  "    output = quantiles { [0] = 1, [500] = 100, [1000] = 900 },\n"     /* 21 */
                                  "    requests = 100, warmup = ms(1500),\n"                             /* 22 */
                                  "  },\n"                                                               /* 23 */
                                  "  routing = { decode = 'power_of_two' },\n"                           /* 24 */
                                  "  targets = { ttft { p = 95, below = s(2) },\n"                       /* 25 */
                                  "    tpot { p = 99.9, below = ms(25) }, attainment = percent(90) },\n" /* 26 */
                                  "  plan = { nodes = 8, seeds = 5 },\n"                                 /* 27 */
                                  "}\n";

int scenario_text_setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/tandem-scenario-XXXXXX");
    if (mkdtemp(folder) == NULL || chdir(folder) != 0)
        return -1;
    return setenv("TANDEM_SCENARIOS", TANDEM_SOURCE_DIR "/scenarios", 1);
}

static int remove_tree(const char *path)
{
    char child[512];
    DIR *directory = opendir(path);
    if (directory == NULL)
        return unlink(path);
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(child, sizeof child, "%.200s/%.255s", path, entry->d_name);
        /* A link to a folder is removed, not followed. */
        if (unlink(child) != 0)
            remove_tree(child);
    }
    closedir(directory);
    return rmdir(path);
}

int scenario_text_teardown(void **state)
{
    (void)state;
    return chdir("/") == 0 ? remove_tree(folder) : -1;
}

void scenario_text_write(const char *file, const char *text, size_t length)
{
    /* Without scenario_text_setup() it would go to wherever the test was started. */
    assert_string_not_equal(folder, "");
    FILE *out = fopen(file, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, length, out), length);
    assert_int_equal(fclose(out), 0);
}

char *scenario_text_replace(const char *text, const char *old, const char *new_text)
{
    const char *at = strstr(text, old);
    if (at == NULL)
        fail_msg("the scenario has no '%s'", old);
    size_t before = (size_t)(at - text);
    size_t size = strlen(text) - strlen(old) + strlen(new_text) + 1;
    char *result = malloc(size);
    assert_non_null(result);
    snprintf(result, size, "%.*s%s%s", (int)before, text, new_text, at + strlen(old));
    return result;
}

struct scenario *scenario_text_load(const char *text, const struct scenario_override *sets, size_t set_count,
                                    struct user_error *error)
{
    scenario_text_write("plan.lua", text, strlen(text));
    return scenario_load("plan.lua", sets, set_count, error);
}

struct scenario *scenario_text_must_load(const char *text, const struct scenario_override *sets, size_t set_count)
{
    struct user_error error = {.set = false};
    struct scenario *scenario = scenario_text_load(text, sets, set_count, &error);
    if (scenario == NULL)
        fail_msg("%s", error.text);
    return scenario;
}

void scenario_text_must_fail(const char *text, const struct scenario_override *sets, size_t set_count,
                             const char *expected)
{
    struct user_error error = {.set = false};
    struct scenario *scenario = scenario_text_load(text, sets, set_count, &error);
    if (scenario != NULL)
        fail_msg("was loaded, expected: %s", expected);
    assert_true(error.set);
    assert_string_equal(error.text, expected);
}
