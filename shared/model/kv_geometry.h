/* How one instance lays out its KV cache: which rank holds which heads of which layers, in pages of how many tokens.
 * Two instances can exchange KV only if a transfer plan exists between their geometries (transfer_plan.h).
 *
 * Ranks of an instance are numbered (stage * data + group) * tensor + t: a pipeline stage holds all attention groups,
 * a group is `tensor` consecutive ranks. KV heads are spread over the t of a group: heads per rank max(1, H / T), and
 * where T > H consecutive ranks hold copies (integer division, never modulo).
 */
#ifndef TANDEM_MODEL_KV_GEOMETRY_H
#define TANDEM_MODEL_KV_GEOMETRY_H

#include "base/limits.h"
#include "model/architecture.h"

#include <stdbool.h>
#include <stdint.h>

enum kv_layout {
    LAYOUT_HND = 1, /* heads before tokens inside a page: a head range is one contiguous run */
    LAYOUT_NHD = 2, /* tokens before heads: a head range is one run a token */
};

/* An indexer's key is index_dim values of fp8 and one scale. */
#define KV_INDEX_SCALE_BYTES 4

/* How an instance is spread over its ranks. ranks = tensor * data * pipeline. */
struct parallelism {
    uint16_t tensor;   /* tensor-parallel ranks of one attention group */
    uint16_t data;     /* data-parallel attention groups */
    uint16_t expert;   /* ranks that the routed experts are spread over; 1: experts are split by tensor parallelism */
    uint16_t pipeline; /* stages */
};

static inline bool parallelism_same(const struct parallelism *a, const struct parallelism *b)
{
    return a->tensor == b->tensor && a->data == b->data && a->expert == b->expert && a->pipeline == b->pipeline;
}

struct kv_geometry {
    uint16_t layers;
    uint16_t kv_heads;    /* H; 1 for a latent cache */
    uint16_t planes;      /* regions of a page in a layer. 2: K and V, or latent and indexer keys; 1: latent */
    uint16_t page_tokens; /* S */
    uint32_t head_bytes;  /* bytes of one head of one token in one plane: D * e */
    uint32_t index_bytes; /* the same in plane 1, where that holds an indexer's keys; 0: planes are alike */
    uint32_t window;      /* tokens that the windowed layers look back, the own one included; 0: none are windowed */
    uint16_t full_layers; /* layers that look back to the first token; spread evenly over `layers`, the last of each
                             stretch. Without a window: layers */
    enum kv_layout layout;
    struct parallelism parallelism;
    uint16_t stage_layer_first[STAGES_MAX + 1]; /* global ids; stage s holds [first[s], first[s + 1]) */
};

enum geometry_refusal {
    GEOMETRY_OK = 0,
    GEOMETRY_HEADS = 1,      /* neither H % T == 0 nor T % H == 0 */
    GEOMETRY_PAGE_SIZES = 2, /* neither page size divides the other */
    GEOMETRY_LAYERS = 3,     /* layer ids or counts differ, or a stage is empty */
    GEOMETRY_MODEL = 4,      /* planes, head bytes, head count or layout differ, or a KV format that has no cache */
    GEOMETRY_LIMIT = 5,      /* a size is 0, or a limit of base/limits.h is exceeded */
};

/* The geometry of `architecture` served with `parallelism`; layers are dealt to stages evenly, the first stages taking
 * one more where they do not divide. Refuses what cannot be laid out. */
enum geometry_refusal kv_geometry_make(const struct architecture *architecture, struct parallelism parallelism,
                                       uint32_t page_tokens, enum kv_layout layout, struct kv_geometry *geometry);

/* Whether a geometry, from wherever it came, can be laid out. GEOMETRY_OK means that its heads and ranks divide, that
 * its stages are a partition of its layers into non-empty ranges, that every size is within its limit, and that a
 * page's plane on one rank is below 4 GiB. */
enum geometry_refusal kv_geometry_check(const struct kv_geometry *geometry);

/* One sentence for people: "KV heads and tensor-parallel ranks: neither divides the other". */
const char *geometry_refusal_text(enum geometry_refusal refusal);

/* Bytes of one element of a KV cache; 0 for a format that no cache is kept in. */
uint32_t kv_format_bytes(enum number_format format);

static inline uint32_t kv_ranks(const struct parallelism *p)
{
    return (uint32_t)p->tensor * p->data * p->pipeline;
}

/* Heads that one rank of a group holds. */
static inline uint32_t kv_rank_heads(const struct kv_geometry *g)
{
    return g->kv_heads > g->parallelism.tensor ? (uint32_t)g->kv_heads / g->parallelism.tensor : 1;
}

/* Consecutive ranks of a group that hold the same heads. */
static inline uint32_t kv_replicas(const struct kv_geometry *g)
{
    return g->parallelism.tensor > g->kv_heads ? (uint32_t)g->parallelism.tensor / g->kv_heads : 1;
}

/* Of the first `end` layers, those without a window. */
static inline uint32_t kv_full_layers(const struct kv_geometry *g, uint32_t end)
{
    return g->window == 0 ? end : (uint32_t)((uint64_t)end * g->full_layers / g->layers);
}

/* The first token whose KV the windowed layers still read when `tokens` tokens are there and the next is computed. */
static inline uint32_t kv_window_first(uint32_t window, uint32_t tokens)
{
    return window == 0 || tokens < window ? 0 : tokens + 1 - window;
}

static inline uint32_t kv_plane_head_bytes(const struct kv_geometry *g, uint32_t plane)
{
    return plane == 1 && g->index_bytes > 0 ? g->index_bytes : g->head_bytes;
}

/* Bytes of one page of one layer and plane on one rank; of the first plane, where they are not alike. */
static inline uint64_t kv_page_plane_bytes(const struct kv_geometry *g)
{
    return (uint64_t)kv_rank_heads(g) * g->page_tokens * g->head_bytes;
}

/* Bytes that one token occupies on one rank of a stage that holds `layers` layers. */
static inline uint64_t kv_token_rank_bytes(const struct kv_geometry *g, uint32_t layers)
{
    uint64_t planes_bytes =
        g->index_bytes > 0 ? (uint64_t)g->head_bytes + g->index_bytes : (uint64_t)g->head_bytes * g->planes;
    return kv_rank_heads(g) * planes_bytes * layers;
}

static inline uint32_t kv_pages(const struct kv_geometry *g, uint32_t tokens)
{
    return tokens / g->page_tokens + (tokens % g->page_tokens != 0);
}

/* A 64-bit digest of every field, exchanged in the handshake. */
uint64_t kv_geometry_hash(const struct kv_geometry *geometry);

#endif
