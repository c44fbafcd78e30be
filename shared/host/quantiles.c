/* See quantiles.h. */
#include "host/quantiles.h"
#include "host/memory.h"
#include "host/stats.h"

#include "base/arith.h"
#include "base/check.h"

#include <stdlib.h>

#define BITS 8 /* buckets to an octave, as a power of two */
#define OCTAVE (1u << BITS)
/* Of values below two octaves each is a bucket of its own; negative ones share the first. */
#define BUCKETS (1 + 2 * OCTAVE + (62 - BITS) * OCTAVE)

struct bucket {
    uint64_t count;
    int64_t least;
    int64_t greatest;
};

struct quantiles {
    uint32_t permille[QUANTILES_MAX];
    uint32_t wanted_count;
    uint64_t count;
    int128 sum;
    int64_t max;
    struct bucket *buckets;
    /* What is wanted of which bucket: percentiles of one bucket share what is kept of it. */
    struct {
        uint32_t bucket;
        uint64_t place; /* among the values of the bucket, from 0 */
        uint32_t kept;  /* which list */
    } wanted[QUANTILES_MAX];
    struct {
        uint32_t bucket;
        uint64_t count;
        int64_t *values;
    } kept[QUANTILES_MAX];
    uint32_t kept_count;
};

static uint32_t bucket_of(int64_t value)
{
    if (value < 0)
        return 0;
    uint64_t v = (uint64_t)value;
    uint32_t shift = 0; /* the least that leaves a value below two octaves */
    for (uint32_t step = 32; step > 0; step /= 2)
        if (v >> shift >> step >= OCTAVE)
            shift += step;
    if (v >> shift >= 2 * OCTAVE)
        shift++;
    return 1 + shift * OCTAVE + (uint32_t)(v >> shift);
}

struct quantiles *quantiles_make(const uint32_t *permille, uint32_t count)
{
    CHECK(count <= QUANTILES_MAX);
    struct quantiles *quantiles = memory_zeroed(1, sizeof *quantiles);
    quantiles->buckets = memory_zeroed(BUCKETS, sizeof *quantiles->buckets);
    quantiles->max = INT64_MIN;
    quantiles->wanted_count = count;
    for (uint32_t i = 0; i < count; i++)
        quantiles->permille[i] = permille[i];
    return quantiles;
}

void quantiles_free(struct quantiles *quantiles)
{
    if (quantiles == NULL)
        return;
    for (uint32_t k = 0; k < quantiles->kept_count; k++)
        free(quantiles->kept[k].values);
    free(quantiles->buckets);
    free(quantiles);
}

void quantiles_count(struct quantiles *quantiles, int64_t value)
{
    struct bucket *bucket = &quantiles->buckets[bucket_of(value)];
    if (bucket->count == 0 || value < bucket->least)
        bucket->least = value;
    if (bucket->count == 0 || value > bucket->greatest)
        bucket->greatest = value;
    bucket->count++;
    quantiles->count++;
    quantiles->sum += value;
    quantiles->max = max_i64(quantiles->max, value);
}

/* The list that the values of a bucket are kept in, new or not. */
static uint32_t list_of(struct quantiles *quantiles, uint32_t bucket)
{
    for (uint32_t k = 0; k < quantiles->kept_count; k++)
        if (quantiles->kept[k].bucket == bucket)
            return k;
    quantiles->kept[quantiles->kept_count].bucket = bucket;
    return quantiles->kept_count++;
}

uint64_t quantiles_counted(struct quantiles *quantiles)
{
    uint64_t to_keep = 0;
    for (uint32_t i = 0; quantiles->count > 0 && i < quantiles->wanted_count; i++) {
        uint64_t place = stats_place(quantiles->count, quantiles->permille[i]);
        uint64_t below = 0;
        uint32_t bucket = 0;
        while (below + quantiles->buckets[bucket].count <= place)
            below += quantiles->buckets[bucket++].count;
        const struct bucket *b = &quantiles->buckets[bucket];
        quantiles->wanted[i].bucket = bucket;
        quantiles->wanted[i].place = place - below;
        if (b->least == b->greatest)
            continue;
        uint32_t lists = quantiles->kept_count;
        quantiles->wanted[i].kept = list_of(quantiles, bucket);
        if (quantiles->kept_count > lists) {
            quantiles->kept[lists].values = memory_zeroed(b->count, sizeof(int64_t));
            to_keep += b->count;
        }
    }
    return to_keep;
}

void quantiles_keep(struct quantiles *quantiles, int64_t value)
{
    uint32_t bucket = bucket_of(value);
    for (uint32_t k = 0; k < quantiles->kept_count; k++)
        if (quantiles->kept[k].bucket == bucket) {
            CHECK(quantiles->kept[k].count < quantiles->buckets[bucket].count);
            quantiles->kept[k].values[quantiles->kept[k].count++] = value;
            return;
        }
}

/* Rounded down, also below zero. */
static int64_t mean_of(int128 sum, uint64_t count)
{
    int128 mean = sum / (int128)count;
    return (int64_t)(mean - (sum % (int128)count < 0));
}

struct quantiles_result quantiles_result(struct quantiles *quantiles)
{
    struct quantiles_result result = {.count = quantiles->count};
    if (quantiles->count == 0)
        return result;
    result.mean = mean_of(quantiles->sum, quantiles->count);
    result.max = quantiles->max;
    for (uint32_t k = 0; k < quantiles->kept_count; k++) {
        CHECK(quantiles->kept[k].count == quantiles->buckets[quantiles->kept[k].bucket].count);
        stats_sort(quantiles->kept[k].values, quantiles->kept[k].count);
    }
    for (uint32_t i = 0; i < quantiles->wanted_count; i++) {
        const struct bucket *b = &quantiles->buckets[quantiles->wanted[i].bucket];
        result.at[i] = b->least == b->greatest
                           ? b->least
                           : quantiles->kept[quantiles->wanted[i].kept].values[quantiles->wanted[i].place];
    }
    return result;
}
