/* Scenario files: loading, overriding, sweeping, explaining, and the checks a scenario makes of its own result.
 *
 * A scenario is a Lua file that returns scenario { ... }; docs/reference-language.md says what may stand in it. Loading
 * resolves it to the plain struct of scenario.h; the Lua state stays alive beside it for expect(r). A scenario is used
 * by one thread at a time; its plain struct may be read by many once loading is over.
 */
#ifndef TANDEM_WORLD_SCENARIO_SCENARIO_LUA_H
#define TANDEM_WORLD_SCENARIO_SCENARIO_LUA_H

#include "world/scenario/scenario.h"
#include "host/user_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* One `--set path=value`. `path` is the key's path as errors and `explain` show it, lists by number from 1
 * ("targets.1.below"); `value` is an expression of the scenario language ("per_second(8)", "3", "'fcfs'",
 * "require 'hardware.h200'"). */
struct scenario_override {
    const char *path;
    const char *value;
};

/* `--hardware NAME=FILE`: the override "hardware.NAME" is the path of a file that is read where the scenario, or what
 * it requires, requires that module. So a profile that `tandem calibrate` wrote is used without a change to any
 * scenario. Not a path of the scenario: it cannot be varied. */
#define OVERRIDE_HARDWARE "hardware."

/* Splits the argument of --set at its first '='; the parts point into it. */
bool scenario_override_split(char *argument, struct scenario_override *override, struct user_error *error);

/* The folder of the shipped scenarios: the environment's TANDEM_SCENARIOS, or where they were at build time. */
const char *scenario_library_root(void);

/* Loads and resolves a file. NULL with *error set when anything is wrong. Files that it names are looked for beside it,
 * then below the shipped scenarios: the folder in the environment variable TANDEM_SCENARIOS, or else the one compiled
 * in. */
struct scenario *scenario_load(const char *path, const struct scenario_override *sets, size_t set_count,
                               struct user_error *error);
void scenario_free(struct scenario *scenario);

/* The sweep that `vary` describes: the number of its variants, 1 when nothing varies. The last path of scenario->vary
 * varies fastest. A path that --set fixes does not vary. */
size_t scenario_variant_count(const struct scenario *scenario);

/* The overrides that make variant `index`; fills up to SCENARIO_VARY_MAX and returns how many. They point into
 * *scenario. */
size_t scenario_variant_overrides(const struct scenario *scenario, size_t index, struct scenario_override *overrides);

/* Loads variant `index` of a loaded scenario: the same file, the same sets, and the variant's own. */
struct scenario *scenario_load_variant(const struct scenario *scenario, size_t index, struct user_error *error);

/* The canonical text, from which the identity is computed: every resolved value in one fixed order, a line each. Not
 * part of it: path, name, question, seed, expect, and vary (each variant has its own identity). A trace counts by the
 * SHA-256 of its bytes, not by its name. Needs nothing but the struct, so a planner may change a copy and identify
 * that. The result is the caller's to free. */
char *scenario_canonical(const struct scenario *scenario);

/* Recomputes scenario->identity. */
void scenario_identify(struct scenario *scenario);

/* The resolved scenario for people, with the origin of every value: default, file and line, or --set. Takes a scenario
 * that scenario_load() returned (origins are kept beside it). */
void scenario_explain(const struct scenario *scenario, FILE *out);

/* The same for programs: {scenario, name, question, identity, seed, variants, values: [{path, value, origin}]}. The
 * reference is the caller's. */
json_t *scenario_explain_json(const struct scenario *scenario);

enum expect_outcome {
    EXPECT_HELD = 0,
    EXPECT_FAILED = 1, /* checks did not hold; *error lists them, a line each */
    EXPECT_BROKEN = 2, /* expect itself is wrong: an error of the user's */
};

/* Runs the scenario's expect(r) on the JSON of `run`, or expect_plan(r) on that of `plan`. EXPECT_HELD when the
 * scenario has none. `scenario` must come from scenario_load(). */
enum expect_outcome scenario_expect(struct scenario *scenario, const json_t *result, struct user_error *error);
enum expect_outcome scenario_expect_plan(struct scenario *scenario, const json_t *result, struct user_error *error);

#endif
