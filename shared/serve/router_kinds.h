/* The table of routing policies. A policy is a file in serve/routers/ and a line here: from it come its number, its
 * word in the language, and that the swarm draws it. Append-only: numbers are stored and hashed.
 */
#ifndef TANDEM_SERVE_ROUTER_KINDS_H
#define TANDEM_SERVE_ROUTER_KINDS_H

#define ROUTER_KINDS(KIND)                                                                                             \
    KIND(ROUND_ROBIN, round_robin)                 /* the next one, in turn */                                         \
    KIND(RANDOM, random)                           /* any */                                                           \
    KIND(POWER_OF_TWO, power_of_two)               /* of two random members the one with fewer queued tokens */        \
    KIND(LEAST_QUEUED_TOKENS, least_queued_tokens) /* fewest prompt tokens queued */                                   \
    KIND(LEAST_KV, least_kv)                       /* most free KV */                                                  \
    KIND(PREFIX_AWARE, prefix_aware)               /* longest cached prefix, weighed against load */                   \
    KIND(FUNCTION, function)                       /* what the scenario says in Lua (serve/policy.h) */

#define ROUTER_KIND_NUMBER(name, word) ROUTER_##name,

enum router_policy { ROUTER_NONE = 0, ROUTER_KINDS(ROUTER_KIND_NUMBER) ROUTER_KIND_COUNT };

/* The built-in ones, numbered from 1 on without a gap: for whoever draws one. */
#define ROUTER_BUILT_IN_COUNT (ROUTER_KIND_COUNT - 2)
static inline enum router_policy router_built_in(unsigned number)
{
    return (enum router_policy)(number < ROUTER_FUNCTION ? number : number + 1);
}

#endif
