/* Which build this is. The definitions are generated at build time (scripts/cmake/build_info.cmake).
 *
 * The results database stores all three with a run: a simulated run is a function of (scenario, build identity, seed),
 * and by design not of the compiler, which is stored to find out where that fails.
 */
#ifndef TANDEM_HOST_BUILD_INFO_H
#define TANDEM_HOST_BUILD_INFO_H

extern const char *const build_identity; /* SHA-256 over the product's sources, 64 hex digits */
extern const char *const build_version;  /* "0.1.0" */
extern const char *const build_compiler; /* "GNU 12.2.0 Release" */

#endif
