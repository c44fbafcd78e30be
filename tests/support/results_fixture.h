/* Results databases for tests: a folder of its own, and runs made of random requests that are the same every time. */
#ifndef TANDEM_TESTS_SUPPORT_RESULTS_FIXTURE_H
#define TANDEM_TESTS_SUPPORT_RESULTS_FIXTURE_H

#include "run/results/results.h"

/* Identities of the fixture's scenario and build. */
extern const char fixture_scenario_identity[65];
extern const char fixture_build_identity[65];

/* A path in a new temporary folder, the caller's to give to fixture_remove(), which removes all of it. */
char *fixture_path(void);
void fixture_remove(char *path);

/* Opens for writing or reading and fails the test when that fails. */
struct results *fixture_open(const char *path, enum results_mode mode);
void fixture_close(struct results *store);

/* A request of a run with this seed: completed, with random spans, unless its number says otherwise. */
struct request_row fixture_request(uint64_t seed, uint32_t request);

/* A run of `requests` of them by the fixture's scenario and build: the fingerprint derives from the seed. */
struct run_summary fixture_summary(uint64_t seed, uint32_t requests);
/* A TTFT p95 below a second. */
extern const struct targets fixture_targets;

struct results_begin fixture_begin(struct results *store, uint64_t seed);

/* Stores the run that `begin` describes. Returns its id, or 0 with an error. fixture_run() makes the description
 * too. */
int64_t fixture_run_begun(struct results *store, const struct results_begin *begin, uint32_t requests,
                          struct user_error *error);
int64_t fixture_run(struct results *store, uint64_t seed, uint32_t requests, struct user_error *error);

/* Two instances, and a histogram over [1, 30] ms; ITL_BUCKETS counts, the caller's to free. */
extern const struct instance_summary fixture_instances[2];
uint64_t *fixture_itl(void);

#endif
