/* Most free KV. */
#include "serve/routers/router_kind.h"

static uint64_t cost(const struct router *router, const struct request_spec *request, uint32_t member)
{
    const struct router_member *m = &router->members[member];
    (void)request;
    /* From 2^63 up or down: a member may have promised more than it has. */
    return (UINT64_C(1) << 63) + m->pages_wanted + m->pages_promised - m->pages_available;
}

const struct router_kind router_least_kv = {.cost = cost};
