/* CHECK: an assertion that is on in every build.
 *
 * A failed CHECK is a bug in tandem, never the user's or the world's fault. The pure logic may do no I/O, so the
 * report is made by whoever hosts it: check_failed() is declared here and defined once outside the pure folders
 * (shared/host/check_host.c in the product, tests/support in tests). It prints the condition, the run seed and the
 * last trace records, and ends the process with exit status 127.
 */
#ifndef TANDEM_BASE_CHECK_H
#define TANDEM_BASE_CHECK_H

_Noreturn void check_failed(const char *condition, const char *file, int line);

#if defined(__GNUC__) || defined(__clang__)
#define CHECK_LIKELY(x) __builtin_expect(!!(x), 1)
#else
#define CHECK_LIKELY(x) (!!(x))
#endif

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!CHECK_LIKELY(condition))                                                                                  \
            check_failed(#condition, __FILE__, __LINE__);                                                              \
    } while (0)

#endif
