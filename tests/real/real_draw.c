/* See real_draw.h. */
#include "real/real_draw.h"

#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What is run ------------------------------------------------------------------------------------------------- */

static void fit_model(struct architecture *model)
{
    bool latent = model->attention == ATTENTION_MLA;
    model->hidden = 64;
    model->vocab = 8192; /* a machine has a MiB of memory at least: weights take it */
    model->intermediate = 128;
    model->head_dim = latent ? 0 : 16;
    model->latent_dim = latent ? 32 : 0;
    model->rope_dim = model->nope_dim = model->value_dim = latent ? 16 : 0;
    model->index_topk = model->index_heads = model->index_dim = 0;
    model->draft_layers = 0;
}

static struct parallelism fit_sharding(struct parallelism p)
{
    p.tensor = p.tensor > 1 ? 2 : 1;
    p.data = p.data > 1 && p.tensor == 1 ? 2 : 1;
    p.pipeline = p.data == 1 && p.tensor == 1 ? p.pipeline : 1;
    return p;
}

static void fit_pools(struct drawn *drawn)
{
    struct scenario *scenario = &drawn->scenario;
    uint32_t kept = 0;
    for (uint32_t p = 0; p < scenario->pool_count; p++) {
        enum node_role role = scenario->pools[p].role;
        if (kept > 0 && (role == scenario->pools[kept - 1].role || role == ROLE_MIXED))
            continue;
        struct pool *pool = &scenario->pools[kept];
        *pool = scenario->pools[p];
        pool->count = pool->count_min = pool->count_max = pool->count > 1 ? 2 : 1;
        pool->shardings[0] = fit_sharding(pool->shardings[0]);
        pool->scheduler.draft_tokens = pool->scheduler.acceptance_permille = 0;
        drawn->steps[kept] = drawn->steps[p];
        drawn->pages[kept] = drawn->pages[p];
        pool->hardware.steps = &drawn->steps[kept];
        kept++;
    }
    scenario->pool_count = kept;
    for (uint32_t p = 0; p < kept; p++)
        fuzz_fit(drawn, p);
}

static int64_t longer(int64_t ns, int64_t most)
{
    return ns == TIME_NEVER ? ns : min_i64(ns > most ? most : ns * REAL_TIMES_LONGER, most);
}

static void fit_load(struct drawn *drawn)
{
    struct load *load = &drawn->scenario.load;
    for (uint32_t i = 0; i < drawn->requests.count; i++) {
        struct listed_request *request = &drawn->requests.item[i];
        request->at_ns = longer(request->at_ns, REAL_LEAD_NS_MAX);
        request->leaves_ns = longer(request->leaves_ns, REAL_LEAD_NS_MAX);
        request->deadline_ns = longer(request->deadline_ns, REAL_LEAD_NS_MAX);
    }
    load->warmup_ns = load->duration_ns = 0;
    load->warmup_requests = 0;
    load->abort_after_ns = longer(load->abort_after_ns, REAL_LEAD_NS_MAX);
    load->deadline_ns = longer(load->deadline_ns, REAL_LEAD_NS_MAX);
    load->rate_micro_per_s = load->rate_micro_per_s / REAL_TIMES_LONGER;
    if (load->arrivals == ARRIVAL_SESSIONS)
        *load = (struct load){.arrivals = ARRIVAL_CLOSED,
                              .concurrency = 2,
                              .requests = load->requests,
                              .prompt = load->prompt,
                              .output = load->output,
                              .trace_repeat = 1,
                              .abort_permille = load->abort_permille,
                              .abort_after_ns = load->abort_after_ns,
                              .deadline_ns = load->deadline_ns};
}

/* ---- What goes wrong --------------------------------------------------------------------------------------------- */

static bool is_there(const struct drawn *drawn, const char *name)
{
    return name[0] == '\0' || real_draw_node(drawn, name) != UINT32_MAX;
}

static bool can_happen(const struct drawn *drawn, const struct fault *fault, bool killed)
{
    if (!is_there(drawn, fault->node) || !is_there(drawn, fault->to) || fault->kind == FAULT_CUT ||
        fault->kind == FAULT_NIC)
        return false;
    return fault->kind != FAULT_KILL || !killed;
}

static void fit_faults(struct drawn *drawn)
{
    struct fault_list *faults = &drawn->faults;
    uint32_t kept = 0;
    bool killed = false;
    for (uint32_t i = 0; i < faults->count; i++) {
        struct fault fault = faults->item[i];
        if (!can_happen(drawn, &fault, killed))
            continue;
        killed = killed || fault.kind == FAULT_KILL;
        fault.at_ns = longer(fault.at_ns, REAL_LEAD_NS_MAX);
        fault.delay_ns = longer(fault.delay_ns, REAL_LATE_NS_MAX);
        fault.count = fault.count == 0 || fault.count > REAL_COUNT_MAX ? REAL_COUNT_MAX : fault.count;
        fault.by[0] = '\0';
        faults->item[kept++] = fault;
    }
    faults->count = kept;
    faults->shuffle = 0;
}

/* ---- All together ------------------------------------------------------------------------------------------------ */

void real_draw(uint64_t seed, struct drawn *drawn)
{
    fuzz_draw(seed, drawn);
    struct messenger_policy *messenger = &drawn->scenario.messenger;
    fit_model(&drawn->scenario.model);
    fit_pools(drawn);
    fit_load(drawn);
    messenger->deadline_ns = max_i64(NS_PER_S / 2, min_i64(2 * NS_PER_S, messenger->deadline_ns));
    messenger->attempts_max = max_u32(5, messenger->attempts_max);
    fit_faults(drawn);
    drawn->scenario.faults = NULL;
}

uint32_t real_draw_node(const struct drawn *drawn, const char *name)
{
    uint32_t node = 1;
    for (uint32_t p = 0; p < drawn->scenario.pool_count; p++) {
        const struct pool *pool = &drawn->scenario.pools[p];
        size_t length = strlen(pool->name);
        if (strncmp(name, pool->name, length) == 0 && name[length] == '-') {
            uint32_t index = (uint32_t)strtoul(name + length + 1, NULL, 10);
            return index < pool->count ? node + index : UINT32_MAX;
        }
        node += pool->count;
    }
    return UINT32_MAX;
}

uint32_t real_draw_instances(const struct drawn *drawn)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < drawn->scenario.pool_count; p++)
        count += drawn->scenario.pools[p].count;
    return count;
}

bool real_draw_loses(const struct drawn *drawn)
{
    bool loses = false;
    for (uint32_t i = 0; i < drawn->faults.count; i++) {
        enum fault_kind kind = drawn->faults.item[i].kind;
        loses = loses || kind == FAULT_KILL || kind == FAULT_FAIL || kind == FAULT_DROP;
    }
    return loses;
}
