/* Any member. */
#include "serve/routers/router_kind.h"

static uint32_t choose(struct router *router, const struct request_spec *request, const struct router_choice *choice)
{
    (void)request;
    return router_any(router, choice);
}

const struct router_kind router_random = {.choose = choose};
