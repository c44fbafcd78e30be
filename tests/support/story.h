/* The main of a story's program.
 *
 * Without arguments the stories are told, and compared with the lines they expect. With `faults` each is played over
 * and over with one fault of one kind (fault_injection.h): the first of what can go wrong, then the second, until a run
 * reaches none. Its lines are then not as told, but in every run every request must end, nobody may hold anything at
 * the end, and the oracle of cluster.h must have seen nothing that breaks an invariant. With `edges` it says which
 * edges of the two state machines (edges.h) there are, and which of them its stories take.
 */
#ifndef TANDEM_TESTS_SUPPORT_STORY_H
#define TANDEM_TESTS_SUPPORT_STORY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define run_stories(argc, argv, tests) run_stories_of((argc), (argv), (tests), sizeof(tests) / sizeof *(tests))
int run_stories_of(int argc, char **argv, const struct CMUnitTest *tests, size_t count);

#endif
