/* See explain_step.h. */
#include "cli/explain_step.h"

#include "base/limits.h"
#include "world/deployment.h"
#include "sim/cost/device_model.h"
#include "host/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A decimal number up to `max` at *text, which moves behind it. */
static bool number_read(const char **text, uint64_t max, uint32_t *number)
{
    const char *at = *text;
    uint64_t value = 0;
    for (; *at >= '0' && *at <= '9' && value <= max; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    if (at == *text || value > max)
        return false;
    *number = (uint32_t)value;
    *text = at;
    return true;
}

bool step_wanted_read(const char *text, struct step_wanted *step, struct user_error *error)
{
    static const char prefill[] = "prefill:";
    const char *at = text;
    *step = (struct step_wanted){.prefill = strncmp(text, prefill, sizeof prefill - 1) == 0};
    if (step->prefill)
        at += sizeof prefill - 1;
    bool good = number_read(&at, REQUEST_TOKENS_MAX, &step->count) && *at == ',';
    at += good;
    good = good && number_read(&at, REQUEST_TOKENS_MAX, &step->context) && *at == '\0' && step->count > 0;
    if (!good)
        user_error_set(error, NULL, 0, "--step",
                       "'%.40s': BATCH,CONTEXT is wanted, as in 16,2048, or prefill:TOKENS,CONTEXT; numbers up to %d",
                       text, REQUEST_TOKENS_MAX);
    return good;
}

static const char *estimate_name(enum estimate estimate)
{
    switch (estimate) {
    case ESTIMATE_MEASURED:
        return "measured";
    case ESTIMATE_INTERPOLATED:
        return "interpolated";
    case ESTIMATE_MODELLED:
        return "modelled";
    }
    check_failed("a kind of estimate", __FILE__, __LINE__);
}

static const char *bound_name(enum step_bound bound)
{
    switch (bound) {
    case BOUND_COMPUTE:
        return "compute";
    case BOUND_BANDWIDTH:
        return "memory bandwidth";
    case BOUND_COMMUNICATION:
        return "communication";
    case BOUND_OVERHEAD:
        return "launch, host";
    }
    check_failed("a bound", __FILE__, __LINE__);
}

static void row_add(struct table *table, const char *name, uint32_t count, int64_t ns, int64_t step_ns)
{
    table_row(table);
    table_text(table, name);
    if (count > 0)
        table_integer(table, count);
    else
        table_none(table);
    if (count > 0)
        table_fixed(table, ns / count, 3);
    else
        table_none(table);
    table_fixed(table, ns, 6);
    table_fixed(table, step_ns > 0 ? ns * 1000 / step_ns : 0, 1);
}

static struct table *step_table(const struct device_model *model, const struct step_group *groups, uint32_t group_count,
                                const char *title)
{
    struct operator_share shares[OPERATORS_MAX];
    struct step_time time;
    uint32_t count = device_model_breakdown(model, groups, group_count, shares);
    struct table *table = table_new(title);
    device_step(model, groups, group_count, &time);
    table_column(table, "operator", "operator");
    table_column(table, "count", "times");
    table_column(table, "each_us", "each us");
    table_column(table, "total_ms", "total ms");
    table_column(table, "share_percent", "of step %");
    table_column(table, "estimate", "estimate");
    table_column(table, "bound", "bound by");
    table_column(table, "source", "source");
    for (uint32_t i = 0; i < count; i++) {
        row_add(table, shares[i].name, shares[i].rest ? 0 : shares[i].count, shares[i].ns, time.total_ns);
        table_text(table, estimate_name(shares[i].estimate));
        if (shares[i].rest)
            table_none(table);
        else
            table_text(table, bound_name(shares[i].bound));
        table_text(table, shares[i].source);
    }
    row_add(table, "step, as simulated", 0, time.total_ns, time.total_ns);
    table_none(table);
    table_text(table, bound_name(time.bound));
    table_text(table, "the sum");
    return table;
}

static bool runs(const struct pool *pool, bool prefill)
{
    return pool->role == ROLE_MIXED || pool->role == (prefill ? ROLE_PREFILL : ROLE_DECODE);
}

static void title_of(const struct pool *pool, const struct step_wanted *step, char *title, size_t size)
{
    char sharding[64];
    parallelism_text(&pool->shardings[0], sharding, sizeof sharding);
    if (step->prefill)
        snprintf(title, size, "pool %s, %s, %s: a chunk of %" PRIu32 " tokens after %" PRIu32 " cached ones",
                 pool->name, pool->hardware.name, sharding, step->count, step->context);
    else
        snprintf(title, size, "pool %s, %s, %s: %" PRIu32 " sequences decode with %" PRIu32 " tokens each", pool->name,
                 pool->hardware.name, sharding, step->count, step->context);
}

static struct table *pool_step(const struct scenario *scenario, const struct pool *pool, const struct step_wanted *step,
                               struct user_error *error)
{
    struct user_error why = {.set = false};
    char title[256];
    uint32_t count = pool->shardings[0].data;
    struct device_model *model = device_model_of_pool(scenario, pool, pool->shardings[0], &why);
    if (model == NULL) {
        user_error_set(error, scenario->path, 0, pool->name, "%s", why.text);
        return NULL;
    }
    struct step_group *groups = memory_zeroed(count, sizeof *groups);
    for (uint32_t g = 0; g < count; g++) {
        uint64_t tokens = step->count;
        if (step->prefill)
            groups[g] = (struct step_group){.prefill_sequences = 1,
                                            .prefill_tokens = tokens,
                                            .prefill_context = step->context,
                                            .prefill_pairs = tokens * step->context + tokens * (tokens + 1) / 2};
        else
            groups[g] = (struct step_group){.decode_sequences = step->count, .decode_context = tokens * step->context};
    }
    title_of(pool, step, title, sizeof title);
    struct table *table = step_table(model, groups, count, title);
    free(groups);
    device_model_free(model);
    return table;
}

bool explain_step(const struct scenario *scenario, const struct step_wanted *step, const struct output *output,
                  struct user_error *error)
{
    json_t *pools = json_array();
    uint32_t shown = 0;
    for (uint32_t p = 0; p < scenario->pool_count && !error->set; p++) {
        const struct pool *pool = &scenario->pools[p];
        if (!runs(pool, step->prefill))
            continue;
        struct table *table = pool_step(scenario, pool, step, error);
        if (table == NULL)
            break;
        if (output->format == OUTPUT_JSON)
            json_array_append_new(pools, json_pack("{s:s, s:o}", "pool", pool->name, "operators", table_json(table)));
        else
            output_table(output, table);
        table_free(table);
        shown++;
    }
    if (!error->set && shown == 0)
        user_error_set(error, scenario->path, 0, "pools", "--step wants a pool that %s, and there is none",
                       step->prefill ? "prefills" : "decodes");
    if (!error->set && output->format == OUTPUT_JSON)
        output_json(output, pools);
    json_decref(pools);
    return !error->set;
}
