/* What the scenario says in Lua: see serve/policy.h. */
#include "serve/routers/router_kind.h"

#include "base/check.h"
#include "serve/policy.h"

static uint32_t choose(struct router *router, const struct request_spec *request, const struct router_choice *choice)
{
    uint32_t count = 0;
    struct policy *policy = router->rt->policy;
    CHECK(policy != NULL);
    for (uint32_t m = 0; m < router->count; m++)
        if (router_eligible(router, m, choice))
            router->eligible[count++] = m;
    if (count == 0)
        return NO_MEMBER;
    const struct policy_question question = {.request = request,
                                             .router = router,
                                             .eligible = router->eligible,
                                             .count = count,
                                             .now_ns = router->rt->now_ns};
    uint32_t answer = policy->ops->choose(policy, router->decides, &question);
    router->refused = answer == POLICY_NONE;
    return answer == POLICY_NONE ? NO_MEMBER : router->eligible[answer];
}

const struct router_kind router_function = {.matches = true, .choose = choose};
