/* See explain_transfer.h. */
#include "cli/explain_transfer.h"

#include "base/arith.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What the plan's numbers come to for one prompt. */
struct transfer_totals {
    uint32_t units;
    uint32_t source_pages;
    uint32_t destination_pages;
    uint64_t writes_per_layer;
    uint64_t expected;
    uint64_t bytes;
};

static struct transfer_totals transfer_totals(const struct transfer_plan *plan, uint32_t tokens, uint32_t tail_writes)
{
    uint32_t units = transfer_units(plan, tokens);
    uint32_t behind = transfer_units_behind(plan->window, plan->unit_tokens, tokens);
    uint64_t left_out = 0; /* of windowed layers */
    uint64_t bytes_left_out = 0;
    if (behind > 0) {
        left_out = mul_u64(behind, plan->writes_per_unit - plan->behind->writes_per_unit);
        bytes_left_out = mul_u64(behind, plan->bytes_per_unit - plan->behind->bytes_per_unit);
    }
    /* The same ranks and heads meet in every layer, so layers have equal shares. */
    CHECK(plan->writes_per_unit % plan->layers == 0);
    return (struct transfer_totals){
        .units = units,
        .source_pages = ceil_div_u32(units, plan->source_units_per_page),
        .destination_pages = ceil_div_u32(units, plan->destination_units_per_page),
        .writes_per_layer = mul_u64(plan->writes_per_unit / plan->layers, units),
        .expected = transfer_expected(plan, units, tail_writes) - left_out,
        .bytes = mul_u64(plan->bytes_per_unit, units) - bytes_left_out,
    };
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static json_t *pair_json(const struct transfer_pair *pair)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "source_rank", (json_int_t)pair->source_rank,
        "destination_rank", (json_int_t)pair->destination_rank, "layer_first", (json_int_t)pair->layer_first,
        "layer_count", (json_int_t)pair->layer_count, "runs", (json_int_t)pair->runs, "run_bytes",
        (json_int_t)pair->run_bytes, "source_offset", (json_int_t)pair->source_offset, "destination_offset",
        (json_int_t)pair->destination_offset, "source_run_stride", (json_int_t)pair->source_run_stride,
        "destination_run_stride", (json_int_t)pair->destination_run_stride, "source_unit_stride",
        (json_int_t)pair->source_unit_stride, "destination_unit_stride", (json_int_t)pair->destination_unit_stride);
}

json_t *explain_transfer_json(const struct transfer_plan *plan, uint32_t tokens, uint32_t tail_writes)
{
    struct transfer_totals totals = transfer_totals(plan, tokens, tail_writes);
    json_t *pairs = json_array();
    for (uint32_t i = 0; i < plan->pair_count; i++) {
        if (json_array_append_new(pairs, pair_json(&plan->pairs[i])) != 0) {
            json_decref(pairs);
            return NULL;
        }
    }
    /* "o" takes over the reference to pairs, also when packing fails. */
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "tokens", (json_int_t)tokens,
                     "unit_tokens", (json_int_t)plan->unit_tokens, "units", (json_int_t)totals.units, "source_pages",
                     (json_int_t)totals.source_pages, "pages", (json_int_t)totals.destination_pages, "planes",
                     (json_int_t)plan->planes + plan->pairs[plan->pair_count - 1].plane_first, "layers",
                     (json_int_t)plan->layers, "n_expected", (json_int_t)totals.expected, "tail_writes",
                     (json_int_t)tail_writes, "writes_per_layer", (json_int_t)totals.writes_per_layer, "bytes",
                     (json_int_t)totals.bytes, "pairs", pairs);
}

/* ---- Table ----------------------------------------------------------------------------------------------------- */

enum { COLUMNS = 8, CELL_SIZE = 40 };

static const char *const headings[COLUMNS] = {"source ranks", "",          "destination ranks", "layers",
                                              "runs",         "run bytes", "source offset",     "destination offset"};

struct row {
    char cell[COLUMNS][CELL_SIZE];
};

/* Pairs of one row: count of them, from `first` on, by equal steps of both ranks. */
struct pair_series {
    const struct transfer_pair *first;
    uint32_t count;
    int32_t source_step;
    int32_t destination_step;
};

static bool pairs_alike(const struct transfer_pair *a, const struct transfer_pair *b)
{
    return a->layer_first == b->layer_first && a->layer_count == b->layer_count && a->runs == b->runs &&
           a->run_bytes == b->run_bytes && a->source_offset == b->source_offset &&
           a->destination_offset == b->destination_offset;
}

/* Whether `pair` is the next of the series; the second pair sets the steps. */
static bool series_take(struct pair_series *series, const struct transfer_pair *pair)
{
    int32_t source_gap = (int32_t)pair->source_rank - series->first->source_rank;
    int32_t destination_gap = (int32_t)pair->destination_rank - series->first->destination_rank;
    int32_t count = (int32_t)series->count;
    if (!pairs_alike(series->first, pair))
        return false;
    if (count == 1) {
        series->source_step = source_gap;
        series->destination_step = destination_gap;
    } else if (source_gap != count * series->source_step || destination_gap != count * series->destination_step) {
        return false;
    }
    series->count++;
    return true;
}

static void ranks_text(char *cell, uint32_t first, uint32_t count, int32_t step)
{
    int32_t last = (int32_t)first + ((int32_t)count - 1) * step;
    if (last == (int32_t)first)
        snprintf(cell, CELL_SIZE, "%" PRIu32, first);
    else if (step == 1)
        snprintf(cell, CELL_SIZE, "%" PRIu32 "-%" PRId32, first, last);
    else
        snprintf(cell, CELL_SIZE, "%" PRIu32 "-%" PRId32 " by %" PRId32, first, last, step);
}

static void row_fill(struct row *row, const struct pair_series *series)
{
    const struct transfer_pair *pair = series->first;
    uint32_t layer_last = (uint32_t)pair->layer_first + pair->layer_count - 1;
    ranks_text(row->cell[0], pair->source_rank, series->count, series->source_step);
    snprintf(row->cell[1], CELL_SIZE, "->");
    ranks_text(row->cell[2], pair->destination_rank, series->count, series->destination_step);
    ranks_text(row->cell[3], pair->layer_first, layer_last - pair->layer_first + 1, 1);
    snprintf(row->cell[4], CELL_SIZE, "%" PRIu32, pair->runs);
    snprintf(row->cell[5], CELL_SIZE, "%" PRIu32, pair->run_bytes);
    snprintf(row->cell[6], CELL_SIZE, "%" PRIu32, pair->source_offset);
    snprintf(row->cell[7], CELL_SIZE, "%" PRIu32, pair->destination_offset);
}

/* Gathers the pairs into rows, in the order of each row's first pair. Quadratic at worst, over at most
 * TRANSFER_PAIRS_MAX pairs. Returns how many rows there are. */
static uint32_t rows_gather(const struct transfer_plan *plan, struct row *rows)
{
    bool taken[TRANSFER_PAIRS_MAX] = {false};
    uint32_t row_count = 0;
    for (uint32_t i = 0; i < plan->pair_count; i++) {
        if (taken[i])
            continue;
        struct pair_series series = {.first = &plan->pairs[i], .count = 1};
        for (uint32_t j = i + 1; j < plan->pair_count; j++)
            if (!taken[j])
                taken[j] = series_take(&series, &plan->pairs[j]);
        row_fill(&rows[row_count++], &series);
    }
    return row_count;
}

static void rows_print(FILE *stream, const struct row *rows, uint32_t row_count)
{
    int width[COLUMNS];
    for (uint32_t column = 0; column < COLUMNS; column++) {
        size_t longest = strlen(headings[column]);
        for (uint32_t i = 0; i < row_count; i++)
            if (strlen(rows[i].cell[column]) > longest)
                longest = strlen(rows[i].cell[column]);
        width[column] = (int)longest;
    }
    for (uint32_t i = 0; i <= row_count; i++) {
        for (uint32_t column = 0; column < COLUMNS; column++)
            fprintf(stream, "%s%*s", column == 0 ? "" : "  ", width[column],
                    i == 0 ? headings[column] : rows[i - 1].cell[column]);
        fputc('\n', stream);
    }
}

bool explain_transfer_print(FILE *stream, const struct transfer_plan *plan, uint32_t tokens, uint32_t tail_writes)
{
    struct transfer_totals totals = transfer_totals(plan, tokens, tail_writes);
    struct row *rows = calloc(TRANSFER_PAIRS_MAX, sizeof *rows);
    if (rows == NULL)
        return false;

    fprintf(stream, "tokens           %" PRIu32 " in %" PRIu32 " units of %" PRIu32 "\n", tokens, totals.units,
            plan->unit_tokens);
    fprintf(stream,
            "pages            %" PRIu32 " of %" PRIu32 " tokens at the source, %" PRIu32 " of %" PRIu32
            " at the destination\n",
            totals.source_pages, plan->unit_tokens * plan->source_units_per_page, totals.destination_pages,
            plan->unit_tokens * plan->destination_units_per_page);
    const struct transfer_pair *last = &plan->pairs[plan->pair_count - 1];
    fprintf(stream, "planes           %u (%s)\n", (unsigned)last->plane_first + plan->planes,
            last->plane_first > 0 ? "latent and indexer keys"
            : plan->planes == 1   ? "latent"
                                  : "K and V");
    fprintf(stream, "layers           %u, %" PRIu64 " writes each\n", (unsigned)plan->layers, totals.writes_per_layer);
    if (plan->window > 0)
        fprintf(stream,
                "window           %" PRIu32 " tokens in %u layers, which leave out %" PRIu32 " units behind it\n",
                plan->window, (unsigned)(plan->layers - plan->behind->layers_carried),
                transfer_units_behind(plan->window, plan->unit_tokens, tokens));
    fprintf(stream, "bytes            %" PRIu64 "\n", totals.bytes);
    fprintf(stream, "expected N       %" PRIu64 " writes, of which %" PRIu32 " carry the tail\n\n", totals.expected,
            tail_writes);
    rows_print(stream, rows, rows_gather(plan, rows));
    fputs("\nRuns are per unit, layer and plane; offsets are those of the first page's plane on the rank.\n", stream);
    free(rows);
    return !ferror(stream);
}

/* ---- Sentences ------------------------------------------------------------------------------------------------- */

static bool heads_divide(const struct kv_geometry *g)
{
    uint32_t heads = g->kv_heads;
    uint32_t tensor = g->parallelism.tensor;
    return heads != 0 && tensor != 0 && (heads % tensor == 0 || tensor % heads == 0);
}

void explain_refusal(enum geometry_refusal refusal, const struct kv_geometry *source,
                     const struct kv_geometry *destination, char *text, size_t size)
{
    const struct kv_geometry *culprit = heads_divide(source) ? destination : source;
    switch (refusal) {
    case GEOMETRY_HEADS:
        snprintf(text, size, "KV heads (%u) and tensor-parallel ranks of the %s (%u): neither divides the other",
                 (unsigned)culprit->kv_heads, culprit == source ? "source" : "destination",
                 (unsigned)culprit->parallelism.tensor);
        return;
    case GEOMETRY_PAGE_SIZES:
        snprintf(text, size, "page sizes of the source (%u tokens) and the destination (%u): neither divides the other",
                 (unsigned)source->page_tokens, (unsigned)destination->page_tokens);
        return;
    case GEOMETRY_LAYERS:
        snprintf(text, size,
                 "layers of the source (%u) and the destination (%u) differ, or a pipeline stage holds none",
                 (unsigned)source->layers, (unsigned)destination->layers);
        return;
    case GEOMETRY_MODEL:
        snprintf(text, size,
                 "the caches differ: %u planes, %u heads of %" PRIu32 " bytes, layout %s at the source; %u planes, %u "
                 "heads of %" PRIu32 " bytes, layout %s at the destination",
                 (unsigned)source->planes, (unsigned)source->kv_heads, source->head_bytes,
                 source->layout == LAYOUT_HND ? "HND" : "NHD", (unsigned)destination->planes,
                 (unsigned)destination->kv_heads, destination->head_bytes,
                 destination->layout == LAYOUT_HND ? "HND" : "NHD");
        return;
    case GEOMETRY_OK:
    case GEOMETRY_LIMIT:
        break;
    }
    snprintf(text, size, "%s", geometry_refusal_text(refusal));
}

/* "83.9 GiB". The tenth is rounded down, in integers, so that the text is the same everywhere. */
static void gib_text(char *text, size_t size, uint64_t bytes)
{
    uint64_t tenths = mul_div_floor_u64(bytes, 10, UINT64_C(1) << 30);
    snprintf(text, size, "%" PRIu64 ".%" PRIu64 " GiB", tenths / 10, tenths % 10);
}

void explain_footprint(enum footprint_verdict verdict, const struct footprint *f, char *text, size_t size)
{
    char weights[32], activations[32], usable[32], over[32];
    uint64_t taken = f->weight_bytes + f->activation_bytes;
    gib_text(weights, sizeof weights, f->weight_bytes);
    gib_text(activations, sizeof activations, f->activation_bytes);
    gib_text(usable, sizeof usable, f->usable_bytes);
    gib_text(over, sizeof over, taken > f->usable_bytes ? taken - f->usable_bytes : 0);
    switch (verdict) {
    case FOOTPRINT_FITS:
        snprintf(text, size,
                 "weights %s + activations %s of %s on a rank leave %" PRIu64 " KV pages of %" PRIu64 " bytes", weights,
                 activations, usable, f->pages, f->page_bytes);
        return;
    case FOOTPRINT_WEIGHTS:
        snprintf(text, size, "weights %s + activations %s on a rank exceed the %s it may use by %s", weights,
                 activations, usable, over);
        return;
    case FOOTPRINT_PAGES:
        snprintf(text, size,
                 "weights %s + activations %s of %s on a rank leave less than one KV page of %" PRIu64 " bytes",
                 weights, activations, usable, f->page_bytes);
        return;
    case FOOTPRINT_HEADS:
    case FOOTPRINT_EXPERTS:
    case FOOTPRINT_GEOMETRY:
        break;
    }
    snprintf(text, size, "%s", footprint_verdict_text(verdict));
}
