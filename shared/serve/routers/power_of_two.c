/* Of two random members the one with fewer queued tokens (Mitzenmacher, the power of two choices, 2001). */
#include "serve/routers/router_kind.h"

static uint32_t choose(struct router *router, const struct request_spec *request, const struct router_choice *choice)
{
    (void)request;
    uint32_t a = router_any(router, choice);
    uint32_t b = router_any(router, choice);
    bool better = a != NO_MEMBER && router->members[b].queued_tokens < router->members[a].queued_tokens;
    return better ? b : a;
}

const struct router_kind router_power_of_two = {.choose = choose};
