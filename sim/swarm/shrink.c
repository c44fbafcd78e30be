/* See shrink.h. */
#include "sim/swarm/shrink.h"

#include "base/arith.h"
#include "host/memory.h"

#include <stdlib.h>
#include <string.h>

/* A failing scenario takes milliseconds, and a process; past this it is small enough. */
#define TRIES_MAX 3000

struct shrinking {
    struct drawn *best;
    struct drawn *trial; /* a copy of the best, to be changed and tried */
    const struct seed_sabotage *sabotage;
    struct seed_result *failure;
    uint32_t tries;
    bool changed;
};

static struct drawn *trial(struct shrinking *s)
{
    drawn_copy(s->trial, s->best);
    return s->trial;
}

/* Keeps the trial if it fails in the same way. */
static bool keep(struct shrinking *s)
{
    struct seed_result result;
    if (s->tries >= TRIES_MAX)
        return false;
    s->tries++;
    seed_run_apart(s->trial, s->sabotage, &result);
    if (!seed_same_failure(&result, s->failure))
        return false;
    drawn_copy(s->best, s->trial);
    *s->failure = result;
    s->changed = true;
    return true;
}

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

static void remove_faults(struct fault_list *list, uint32_t first, uint32_t count)
{
    memmove(&list->item[first], &list->item[first + count], (list->count - first - count) * sizeof list->item[0]);
    list->count -= count;
}

/* Requests are numbered in order: faults about later ones move along. */
static void remove_requests(struct drawn *drawn, uint32_t first, uint32_t count)
{
    struct request_list *list = &drawn->requests;
    memmove(&list->item[first], &list->item[first + count], (list->count - first - count) * sizeof list->item[0]);
    list->count -= count;
    drawn->scenario.load.requests = list->count;
    for (uint32_t i = 0; i < drawn->faults.count; i++) {
        struct fault *fault = &drawn->faults.item[i];
        if (fault->kind == FAULT_LEAVE && fault->request != FAULT_REQUEST_ANY && fault->request >= first + count)
            fault->request -= count;
    }
}

/* By halves, quarters, ... and one by one. */
static void fewer_faults(struct shrinking *s)
{
    for (uint32_t size = max_u32(1, s->best->faults.count / 2); size > 0; size /= 2) {
        for (uint32_t at = 0; at + size <= s->best->faults.count;) {
            remove_faults(&trial(s)->faults, at, size);
            if (!keep(s))
                at += size;
        }
    }
}

static void fewer_requests(struct shrinking *s)
{
    for (uint32_t size = max_u32(1, s->best->requests.count / 2); size > 0; size /= 2) {
        for (uint32_t at = 0; at + size <= s->best->requests.count && s->best->requests.count > size;) {
            remove_requests(trial(s), at, size);
            if (!keep(s))
                at += size;
        }
    }
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* A number of the best scenario at a fixed offset, tried at `least`, then ever nearer to what it is. */
static void smaller(struct shrinking *s, size_t offset, size_t width, uint64_t least)
{
    for (uint32_t step = 0; step < 6; step++) {
        uint64_t value = 0;
        uint32_t narrow;
        if (width == sizeof narrow) {
            memcpy(&narrow, (unsigned char *)s->best + offset, sizeof narrow);
            value = narrow;
        } else {
            memcpy(&value, (unsigned char *)s->best + offset, sizeof value);
        }
        if (value == least || (value < least && step > 0))
            return;
        uint64_t wanted = step == 0 ? least : least + (value - least) / 2;
        unsigned char *at = (unsigned char *)trial(s) + offset;
        narrow = (uint32_t)wanted;
        if (width == sizeof narrow)
            memcpy(at, &narrow, sizeof narrow);
        else
            memcpy(at, &wanted, sizeof wanted);
        if (!keep(s) && step > 0)
            return;
    }
}

#define SMALLER(shrinking, place, least)                                                                               \
    smaller(shrinking, (size_t)((const char *)&(shrinking)->best->place - (const char *)(shrinking)->best),            \
            sizeof(shrinking)->best->place, (uint64_t)(least))

static void simpler_faults(struct shrinking *s)
{
    SMALLER(s, faults.shuffle, 0);
    for (uint32_t i = 0; i < s->best->faults.count; i++) {
        SMALLER(s, faults.item[i].at_ns, 0);
        SMALLER(s, faults.item[i].skip, 0);
        SMALLER(s, faults.item[i].count, 1);
        SMALLER(s, faults.item[i].pieces, 1);
        SMALLER(s, faults.item[i].delay_ns, 0);
        SMALLER(s, faults.item[i].lingers, 0);
        SMALLER(s, faults.item[i].back_ns, TIME_NEVER);
        SMALLER(s, faults.item[i].nth, 1);
        if (s->best->faults.item[i].by[0] != '\0') {
            trial(s)->faults.item[i].by[0] = '\0';
            keep(s);
        }
    }
}

/* What a load says of requests that it makes. */
static void simpler_load(struct shrinking *s)
{
    SMALLER(s, scenario.load.warmup_ns, 0);
    if (s->best->scenario.load.arrivals == ARRIVAL_LISTED)
        return;
    SMALLER(s, scenario.load.requests, 1);
    SMALLER(s, scenario.load.warmup_requests, 0);
    SMALLER(s, scenario.load.duration_ns, 0);
    SMALLER(s, scenario.load.abort_permille, 0);
    SMALLER(s, scenario.load.deadline_ns, 0);
    SMALLER(s, scenario.load.prompt.high, s->best->scenario.load.prompt.low);
    SMALLER(s, scenario.load.output.high, s->best->scenario.load.output.low);
    if (s->best->scenario.load.arrivals == ARRIVAL_BURST)
        SMALLER(s, scenario.load.burst_size, 1);
    if (load_is_closed(&s->best->scenario.load))
        SMALLER(s, scenario.load.concurrency, 1);
    if (s->best->scenario.load.arrivals != ARRIVAL_SESSIONS)
        return;
    SMALLER(s, scenario.load.session_turns.high, s->best->scenario.load.session_turns.low);
    SMALLER(s, scenario.load.session_think_ns, 0);
    SMALLER(s, scenario.load.session_system_tokens, 0);
}

static void simpler_requests(struct shrinking *s)
{
    for (uint32_t i = 0; i < s->best->requests.count; i++) {
        SMALLER(s, requests.item[i].leaves_ns, TIME_NEVER);
        SMALLER(s, requests.item[i].deadline_ns, 0);
        SMALLER(s, requests.item[i].family, 0);
        if (s->best->requests.item[i].family == 0)
            SMALLER(s, requests.item[i].shared_blocks, 0);
        SMALLER(s, requests.item[i].output_tokens, 1);
        SMALLER(s, requests.item[i].prompt_tokens, 1);
        if (i == 0 || s->best->requests.item[i - 1].at_ns == 0)
            SMALLER(s, requests.item[i].at_ns, 0);
    }
}

/* Another sharding wants another table of steps and, for as many pages, other memory. */
static void try_sharding(struct shrinking *s, uint32_t pool, struct parallelism parallelism)
{
    struct drawn *changed = trial(s);
    changed->scenario.pools[pool].shardings[0] = parallelism;
    fuzz_fit(changed, pool);
    keep(s);
}

static void no_draft(struct shrinking *s, uint32_t pool)
{
    if (s->best->scenario.pools[pool].scheduler.draft_tokens == 0)
        return;
    struct drawn *changed = trial(s);
    changed->scenario.pools[pool].scheduler.draft_tokens = 0;
    for (uint32_t p = 0; p < changed->scenario.pool_count; p++)
        fuzz_fit(changed, p);
    keep(s);
}

static void simpler_pool(struct shrinking *s, uint32_t pool)
{
    const struct pool *p = &s->best->scenario.pools[pool];
    while (p->count > 1) {
        struct pool *changed = &trial(s)->scenario.pools[pool];
        changed->count = changed->count_min = changed->count_max = p->count - 1;
        if (!keep(s))
            break;
    }
    struct parallelism simple = p->shardings[0];
    simple.pipeline = 1;
    if (p->shardings[0].pipeline != 1)
        try_sharding(s, pool, simple);
    simple = p->shardings[0];
    simple.data = 1;
    if (p->shardings[0].data != 1)
        try_sharding(s, pool, simple);
    simple = p->shardings[0];
    simple.tensor = 1;
    if (p->shardings[0].tensor != 1)
        try_sharding(s, pool, simple);
    no_draft(s, pool);
    if (p->placement.kind != PLACEMENT_APART) {
        trial(s)->scenario.pools[pool].placement = (struct placement){.kind = PLACEMENT_APART};
        keep(s);
    }
    SMALLER(s, scenario.pools[pool].hardware.nics_per_node, 0);
    SMALLER(s, scenario.pools[pool].hardware.gpu_nics[0], 0);
    SMALLER(s, scenario.pools[pool].hardware.nic.posts_together, 0);
    SMALLER(s, scenario.pools[pool].scheduler.chunk_tokens, 0);
    SMALLER(s, scenario.pools[pool].scheduler.reserve_output, 0);
    SMALLER(s, scenario.pools[pool].scheduler.prefix_cache, 0);
    SMALLER(s, scenario.pools[pool].scheduler.repeat_max, 1);
    SMALLER(s, scenario.pools[pool].queue_max, 0);
    SMALLER(s, scenario.pools[pool].hardware.watcher_ns, 0);
    SMALLER(s, scenario.pools[pool].hardware.poll_ns, 0);
    SMALLER(s, scenario.pools[pool].hardware.arm_ns, 0);
    SMALLER(s, steps[pool].item[0].launch_ns, 0);
    if (p->layout != LAYOUT_HND && pool == 0) {
        struct drawn *changed = trial(s);
        for (uint32_t i = 0; i < changed->scenario.pool_count; i++)
            changed->scenario.pools[i].layout = LAYOUT_HND;
        keep(s);
    }
}

static bool names_pool(const char *instance, const struct pool *pool)
{
    size_t length = strlen(pool->name);
    return strncmp(instance, pool->name, length) == 0 && instance[length] == '-';
}

/* With what is to happen to its instances. */
static void remove_pool(struct drawn *drawn, uint32_t pool)
{
    struct scenario *scenario = &drawn->scenario;
    for (uint32_t i = 0; i < drawn->faults.count;) {
        const struct fault *fault = &drawn->faults.item[i];
        if (names_pool(fault->node, &scenario->pools[pool]) || names_pool(fault->to, &scenario->pools[pool]) ||
            names_pool(fault->by, &scenario->pools[pool]))
            remove_faults(&drawn->faults, i, 1);
        else
            i++;
    }
    for (uint32_t p = 0; p < scenario->pool_count; p++)
        if (strcmp(scenario->pools[p].placement.pool, scenario->pools[pool].name) == 0)
            scenario->pools[p].placement = (struct placement){.kind = PLACEMENT_APART};
    scenario->pool_count--;
    for (uint32_t p = pool; p < scenario->pool_count; p++) {
        scenario->pools[p] = scenario->pools[p + 1];
        drawn->steps[p] = drawn->steps[p + 1];
        drawn->pages[p] = drawn->pages[p + 1];
        scenario->pools[p].hardware.steps = &drawn->steps[p];
    }
    for (uint32_t p = 0; p < scenario->pool_count; p++)
        fuzz_fit(drawn, p); /* it may have been the one that drafts */
}

/* One that others cannot do without is refused, which is not the failure in hand. */
static void fewer_pools(struct shrinking *s)
{
    for (uint32_t pool = s->best->scenario.pool_count; pool-- > 0 && s->best->scenario.pool_count > 1;) {
        remove_pool(trial(s), pool);
        keep(s);
    }
}

static void fewer_layers(struct shrinking *s)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < s->best->scenario.pool_count; i++)
        most = max_u32(most, s->best->scenario.pools[i].shardings[0].pipeline);
    if (s->best->scenario.model.layers <= most)
        return;
    struct drawn *changed = trial(s);
    changed->scenario.model.layers = changed->scenario.model.full_layers = most;
    for (uint32_t i = 0; i < changed->scenario.pool_count; i++)
        fuzz_fit(changed, i);
    keep(s);
}

static void no_tail(struct shrinking *s)
{
    if (s->best->scenario.model.tail_writes == 0)
        return;
    struct drawn *changed = trial(s);
    changed->scenario.model.tail_writes = changed->scenario.model.tail_bytes = 0;
    keep(s);
}

static void simpler_policies(struct shrinking *s)
{
    if (memcmp(&s->best->scenario.admission, &(struct admission_policy){0}, sizeof(struct admission_policy)) != 0) {
        trial(s)->scenario.admission = (struct admission_policy){0};
        keep(s);
    }
    if (conditional_is_on(&s->best->scenario.conditional)) {
        trial(s)->scenario.conditional = (struct conditional_policy){0};
        keep(s);
    }
    bool drops = false;
    for (uint32_t i = 0; i < s->best->faults.count; i++)
        drops = drops || s->best->faults.item[i].kind == FAULT_DROP;
    if (!drops) /* what is lost nothing else makes good */
        SMALLER(s, scenario.messenger.deadline_ns, TIME_NEVER);
    SMALLER(s, scenario.messenger.attempts_max, 1);
    SMALLER(s, scenario.messenger.handoffs_max, 1);
    if (s->best->scenario.decode_router != ROUTER_ROUND_ROBIN ||
        s->best->scenario.prefill_router != ROUTER_ROUND_ROBIN) {
        struct drawn *changed = trial(s);
        changed->scenario.decode_router = changed->scenario.prefill_router = ROUTER_ROUND_ROBIN;
        keep(s);
    }
}

uint32_t shrink(struct drawn *drawn, const struct seed_sabotage *sabotage, struct seed_result *failure)
{
    struct shrinking s = {.best = drawn, .sabotage = sabotage, .failure = failure};
    s.trial = memory_get(sizeof *s.trial);
    do {
        s.changed = false;
        fewer_faults(&s);
        fewer_requests(&s);
        fewer_pools(&s);
        for (uint32_t pool = 0; pool < s.best->scenario.pool_count; pool++)
            simpler_pool(&s, pool);
        fewer_layers(&s);
        no_tail(&s);
        simpler_policies(&s);
        simpler_load(&s);
        simpler_requests(&s);
        simpler_faults(&s);
    } while (s.changed && s.tries < TRIES_MAX);
    free(s.trial);
    return s.tries;
}
