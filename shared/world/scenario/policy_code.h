/* A function of a scenario that decides, as it is carried from where it was read to where it is asked: compiled, with
 * no variables of its own, so that it is the same wherever it runs.
 */
#ifndef TANDEM_WORLD_SCENARIO_POLICY_CODE_H
#define TANDEM_WORLD_SCENARIO_POLICY_CODE_H

#include "host/user_error.h"

#include <stddef.h>

struct lua_State;

struct policy_code {
    size_t length;
    char sha256[65];       /* hex, of what it says, not of where it stands: in the scenario's identity */
    char key[64];          /* where it stands: "routing.prefill" */
    char file[256];        /* of its source, as errors show it, */
    char module[64];       /* and as it is required; empty: it is no module of its own */
    unsigned char bytes[]; /* with its lines */
};

/* The function on top of the stack; the caller frees it. NULL with a sentence in *why where it has variables from
 * around it. */
struct policy_code *policy_code_make(struct lua_State *L, const char *key, const char *file, const char *module,
                                     const char **why);

/* A module of the shipped scenarios, as "policies.affinity", that returns a function. NULL with an error; the caller
 * frees it. */
struct policy_code *policy_code_of_module(const char *module, const char *key, struct user_error *error);

#endif
