/* Where one element of the KV cache lies in the region of a rank (real/memory/kv_memory.h): flattened to plain numbers
 * that a kernel can take by value.
 */
#ifndef TANDEM_REAL_DEVICE_KERNELS_PAGE_H
#define TANDEM_REAL_DEVICE_KERNELS_PAGE_H

#include "real/device/kernels/kernel.h"
#include "real/memory/kv_memory.h"

struct kernel_pages {
    uint64_t plane_bytes; /* of one page: rank heads * page tokens * head bytes */
    uint32_t page_tokens;
    uint32_t pages;        /* of a plane of a layer */
    uint32_t head_bytes;   /* of one token and head */
    uint32_t head_stride;  /* from a head to the next, inside a page: HND page tokens * head bytes; NHD head bytes */
    uint32_t token_stride; /* from a token to the next: HND head bytes; NHD heads * head bytes */
    uint32_t planes;
    uint32_t element_bytes; /* 2: bf16, 1: fp8 */
};

/* `element_bytes`: kv_format_bytes() of the architecture; the geometry knows heads by their bytes alone. */
static inline struct kernel_pages kernel_pages_make(const struct kv_memory *memory, uint32_t element_bytes)
{
    const struct kv_geometry *g = &memory->geometry;
    struct kernel_pages p;
    p.plane_bytes = kv_page_plane_bytes(g);
    p.page_tokens = g->page_tokens;
    p.pages = memory->pages;
    p.head_bytes = g->head_bytes;
    p.head_stride = g->layout == LAYOUT_HND ? g->page_tokens * g->head_bytes : g->head_bytes;
    p.token_stride = g->layout == LAYOUT_HND ? g->head_bytes : kv_rank_heads(g) * g->head_bytes;
    p.planes = g->planes;
    p.element_bytes = element_bytes;
    return p;
}

/* Offset of head `head` of the token in slot `slot` of page `page`, in bytes. `layer` counts within the rank's
 * stage. */
KERNEL uint64_t kernel_page_offset(const struct kernel_pages *p, uint32_t layer, uint32_t plane, uint32_t page,
                                   uint32_t head, uint32_t slot)
{
    uint64_t base = (((uint64_t)layer * p->planes + plane) * p->pages + page) * p->plane_bytes;
    return base + (uint64_t)head * p->head_stride + (uint64_t)slot * p->token_stride;
}

KERNEL float kernel_page_load(const struct kernel_pages *p, const uint8_t *at, uint32_t element)
{
    return p->element_bytes == 2 ? kernel_bf16_float(((const uint16_t *)(const void *)at)[element])
                                 : kernel_fp8_float(at[element]);
}

KERNEL void kernel_page_store(const struct kernel_pages *p, uint8_t *at, uint32_t element, float value)
{
    if (p->element_bytes == 2)
        ((uint16_t *)(void *)at)[element] = kernel_bf16(value);
    else
        at[element] = kernel_fp8(value);
}

#endif
