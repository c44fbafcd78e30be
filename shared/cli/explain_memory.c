/* See explain_memory.h. */
#include "cli/explain_memory.h"

#include "world/deployment.h"

#include <inttypes.h>

#define GIB (1024.0 * 1024.0 * 1024.0)
#define MIB (1024.0 * 1024.0)

/* As the formula of footprint_kv_pages(). */
static const char *share_of(enum memory_share share)
{
    switch (share) {
    case MEMORY_SHARE_GPU:
        return "of the GPU";
    case MEMORY_SHARE_STATIC:
        return "of the GPU, activations beside it";
    case MEMORY_SHARE_FREE:
        break;
    }
    return "of what weights and activations leave";
}

static void print_capacity(const struct scenario *scenario, const struct pool *pool, uint32_t sharding, FILE *out)
{
    struct kv_capacity here;
    struct kv_capacity less;
    struct kv_capacity more;
    char error[1024];
    char ignored[1024];
    char text[64];
    if (!deployment_kv_capacity(scenario, pool, sharding, 0, &here, error, sizeof error)) {
        fprintf(out, "%s\n", error);
        return;
    }
    (void)deployment_kv_capacity(scenario, pool, sharding, -MEMORY_SHARE_POINTS_PERMILLE, &less, ignored,
                                 sizeof ignored);
    (void)deployment_kv_capacity(scenario, pool, sharding, MEMORY_SHARE_POINTS_PERMILLE, &more, ignored,
                                 sizeof ignored);
    const struct footprint *f = &here.footprint;
    parallelism_text(&pool->shardings[sharding], text, sizeof text);
    fprintf(out,
            "%s %s: %" PRIu64 " tokens of KV an instance; %" PRIu64 " with 3 points of memory share less, %" PRIu64
            " with 3 more\n"
            "  a rank: %.1f GiB, %.1f %% %s; weights %.1f GiB, activations %.1f, KV %.1f: %" PRIu64
            " pages of %.2f MiB\n",
            pool->name, text, here.tokens, less.tokens, more.tokens, (double)pool->hardware.memory_bytes / GIB,
            (double)pool->memory_utilization_permille / 10.0, share_of(pool->engine.memory_share),
            (double)f->weight_bytes / GIB, (double)f->activation_bytes / GIB, (double)f->kv_bytes / GIB, f->pages,
            (double)f->page_bytes / MIB);
}

void explain_memory_print(const struct scenario *scenario, FILE *out)
{
    fprintf(out, "\n");
    for (uint32_t p = 0; p < scenario->pool_count; p++)
        for (uint32_t s = 0; s < scenario->pools[p].sharding_count; s++)
            print_capacity(scenario, &scenario->pools[p], s, out);
}

static json_t *capacity_json(const struct scenario *scenario, const struct pool *pool, uint32_t sharding)
{
    struct kv_capacity here;
    struct kv_capacity less;
    struct kv_capacity more;
    char error[1024];
    char ignored[1024];
    char text[64];
    bool fits = deployment_kv_capacity(scenario, pool, sharding, 0, &here, error, sizeof error);
    (void)deployment_kv_capacity(scenario, pool, sharding, -MEMORY_SHARE_POINTS_PERMILLE, &less, ignored,
                                 sizeof ignored);
    (void)deployment_kv_capacity(scenario, pool, sharding, MEMORY_SHARE_POINTS_PERMILLE, &more, ignored,
                                 sizeof ignored);
    const struct footprint *f = &here.footprint;
    parallelism_text(&pool->shardings[sharding], text, sizeof text);
    json_t *json = json_pack("{s:s, s:s, s:s, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "pool", pool->name,
                             "sharding", text, "memory_share", share_of(pool->engine.memory_share), "share",
                             (double)pool->memory_utilization_permille / 1000.0, "weight_bytes",
                             (json_int_t)f->weight_bytes, "activation_bytes", (json_int_t)f->activation_bytes,
                             "kv_bytes", (json_int_t)f->kv_bytes, "page_bytes", (json_int_t)f->page_bytes, "pages",
                             (json_int_t)f->pages, "kv_tokens", (json_int_t)here.tokens, "kv_tokens_3_points_less",
                             (json_int_t)less.tokens, "kv_tokens_3_points_more", (json_int_t)more.tokens);
    if (!fits)
        json_object_set_new(json, "refused", json_string(error));
    return json;
}

void explain_memory_json(const struct scenario *scenario, json_t *json)
{
    json_t *list = json_array();
    for (uint32_t p = 0; p < scenario->pool_count; p++)
        for (uint32_t s = 0; s < scenario->pools[p].sharding_count; s++)
            json_array_append_new(list, capacity_json(scenario, &scenario->pools[p], s));
    json_object_set_new(json, "memory", list);
}
