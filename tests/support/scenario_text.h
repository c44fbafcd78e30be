/* Scenarios from text, for tests: files in a folder of their own, which is the working directory meanwhile, so that
 * error texts are the same everywhere.
 */
#ifndef TANDEM_TESTS_SUPPORT_SCENARIO_TEXT_H
#define TANDEM_TESTS_SUPPORT_SCENARIO_TEXT_H

#include "world/scenario/scenario_lua.h"

/* cmocka group fixtures. The shipped scenarios are those of the source tree. */
int scenario_text_setup(void **state);
int scenario_text_teardown(void **state);

void scenario_text_write(const char *file, const char *text, size_t length);

/* A complete scenario, with a line of its own for every key that tests change. */
extern const char scenario_text_good[];

/* `text` with the first `old` in it replaced; fails the test when there is none. The caller frees it. */
char *scenario_text_replace(const char *text, const char *old, const char *new_text);

/* Writes `text` to "plan.lua" and loads it. */
struct scenario *scenario_text_load(const char *text, const struct scenario_override *sets, size_t set_count,
                                    struct user_error *error);

/* As scenario_text_load(); fails the test, with the error, when it does not load. */
struct scenario *scenario_text_must_load(const char *text, const struct scenario_override *sets, size_t set_count);

/* Loads what is wrong and compares the error, word by word. */
void scenario_text_must_fail(const char *text, const struct scenario_override *sets, size_t set_count,
                             const char *expected);

#endif
