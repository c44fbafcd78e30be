/* What a routing policy is made of, for the files of this folder.
 *
 * A policy sees what the front knows of its members (struct router_member) and what a request says of itself. It is
 * pure: no clock, no allocation, no floating point; randomness from router->rng alone.
 */
#ifndef TANDEM_SERVE_ROUTERS_ROUTER_KIND_H
#define TANDEM_SERVE_ROUTERS_ROUTER_KIND_H

#include "serve/router.h"

#define NO_MEMBER UINT32_MAX

/* Who may be chosen, and from where on equal ones are taken in turn. */
struct router_choice {
    uint32_t avoid; /* NO_MEMBER: nobody */
    uint32_t near;  /* the first member of an NVLink domain, whose members alone are eligible; NO_MEMBER: all are */
    uint32_t *turn;
};

/* One of the two: what is to be as small as possible, or the choice itself. */
struct router_kind {
    bool matches; /* looks at router->matched, the tokens of the request that each member has probably cached */
    uint64_t (*cost)(const struct router *router, const struct request_spec *request, uint32_t member);
    uint32_t (*choose)(struct router *router, const struct request_spec *request, const struct router_choice *choice);
};

#define ROUTER_KIND_DECLARED(name, word) extern const struct router_kind router_##word;
ROUTER_KINDS(ROUTER_KIND_DECLARED)

/* Whether the member lives and may be chosen. */
bool router_eligible(const struct router *router, uint32_t member, const struct router_choice *choice);

/* The next eligible member from `start` on, or NO_MEMBER. */
uint32_t router_next(const struct router *router, uint32_t start, const struct router_choice *choice);

/* A random one; of a domain, every member of it is as likely. */
uint32_t router_any(struct router *router, const struct router_choice *choice);

#endif
