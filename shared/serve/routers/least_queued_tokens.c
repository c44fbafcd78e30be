/* Fewest prompt tokens queued. */
#include "serve/routers/router_kind.h"

static uint64_t cost(const struct router *router, const struct request_spec *request, uint32_t member)
{
    (void)request;
    return router->members[member].queued_tokens;
}

const struct router_kind router_least_queued_tokens = {.cost = cost};
