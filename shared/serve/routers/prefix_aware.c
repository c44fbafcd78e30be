/* Fewest tokens to compute: those that are queued, and those of the request that the member has not cached. */
#include "serve/routers/router_kind.h"

#include "base/arith.h"

static uint64_t cost(const struct router *router, const struct request_spec *request, uint32_t member)
{
    uint64_t cached = min_u64(request->prompt_tokens, router->matched[member]);
    return router->members[member].queued_tokens + request->prompt_tokens - cached;
}

const struct router_kind router_prefix_aware = {.matches = true, .cost = cost};
