/* See kv_geometry.h. */
#include "model/kv_geometry.h"

#include <string.h>

uint32_t kv_format_bytes(enum number_format format)
{
    switch (format) {
    case FORMAT_BF16:
        return 2;
    case FORMAT_FP8:
        return 1;
    case FORMAT_FP8_BLOCK:
    case FORMAT_FP4:
    case FORMAT_INT4:
        break;
    }
    return 0;
}

static bool parallelism_within_limits(const struct parallelism *p)
{
    if (p->tensor == 0 || p->data == 0 || p->pipeline == 0)
        return false;
    if (p->data > GROUPS_MAX || p->pipeline > STAGES_MAX)
        return false;
    /* Two 16-bit factors fit 32 bits; the third factor is at most STAGES_MAX, so 64 bits always hold the product. */
    return (uint64_t)p->tensor * p->data * p->pipeline <= RANKS_MAX;
}

enum geometry_refusal kv_geometry_check(const struct kv_geometry *g)
{
    const struct parallelism *p = &g->parallelism;
    if ((g->layout != LAYOUT_HND && g->layout != LAYOUT_NHD) || (g->planes != 1 && g->planes != 2))
        return GEOMETRY_MODEL;
    if (!parallelism_within_limits(p) || g->page_tokens == 0 || g->head_bytes == 0 || g->kv_heads == 0)
        return GEOMETRY_LIMIT;
    if (g->kv_heads > KV_HEADS_MAX || g->layers > LAYERS_MAX)
        return GEOMETRY_LIMIT;
    if (g->kv_heads % p->tensor != 0 && p->tensor % g->kv_heads != 0)
        return GEOMETRY_HEADS;
    /* One latent, one key: offsets of both planes are those of tokens. */
    if (g->index_bytes > 0 && (g->planes != 2 || g->kv_heads != 1))
        return GEOMETRY_MODEL;
    if (g->window > 0 && (g->full_layers == 0 || g->full_layers >= g->layers))
        return GEOMETRY_LAYERS;
    /* Offsets inside a page's plane are 32 bits. Heads and tokens are 16 bits each, so the product fits 64. */
    if (kv_page_plane_bytes(g) > UINT32_MAX || (uint64_t)g->index_bytes * g->page_tokens > UINT32_MAX)
        return GEOMETRY_LIMIT;
    if (g->stage_layer_first[0] != 0 || g->stage_layer_first[p->pipeline] != g->layers)
        return GEOMETRY_LAYERS;
    for (uint32_t stage = 0; stage < p->pipeline; stage++)
        if (g->stage_layer_first[stage] >= g->stage_layer_first[stage + 1])
            return GEOMETRY_LAYERS;
    return GEOMETRY_OK;
}

enum geometry_refusal kv_geometry_make(const struct architecture *architecture, struct parallelism parallelism,
                                       uint32_t page_tokens, enum kv_layout layout, struct kv_geometry *geometry)
{
    bool latent = architecture->attention == ATTENTION_MLA;
    uint32_t heads = latent ? 1 : architecture->kv_heads;
    uint32_t element_bytes = kv_format_bytes(architecture->kv_format);
    uint64_t head_elements =
        latent ? (uint64_t)architecture->latent_dim + architecture->rope_dim : architecture->head_dim;

    memset(geometry, 0, sizeof *geometry);
    if (element_bytes == 0 || (!latent && architecture->attention != ATTENTION_GQA))
        return GEOMETRY_MODEL;
    if (!parallelism_within_limits(&parallelism) || page_tokens > UINT16_MAX || heads > KV_HEADS_MAX ||
        architecture->layers > LAYERS_MAX || head_elements * element_bytes > UINT32_MAX)
        return GEOMETRY_LIMIT;

    geometry->layers = (uint16_t)architecture->layers;
    geometry->kv_heads = (uint16_t)heads;
    geometry->planes = latent ? 1 : 2;
    geometry->page_tokens = (uint16_t)page_tokens;
    geometry->head_bytes = (uint32_t)(head_elements * element_bytes);
    if (architecture->index_topk > 0) {
        geometry->planes = 2;
        geometry->index_bytes = architecture->index_dim + KV_INDEX_SCALE_BYTES;
    }
    geometry->full_layers = geometry->layers;
    /* Where no layer looks further back than the window, pages keep what they would anyway. */
    uint32_t full = architecture->full_layers;
    if (architecture->window > 0 && full > 0 && full < architecture->layers) {
        geometry->window = architecture->window;
        geometry->full_layers = (uint16_t)full;
    }
    geometry->layout = layout;
    geometry->parallelism = parallelism;

    uint32_t share = architecture->layers / parallelism.pipeline;
    uint32_t extra = architecture->layers % parallelism.pipeline;
    uint32_t first = 0;
    for (uint32_t stage = 0; stage < parallelism.pipeline; stage++) {
        geometry->stage_layer_first[stage] = (uint16_t)first;
        first += share + (stage < extra);
    }
    geometry->stage_layer_first[parallelism.pipeline] = (uint16_t)first;
    return kv_geometry_check(geometry);
}

const char *geometry_refusal_text(enum geometry_refusal refusal)
{
    switch (refusal) {
    case GEOMETRY_OK:
        return "the layouts can be mapped";
    case GEOMETRY_HEADS:
        return "KV heads and tensor-parallel ranks: neither divides the other";
    case GEOMETRY_PAGE_SIZES:
        return "page sizes of the two sides: neither divides the other";
    case GEOMETRY_LAYERS:
        return "layers of the two sides differ, or a pipeline stage holds none";
    case GEOMETRY_MODEL:
        return "KV planes, bytes of a head, number of KV heads or page layout differ, or the KV format is not one that "
               "a "
               "cache is kept in";
    case GEOMETRY_LIMIT:
        return "a size of the KV layout is 0 or above its limit";
    }
    return "unknown refusal";
}

/* One round of an FNV-like fold over 64-bit words; the finalizer of the caller spreads the bits. */
static uint64_t hash_fold(uint64_t hash, uint64_t value)
{
    hash ^= value;
    hash *= UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

uint64_t kv_geometry_hash(const struct kv_geometry *g)
{
    /* Field by field: padding never counts, and neither does what lies behind the last stage. */
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    hash = hash_fold(hash, g->layers);
    hash = hash_fold(hash, g->kv_heads);
    hash = hash_fold(hash, g->planes);
    hash = hash_fold(hash, g->page_tokens);
    hash = hash_fold(hash, g->head_bytes);
    hash = hash_fold(hash, (uint64_t)g->layout);
    hash = hash_fold(hash, g->parallelism.tensor);
    hash = hash_fold(hash, g->parallelism.data);
    hash = hash_fold(hash, g->parallelism.expert);
    hash = hash_fold(hash, g->parallelism.pipeline);
    for (uint32_t stage = 0; stage <= g->parallelism.pipeline && stage <= STAGES_MAX; stage++)
        hash = hash_fold(hash, g->stage_layer_first[stage]);
    if (g->index_bytes > 0)
        hash = hash_fold(hash, g->index_bytes);
    if (g->window > 0)
        hash = hash_fold(hash, (uint64_t)g->window << 16 | g->full_layers);
    hash ^= hash >> 33;
    hash *= UINT64_C(0xff51afd7ed558ccd);
    return hash ^ (hash >> 33);
}
